"""`longtail serve`: load the models, then answer until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc
import ipaddress
import sys
from collections.abc import Sequence
from pathlib import Path

from longtail.core.errors import MissingExtra, SettingError
from longtail.serve.limits import Keys, Limits

SWITCH_SECONDS = 0.0005  # between the thread that answers and the one that reads requests; five milliseconds would show in every answer
DRAIN_SECONDS = 30


def serve(
    model: Path,
    others: Sequence[str] = (),
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: Path | None = None,
    limits: Limits | None = None,
) -> None:
    """Serve the model in a folder, and others as NAME=FOLDER, until SIGTERM or Ctrl-C; then what waits is answered first."""
    if not 0 <= port < 1 << 16:
        raise SettingError(f"--port is {port}; wanted 0 to 65535.")
    known = None if keys is None else Keys.read(keys)
    try:
        import uvicorn

        from longtail.serve.app import create_app
        from longtail.serve.models import Models, named_folders
    except ImportError as error:
        raise MissingExtra("The server", "serve") from error
    models = Models(named_folders(model, others), limits)
    if known is None and not _is_local(host):
        sys.stderr.write(f"Whoever reaches {host}:{port} may ask, and change labels; --api-key-file guards it.\n")
    sys.stderr.write(f"Serving {', '.join(served.name for served in models.all())} at http://{host}:{port}/ (Ctrl-C stops)\n")
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # looking through all that torch and numba brought, now and then, would stop every answer for 0.2 s
    # lines about requests would hold the texts of GET requests; /metrics counts them instead
    config = uvicorn.Config(
        create_app(models, known), host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN_SECONDS
    )
    uvicorn.Server(config).run()


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

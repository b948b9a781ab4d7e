"""The guard around every request: who may ask, how many at once, the counting, and the answer when something breaks."""

from __future__ import annotations

import logging
import time
import traceback

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.serve.limits import Keys, Limits
from longtail.serve.metrics import Metrics

# the page is the same for everyone, and what watches over a server need not know its keys
OPEN = frozenset({"/", "/page.js", "/page.css", "/healthz", "/readyz", "/openapi.json"})
UNMEASURED = "other"
LOG = logging.getLogger("longtail.serve")


class Guard:
    """Plain ASGI, as it stands around every prediction."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, keys: Keys | None) -> None:
        self._app, self._limits, self._metrics, self._keys = app, limits, metrics, keys
        self._n_running = 0  # requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._n_running += 1
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await _say(watched, *refusal)
            else:
                await self._app(scope, receive, watched)
        except Exception as error:
            _log(error)
            if not status:
                await _say(watched, 500, "Something broke inside the server; its log says where.")
        finally:
            self._n_running -= 1
            path = getattr(scope.get("route"), "path", UNMEASURED)
            self._metrics.request(scope["method"], path, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        if self._n_running > self._limits.requests:
            return 503, f"{self._limits.requests:,} requests are being answered already; try again in a second.", {"Retry-After": "1"}
        headers = None
        if scope["method"] != "GET":
            headers = Headers(scope=scope)
            if headers.get("sec-fetch-site") == "cross-site":
                return 403, "Another site's page sent this; wanted requests from the server's own page or from programs.", {}
        if self._keys is not None and scope["path"] not in OPEN:
            headers = headers or Headers(scope=scope)
            scheme, _, token = headers.get("authorization", "").partition(" ")
            given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
            if not self._keys.know(given.encode("latin-1", "replace")):
                wanted = "wanted Authorization: Bearer KEY or X-API-Key: KEY"
                return 401, f"{'This key is not known' if given else 'No key came'}; {wanted}.", {"WWW-Authenticate": "Bearer"}
        return None


async def _say(send: Send, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
    sent = {"content-type": "application/json", "connection": "close", **(headers or {})}  # a body may be left unread
    raw = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": orjson.dumps({"error": sentence})})


def _log(error: Exception) -> None:
    """Log the place where it broke, without the message: that may hold somebody's text."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    LOG.error("%s at %s", type(error).__name__, " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames)))

"""Makes the environments of the peers: `scripts/peers [NAME...]`. One that cannot be made is named, and the others go on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from longtail.core.errors import LongtailError
from longtail.experiments.compare.peers.table import PEERS, Environment, named_peer

ROOT = Path(__file__).parents[4]
CONSTRAINTS = ROOT / "constraints.txt"
READY = "ready"  # a file in an environment that is whole: its requirements, so that other pins make it anew


def peers_folder() -> Path:
    """The folder of the environments: the one that LONGTAIL_PEERS names, or build/peers."""
    return Path(os.environ.get("LONGTAIL_PEERS") or ROOT / "build" / "peers")


def python_of(environment: Environment) -> Path | None:
    """The Python of an environment that is ready, else None."""
    folder = peers_folder() / environment.name
    ready = folder / READY
    if not ready.is_file() or ready.read_text(encoding="utf-8").split() != list(environment.requirements):
        return None
    return folder.absolute() / "bin" / "python"  # not resolved: the link is what makes it the environment's


def install(environment: Environment) -> str | None:
    """Make an environment anew. Returns None, or in one line why it could not be made."""
    folder = peers_folder() / environment.name
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    constraints = folder / "constraints.txt"
    constraints.write_text(constraints_for(environment), encoding="utf-8")
    # through the variable the constraints reach build environments too, so that nothing pulls another torch
    environ = {**os.environ, "PIP_CONSTRAINT": str(constraints.absolute()), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for command in (["-m", "pip", "install", "--quiet", *environment.requirements], ["-c", f"import {', '.join(environment.imports)}"]):
        done = subprocess.run([python, *command], env=environ, capture_output=True, text=True)
        if done.returncode:
            return reason(done.stderr)
    (folder / READY).write_text("\n".join(environment.requirements), encoding="utf-8")
    return None


def constraints_for(environment: Environment) -> str:
    """The versions that longtail itself is measured with, less those that the environment pins otherwise."""
    if not CONSTRAINTS.is_file():
        return ""
    own = {project(requirement) for requirement in environment.requirements}
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if "==" in line and not line.startswith("#") and project(line) not in own)


def project(requirement: str) -> str:
    """The name before the version, as pip compares names.

    >>> project("Sentence_Transformers[train]==6.2.0")
    'sentence-transformers'
    """
    return re.sub(r"[-_.]+", "-", re.split(r"[\[=]", requirement, maxsplit=1)[0].strip()).lower()


def reason(stderr: str) -> str:
    """The telling line of an error output: pip's first ERROR, else the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines[-1:] or ["no reason given"])[0]


def main(names: Sequence[str]) -> int:
    """Make the environments of these peers, or of all, that are not ready yet, and print which are."""
    try:
        wanted = [named_peer(name) for name in names] or list(PEERS.values())
    except LongtailError as error:
        sys.stderr.write(f"peers: {error}\n")
        return 2
    for environment in dict.fromkeys(peer.environment for peer in wanted):
        if python_of(environment) is not None:
            continue
        users = ", ".join(peer.name for peer in wanted if peer.environment == environment)
        sys.stdout.write(f"Installing {users}: {', '.join(environment.requirements)} ...\n")
        sys.stdout.flush()
        failed = install(environment)
        if failed:
            sys.stdout.write(f"Not installed: {users}: {failed}\n")
    ready = [peer.name for peer in wanted if python_of(peer.environment) is not None]
    sys.stdout.write(f"Ready: {', '.join(ready) or 'none'} (in {peers_folder()})\n")
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

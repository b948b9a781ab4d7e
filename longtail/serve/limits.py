"""Limits of requests, the keys that they need, and the refusal that is answered otherwise."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from longtail.core.checks import Positive, Range, Settings
from longtail.core.errors import DataError, SettingError

if TYPE_CHECKING:
    from starlette.requests import Request

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # all but tab and line ends
MIN_KEY_CHARACTERS = 16


@dataclass(frozen=True)
class Limits(Settings):
    """Bounds of one request and of all that wait."""

    body_bytes: Positive = 1 << 20
    text_characters: Positive = 8192
    texts: Positive = 1000  # in one request
    k: Positive = 1000
    answers: Positive = 100_000  # texts x labels that are predicted, in one request
    new_labels: Positive = 1000  # in one request
    waiting_texts: Positive = 4096
    waiting_questions: Positive = 64  # about labels, graph and reasons
    requests: Positive = 1024  # at once
    batch_texts: Positive = 64
    wait_ms: Annotated[float, Range(least=0)] = 2.0  # for other requests, where the last batch held several
    seconds: Annotated[float, Range(least=0, above=True)] = 10.0  # until an answer is given up
    reload_seconds: Annotated[float, Range(least=0)] = 2.0  # between looks at the model folders

    def check(self) -> None:
        if self.waiting_texts < self.texts:
            raise SettingError(f"{self.waiting_texts} texts may wait and {self.texts} come at once; wanted a queue as long as a request.")


class Refused(Exception):
    """A request that is answered with a status of 4xx or 5xx and one sentence."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


def check_texts(texts: Sequence[str], limits: Limits) -> None:
    """Refuse none, too many, and what is empty, too long or no text at all."""
    if not 0 < len(texts) <= limits.texts:
        raise Refused(422, f"{len(texts):,} texts came; wanted 1 to {limits.texts:,}.")
    for place, text in enumerate(texts):
        which = "The text" if len(texts) == 1 else f"Text {place}"
        if len(text) > limits.text_characters:
            raise Refused(422, f"{which} has {len(text):,} characters; wanted at most {limits.text_characters:,}.")
        if not text or text.isspace():
            raise Refused(422, f"{which} is empty; wanted at least one letter.")
        if CONTROL.search(text):
            raise Refused(422, f"{which} has control characters in it; wanted plain text.")


async def read_body(request: Request, limit: int) -> bytes:
    """The body, as long as it is JSON and short enough; what is longer is not read to its end."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # another page may send plain text here without the browser asking, but no JSON
        raise Refused(415, "The body came as another type; wanted Content-Type: application/json.")
    too_long = Refused(413, f"The body is longer than {limit:,} bytes; wanted less at once.", {"Connection": "close"})
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > limit:
        raise too_long
    parts, n_bytes = [], 0
    async for part in request.stream():
        n_bytes += len(part)
        if n_bytes > limit:
            raise too_long
        parts.append(part)
    return b"".join(parts)


class Keys:
    """Whoever knows one of these may ask. Compared in constant time, and only their digests are kept."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [sha256(key.encode()).digest() for key in keys]

    @classmethod
    def read(cls, path: Path) -> Keys:
        """From a file with a key a line; empty lines and those that begin with # count for nothing."""
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not in utf-8; wanted a key a line.") from error
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise DataError(f"{path} holds no key; wanted one a line, such as `openssl rand -hex 24` makes.")
        for number, line in enumerate(lines, start=1):
            if line in keys and len(line) < MIN_KEY_CHARACTERS:
                raise DataError(
                    f"{path}:{number}: the key is shorter than {MIN_KEY_CHARACTERS} characters; `openssl rand -hex 24` makes a good one."
                )
        return cls(keys)

    def know(self, given: bytes) -> bool:
        digest = sha256(given).digest()
        found = False
        for known in self._digests:  # all of them, so that the time gives nothing away
            found |= hmac.compare_digest(known, digest)
        return found

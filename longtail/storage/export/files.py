"""Names and contents of exported files, for all formats."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def file_name(stem: str, place: int, ending: str) -> str:
    """label-vectors.npy, label-vectors-1.npy, ...: one for each network.

    >>> file_name("labels", 0, "onnx"), file_name("labels", 2, "onnx")
    ('labels.onnx', 'labels-2.onnx')
    """
    return f"{stem}.{ending}" if place == 0 else f"{stem}-{place}.{ending}"


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


@contextmanager
def quiet() -> Iterator[None]:
    """Without the messages that libraries write while they export."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)

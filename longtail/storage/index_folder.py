"""Index folder: index.json, and the files of an index in another folder. It appears whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from longtail.core.errors import DataError, MissingExtra
from longtail.data.files import new_folder
from longtail.inference.search.kinds import KINDS
from longtail.inference.search.labels import Index, Labels
from longtail.inference.search.tune import Tuned

FORMAT = 2
ABOUT, FILES, VECTORS, BIAS = "index.json", "files", "vectors.npy", "bias.npy"
END_BYTES = 1 << 12  # at both ends of a file, by which it is recognised: reading all of it would take longer than the first answer


@contextlib.contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes this name when all is written; an earlier one stays until then."""
    fresh, old = (folder.with_name(f".{folder.name}.{what}-{os.getpid()}") for what in ("fresh", "old"))
    try:
        with new_folder(fresh) as unfinished:
            yield unfinished
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    finally:
        shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(fresh, ignore_errors=True)


def describe_index(folder: Path, mark: str, tuned: Tuned) -> None:
    """Write index.json; the files of the index lie in the folder `FILES` there."""
    files = {path.name: _ends(path) for path in sorted((folder / FILES).iterdir())}
    entry = {"mark": mark, **tuned.as_dict(), "files": files}
    (folder / ABOUT).write_text(json.dumps({"format": FORMAT, "index": entry}, indent=1), encoding="utf-8")


def open_index(folder: Path, mark: str, labels: Callable[[], Labels]) -> Index:
    """The index, mapped from its files; raises where the folder is damaged or of other label vectors.

    Args:
        mark: of the label vectors that it should be of, see `mark_of`.
        labels: gives these label vectors.
    """
    anew = f"`longtail index {folder.parent}` builds it anew."
    try:
        described = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if described["format"] != FORMAT:
            raise DataError(f"{folder} is of format {described['format']}; this longtail reads format {FORMAT}. {anew}")
        entry = described["index"]
        if entry["mark"] != mark:
            raise DataError(f"{folder} is of other label vectors than {folder.parent} has. {anew}")
        for name, ends in entry["files"].items():
            if _ends(folder / FILES / name) != ends:
                raise ValueError(f"{name} is not as it was written")
        return KINDS[entry["kind"]].open(labels(), folder / FILES, int(entry["effort"]))
    except (DataError, MissingExtra):
        raise
    except Exception as error:  # each library has errors of its own
        raise DataError(f"{folder} is damaged ({type(error).__name__}: {str(error).partition(chr(10))[0]}). {anew}") from error


def write_labels(labels: Labels, folder: Path) -> None:
    """Write concatenated vectors, which lie nowhere else in one piece, next to their index."""
    np.save(folder / VECTORS, labels.vectors)
    np.save(folder / BIAS, labels.bias)


def read_labels(folder: Path) -> Labels:
    """Read what `write_labels` wrote, mapped."""
    return Labels.of(np.asarray(np.load(folder / VECTORS, mmap_mode="r")), np.load(folder / BIAS))


def _ends(path: Path) -> str:
    """The size of a file, and a hash of its first and last bytes."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read(END_BYTES))
        file.seek(max(0, size - END_BYTES))
        digest.update(file.read())
    return f"{size} {digest.hexdigest()}"

"""Indexes in a folder of their own: index.json, and a folder of files for each that has some. They appear whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from longtail.data.files import new_folder
from longtail.errors import DataError, MissingExtra
from longtail.search.kinds import KINDS
from longtail.search.labels import Index, Labels
from longtail.search.tune import Tuned

FORMAT = 1
ABOUT = "index.json"
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


def describe_indexes(folder: Path, built: Sequence[tuple[Labels, Tuned] | None]) -> None:
    """Write index.json; the files of the first index lie in the folder "0", and so on. None stands for what has no index."""
    entries: list[dict[str, Any] | None] = []
    for place, one in enumerate(built):
        if one is None:
            entries.append(None)
            continue
        labels, tuned = one
        files = {path.name: _ends(path) for path in sorted((folder / str(place)).iterdir())}
        entries.append({"mark": labels.mark(), **tuned.told(), "files": files})
    (folder / ABOUT).write_text(json.dumps({"format": FORMAT, "indexes": entries}, indent=1), encoding="utf-8")


def open_indexes(folder: Path, searched: Sequence[Labels]) -> list[Index | None]:
    """The index of each set of label vectors, mapped; or one line that tells what is wrong with the folder."""
    anew = f"`longtail index {folder.parent}` builds it anew."
    try:
        told = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if told["format"] != FORMAT:
            raise DataError(f"{folder} is of format {told['format']}; this longtail reads format {FORMAT}. {anew}")
        entries = told["indexes"]
        if len(entries) != len(searched) or any(
            entry is not None and entry["mark"] != labels.mark() for entry, labels in zip(entries, searched, strict=True)
        ):
            raise DataError(f"{folder} is of other label vectors than {folder.parent} has. {anew}")
        found: list[Index | None] = []
        for place, (entry, labels) in enumerate(zip(entries, searched, strict=True)):
            if entry is None:
                found.append(None)
                continue
            for name, ends in entry["files"].items():
                if _ends(folder / str(place) / name) != ends:
                    raise ValueError(f"{name} is not as it was written")
            found.append(KINDS[entry["kind"]].open(labels, folder / str(place), int(entry["effort"])))
        return found
    except (DataError, MissingExtra):
        raise
    except Exception as error:  # each library has errors of its own
        raise DataError(f"{folder} is damaged ({type(error).__name__}: {str(error).partition(chr(10))[0]}). {anew}") from error


def _ends(path: Path) -> str:
    """The size of a file, and a hash of its first and last bytes."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read(END_BYTES))
        file.seek(max(0, size - END_BYTES))
        digest.update(file.read())
    return f"{size} {digest.hexdigest()}"

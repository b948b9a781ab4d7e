"""Label log: labels that were added to a model folder, or removed from it, since it was written.

`labels/000001.json`, `labels/000002.json`, ...: each file appears whole or not at all, is on disk when the call returns, and holds texts
and ids alone. Vectors of added labels are made anew when the folder is loaded, until the whole model is saved with them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from longtail.core.errors import DataError, SettingError
from longtail.core.values import Texts
from longtail.inference.new_labels import NewLabelMaker, with_labels, without_labels
from longtail.inference.trained_model import TrainedModel

FOLDER = "labels"
FILE = re.compile(r"(\d{6,})\.json")
KINDS = {"add": str, "remove": int}  # what an entry may hold a list of

Entry = Mapping[str, Sequence[str] | Sequence[int]]


def append(folder: Path, number: int, entry: Entry) -> None:
    """Write entry `number` of a model folder's log. It is on disk when this returns; killed before, the folder is as it was."""
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    _sync(folder)
    with _locked(place):
        target = place / f"{number:06d}.json"
        if target.exists():
            raise SettingError(f"The labels of {folder} were changed since they were read; load the model again.")
        unfinished = place / f".{target.name}.unfinished"  # one that a killed process left is written over
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(entry, file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(target)
        _sync(place)


def entries(folder: Path) -> list[Entry]:
    """The log of a model folder, oldest first; entries that were never acknowledged are not in it."""
    place = folder / FOLDER
    paths = place.glob("*.json") if place.is_dir() else []
    numbered = {int(match.group(1)): path for path in paths if (match := FILE.fullmatch(path.name))}
    found = []
    for number in range(1, len(numbered) + 1):
        if number not in numbered:
            raise DataError(f"{place} is not whole: {number:06d}.json is missing. Copy it again.")
        found.append(_read(numbered[number]))
    return found


def _read(path: Path) -> Entry:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        ((name, values),) = entry.items()
        kind = KINDS[name]
        is_whole = all(type(value) is kind for value in values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}). Copy it again.") from error
    if not is_whole:
        raise DataError(f"{path} is damaged (it holds neither texts to add nor ids to remove). Copy it again.")
    return dict(entry)


def replayed(model: TrainedModel, maker: NewLabelMaker, log: Sequence[Entry]) -> TrainedModel:
    """The model after all entries; labels are made in one go, since each is made from what was trained alone."""
    texts = [str(text) for entry in log for text in entry.get("add", ())]
    gone = [int(label) for entry in log for label in entry.get("remove", ())]
    if texts:
        if model.label_texts is None:
            raise DataError("Labels were added to a model whose labels have no texts; the folder holds files of different models.")
        new = Texts.of(texts)
        model = with_labels(model, new, maker.make(new))
    if gone:
        if not all(0 <= label < len(model.label_counts) for label in gone):
            raise DataError("Labels were removed that the model does not have; the folder holds files of different models.")
        model = without_labels(model, np.array(gone, np.int64))
    return model


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the lock of a killed one is let go."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    """Let names of files be on disk as well."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

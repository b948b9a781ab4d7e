"""Predictions files: JSON lines of labels and scores, or .npz; and filtering by pairs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.core.errors import DataError
from longtail.core.kernels.hits import find_hits
from longtail.core.progress import progress
from longtail.core.values import Pairs, Predictions
from longtail.data.faults import Faults
from longtail.data.files import blocks, new_file, shorten


def read_predictions(path: str | Path) -> Predictions:
    """Read `{"labels": [ids], "scores": [...]}` lines in test order, or an .npz with `ids` and `scores`.

    Labels stand best first. Scores may be left out; where given they must not rise within a row.

    Args:
        path: the file to read.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist. Wanted a predictions file: JSON lines or .npz.")
    found = _read_npz(path) if path.suffix == ".npz" else _read_json_lines(path)
    with np.errstate(invalid="ignore"):  # -inf - -inf in short rows
        rising = np.flatnonzero((np.diff(found.scores, axis=1) > 0).any(axis=1))
    if len(rising):
        raise DataError(f"{path}: row {rising[0]} has a score above the one before it ({len(rising):,} such rows). Wanted best first.")
    return found


def _read_npz(path: Path) -> Predictions:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "ids" not in arrays:
                raise DataError(f"{path}: holds {', '.join(arrays) or 'nothing'}; wanted the arrays ids and scores.")
            ids = arrays["ids"]
            scores = arrays["scores"] if "scores" in arrays else np.zeros(ids.shape, np.float32)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not an .npz file of plain arrays ({error}).") from error
    if ids.dtype.kind not in "iu" or scores.dtype.kind not in "iuf":
        raise DataError(f"{path}: ids are {ids.dtype} and scores {scores.dtype}; wanted whole numbers and floats.")
    if ids.size and not -1 <= int(ids.min()) <= int(ids.max()) < 2**31:
        raise DataError(f"{path}: ids run from {ids.min()} to {ids.max()}; wanted label ids, or -1 for an empty place.")
    return Predictions(ids.astype(np.int32), np.where(ids < 0, -np.inf, scores).astype(np.float32))


def _read_json_lines(path: Path) -> Predictions:
    rows: list[tuple[list[int], list[float]]] = []
    faults = Faults(path)
    for block in blocks(path):
        for offset, line in enumerate(block.bytes.removesuffix(b"\n").split(b"\n")):
            try:
                rows.append(_row(line))
            except ValueError as fault:
                faults.add("line", block.line + offset, str(fault))
    faults.check()
    width = max((len(labels) for labels, _ in rows), default=0)
    ids = np.full((len(rows), width), -1, np.int32)
    scores = np.full((len(rows), width), -np.inf, np.float32)
    for place, (labels, values) in enumerate(rows):
        ids[place, : len(labels)] = labels
        scores[place, : len(labels)] = values
    return Predictions(ids, scores)


def _row(line: bytes) -> tuple[list[int], list[float]]:
    came = shorten(line.decode(errors="replace"))
    try:
        row = json.loads(line)
        labels = row["labels"]
        scores = row.get("scores", [0.0] * len(labels))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f'{came!r} came; wanted {{"labels": [ids], "scores": [...]}}.') from None
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 2**31 for label in labels):
        raise ValueError(f"labels are {shorten(repr(labels))}; wanted a list of label ids, whole numbers from 0.")
    if not isinstance(scores, list) or len(scores) != len(labels) or not all(type(score) in (int, float) for score in scores):
        raise ValueError(f"scores are {shorten(repr(scores))}; wanted one number for each of {len(labels)} labels.")
    return labels, scores


def write_predictions(path: str | Path, found: Predictions) -> None:
    """Write predictions as .npz or JSON lines, by the ending of the name.

    Args:
        path: the file to write.
        found: the predictions.
    """
    path = Path(path)
    with new_file(path) as unfinished:
        if path.suffix == ".npz":
            with open(unfinished, "wb") as file:
                np.savez_compressed(file, ids=found.ids, scores=found.scores)
            return
        with open(unfinished, "w", encoding="ascii") as lines, progress(f"Writing {path.name}", len(found)) as advance:
            for ids, scores in zip(found.ids, found.scores, strict=True):
                held = ids >= 0
                row = {"labels": ids[held].tolist(), "scores": [float(str(score)) for score in scores[held]]}
                lines.write(json.dumps(row) + "\n")
                advance(1)


def drop_filtered(found: Predictions, pairs: Pairs) -> Predictions:
    """Predictions without the filtered (row, label) pairs; what follows moves up and the freed places are empty."""
    if not len(pairs) or not len(found):
        return found
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    ends = np.searchsorted(pairs[order, 0], np.arange(len(found) + 1))
    gone = find_hits(found.ids, ends, pairs[order, 1]) >= 0
    rows = np.flatnonzero(gone.any(axis=1))
    places = np.argsort(gone[rows], axis=1, kind="stable")  # what stays keeps its order
    ids, scores = found.ids.copy(), found.scores.copy()
    ids[rows] = np.take_along_axis(np.where(gone[rows], -1, ids[rows]), places, axis=1)
    scores[rows] = np.take_along_axis(np.where(gone[rows], -np.inf, scores[rows]), places, axis=1)
    return Predictions(ids, scores)


def most_filtered(pairs: Pairs | None, n_rows: int) -> int:
    """The largest number of filtered labels in one row: so many more places than k must be predicted."""
    if pairs is None or not len(pairs):
        return 0
    counts: NDArray[np.int64] = np.bincount(pairs[:, 0], minlength=n_rows)
    return int(counts.max())

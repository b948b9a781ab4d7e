"""Shared by the scripts of all peers: the rows they are given, the clock, and the files they leave behind.

A script is called as `python run_NAME.py ROWS OUT` by the Python of its peer, which has numpy and scipy but not longtail. ROWS is what
longtail/experiments/compare/peers/rows.py writes; OUT holds settings.json, and gets found.npz and result.json.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, load_npz


class Work:
    """One run of a peer."""

    def __init__(self, rows: Path, out: Path) -> None:
        self.rows, self.out = rows, out
        self.settings: dict[str, Any] = json.loads((out / "settings.json").read_text(encoding="utf-8"))
        self.k, self.seed, self.threads = (int(self.settings[name]) for name in ("k", "seed", "threads"))
        self.scratch = out / "scratch"  # for files that are not kept
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        self._seconds = {"train_seconds": 0.0, "predict_seconds": 0.0}

    @classmethod
    def from_arguments(cls) -> Work:
        """The run that this process was called for; it ends when the process that called it is gone, killed or not."""
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        return cls(Path(sys.argv[1]), Path(sys.argv[2]))

    def matrix(self, name: str) -> csr_matrix:
        """train_features, test_features or train_labels."""
        return csr_matrix(load_npz(self.rows / f"{name}.npz"))

    def texts(self, name: str) -> list[str]:
        """train, test or labels."""
        return (self.rows / f"{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]

    @contextmanager
    def training(self) -> Iterator[None]:
        """Time spent inside counts as training."""
        start = time.monotonic()
        yield
        self._seconds["train_seconds"] += time.monotonic() - start

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Time spent inside counts as prediction."""
        start = time.monotonic()
        yield
        self._seconds["predict_seconds"] += time.monotonic() - start

    def finish(self, found: tuple[NDArray[Any], NDArray[Any]], megabytes: float) -> None:
        """Write ids and scores, (n_test, k) each, and what the run took; `megabytes` is the size of the model."""
        ids, scores = found
        np.savez_compressed(self.out / "found.npz", ids=ids.astype(np.int32), scores=scores.astype(np.float32))
        result = {**self._seconds, "megabytes": megabytes, "peak_megabytes": peak_megabytes()}
        (self.out / "result.json").write_text(json.dumps(result), encoding="utf-8")
        shutil.rmtree(self.scratch)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)  # with all that it started
    os.kill(os.getpid(), signal.SIGKILL)


def empty_places(n_rows: int, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(n_rows, k) ids of -1 and scores of -inf, to be filled."""
    return np.full((n_rows, k), -1, np.int32), np.full((n_rows, k), -np.inf, np.float32)


def best_of_lists(rows: Iterable[Sequence[tuple[int, float]]], n_rows: int, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Places from (label, score) pairs a row, in any order."""
    ids, scores = empty_places(n_rows, k)
    for row, pairs in enumerate(rows):
        for place, (label, score) in enumerate(sorted(pairs, key=lambda pair: -pair[1])[:k]):
            ids[row, place], scores[row, place] = label, score
    return ids, scores


def best_of_matrix(matrix: csr_matrix, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Places from the entries of each row; of equal scores the lower id comes first."""
    ids, scores = empty_places(matrix.shape[0], k)
    for row in range(matrix.shape[0]):
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        labels, values = matrix.indices[part], matrix.data[part]
        if len(values) > k:  # a row may hold all labels, of which sorting a few is enough: those above the k-th best, and its equals
            kept = values >= np.partition(values, len(values) - k)[len(values) - k]
            labels, values = labels[kept], values[kept]
        order = np.lexsort((labels, -values))[:k]
        ids[row, : len(order)], scores[row, : len(order)] = labels[order], values[order]
    return ids, scores


def votes_of(
    neighbours: NDArray[np.int32], similarities: NDArray[np.float32], labels: csr_matrix, k: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Places from training rows that vote for their labels, each with its similarity: (n, neighbours) ids, -1 where there is none."""
    held = (neighbours >= 0) & (similarities > 0)
    ends = np.concatenate([[0], np.cumsum(held.sum(axis=1))])
    votes = csr_matrix((similarities[held], neighbours[held], ends), shape=(len(neighbours), labels.shape[0])) @ labels
    return best_of_matrix(csr_matrix(votes), k)


def folder_megabytes(folder: Path) -> float:
    """Size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def array_megabytes(*matrices: csr_matrix) -> float:
    """Size of csr matrices in memory."""
    return sum(int(array.nbytes) for matrix in matrices for array in (matrix.data, matrix.indices, matrix.indptr)) / 1e6


def peak_megabytes() -> float:
    """Peak memory of this process, from /proc on Linux, because getrusage remembers the parent's too."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)

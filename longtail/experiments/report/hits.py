"""Kept predictions of every row, compared with the true labels of the data set that they were made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Ints
from longtail.evaluation.evaluate import check_fits
from longtail.evaluation.metrics import find_matches, precision_at
from longtail.experiments.report.rows import Row

PLACES = 5
TOLERANCE = 0.01  # percent by which P@1 made anew may differ from the kept one; scores that are equal change nothing


@dataclass(frozen=True, eq=False)
class RowHits:
    """The first five labels that a row's first seed predicts for every test text, and which of them are right."""

    row: Row
    ids: Ints  # (n_test, 5)
    right: NDArray[np.bool_]  # (n_test, 5)
    truth: csr_matrix  # (n_test, n_labels)

    @property
    def n_right(self) -> NDArray[np.int64]:
        """Right labels among the five, for every test text: (n_test,)."""
        return np.asarray(self.right.sum(axis=1), np.int64)


def read_hits(rows: Sequence[Row], data: Dataset) -> list[RowHits]:
    """Read the predictions of the first seed of each row; those that do not belong to `data` are refused."""
    for row in rows:
        if row.cells[0].data != data.name:
            raise DataError(f"The cells are of {row.cells[0].data} and the data is {data.name}; wanted the data set that was compared on.")
    return [_read_hits(row, data) for row in rows]


def _read_hits(row: Row, data: Dataset) -> RowHits:
    cell = row.cells[0]
    found = cell.predictions()
    check_fits(found, data)
    matches = find_matches(found, data.test.labels)
    kept, now = cell.metrics["P@1"], 100 * float(precision_at(1, matches).mean())
    if abs(kept - now) > TOLERANCE:
        wanted = "wanted the data set that was compared on, read in the same way"
        raise DataError(f"P@1 of {row.name} is {now:.2f} on these test rows of {data.name} and {kept:.2f} in its cell; {wanted}.")
    return RowHits(row, matches.ids[:, :PLACES], matches.right[:, :PLACES], matches.truth)

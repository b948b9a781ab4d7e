"""The kept predictions of every row beside the truth of the data set that they were made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Ints
from longtail.evaluation.evaluate import check_fits
from longtail.evaluation.metrics import judge, precision_at
from longtail.experiments.report.rows import Row

PLACES = 5
TOLERANCE = 0.01  # percent by which P@1 made anew may differ from the kept one; scores that are equal change nothing


@dataclass(frozen=True, eq=False)
class Answers:
    """The first five labels that a row's first seed found for every test text."""

    row: Row
    ids: Ints  # (n_test, 5)
    right: NDArray[np.bool_]  # (n_test, 5)
    truth: csr_matrix  # (n_test, n_labels): what is right

    @property
    def hits(self) -> NDArray[np.int64]:
        """Right labels among the five, of every test text: (n_test,)."""
        return np.asarray(self.right.sum(axis=1), np.int64)


def answers_of(rows: Sequence[Row], data: Dataset) -> list[Answers]:
    """Read the predictions of the first seed of each row; that they belong to `data` is checked."""
    for row in rows:
        if row.cells[0].data != data.name:
            raise DataError(f"The cells are of {row.cells[0].data} and the data is {data.name}; wanted the data set that was compared on.")
    return [_answers(row, data) for row in rows]


def _answers(row: Row, data: Dataset) -> Answers:
    cell = row.cells[0]
    found = cell.predictions()
    check_fits(found, data)
    judged = judge(found, data.test.labels)
    kept, now = cell.metrics["P@1"], 100 * float(precision_at(1, judged).mean())
    if abs(kept - now) > TOLERANCE:
        wanted = "wanted the data set that was compared on, read in the same way"
        raise DataError(f"P@1 of {row.name} is {now:.2f} on these test rows of {data.name} and {kept:.2f} in its cell; {wanted}.")
    return Answers(row, judged.ids[:, :PLACES], judged.right[:, :PLACES], judged.truth)

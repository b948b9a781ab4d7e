"""What the tests of tensors share: ragged rows written out by hand, one seed, one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from numba import get_num_threads, set_num_threads
from torch import Tensor

from longtail.models.label_rows import LabelRows
from longtail.tokens.rows import TokenRows

N_TOKENS = 1000  # more than the tables of the tests have rows

Row = list[tuple[int, float]]


def ragged(*rows: Row) -> TokenRows:
    """Token rows of (id, weight)."""
    return TokenRows(*_tensors(rows), N_TOKENS)


def right_labels(*rows: Row) -> LabelRows:
    """Label rows of (id, relevance)."""
    return LabelRows(*_tensors(rows))


def _tensors(rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
    ids = torch.tensor([place for row in rows for place, _ in row], dtype=torch.int64)
    values = torch.tensor([value for row in rows for _, value in row], dtype=torch.float32)
    return ids, values, torch.tensor(np.cumsum([0, *map(len, rows)]))


@pytest.fixture(autouse=True)
def same_numbers() -> Iterator[None]:
    """One seed; and one thread, since on small matrices several mostly wait for each other."""
    before = torch.get_num_threads(), get_num_threads()
    torch.set_num_threads(1)
    set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before[0])
    set_num_threads(before[1])

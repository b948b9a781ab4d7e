"""What the tests of tensors share: ragged rows written out by hand, one seed, one thread."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numba import get_num_threads, set_num_threads

from longtail.models.ragged import TokenBatch


def ragged(*rows: list[tuple[int, float]]) -> TokenBatch:
    """Rows of (id, weight)."""
    ids = torch.tensor([token for row in rows for token, _ in row], dtype=torch.int64)
    weights = torch.tensor([weight for row in rows for _, weight in row], dtype=torch.float32)
    return TokenBatch(ids, weights, torch.tensor(np.cumsum([0, *map(len, rows)])))


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

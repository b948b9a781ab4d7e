"""Products of many texts with many labels, in the precision that the machine multiplies fastest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from longtail.inference.search.labels import Floats
from longtail.models.losses.all_labels import matrix_type

CPU = torch.device("cpu")


def largest_error(dim: int) -> float:
    """The largest error of `near_products` and of a sum in float32, as a share of the lengths of text and label multiplied.

    Both factors are rounded by at most 2^-9 each in bfloat16, and so is the product; sums of dim values in float32 by dim 2^-24, twice.
    """
    return dim * 2.0**-22 + (2.0**-8 + 2.0**-9 + 2.0**-16 if matrix_type(CPU) == torch.bfloat16 else 0.0)


def near_products(texts: Floats, vectors: Floats, labels_at_once: int) -> Iterator[tuple[int, NDArray[np.generic]]]:
    """(b, m) products with labels first, first + 1, ..., and that first, for all labels; each time in the same memory.

    In float32, or bfloat16 as the uint16 of its bits.
    """
    kind = matrix_type(CPU)
    small = torch.from_numpy(texts).to(kind)
    room = torch.empty(len(texts) * min(labels_at_once, len(vectors)), dtype=kind)
    for first in range(0, len(vectors), labels_at_once):
        # torch wants what it may write to, though nothing does: of vectors in a file a copy
        part = torch.from_numpy(np.require(vectors[first : first + labels_at_once], requirements=["C", "W"])).to(kind)
        near = room[: len(texts) * len(part)].view(len(texts), len(part))
        torch.mm(small, part.T, out=near)
        yield first, near.numpy() if kind == torch.float32 else near.view(torch.uint16).numpy()

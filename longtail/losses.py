"""One function per loss: (scores, targets) -> a value per row."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def bce(scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    """Binary cross-entropy, summed over a row's candidates: softplus(s) - s y.

    Args:
        scores: (b, m).
        targets: (b, m) in [0, 1].
        counted: (b, m) false where a place is empty or a repeat.
    """
    return ((functional.softplus(scores) - scores * targets) * counted).sum(dim=1)

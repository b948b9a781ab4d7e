"""One function per loss: (scores, targets) -> a value per row."""

from __future__ import annotations

import torch
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


def softmax(scores: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    """Cross-entropy against the targets of a row made to sum to 1; a row without right labels costs nothing."""
    total = (targets * counted).sum(dim=1)
    log_shares = torch.log_softmax(scores.masked_fill(~counted, -torch.inf), dim=1).masked_fill(~counted, 0.0)
    return -(log_shares * targets).sum(dim=1) / total.clamp_min(1e-6)

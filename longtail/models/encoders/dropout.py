"""Dropout that is cheap on a CPU, where torch's own takes longer over drawing a mask than a small layer over its product."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.checks import ShareBelowOne, refusal, refused
from longtail.core.errors import SettingError
from longtail.core.kernels.dropout import LEVELS, drop
from longtail.models.bits import numbers_of


class Dropout(nn.Module):
    """In training a share of the values becomes 0, others each time, and the rest grows to keep the mean; in evaluation nothing happens.

    On a CPU one seed a call comes from torch's generator, so a run that goes on from a saved generator drops the same.

    >>> Dropout(0.5).eval()(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        wanted = refusal(ShareBelowOne, share)
        if wanted is not None:
            raise SettingError(refused("dropout", share, wanted, ShareBelowOne))
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return dropped(x, self.share) if self.training else x

    def extra_repr(self) -> str:
        return str(self.share)


def dropped(x: Tensor, share: float) -> Tensor:
    """Dropout, as `Dropout` does it in training."""
    if not share:
        return x
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16):
        return functional.dropout(x, share)
    found: Tensor = _Dropped.apply(x, int(torch.randint(2**63 - 1, ())), share)
    return found


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, share: float) -> Tensor:
        ctx.seed, ctx.share = seed, share
        return _dropped(x, seed, share)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> tuple[Tensor, None, None]:
        return _dropped(wanted, ctx.seed, ctx.share), None, None


def _dropped(x: Tensor, seed: int, share: float) -> Tensor:
    level = min(round(share * LEVELS), LEVELS - 1)
    scale = LEVELS / (LEVELS - level)  # of the rounded share, so that the mean is kept exactly
    found = torch.empty_like(x, memory_format=torch.contiguous_format)
    values = x.detach().contiguous().view(-1)
    drop(numbers_of(values), np.uint64(seed), np.uint64(level), np.float32(scale), numbers_of(found.view(-1)))
    return found

"""Tensors as kernels take them."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def numbers_of(x: Tensor) -> NDArray[Any]:
    """A float32 or bfloat16 tensor on a CPU as an array, without a copy: numpy has no bfloat16, so these go as their bits, uint16."""
    numbers: NDArray[Any] = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).detach().numpy()
    return numbers

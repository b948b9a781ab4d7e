"""Several vectors of a label made into one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.encode.dropout import Dropout
from longtail.encode.spectral import SpectralLinear

MIXTURES = ("sum", "gated", "attention")


def mixture(name: str, n_parts: int, dim: int, dropout: float) -> nn.Module:
    """A module from a list of `n_parts` tensors (m, dim) to one; a single part is passed on as it is."""
    if n_parts == 1:
        return Only()
    return {"sum": Sum, "gated": Gated, "attention": Attention}[name](n_parts, dim, dropout)


class Only(nn.Module):
    """The one part there is."""

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        return parts[0]


class Sum(nn.Module):
    """All parts added up."""

    def __init__(self, n_parts: int, dim: int, dropout: float) -> None:
        super().__init__()

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts)).sum(dim=0)


class Gated(nn.Module):
    """sigmoid(gate) part, added up; a gate per part and dimension, shared by all labels (DECAF)."""

    def __init__(self, n_parts: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.gates = nn.Parameter(torch.zeros(n_parts, dim))  # each part counts half at the start

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        return (torch.sigmoid(self.gates)[:, None] * torch.stack(list(parts))).sum(dim=0)


class Attention(nn.Module):
    """Weights per label from the parts themselves (ECLARE, section 3.3): softmax of A [t(z1); t(z2); ...], t(z) = sigmoid(T ReLU(z)).

    A is divided by the root of how many numbers it reads. These are all positive and many, and Adam moves each weight as far as any
    other: at full size one step would move what the softmax sees by several units, and after a few steps one part would stand alone.
    """

    def __init__(self, n_parts: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.transform = SpectralLinear(dim, dim)  # T
        self.attention = nn.Linear(n_parts * dim, n_parts, bias=False)  # A
        self.dropout = Dropout(dropout)

    def weights(self, parts: Sequence[Tensor]) -> Tensor:
        """(m, n_parts), rows sum to 1."""
        stacked = torch.stack(list(parts), dim=1)  # (m, n_parts, dim)
        seen = torch.sigmoid(self.transform(self.dropout(functional.relu(stacked))))
        return torch.softmax(self.attention(seen.flatten(1)).float() / self.attention.in_features**0.5, dim=1)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        weights = self.weights(parts)
        return (weights[:, :, None] * torch.stack(list(parts), dim=1)).sum(dim=1)

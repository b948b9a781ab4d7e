"""Several vectors of a label made into one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.models.encoders.dropout import Dropout
from longtail.models.encoders.spectral import SpectralLinear


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
    """Weights per label from the parts themselves (ECLARE, section 3.3): softmax of A [t(z1); t(z2); ...], t(z) = sigmoid(T ReLU(z)) - 1/2.

    What the sigmoid gives is taken from its middle, and A has spectral norm 1. Numbers around 1/2 are nearly the same for all labels, and
    many: what A makes of the 1/2 alone would be one large number for all labels, which a few steps of Adam drive so far that one part
    stands alone, whatever the label. Without it weights come from what parts of a label have of their own, and are bounded.
    """

    def __init__(self, n_parts: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.transform = SpectralLinear(dim, dim)  # T
        self.attention = SpectralLinear(n_parts * dim, n_parts)  # A
        self.dropout = Dropout(dropout)

    def weights(self, parts: Sequence[Tensor]) -> Tensor:
        """(m, n_parts), rows sum to 1."""
        stacked = torch.stack(list(parts), dim=1)  # (m, n_parts, dim)
        seen = torch.sigmoid(self.transform(self.dropout(functional.relu(stacked)))) - 0.5
        return torch.softmax(self.attention(seen.flatten(1)).float(), dim=1)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        weights = self.weights(parts)
        return (weights[:, :, None] * torch.stack(list(parts), dim=1)).sum(dim=1)

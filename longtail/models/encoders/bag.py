"""A text as the weighted sum of its token vectors, through one residual block: what Astec, DECAF and ECLARE encode with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.errors import SettingError
from longtail.core.kernels.bags import few_bags
from longtail.models.encoders.dropout import Dropout, check_share
from longtail.models.encoders.spectral import SpectralLinear
from longtail.models.ragged import TokenBatch
from longtail.models.table import few, weighted_sum

BLOCKS = ("scaled", "gated", "plain")
FEW_TEXTS = 8  # for which a product of matrices is not worth its start


class ResidualBlock(nn.Module):
    """x plus a transformed ReLU(x), by a matrix of spectral norm 1 that starts as the identity.

    "scaled": lambda R dropout(ReLU(x)) + x with one learnt lambda (ECLARE, figure 2).
    "gated":  sigmoid(a) R dropout(ReLU(x)) + sigmoid(b) x with a, b per dimension (DECAF).
    """

    def __init__(self, dim: int, dropout: float, gate: str) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = SpectralLinear(dim, dim, identity=True)
        self.gate = gate
        shape = (2, dim) if gate == "gated" else (1,)
        self.weight = nn.Parameter(torch.zeros(shape) if gate == "gated" else torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.linear(self.dropout(functional.relu(x)))
        if self.gate == "gated":
            gates = torch.sigmoid(self.weight)  # (2, dim)
            return gates[0] * changed + gates[1] * x
        return self.weight * changed + x


@dataclass(frozen=True)
class Bag:
    """Settings of the bag encoder.

    Args:
        dim: of the token vectors and of the text's vector.
        dropout: after every ReLU.
        block: "scaled" and "gated" are a `ResidualBlock` and a ReLU behind it; "plain" is ReLU first, then x + ReLU(R x).
        word_dropout: the share of a text's tokens that are left out in training, new ones each time.
    """

    dim: int = 300
    dropout: float = 0.5
    block: str = "scaled"
    word_dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.block not in BLOCKS:
            raise SettingError(f"block came as {self.block!r}; wanted one of {', '.join(BLOCKS)}.")
        if self.dim < 1:
            raise SettingError(f"dim came as {self.dim}; wanted 1 or more.")
        check_share("dropout", self.dropout)
        check_share("word_dropout", self.word_dropout)

    @property
    def output_dim(self) -> int:
        return self.dim

    def build(self) -> BagEncoder:
        return BagEncoder(self)


class BagEncoder(nn.Module):
    def __init__(self, settings: Bag) -> None:
        super().__init__()
        self.settings = settings
        self.dropout = Dropout(settings.dropout)
        self.block = nn.Linear(settings.dim, settings.dim) if settings.block == "plain" else None
        self.residual = None if settings.block == "plain" else ResidualBlock(settings.dim, settings.dropout, settings.block)

    def forward(self, tokens: TokenBatch, table: Tensor) -> Tensor:
        if self.training and self.settings.word_dropout:
            kept = torch.rand_like(tokens.weights) >= self.settings.word_dropout
            tokens = TokenBatch(tokens.ids, tokens.weights * kept, tokens.offsets)
        if self.block is not None and not torch.is_grad_enabled() and not self.training and self._few(tokens, table):
            arrays = (tensor.detach().numpy() for tensor in (tokens.ids, tokens.weights, tokens.offsets, table))
            return torch.from_numpy(few_bags(*arrays, self.block.weight.detach().numpy(), self.block.bias.detach().numpy()))
        text = weighted_sum(tokens, table)  # (b, dim)
        if self.residual is not None:
            text = functional.relu(self.residual(text))
        else:
            assert self.block is not None
            text = self.dropout(functional.relu(text))
            text = text + functional.relu(self.block(text))
        vectors: Tensor = self.dropout(text)
        return vectors

    def _few(self, tokens: TokenBatch, table: Tensor) -> bool:
        return len(tokens.offsets) <= FEW_TEXTS + 1 and few(tokens, table)

    def project(self, hidden: Tensor, task: str) -> Tensor:
        """The text's vector for a task; here one vector serves all."""
        return hidden

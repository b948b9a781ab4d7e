"""A text as the weighted sum of its token vectors, through one residual block: what Astec, DECAF and ECLARE encode with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.checks import Positive, ShareBelowOne
from longtail.core.kernels.bags import few_bags
from longtail.models.encoders.base import Encoder, EncoderSettings, OnnxText
from longtail.models.encoders.context import RowContext
from longtail.models.encoders.dropout import Dropout
from longtail.models.encoders.spectral import SpectralLinear
from longtail.models.table import few, weighted_sum
from longtail.tokens.rows import TokenRows

FEW_TEXTS = 8  # for which a product of matrices is not worth its start


class ResidualBlock(nn.Module, ABC):
    """x plus a transformed ReLU(x), by a matrix of spectral norm 1 that starts as the identity."""

    weight: nn.Parameter

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = SpectralLinear(dim, dim, identity=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.combined(self.linear(self.dropout(functional.relu(x))), x)

    @abstractmethod
    def combined(self, changed: Tensor, x: Tensor) -> Tensor:
        """The block's output, of the transformed ReLU(x) and x."""


class ScaledBlock(ResidualBlock):
    """lambda R dropout(ReLU(x)) + x with one learnt lambda (ECLARE, figure 2)."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__(dim, dropout)
        self.weight = nn.Parameter(torch.ones(1))

    def combined(self, changed: Tensor, x: Tensor) -> Tensor:
        return self.weight * changed + x


class GatedBlock(ResidualBlock):
    """sigmoid(a) R dropout(ReLU(x)) + sigmoid(b) x with a, b per dimension (DECAF)."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__(dim, dropout)
        self.weight = nn.Parameter(torch.zeros(2, dim))

    def combined(self, changed: Tensor, x: Tensor) -> Tensor:
        gates = torch.sigmoid(self.weight)  # (2, dim)
        return gates[0] * changed + gates[1] * x


RESIDUAL_BLOCKS: dict[str, type[ResidualBlock]] = {"scaled": ScaledBlock, "gated": GatedBlock}


@dataclass(frozen=True)
class Bag(EncoderSettings):
    """Settings of the bag encoder.

    Args:
        dim: of the token vectors and of the text's vector.
        dropout: after every ReLU.
        block: "scaled" and "gated" are a `ResidualBlock` and a ReLU behind it; "plain" is ReLU first, then x + ReLU(R x).
        word_dropout: the share of a text's tokens that are left out in training, new ones each time.
    """

    reads_order: ClassVar[bool] = False

    dim: Positive = 300
    dropout: ShareBelowOne = 0.5
    block: Literal["scaled", "gated", "plain"] = "scaled"
    word_dropout: ShareBelowOne = 0.0

    @property
    def active_dropout(self) -> float:
        return self.dropout

    @property
    def output_dim(self) -> int:
        return self.dim

    def build(self) -> BagEncoder:
        return BagEncoder(self)


class BagEncoder(Encoder):
    """The weighted sum of a text's token vectors, through one block; behind the sum stand ReLUs and products alone."""

    is_linear_in_tokens: ClassVar[bool] = True

    def __init__(self, settings: Bag) -> None:
        super().__init__()
        self.settings = settings
        self.dropout = Dropout(settings.dropout)
        residual = RESIDUAL_BLOCKS.get(settings.block)
        self.block = nn.Linear(settings.dim, settings.dim) if residual is None else None
        self.residual = None if residual is None else residual(settings.dim, settings.dropout)

    @property
    def hidden_dim(self) -> int:
        return self.settings.dim

    def forward(self, batch: TokenRows, table: Tensor, context: RowContext | None = None) -> Tensor:
        if self.training and self.settings.word_dropout:
            kept = torch.rand_like(batch.weights) >= self.settings.word_dropout
            batch = batch.with_weights(batch.weights * kept)
        if self.block is not None and not torch.is_grad_enabled() and not self.training and self._few(batch, table):
            arrays = (tensor.detach().numpy() for tensor in (batch.ids, batch.weights, batch.offsets, table))
            return torch.from_numpy(few_bags(*arrays, self.block.weight.detach().numpy(), self.block.bias.detach().numpy()))
        text = weighted_sum(batch, table)  # (b, dim)
        if self.residual is not None:
            text = functional.relu(self.residual(text))
        else:
            assert self.block is not None
            text = self.dropout(functional.relu(text))
            text = text + functional.relu(self.block(text))
        vectors: Tensor = self.dropout(text)
        return vectors

    def _few(self, batch: TokenRows, table: Tensor) -> bool:
        return len(batch) <= FEW_TEXTS and few(batch, table)

    def onnx(self, table: Tensor, project: nn.Module, sample: TokenRows) -> OnnxText:
        inputs = {"ids": sample.ids, "weights": sample.weights, "offsets": sample.offsets}
        return OnnxText(OnnxBag(self, table, project), inputs, {"ids": {0: "tokens"}, "weights": {0: "tokens"}, "offsets": {0: "ends"}})


class OnnxBag(nn.Module):
    """The bag in operations that ONNX has: rows are summed by a product with 0 and 1."""

    def __init__(self, encoder: BagEncoder, table: Tensor, project: nn.Module) -> None:
        super().__init__()
        self.table, self.ends, self.encoder = table, project, encoder
        self.matrix = None if encoder.residual is None else encoder.residual.linear.normed_weight().detach()

    def forward(self, ids: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
        places = torch.arange(ids.shape[0])
        inside = (places[None] >= offsets[:-1, None]) & (places[None] < offsets[1:, None])  # (b, n)
        text = inside.float() @ (weights[:, None] * functional.embedding(ids, self.table))
        if self.encoder.residual is None:
            text = functional.relu(text)
            assert self.encoder.block is not None
            text = text + functional.relu(self.encoder.block(text))
        else:
            assert self.matrix is not None
            changed = functional.linear(functional.relu(text), self.matrix)
            text = functional.relu(self.encoder.residual.combined(changed, text))
        found: Tensor = self.ends(text)
        return found

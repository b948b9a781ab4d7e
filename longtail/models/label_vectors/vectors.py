"""The vectors that labels are scored with: free ones, ones made of the label's text or its neighbours' texts, and their mixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.checks import Dropout, OneOf, Positive, Settings
from longtail.core.errors import DataError, SettingError
from longtail.models.encoders.bag import RESIDUAL_BLOCKS
from longtail.models.encoders.context import RowNeighbours
from longtail.models.label_vectors.mixtures import mixture
from longtail.models.table import EveryRow, Table, weighted_sum
from longtail.tokens.ragged import with_sorted_ids
from longtail.tokens.rows import TokenRows

PARTS = ("text", "graph", "free", "encoded")
LabelParts = tuple[Annotated[str, OneOf(PARTS)], ...]
AT_ONCE = 1 << 14  # labels whose texts are summed in one go
NEARLY_ALL = 3  # a third of the labels is nearly all
FIRST_BIAS = -6.0  # a chance of 1 in 400: nearly every label is wrong for a row, and learning that by steps would take long


@dataclass(frozen=True)
class LabelVectors(Settings):
    """Settings of a tower: what label vectors are made of.

    Args:
        parts: any of "text" (the sum of its text's token vectors, LTE), "graph" (of its neighbours' texts, GALE), "free" (a vector of
            its own) and "encoded" (its text through the encoder of the inputs, as two-tower models have it).
        mix: how parts become one vector: "sum", "gated" (a learnt weight per part and dimension, DECAF), "attention" (per label, ECLARE).
        order: graph convolutions of orders 1 to this, each with a block of its own.
        convolution: "gale" (a residual block behind it), "lightgcn" (nothing behind it) or "gcn" (linear and ReLU behind it).
        start: what free vectors start as: "random", the label's text, its neighbours' texts ("graph"), or its text "encoded".
        dropout: after every ReLU of the tower.
        block: "scaled" or "gated", the residual block behind a text (see `ResidualBlock`), or "none" for the sum as it is.
        bias: a learnt constant per label in addition to its vector, as in most linear classifiers.
        unit: vectors of labels and of texts are scaled to length 1, so that scores are cosines.
    """

    parts: LabelParts = ("free",)
    mix: Literal["sum", "gated", "attention"] = "sum"
    order: Positive = 1
    convolution: Literal["gale", "lightgcn", "gcn"] = "gale"
    start: Literal["random", "text", "graph", "encoded"] = "random"
    dropout: Dropout = 0.2
    block: Literal["scaled", "gated", "none"] = "scaled"
    bias: bool = True
    unit: bool = False

    def check(self) -> None:
        if not self.parts or len(set(self.parts)) != len(self.parts):
            raise SettingError(f"parts came as {list(self.parts)}; wanted some of {', '.join(PARTS)}, each once.")

    @property
    def needs_graph(self) -> bool:
        return "graph" in self._made_of

    @property
    def sums_tokens(self) -> bool:
        """Whether vectors are made of token vectors, and so are as long as these."""
        return bool({"text", "graph"} & self._made_of)

    @property
    def needs_text(self) -> bool:
        return self.sums_tokens or "encoded" in self._made_of

    @property
    def _made_of(self) -> set[str]:
        """Parts, and what free vectors start as, which is another part or nothing."""
        return {*self.parts, self.start}

    @property
    def is_encoded(self) -> bool:
        """Whether label texts go through the encoder, as in two-tower models."""
        return "encoded" in self.parts

    @property
    def has_residual_block(self) -> bool:
        """Whether a residual block stands behind the sum of a text's token vectors."""
        return self.block in RESIDUAL_BLOCKS

    @property
    def has_only_free_parts(self) -> bool:
        """Whether vectors are made of nothing that the label's text or neighbours tell."""
        return not set(self.parts) - {"free"}

    def text_rows(self, texts: csr_matrix | None, graph: csr_matrix | None) -> list[csr_matrix]:
        """The tokens that are summed over the token table: the label's own, and those of its neighbours, order by order.

        A convolution of summed token vectors is the sum over convolved token rows, G (Z E) = (G Z) E, so the graph is
        applied to tokens once, before training, and never again.
        """
        rows: list[csr_matrix] = []
        if not {"text", "graph"} & set(self.parts):
            return rows
        if texts is None:
            raise DataError("The labels have no texts, which this recipe's label vectors are made of; type labels.parts=free.")
        if "text" in self.parts:
            rows.append(texts)
        if "graph" in self.parts:
            if graph is None:
                raise DataError("There is no label graph, which this recipe's label vectors are made of; leave graph out of labels.parts.")
            around = texts
            for _ in range(self.order):
                around = csr_matrix(graph @ around)
                rows.append(around)
        return rows

    def build(
        self, n_labels: int, dim: int, rows: Sequence[csr_matrix], device: torch.device, sequences: TokenRows | None = None
    ) -> LabelTower:
        return LabelTower(self, n_labels, dim, rows, device, sequences)


def _linear_and_relu(dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU())


def _nothing(dim: int) -> nn.Module:
    return nn.Identity()


CONVOLUTIONS: dict[str, Callable[[int], nn.Module]] = {"lightgcn": _nothing, "gcn": _linear_and_relu}  # "gale" has a residual block


class LabelTower(nn.Module):
    """Vectors and biases of labels, made when asked for, so that a step pays for the labels it scores and no others.

    Args:
        rows: what is summed over the token table, see `LabelVectors.text_rows`.
        sequences: the tokens of label texts in reading order, where a part of the vectors is "encoded".
    """

    def __init__(
        self,
        settings: LabelVectors,
        n_labels: int,
        dim: int,
        rows: Sequence[csr_matrix],
        device: torch.device,
        sequences: TokenRows | None = None,
    ) -> None:
        super().__init__()
        if "encoded" in settings.parts and sequences is None:
            raise DataError("The labels have no texts, which this recipe's label vectors are made of; type labels.parts=free.")
        self.sequences = sequences if "encoded" in settings.parts else None
        self.settings, self.n_labels, self.dim = settings, n_labels, dim
        self.neighbours: RowNeighbours | None = None  # of label texts, once an encoder has asked for their context
        self.texts = [_on(part, device) for part in rows]
        self._rows, self._every = list(rows), list[EveryRow]()
        self.blocks = nn.ModuleList(self._block(place) for place in range(len(rows)))
        self.free = Table(n_labels, dim, scale=0.02) if "free" in settings.parts else None
        self.bias = Table(n_labels, 1, scale=0.0) if settings.bias else None
        if self.bias is not None:
            nn.init.constant_(self.bias.weight, FIRST_BIAS)
        n_parts = len(rows) + (self.free is not None) + (self.sequences is not None)
        self.mix = mixture(settings.mix, n_parts, dim, settings.dropout)
        self.summed: list[Tensor] | None = None  # (n_labels, dim) each, where the token table is frozen

    def _block(self, place: int) -> nn.Module:
        if not self.settings.has_residual_block:
            return nn.Identity()
        residual = RESIDUAL_BLOCKS[self.settings.block]
        is_own_text = "text" in self.settings.parts and place == 0
        convolution = CONVOLUTIONS.get(self.settings.convolution)
        return residual(self.dim, self.settings.dropout) if is_own_text or convolution is None else convolution(self.dim)

    @torch.no_grad()
    def sum_once(self, table: Tensor) -> None:
        """The token table is frozen from here on: sum label texts now instead of in every step."""
        self.summed = [torch.cat([weighted_sum(part, table) for part in _in_pieces(rows)]) for rows in self.texts]

    @torch.no_grad()
    def start_free_at(self, rows: csr_matrix, table: Tensor) -> None:
        """Let free vectors start as sums of these token rows."""
        assert self.free is not None
        start = torch.cat([weighted_sum(part, table) for part in _in_pieces(_on(rows, table.device))])
        self.free.weight.copy_(start)

    def tokens(self, labels: Tensor | None) -> list[TokenRows]:
        """The token rows that `vectors` wants summed; none where it has their sums, or makes them of all labels at once."""
        if self.summed is not None or labels is None or self._nearly_all(labels):
            return []
        return [rows.take(labels) for rows in self.texts]

    def to_encode(self, labels: Tensor | None) -> TokenRows | None:
        """The token rows that `vectors` wants encoded."""
        if self.sequences is None:
            return None
        return self.sequences.batch() if labels is None else self.sequences.take(labels)

    def _nearly_all(self, labels: Tensor) -> bool:
        """Whether it is cheaper to sum the texts of all labels, whose order is known, than of these."""
        return bool(self.texts) and NEARLY_ALL * len(labels) >= self.n_labels and self.n_labels > AT_ONCE

    def _sums_of_all(self, table: Tensor) -> list[Tensor]:
        if not self._every:
            self._every = [EveryRow(part, table.device) for part in self._rows]
        return [every.sums(table) for every in self._every]

    def vectors(
        self, labels: Tensor | None, sums: Sequence[Tensor], table: Tensor, encoded: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Vectors (m, dim) and biases (m,) of these labels, which come without repeats; of all of them for None.

        Args:
            sums: of what `tokens` names, (m, dim) each.
            table: all token vectors, for when that was nothing.
            encoded: (m, dim) what the encoder makes of what `to_encode` names.
        """
        if self.summed is not None:
            sums = [part if labels is None else part.index_select(0, labels) for part in self.summed]
        elif labels is None:
            sums = self._sums_of_all(table)
        elif self.texts and not sums:
            sums = [part.index_select(0, labels) for part in self._sums_of_all(table)]
        parts = [block(part) for block, part in zip(self.blocks, sums, strict=True)]
        if self.free is not None:
            parts.append(self.free.weight if labels is None else self.free.rows(labels))
        if encoded is not None:
            parts.append(encoded)
        bias = None
        if self.bias is not None:
            bias = (self.bias.weight if labels is None else self.bias.rows(labels)).squeeze(1)
        made = self.mix(parts)
        return functional.normalize(made, dim=1) if self.settings.unit else made, bias


def _on(rows: csr_matrix, device: torch.device) -> TokenRows:
    rows = with_sorted_ids(rows)
    return TokenRows.from_arrays(rows.indices, rows.data, rows.indptr, rows.shape[1]).to(device)


def _in_pieces(rows: TokenRows) -> Iterator[TokenRows]:
    places = torch.arange(len(rows), device=rows.offsets.device)
    return (rows.take(part) for part in places.split(AT_ONCE))


def graph_penalty(vectors: Tensor, labels: Tensor, similarity: csr_matrix) -> Tensor:
    """The GLaS regulariser (Gandalf, equation 8) over some labels: mean of (<w_i, w_j> - S_ij)^2.

    Args:
        labels: (m,) whose vectors these are; the penalty is of the pairs among them.
        similarity: S, with 0.5 (P(i|j) + P(j|i)) off the diagonal and 1 on it.
    """
    places = labels.cpu().numpy()
    wanted = torch.from_numpy(np.ascontiguousarray(similarity[places][:, places].toarray(), dtype=np.float32)).to(vectors.device)
    return (vectors @ vectors.T - wanted).square().mean()

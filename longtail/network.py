"""Encoder and label sides over one token table, as one module; forward only."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.classify.vectors import LabelSide
from longtail.encode.batch import TokenBatch
from longtail.encode.table import Table, weighted_sum

Side = tuple[Tensor, Tensor | None]  # vectors (m, dim), biases (m,)


class Network(nn.Module):
    """A text's vector, and the vectors of what it is scored against: "labels", and "clusters" of them where a recipe has some.

    Args:
        encoder: a built encoder: `forward(tokens, table) -> hidden`, `head(hidden, task) -> (b, n)`.
        dim: what vectors of texts and labels have in common; features of an encoder that gives more are averaged down to it.
    """

    def __init__(self, table: Table, encoder: nn.Module, dim: int) -> None:
        super().__init__()
        self.table, self.encoder, self.dim = table, encoder, dim
        self.sides = nn.ModuleDict()
        self.cluster_encoder: nn.Module | None = None  # the encoder as it was when clusters were learnt, where that came first

    def forward(self, tokens: TokenBatch, wanted: Mapping[str, Tensor | None]) -> tuple[Tensor, dict[str, Side]]:
        """Hidden vectors of texts, and vectors of the labels wanted of each side (None: all), in one look at the token table."""
        named = {task: self.side(task).tokens(labels) for task, labels in wanted.items()}
        table, placed = self.table.gather([tokens, *(batch for batches in named.values() for batch in batches)])
        hidden = self.encoder(placed[0], table)
        sums = [weighted_sum(batch, table) for batch in placed[1:]]
        found = {}
        for task, labels in wanted.items():
            n = len(named[task])
            found[task] = self.side(task).vectors(labels, sums[:n], self.table.weight)
            sums = sums[n:]
        return hidden, found

    def side(self, task: str) -> LabelSide:
        side = self.sides[task]
        assert isinstance(side, LabelSide)
        return side

    def label_vectors(self, task: str, labels: Tensor) -> Side:
        """Vectors of labels that are known only after texts were encoded: a second look at the token table."""
        side = self.side(task)
        batches, sums = side.tokens(labels), []
        if batches:
            table, placed = self.table.gather(batches)
            sums = [weighted_sum(batch, table) for batch in placed]
        return side.vectors(labels, sums, self.table.weight)

    def text(self, hidden: Tensor, task: str) -> Tensor:
        """(b, dim): what a text is scored with in a task."""
        found: Tensor = self.encoder.head(hidden, task)  # type: ignore[operator]
        return fitted(found, self.dim)

    @torch.no_grad()
    def encode(self, tokens: TokenBatch, task: str = "labels") -> Tensor:
        """(b, dim) for prediction, in evaluation mode."""
        encoder = self.cluster_encoder if task == "clusters" and self.cluster_encoder is not None else self.encoder
        found: Tensor = encoder.head(encoder(tokens, self.table.weight), task)  # type: ignore[operator]
        return fitted(found, self.dim)


def fitted(vectors: Tensor, dim: int) -> Tensor:
    """Features averaged down to `dim`, as InceptionXML does where its 480 meet label vectors of 300."""
    return vectors if vectors.shape[1] == dim else functional.adaptive_avg_pool1d(vectors[:, None], dim)[:, 0]

"""Encoder and label sides over one token table, as one module; forward only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.models.encoders.transformer import TransformerEncoder
from longtail.models.label_vectors.vectors import LabelTower
from longtail.models.losses.all_labels import precision
from longtail.models.ragged import TokenBatch, joined
from longtail.models.table import Table, weighted_sum

AT_ONCE = 1 << 14  # labels whose vectors are made in one go
# For every shape of a product on a CPU torch keeps a program, up to a thousand of them and gigabytes in all. Pools and batches come in
# ever new shapes, so that few are met again.
for _setting in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_setting, "32")

VectorsAndBias = tuple[Tensor, Tensor | None]  # vectors (m, dim), biases (m,)


class Network(nn.Module):
    """A text's vector, and the vectors of what it is scored against, which stand in `sides`.

    "labels" are there always; "clusters" of them where a recipe has some; "classifiers" are a second set of label vectors, where labels
    are both encoded by their texts and learnt one by one.

    Args:
        encoder: a built encoder: `forward(tokens, table) -> hidden`, `head(hidden, task) -> (b, n)`.
        width: of what the encoder's heads give.
        dim: what vectors of texts and labels have in common; where it is not the width, a matrix is learnt from one to the other, as
            where the 480 features of InceptionXML meet label texts of 300.
    """

    def __init__(self, table: Table, encoder: nn.Module, width: int, dim: int) -> None:
        super().__init__()
        self.table, self.encoder, self.width, self.dim = table, encoder, width, dim
        self.fit = nn.Identity() if width == dim else nn.Linear(width, dim, bias=False)
        self.towers = nn.ModuleDict()
        self.cluster_encoder: nn.Module | None = None  # the encoder as it was when clusters were learnt, where that came first

    def forward(self, tokens: TokenBatch, wanted: Mapping[str, Tensor | None]) -> tuple[Tensor, dict[str, VectorsAndBias]]:
        """Hidden vectors of texts, and vectors of the labels wanted of each side (None: all), in one look at the token table."""
        asked = {task: self._asked(task, labels) for task, labels in wanted.items()}
        table, placed = self.table.gather([tokens, *(batch for batches in asked.values() for batch in batches)])
        texts, placed = [placed[0]], placed[1:]
        of_sides = {}
        for task, batches in asked.items():
            of_sides[task], placed = placed[: len(batches)], placed[len(batches) :]
            if self.tower(task).sequences is not None:
                texts.append(of_sides[task].pop())
        # texts and label texts in one go: fewer and larger products, which matters to a GPU
        hidden, *encoded = self.encoder(joined(texts), table).split([len(batch.offsets) - 1 for batch in texts])
        found = {}
        for task, labels in wanted.items():
            own = encoded.pop(0) if self.tower(task).sequences is not None else None
            found[task] = self._answered(task, labels, of_sides[task], table, own)
        return hidden, found

    def tower(self, task: str) -> LabelTower:
        tower = self.towers[task]
        assert isinstance(tower, LabelTower)
        return tower

    def label_vectors(self, task: str, labels: Tensor) -> VectorsAndBias:
        """Vectors of labels that are known only after texts were encoded: a second look at the token table."""
        batches = self._asked(task, labels)
        table, placed = self.table.gather(batches) if batches else (self.table.weight, [])
        own = None if self.tower(task).sequences is None else self.encoder(placed.pop(), table)
        return self._answered(task, labels, placed, table, own)

    def _asked(self, task: str, labels: Tensor | None) -> list[TokenBatch]:
        """Token rows of labels that are to be summed, and behind them those that are to be encoded."""
        tower = self.tower(task)
        to_encode = tower.to_encode(labels)
        return [*tower.tokens(labels), *([] if to_encode is None else [to_encode])]

    def _answered(self, task: str, labels: Tensor | None, placed: list[TokenBatch], table: Tensor, hidden: Tensor | None) -> VectorsAndBias:
        """Vectors of labels, of what `_asked` named to be summed, as rows of `table`, and of the hidden vectors of what was encoded."""
        tower = self.tower(task)
        encoded = None if hidden is None else self.fit(self.encoder.project(hidden, task))  # type: ignore[operator]
        return tower.vectors(labels, [weighted_sum(batch, table) for batch in placed], self.table.weight, encoded)

    @torch.no_grad()
    def all_label_vectors(self, task: str) -> VectorsAndBias:
        """Vectors and biases of all labels, in pieces: what prediction works with. In evaluation mode."""
        tower, table = self.tower(task), self.table.weight
        vectors, biases = [], []
        for start in range(0, tower.n_labels, AT_ONCE):
            labels = torch.arange(start, min(start + AT_ONCE, tower.n_labels), device=table.device)
            batches = [] if tower.summed is not None else [rows.take(labels) for rows in tower.texts]
            to_encode = tower.to_encode(labels)
            with self._precision() if to_encode is not None else nullcontext():
                own = None if to_encode is None else self.encoder(to_encode, table)
                found, bias = self._answered(task, labels, batches, table, own)
            vectors.append(found.float())
            biases += [] if bias is None else [bias]
        return torch.cat(vectors), torch.cat(biases) if biases else None

    def text(self, hidden: Tensor, task: str) -> Tensor:
        """(b, dim): what a text is scored with in a task."""
        found: Tensor = self.fit(self.encoder.project(hidden, task))  # type: ignore[operator]
        return functional.normalize(found, dim=1) if self.tower(task).settings.unit else found

    @torch.no_grad()
    def encode(self, tokens: TokenBatch, task: str = "labels", unit: bool = False) -> Tensor:
        """(b, dim) for prediction, in evaluation mode."""
        if task == "clusters" and self.cluster_encoder is not None:
            encoder = self.cluster_encoder
            found: Tensor = self.fit(encoder.project(encoder(tokens, self.table.weight), task))  # type: ignore[operator]
            return found
        return self.project(self.hidden(tokens), task, unit)

    @torch.no_grad()
    def hidden(self, tokens: TokenBatch) -> Tensor:
        """What all heads start from, for prediction."""
        with self._precision():
            found: Tensor = self.encoder(tokens, self.table.weight)
        return found.float()

    @torch.no_grad()
    def project(self, hidden: Tensor, task: str, unit: bool = False) -> Tensor:
        """(b, dim): what a head makes of it, for prediction."""
        found: Tensor = self.fit(self.encoder.project(hidden, task))  # type: ignore[operator]
        return functional.normalize(found, dim=1) if unit else found

    def _precision(self) -> AbstractContextManager[object]:
        """Of prediction: where products are most of the work, as on a GPU and in a transformer, that of training."""
        device = self.table.weight.device
        return precision(device) if device.type == "cuda" or isinstance(self.encoder, TransformerEncoder) else nullcontext()

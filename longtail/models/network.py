"""Network: an encoder and towers of label vectors over one token table, as one module; forward only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.errors import DataError
from longtail.models.encoders.base import Encoder
from longtail.models.encoders.context import NeighbourIndex, RowContext, RowNeighbours
from longtail.models.label_vectors.vectors import LabelTower
from longtail.models.losses.all_labels import precision
from longtail.models.table import Table, weighted_sum
from longtail.tokens.rows import TokenRows

AT_ONCE = 1 << 14  # labels whose vectors are made in one go
# For every shape of a product on a CPU torch keeps a program, up to a thousand of them and gigabytes in all. Pools and batches come in
# ever new shapes, so that few are met again.
for _setting in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_setting, "32")

VectorsAndBias = tuple[Tensor, Tensor | None]  # vectors (m, dim), biases (m,)


class Network(nn.Module):
    """Encodes texts, and has the vectors that they are scored against in its towers.

    The tower "labels" is there always; "clusters" of labels where a recipe has some; "classifiers" is a second set of label vectors, where
    labels are both encoded by their texts and learnt one by one.

    Args:
        width: dimensions of what the encoder's `project` gives.
        dim: what vectors of texts and labels have in common; where it is not the width, a matrix is learnt from one to the other, as
            where the 480 features of InceptionXML meet label texts of 300.
    """

    def __init__(self, table: Table, encoder: Encoder, width: int, dim: int) -> None:
        super().__init__()
        self.table, self.encoder, self.width, self.dim = table, encoder, width, dim
        self.fit = nn.Identity() if width == dim else nn.Linear(width, dim, bias=False)
        self.towers = nn.ModuleDict()
        self.cluster_encoder: Encoder | None = None  # the encoder as it was when clusters were learnt, where that came first
        self.neighbours: NeighbourIndex | None = None  # of training rows, for an encoder that needs context

    def forward(
        self, tokens: TokenRows, wanted: Mapping[str, Tensor | None], context: RowContext | None = None
    ) -> tuple[Tensor, dict[str, VectorsAndBias]]:
        """Hidden vectors of texts, and vectors of the labels wanted of each tower (None: all), in one look at the token table.

        Args:
            context: what surrounds the texts, for an encoder that needs context; None: that of texts that are no training rows.
        """
        asked = {task: self._asked(task, labels) for task, labels in wanted.items()}
        contexts = [self._context(tokens, context), *(self._label_context(task, labels) for task, labels in wanted.items())]
        around = [one for one in contexts if one is not None]
        own = [one.neighbours for one in around]
        table, placed = self.table.gather([tokens, *(batch for batches in asked.values() for batch in batches), *own])
        texts, placed, own = [placed[0]], placed[1 : len(placed) - len(own)], placed[len(placed) - len(own) :]
        of_towers = {}
        for task, batches in asked.items():
            of_towers[task], placed = placed[: len(batches)], placed[len(batches) :]
            if self.tower(task).sequences is not None:
                texts.append(of_towers[task].pop())
        joined = RowContext.join([one.with_neighbours(batch) for one, batch in zip(around, own, strict=True)]) if around else None
        # texts and label texts in one go: fewer and larger products, which matters to a GPU
        hidden, *encoded = self.encoder(TokenRows.join(texts), table, joined).split([len(batch) for batch in texts])
        found = {}
        for task, labels in wanted.items():
            of_labels = encoded.pop(0) if self.tower(task).sequences is not None else None
            found[task] = self._answered(task, labels, of_towers[task], table, of_labels)
        return hidden, found

    def tower(self, task: str) -> LabelTower:
        tower = self.towers[task]
        assert isinstance(tower, LabelTower)
        return tower

    def label_vectors(self, task: str, labels: Tensor) -> VectorsAndBias:
        """Vectors of labels that are known only after texts were encoded: a second look at the token table."""
        batches, context = self._asked(task, labels), self._label_context(task, labels)
        if context is not None:
            batches.insert(0, context.neighbours)
        table, placed = self.table.gather(batches) if batches else (self.table.weight, [])
        if context is not None:
            context = context.with_neighbours(placed.pop(0))
        own = None if self.tower(task).sequences is None else self.encoder(placed.pop(), table, context)
        return self._answered(task, labels, placed, table, own)

    def _context(self, tokens: TokenRows, given: RowContext | None) -> RowContext | None:
        """The context of texts; None for an encoder that needs none."""
        if not self.encoder.needs_context:
            return None
        return self._neighbours_of(tokens).all() if given is None else given

    def _label_context(self, task: str, labels: Tensor | None) -> RowContext | None:
        """The context of label texts, whose neighbours are looked for once."""
        tower = self.tower(task)
        if not self.encoder.needs_context or tower.sequences is None:
            return None
        if tower.neighbours is None:
            tower.neighbours = self._neighbours_of(tower.sequences)
        return tower.neighbours.all() if labels is None else tower.neighbours.take(labels)

    def _neighbours_of(self, tokens: TokenRows) -> RowNeighbours:
        if self.neighbours is None:
            raise DataError(
                f"{type(self.encoder).__name__} looks at neighbours of a text, and no training rows came along to find them in."
            )
        return self.neighbours.of(tokens)

    def _asked(self, task: str, labels: Tensor | None) -> list[TokenRows]:
        """Token rows of labels that are to be summed, and behind them those that are to be encoded."""
        tower = self.tower(task)
        to_encode = tower.to_encode(labels)
        return [*tower.tokens(labels), *([] if to_encode is None else [to_encode])]

    def _answered(self, task: str, labels: Tensor | None, placed: list[TokenRows], table: Tensor, hidden: Tensor | None) -> VectorsAndBias:
        """Vectors of labels, of what `_asked` named to be summed, as rows of `table`, and of the hidden vectors of what was encoded."""
        tower = self.tower(task)
        encoded = None if hidden is None else self.fit(self.encoder.project(hidden, task))
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
                own = None if to_encode is None else self.encoder(to_encode, table, self._label_context(task, labels))
                found, bias = self._answered(task, labels, batches, table, own)
            vectors.append(found.float())
            biases += [] if bias is None else [bias]
        return torch.cat(vectors), torch.cat(biases) if biases else None

    def text(self, hidden: Tensor, task: str) -> Tensor:
        """(b, dim): what a text is scored with in a task."""
        found: Tensor = self.fit(self.encoder.project(hidden, task))
        return functional.normalize(found, dim=1) if self.tower(task).settings.unit else found

    @torch.no_grad()
    def encode(self, tokens: TokenRows, task: str = "labels", unit: bool = False, context: RowContext | None = None) -> Tensor:
        """(b, dim) for prediction, in evaluation mode."""
        if task == "clusters" and self.cluster_encoder is not None:
            encoder = self.cluster_encoder
            found: Tensor = self.fit(encoder.project(encoder(tokens, self.table.weight, self._context(tokens, context)), task))
            return found
        return self.project(self.hidden(tokens, context), task, unit)

    @torch.no_grad()
    def hidden(self, tokens: TokenRows, context: RowContext | None = None) -> Tensor:
        """(b, hidden_dim): what the projections of all tasks start from, for prediction."""
        context = self._context(tokens, context)
        with self._precision():
            return self.encoder(tokens, self.table.weight, context).float()

    @torch.no_grad()
    def project(self, hidden: Tensor, task: str, unit: bool = False) -> Tensor:
        """(b, dim): the vectors of texts for a task, for prediction."""
        found: Tensor = self.fit(self.encoder.project(hidden, task))
        return functional.normalize(found, dim=1) if unit else found

    def _precision(self) -> AbstractContextManager[object]:
        """The precision of prediction: where products are most of the work, as on a GPU and in a transformer, that of training."""
        device = self.table.weight.device
        return precision(device) if device.type == "cuda" or self.encoder.is_mostly_products else nullcontext()

"""Search of all labels: the best for the vector of a text, on any device, exactly or by an index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from longtail.inference.search.exact import Exact
from longtail.inference.search.labels import Index, Labels, mark_of, marked
from longtail.models.losses.all_labels import matrix_type
from longtail.models.network import VectorsAndBias

FEW_TEXTS, MANY_LABELS = 32, 100_000  # for which an index is looked into, where there is one
EVERY = slice(None)
RESCORED = 50  # labels beyond those asked for whose scores are computed in full precision
VALUES_AT_ONCE = 1 << 25  # of label vectors that are looked up
SCORES_AT_ONCE = 1 << 25  # of labels at a time, so that memory stays bounded whatever the number of labels


@dataclass(frozen=True, eq=False)
class AllLabels:
    """Labels that are scored by a product with their vectors, and a bias."""

    n_labels: int
    label_vectors: Callable[[slice | Tensor], VectorsAndBias]  # vectors and biases of some of them
    removed: Tensor | None = None  # (n_labels,) bool: labels that are never named; None where there are none
    index: Index | None = None  # of the first labels, on a CPU; those behind them were added since

    def best(self, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """(b, k) ids and scores, best first; a removed label has -inf."""
        if text.is_cuda:
            return self._scored(text, k)
        # one product for many texts and some labels is quicker than to look labels up text by text
        if self.index is None or (len(text) > FEW_TEXTS and self.n_labels < MANY_LABELS):
            ids, scores = map(torch.from_numpy, self._exact.search(text.numpy(), k))
            return ids, scores
        return self._by_index(self.index, text, k)

    def searched(self, labels: slice | Tensor = EVERY) -> Labels:
        """The labels that an index is made of, removed ones among them; without a copy where vectors lie so. On a CPU."""
        vectors, bias = self.label_vectors(labels)
        return Labels.of(vectors.numpy(), None if bias is None else bias.numpy())

    def mark(self) -> str:
        """A hash that tells these vectors from others; reads a few of them."""
        return mark_of(self.n_labels, self.searched(torch.from_numpy(marked(self.n_labels))))

    @cached_property
    def labels(self) -> Labels:
        """All labels, with a bias of -inf for removed ones; on a CPU."""
        has_all = self.index is not None and len(self.index.labels) == self.n_labels
        labels = self.index.labels if self.index is not None and has_all else self.searched()
        return labels if self.removed is None else _without(labels, self.removed)

    @cached_property
    def _exact(self) -> Exact:
        return Exact(self.labels)

    @cached_property
    def _added(self) -> Exact | None:
        """Exact search of the labels that the index does not know, where there are some."""
        known = 0 if self.index is None else len(self.index.labels)
        if known == self.n_labels:
            return None
        labels = self.searched(slice(known, None))
        return Exact(labels if self.removed is None else _without(labels, self.removed[known:]))

    def _by_index(self, index: Index, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The best of the labels that the index knows, by exact scores, and of those that were added since."""
        known, wanted = len(index.labels), k
        while True:
            found, values = map(torch.from_numpy, index.search(text.numpy(), wanted))
            if self.removed is None:
                break
            values = values.masked_fill(self.removed[found.clamp(min=0)], -torch.inf)
            if wanted >= known or int((values > -torch.inf).sum(dim=1).min()) >= k:
                break
            wanted = min(known, 4 * wanted)  # removed labels took the places of others
        if self._added is None and self.removed is None:
            return found, values
        if self._added is not None:
            ids, scores = map(torch.from_numpy, self._added.search(text.numpy(), k))
            found, values = torch.cat([found, ids + known], dim=1), torch.cat([values, scores], dim=1)
        top = torch.topk(values, min(k, values.shape[1]), dim=1)
        return torch.gather(found, 1, top.indices), top.values

    @cached_property
    def _whole(self) -> VectorsAndBias:
        return self.label_vectors(EVERY)

    def _scored(self, text: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """All labels on a GPU, a chunk of them at a time, in low precision; the best by these scores are scored anew in float32."""
        (vectors, bias), kind = self._whole, matrix_type(text.device)
        small, wanted = text.to(kind), k + RESCORED
        chunk = max(1, SCORES_AT_ONCE // max(1, len(text)))
        ids = scores = None
        for start in range(0, len(vectors), chunk):
            part = (small @ vectors[start : start + chunk].to(kind).T).float()
            if bias is not None:
                part += bias[start : start + chunk]
            if self.removed is not None:
                part.masked_fill_(self.removed[start : start + chunk], -torch.inf)
            top = torch.topk(part, min(wanted, part.shape[1]), dim=1)
            ids = top.indices + start if ids is None else torch.cat([ids, top.indices + start], dim=1)
            scores = top.values if scores is None else torch.cat([scores, top.values], dim=1)
        assert ids is not None and scores is not None
        near = torch.topk(scores, min(wanted, scores.shape[1]), dim=1)
        ids = torch.gather(ids, 1, near.indices)
        whole = products_at(text, vectors, bias, ids).masked_fill(near.values == -torch.inf, -torch.inf)
        top = torch.topk(whole, min(k, whole.shape[1]), dim=1)
        return torch.gather(ids, 1, top.indices), top.values


def products_at(text: Tensor, vectors: Tensor, bias: Tensor | None, ids: Tensor) -> Tensor:
    """(b, m): scores of these labels, ids (b, m), in float32, on any device."""
    at_once = max(1, VALUES_AT_ONCE // max(1, ids.shape[1] * vectors.shape[1]))
    found = []
    for part, own in zip(text.split(at_once), ids.split(at_once), strict=True):
        scores = (vectors[own].float() @ part.float()[:, :, None]).squeeze(2)
        found.append(scores if bias is None else scores + bias[own])
    return torch.cat(found) if found else torch.zeros(ids.shape, device=text.device)


def _without(labels: Labels, removed: Tensor) -> Labels:
    bias = labels.bias if len(labels.bias) else np.zeros(len(labels), np.float32)
    return Labels(labels.vectors, np.where(removed.numpy(), np.float32(-np.inf), bias))

"""New labels: added by their texts, and removed, without training.

The vector of a new label is what the model makes of its text, and what its nearest known labels learnt besides theirs, weighted by how near
they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from longtail.core.errors import SettingError
from longtail.core.values import LabelGraph, Texts
from longtail.data.files import shorten
from longtail.inference.label_parts import TowerParts, encoded_texts, text_sums, tower_parts_of
from longtail.inference.retrieval import NearestLabels
from longtail.inference.scorer import Scorer
from longtail.inference.trained_model import TrainedModel
from longtail.tokens.rows import TokenRows

COSINES_AT_ONCE = 1 << 24
SAMPLE = 1024  # label texts whose mean tells what all encoded texts have in common


@dataclass(frozen=True)
class Blend:
    """Weights of what the vector of a new label is made of.

    Args:
        own: weight of its own text in the parts that texts give; the rest is its neighbours'.
        others: weight of its neighbours' remaining parts.
        neighbours: so many of the nearest known labels.
        sharpness: neighbours are weighted by their cosine to this power.
        shrink: taken off the bias, where untrained labels crowd out trained ones. A mean of texts is shorter than each of them, which was
            enough where it was measured.
    """

    own: float = 0.5
    others: float = 0.5
    neighbours: int = 3
    sharpness: float = 2.0
    shrink: float = 0.0


# ---- vectors


@dataclass(frozen=True)
class NewLabels:
    """New labels as one network scores them."""

    vectors: Tensor  # (m, dim of all towers)
    bias: Tensor | None  # (m,)
    placed: Tensor | None  # a row for each: what retrieval needs to find it, such as its cluster


@dataclass
class NewLabelMaker:
    """Makes vectors of new labels from those that a model was trained with, and keeps what it learnt about these for the next time."""

    model: TrainedModel
    blend: Blend = Blend()

    def make(self, texts: Texts) -> list[NewLabels]:
        """The new labels, for each network."""
        return [maker.make(texts) for maker in self._by_network]

    @cached_property
    def _by_network(self) -> list[_NetworkLabelMaker]:
        scorers = enumerate(self.model.scorers)
        return [_NetworkLabelMaker(scorer, tower_parts_of(self.model, place), self.blend) for place, scorer in scorers]


class _NetworkLabelMaker:
    def __init__(self, scorer: Scorer, towers: list[TowerParts], blend: Blend) -> None:
        self.scorer, self.towers, self.blend = scorer, towers, blend
        # the tower whose vectors lie where encoded texts do
        self.encoded = next((tower for tower in towers if "encoded" in tower.part_names), None)
        self.n_known = min(tower.n_known for tower in towers)

    @cached_property
    def known(self) -> Tensor:
        """(n_known, dim) of length 1: where known labels lie, by their vectors or by their texts."""
        if self.encoded is not None:
            return functional.normalize(self.encoded.vectors[: self.n_known].float(), dim=1)
        tower = self.towers[0]
        assert tower.texts is not None
        return functional.normalize(text_sums(tower.network, self._rows(tower.texts[: self.n_known])), dim=1)

    @cached_property
    def middle(self) -> Tensor:
        """(dim,): the mean of encoded label texts, of length 1 each; all vectors behind a ReLU have it in common."""
        tower = self.towers[0]
        assert tower.texts is not None
        some = tower.texts.take(np.arange(0, self.n_known, max(1, self.n_known // SAMPLE)))
        return self._encoded(tower, self._rows(some)).mean(dim=0)

    def _rows(self, texts: Texts) -> TokenRows:
        return self.towers[0].tokenizer(texts).to(self.scorer.vectors.device)

    def _encoded(self, tower: TowerParts, rows: TokenRows) -> Tensor:
        return encoded_texts(tower.network, rows, tower.name, unit=True)

    @torch.no_grad()
    def make(self, texts: Texts) -> NewLabels:
        rows, blend = self._rows(texts), self.blend
        near = self._near(rows)
        vectors = torch.cat([self._vectors(tower, rows, near) for tower in self.towers], dim=1)
        bias = None
        if self.scorer.bias is not None:
            bias = (self.scorer.bias[near.ids] * near.weights).sum(dim=1) - blend.shrink
            bias = torch.where(near.weights.any(dim=1), bias, self.scorer.bias.min())
        placed = self.scorer.retrieval.placed(near, lambda: self._encoded(self.towers[0], rows), blend.own, blend.others)
        return NewLabels(vectors, bias, placed)

    def _near(self, rows: TokenRows) -> NearestLabels:
        """The nearest known labels, by the cosine of their texts."""
        if self.encoded is not None:
            texts = self.encoded.part_of_texts("encoded", rows)
        else:
            texts = text_sums(self.towers[0].network, rows)
        n = min(self.blend.neighbours, self.n_known)
        parts = functional.normalize(texts, dim=1).split(max(1, COSINES_AT_ONCE // self.n_known))
        found = [torch.topk(part @ self.known.T, n, dim=1) for part in parts]
        ids, cosines = torch.cat([top.indices for top in found]), torch.cat([top.values for top in found])
        weights = cosines.clamp(min=1e-6) ** self.blend.sharpness
        return NearestLabels(ids, weights / weights.sum(dim=1, keepdim=True) * (rows.lengths > 0)[:, None])

    def _vectors(self, tower: TowerParts, rows: TokenRows, near: NearestLabels) -> Tensor:
        blend = self.blend
        named, places = torch.unique(near.ids, return_inverse=True)
        of_named = NearestLabels(places, near.weights)
        known = [of_named.mean(part) for part in tower.parts_of_labels(named)]
        if not tower.text_parts:
            # nothing of the vectors comes from texts: a training row that says what the label's text says would pull them there
            length = tower.vectors[named].norm(dim=1).mean()
            pull = functional.normalize(self._encoded(tower, rows) - self.middle, dim=1)
            vectors = blend.own * length * pull + blend.others * tower.mixed(known)
            return functional.normalize(vectors, dim=1) if tower.unit else vectors
        parts = [
            blend.own * tower.part_of_texts(name, rows) + (1 - blend.own) * part if name in tower.text_parts else blend.others * part
            for name, part in zip(tower.part_names, known, strict=True)
        ]
        return tower.mixed(parts)


# ---- a model with them


def with_labels(model: TrainedModel, texts: Texts, new: Sequence[NewLabels]) -> TrainedModel:
    """The model with new labels behind those that it has.

    Args:
        new: for each network, what `NewLabelMaker.make` made of the texts.
    """
    assert model.label_texts is not None
    ready = iter(new)
    members = [replace(member, scorers=[_grown(scorer, next(ready)) for scorer in member.scorers]) for member in model.members]
    return replace(
        model,
        members=members,
        label_texts=Texts.join([model.label_texts, texts]),
        label_counts=np.concatenate([model.label_counts, np.zeros(len(texts), np.int64)]),
        graph=None if model.graph is None else _with_isolated_labels(model.graph, len(texts)),
        about={
            **model.about,
            "labels": len(model.label_counts) + len(texts),
            "labels added": model.about.get("labels added", 0) + len(texts),
        },
    )


def _grown(scorer: Scorer, new: NewLabels) -> Scorer:
    first, n_new = len(scorer.vectors), len(new.vectors)
    return replace(
        scorer,
        vectors=torch.cat([scorer.vectors, new.vectors.to(scorer.vectors.dtype)]),
        bias=None if scorer.bias is None or new.bias is None else torch.cat([scorer.bias, new.bias]),
        retrieval=scorer.retrieval.with_labels(torch.arange(first, first + n_new, device=scorer.vectors.device), new.placed),
        removed=None if scorer.removed is None else functional.pad(scorer.removed, (0, n_new)),
    )


def _with_isolated_labels(graph: LabelGraph, n_new: int) -> LabelGraph:
    """The graph with labels that have no edges: no training row carries them."""
    n, weights = graph.n_labels + n_new, graph.weights
    ends = np.concatenate([weights.indptr, np.full(n_new, weights.indptr[-1], weights.indptr.dtype)])
    return replace(
        graph,
        weights=csr_matrix((weights.data, weights.indices, ends), shape=(n, n)),
        counts=np.concatenate([graph.counts, np.zeros(n_new, np.int64)]),
    )


def without_labels(model: TrainedModel, ids: NDArray[np.int64]) -> TrainedModel:
    """The model without some labels; ids of all others stay as they are."""
    left = model.without(ids)
    return replace(left, about={**model.about, "labels removed": len(left.removed)})


# ---- checks


def check_texts(model: TrainedModel, texts: Sequence[str]) -> Texts:
    """New labels as texts, or why they cannot be added."""
    if isinstance(texts, str):
        raise SettingError("One text came where a list of label texts was wanted; type add_labels([text]).")
    known = model.label_texts
    if known is None:
        raise SettingError(
            "The labels of this model have no texts to compare new ones with; wanted a model that was trained with label texts."
        )
    new = Texts.of(texts)
    if not len(new):
        raise SettingError("No label texts came; wanted one or more.")
    places: dict[bytes, int] = {}
    for place, text in enumerate(new.encoded()):
        if not text.strip():
            raise SettingError(f"Label text {place + 1} of {len(new):,} is empty; wanted words.")
        if text in places:
            raise SettingError(f"The label text {_shown(text)} came twice; wanted each once.")
        places[text] = place
    removed = set(model.removed.tolist())
    for label, text in enumerate(known.encoded()):
        if text in places and label not in removed:
            raise SettingError(f"There is a label {_shown(text)} already, with id {label}; wanted new ones.")
    unread = np.all([member.tokenizer(new).lengths.numpy() == 0 for member in model.members], axis=0)
    if unread.any():
        first = shorten(new[int(np.flatnonzero(unread)[0])])
        raise SettingError(f"The model knows none of the words of {first!r}; wanted a label text it can read.")
    return new


def check_ids(model: TrainedModel, ids: Sequence[int]) -> NDArray[np.int64]:
    """Ids of labels to remove, or why they cannot be removed."""
    found = np.zeros(len(ids), np.int64)
    n_labels, gone = len(model.label_counts), set(model.removed.tolist())
    if not len(ids):
        raise SettingError("No label ids came; wanted one or more.")
    for place, label in enumerate(ids):
        if isinstance(label, bool) or not isinstance(label, (int, np.integer)) or not 0 <= label < n_labels:
            raise SettingError(f"Label {label!r} came to be removed; wanted an id from 0 to {n_labels - 1}.")
        if int(label) in gone:
            raise SettingError(f"Label {label} is removed already, or came twice.")
        gone.add(int(label))
        found[place] = label
    return found


def _shown(text: bytes) -> str:
    return repr(shorten(text.decode()))

"""Labels added by their texts, and removed, without training.

The vector of a new label is what the recipe makes of its text, and what its nearest known labels learnt besides theirs, blended by how
near they are. In a model folder additions are a log, `labels/000001.json`, `labels/000002.json`, ...: each file appears whole or not at
all, is on disk when the call returns, and holds texts and ids alone. Vectors are made of them anew when the folder is loaded, and become
part of the weights when the model is saved as a whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from longtail.core.errors import DataError, SettingError
from longtail.core.values import LabelGraph, Texts
from longtail.data.files import shorten
from longtail.inference.label_parts import TowerParts, encoded_texts, rows_of, text_sums, tower_parts_of
from longtail.inference.scorer import Scorer
from longtail.inference.search.clusters import NOTHING, ClusterIndex, Neighbours
from longtail.models.ragged import RaggedRows
from longtail.storage.model_folder import Stored

FOLDER = "labels"
ENTRY = re.compile(r"(\d{6,})\.json")
COMPARED = 1 << 24  # cosines at a time
SAMPLE = 1024  # label texts that tell where texts lie on average


@dataclass(frozen=True)
class Blend:
    """What the vector of a new label is made of.

    Args:
        own: what its own text counts in the parts that texts give; the rest of them is its neighbours'.
        others: what its neighbours' remaining parts count.
        neighbours: so many of the nearest known labels.
        sharpness: neighbours count by their cosine to this power.
        shrink: taken off the bias, where labels nobody has trained crowd out those that were; a mean of texts is shorter than each, which
            was enough where it was measured.
    """

    own: float = 0.5
    others: float = 0.5
    neighbours: int = 3
    sharpness: float = 2.0
    shrink: float = 0.0


# ---- vectors


@dataclass(frozen=True)
class Made:
    """What new labels are in one ranker."""

    vectors: Tensor  # (m, dim of all heads)
    bias: Tensor | None  # (m,)
    centroids: Tensor | None  # (m, dim)
    clusters: Tensor | None  # (m,): the cluster that each joins


@dataclass
class Maker:
    """Makes vectors of new labels from those that a model was trained with. What it found out about these is kept for the next time."""

    stored: Stored
    blend: Blend = Blend()

    def made(self, texts: Texts) -> list[Made]:
        """Of each ranker."""
        return [one.made(texts) for one in self._of_scorers]

    @cached_property
    def _of_scorers(self) -> list[_OfScorer]:
        return [_OfScorer(scorer, tower_parts_of(self.stored, place), self.blend) for place, scorer in enumerate(self.stored.scorers)]


class _OfScorer:
    def __init__(self, scorer: Scorer, towers: list[TowerParts], blend: Blend) -> None:
        self.scorer, self.towers, self.blend = scorer, towers, blend
        self.by_encoder = next((tower for tower in towers if "encoded" in tower.names), None)  # whose vectors lie where encoded texts do
        self.n_known = min(tower.n_known for tower in towers)

    @cached_property
    def known(self) -> Tensor:
        """(n_known, n) of unit length: where known labels lie, by their vectors or by their texts."""
        if self.by_encoder is not None:
            return functional.normalize(self.by_encoder.vectors[: self.n_known].float(), dim=1)
        tower = self.towers[0]
        assert tower.texts is not None
        return functional.normalize(text_sums(tower.network, self._rows(tower.texts[: self.n_known])), dim=1)

    @cached_property
    def middle(self) -> Tensor:
        """(dim,): the mean of encoded label texts, of unit length each; all vectors behind a ReLU have it in common."""
        tower = self.towers[0]
        assert tower.texts is not None
        some = tower.texts.take(np.arange(0, self.n_known, max(1, self.n_known // SAMPLE)))
        return encoded_texts(tower.network, self._rows(some), tower.task, unit=True).mean(dim=0)

    def _rows(self, texts: Texts) -> RaggedRows:
        return rows_of(self.towers[0].tokenizer, texts, self.scorer.vectors.device)

    @torch.no_grad()
    def made(self, texts: Texts) -> Made:
        rows = self._rows(texts)
        near, weights = self._nearest(rows)
        vectors = torch.cat([self._vectors(tower, rows, near, weights) for tower in self.towers], dim=1)
        bias = centroids = None
        if self.scorer.bias is not None:
            bias = (self.scorer.bias[near] * weights).sum(dim=1) - self.blend.shrink
            bias = torch.where(weights.any(dim=1), bias, self.scorer.bias.min())
        if self.scorer.centroids is not None:
            # training rows of a label say what its text says, as far as we know
            own = encoded_texts(self.towers[0].network, rows, self.towers[0].task, unit=True)
            centroids = functional.normalize(
                self.blend.own * own + self.blend.others * _blended(self.scorer.centroids, near, weights), dim=1
            )
        return Made(vectors, bias, centroids, None if self.scorer.clusters is None else _majority(self.scorer.clusters, near, weights))

    def _nearest(self, rows: RaggedRows) -> tuple[Tensor, Tensor]:
        """(m, neighbours) known labels by the cosine of their texts, and weights that sum to 1; to 0 for a text that cannot be read."""
        if self.by_encoder is not None:
            texts = self.by_encoder.of_text("encoded", rows)
        else:
            texts = text_sums(self.towers[0].network, rows)
        keep = min(self.blend.neighbours, self.n_known)
        found = [
            torch.topk(part @ self.known.T, keep, dim=1)
            for part in functional.normalize(texts, dim=1).split(max(1, COMPARED // self.n_known))
        ]
        near, cosines = torch.cat([top.indices for top in found]), torch.cat([top.values for top in found])
        weights = cosines.clamp(min=1e-6) ** self.blend.sharpness
        return near, weights / weights.sum(dim=1, keepdim=True) * (rows.offsets.diff() > 0)[:, None]

    def _vectors(self, tower: TowerParts, rows: RaggedRows, near: Tensor, weights: Tensor) -> Tensor:
        blend = self.blend
        named, places = torch.unique(near, return_inverse=True)
        known = [_blended(part, places, weights) for part in tower.of_labels(named)]
        if not tower.own:
            # nothing of the vectors comes from texts: a row that says what the label's text says pulls them there
            length = tower.vectors[named].norm(dim=1).mean()
            pull = functional.normalize(encoded_texts(tower.network, rows, tower.task, unit=True) - self.middle, dim=1)
            vectors = blend.own * length * pull + blend.others * tower.mixed(known)
            return functional.normalize(vectors, dim=1) if tower.unit else vectors
        parts = [
            blend.own * tower.of_text(name, rows) + (1 - blend.own) * part if name in tower.own else blend.others * part
            for name, part in zip(tower.names, known, strict=True)
        ]
        return tower.mixed(parts)


def _blended(values: Tensor, near: Tensor, weights: Tensor) -> Tensor:
    """(m, dim): rows of `values`, (n, dim), at the places `near`, by weight."""
    return torch.einsum("mk,mkd->md", weights, values[near])


def _majority(clusters: ClusterIndex, near: Tensor, weights: Tensor) -> Tensor:
    """(m,): the cluster that most of the neighbours are in, by weight."""
    n_labels = int(clusters.members.max()) + 1
    of_label = torch.zeros(max(n_labels, int(near.max()) + 1), dtype=torch.int64, device=near.device)
    row, place = torch.nonzero(clusters.members >= 0, as_tuple=True)
    of_label[clusters.members[row, place]] = row
    votes = torch.zeros(len(near), len(clusters.members), device=near.device)
    votes.scatter_add_(1, of_label[near], weights)
    return votes.argmax(dim=1)


# ---- a model with them


def with_labels(stored: Stored, texts: Texts, made: Sequence[Made]) -> Stored:
    """The model with new labels behind those that it has."""
    assert stored.label_texts is not None
    ready = iter(made)
    members = [replace(member, scorers=[_grown(scorer, next(ready)) for scorer in member.scorers]) for member in stored.members]
    return replace(
        stored,
        members=members,
        label_texts=Texts.join([stored.label_texts, texts]),
        label_counts=np.concatenate([stored.label_counts, np.zeros(len(texts), np.int64)]),
        graph=None if stored.graph is None else _graph_of_more(stored.graph, len(texts)),
        about={
            **stored.about,
            "labels": len(stored.label_counts) + len(texts),
            "labels added": stored.about.get("labels added", 0) + len(texts),
        },
    )


def _grown(scorer: Scorer, made: Made) -> Scorer:
    first, n_new = len(scorer.vectors), len(made.vectors)
    fresh = torch.arange(first, first + n_new, device=scorer.vectors.device)
    clusters = scorer.clusters
    if clusters is not None and made.clusters is not None:
        clusters = replace(clusters, members=_joined(clusters.members, fresh, made.clusters))
    return replace(
        scorer,
        vectors=torch.cat([scorer.vectors, made.vectors.to(scorer.vectors.dtype)]),
        bias=None if scorer.bias is None or made.bias is None else torch.cat([scorer.bias, made.bias]),
        centroids=None if scorer.centroids is None or made.centroids is None else torch.cat([scorer.centroids, made.centroids]),
        clusters=clusters,
        graph=None if scorer.graph is None else _alone(scorer.graph, fresh),
        removed=None if scorer.removed is None else functional.pad(scorer.removed, (0, n_new)),
    )


def _joined(members: Tensor, labels: Tensor, clusters: Tensor) -> Tensor:
    """The table of members, wider where a cluster is full."""
    for label, cluster in zip(labels.tolist(), clusters.tolist(), strict=True):
        free = torch.nonzero(members[cluster] == NOTHING).flatten()
        if not len(free):
            members = functional.pad(members, (0, 1), value=NOTHING)
            free = torch.tensor([members.shape[1] - 1])
        members = members.clone()
        members[cluster, free[0]] = label
    return members


def _alone(graph: Neighbours, labels: Tensor) -> Neighbours:
    """With labels that hear of nobody but themselves."""
    ids = functional.pad(labels[:, None], (0, graph.ids.shape[1] - 1), value=NOTHING)
    weights = functional.pad(torch.ones_like(labels[:, None], dtype=graph.weights.dtype), (0, graph.weights.shape[1] - 1))
    return Neighbours(torch.cat([graph.ids, ids]), torch.cat([graph.weights, weights]))


def _graph_of_more(graph: LabelGraph, n_new: int) -> LabelGraph:
    """With labels that point to none: nobody has seen them beside others."""
    n, weights = graph.n_labels + n_new, graph.weights
    ends = np.concatenate([weights.indptr, np.full(n_new, weights.indptr[-1], weights.indptr.dtype)])
    return replace(
        graph,
        weights=csr_matrix((weights.data, weights.indices, ends), shape=(n, n)),
        counts=np.concatenate([graph.counts, np.zeros(n_new, np.int64)]),
    )


def without_labels(stored: Stored, ids: NDArray[np.int64]) -> Stored:
    """The model without some labels; ids of all others stay as they are."""
    left = stored.without(ids)
    return replace(left, about={**stored.about, "labels removed": len(left.removed)})


# ---- what may come


def check_texts(stored: Stored, texts: Sequence[str]) -> Texts:
    """New labels as texts, or why they cannot be some."""
    if isinstance(texts, str):
        raise SettingError("One text came where a list of label texts was wanted; type add_labels([text]).")
    known = stored.label_texts
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
    removed = set(stored.removed.tolist())
    for label, text in enumerate(known.encoded()):
        if text in places and label not in removed:
            raise SettingError(f"There is a label {_shown(text)} already, with id {label}; wanted new ones.")
    unread = np.all([np.diff(member.tokenizer(new).offsets) == 0 for member in stored.members], axis=0)
    if unread.any():
        first = shorten(new[int(np.flatnonzero(unread)[0])])
        raise SettingError(f"The model knows none of the words of {first!r}; wanted a label text it can read.")
    return new


def check_ids(stored: Stored, ids: Sequence[int]) -> NDArray[np.int64]:
    """Labels to remove, or why they cannot be removed."""
    found = np.zeros(len(ids), np.int64)
    n_labels, gone = len(stored.label_counts), set(stored.removed.tolist())
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


# ---- the log


def append(folder: Path, number: int, entry: dict[str, Any]) -> None:
    """Write entry `number` of a model folder's log. It is on disk when this returns; killed before, the folder is as it was."""
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    _sync(folder)
    with _locked(place):
        target = place / f"{number:06d}.json"
        if target.exists():
            raise SettingError(f"The labels of {folder} were changed since they were read; load the model again.")
        unfinished = place / f".{target.name}.unfinished"  # of one that was killed it is written over
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(entry, file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(target)
        _sync(place)


def entries(folder: Path) -> list[dict[str, Any]]:
    """The log of a model folder, oldest first; what was never acknowledged is not in it."""
    place = folder / FOLDER
    numbered = (
        {int(match.group(1)): path for path in place.glob("*.json") if (match := ENTRY.fullmatch(path.name))} if place.is_dir() else {}
    )
    found = []
    for number in range(1, len(numbered) + 1):
        if number not in numbered:
            raise DataError(f"{place} is not whole: {number:06d}.json is missing. Copy it again.")
        found.append(_read(numbered[number]))
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        kinds = {"add": str, "remove": int}
        ((name, values),) = entry.items()
        whole = all(type(value) is kind for kind in [kinds[name]] for value in values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}). Copy it again.") from error
    if not whole:
        raise DataError(f"{path} is damaged (it holds neither texts to add nor ids to remove). Copy it again.")
    return dict(entry)


def replayed(stored: Stored, maker: Maker, log: Sequence[dict[str, Any]]) -> Stored:
    """The model after all entries; labels are made in one go, since each is made from what was trained alone."""
    texts = [text for entry in log for text in entry.get("add", ())]
    gone = [label for entry in log for label in entry.get("remove", ())]
    if texts:
        if stored.label_texts is None:
            raise DataError("Labels were added to a model whose labels have no texts; the folder holds files of different models.")
        new = Texts.of(texts)
        stored = with_labels(stored, new, maker.made(new))
    if gone:
        if not all(0 <= label < len(stored.label_counts) for label in gone):
            raise DataError("Labels were removed that the model does not have; the folder holds files of different models.")
        stored = without_labels(stored, np.array(gone, np.int64))
    return stored


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the lock of a killed one is let go."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    """Let names of files be on disk as well."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

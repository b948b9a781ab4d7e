"""LabelMix: a training text with the text of one of its labels behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.checks import OneOf, Settings, Share, ShareBelowOne
from longtail.core.errors import DataError, SettingError
from longtail.core.values import Ints, LabelGraph, Split, Texts
from longtail.data.augment.draws import uniforms
from longtail.data.augment.rows import Augmented, check_labels, has_text, named, next_to, row_blocks, with_made_rows
from longtail.data.augment.targets import check_graph, graph_for, label_targets
from longtail.data.growing import GrowingRows

TARGETS = ("cooccurrence", "walk")
WHETHER, WHICH = 0, 1  # the two draws of a row


@dataclass(frozen=True)
class LabelMix(Settings):
    """Algorithm 1 of the LabelMix paper: with some probability a text x becomes x + z_j, j one of its labels.

    Args:
        probability: of a row to be mixed.
        soft: targets become min(y + LCG[j] / LCG[j, j], 1), where above delta; without it they stay y.
        skew: label j of a row is drawn in proportion to y_j r_j with r_j = (training rows of j) ** -skew. 0 draws evenly; the
            default makes labels appear in proportion to their frequency to the power 3/4, word2vec's choice, which the paper
            points to without a number. Or r itself, one number per label.
        delta: for soft targets.
        targets: the graph that soft targets come from, "cooccurrence" or "walk".
    """

    changes: ClassVar[bool] = True

    probability: Share = 0.4
    soft: bool = True
    skew: float | NDArray[np.floating] = 0.25
    delta: ShareBelowOne = 0.1
    targets: Annotated[str, OneOf(TARGETS)] = "cooccurrence"

    def check(self) -> None:
        if np.ndim(self.skew) and not np.all(np.asarray(self.skew) >= 0):
            raise SettingError("skew came with label weights below 0; wanted 0 or more.")

    def bind(self, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> LabelMixer:
        """Look up once what rows need; a trainer then asks for the rows of each batch.

        Args:
            train: the training rows.
            label_texts: the text of every label.
            graph: the label graph of the soft targets; where not given, it is made from the training rows.
            seed: seed of everything that is drawn.
        """
        check_labels(train, label_texts, graph)
        if train.texts is None or label_texts is None:
            raise DataError("LabelMix joins the texts of rows and labels, and one of them is missing. Read the data set with its texts.")
        if not self.soft:
            graph = None
        elif graph is not None:
            check_graph(self.targets, graph, self.delta)
        else:
            # a soft relevance and a weight may be above delta together though neither is alone
            least = self.delta if bool((train.labels.data == 1).all()) else 0.0
            graph = graph_for(self.targets, train.labels, least, seed)
        filled = has_text(label_texts)
        without = np.flatnonzero(~filled)
        notes = (f"Labels without text are not mixed in: {named(len(without), without)}.",) if len(without) else ()
        return LabelMixer(self, train, label_texts, graph, np.where(filled, self._label_weights(train), 0.0), seed, notes)

    def _label_weights(self, train: Split) -> NDArray[np.float64]:
        n_labels = int(train.labels.shape[1])
        if np.ndim(self.skew):
            if np.shape(self.skew) != (n_labels,):
                raise SettingError(f"skew has shape {np.shape(self.skew)}; wanted one number, or one for each of {n_labels:,} labels.")
            return np.asarray(self.skew, np.float64)
        counts = np.bincount(train.labels.indices, minlength=n_labels)
        weights: NDArray[np.float64] = np.maximum(counts, 1).astype(np.float64) ** -float(self.skew)
        return weights

    def augment(self, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """Return all training rows, followed by the mixed ones of epoch 0.

        Args:
            train: the training rows.
            label_texts: the text of every label.
            graph: the label graph of the soft targets; where not given, it is made from the training rows.
            seed: seed of everything that is drawn.
        """
        mixer = self.bind(train, label_texts, graph, seed)
        rows = np.arange(len(train), dtype=np.int32)
        labels = mixer.drawn(rows)
        mixed = np.flatnonzero(labels >= 0).astype(np.int32)
        return with_made_rows(train, rows, mixer.mixed(mixed, labels[mixed]), mixed, "labelmix", notes=mixer.notes)

    def for_epoch(self, epoch: int, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """Apply Algorithm 1 to every row: those left alone, then those mixed. As many rows as `train` has.

        Args:
            epoch: number of the epoch, from 0.
            train: the training rows.
            label_texts: the text of every label.
            graph: the label graph; where not given, it is made from the training rows.
            seed: seed of everything that is drawn.
        """
        mixer = self.bind(train, label_texts, graph, seed)
        labels = mixer.drawn(np.arange(len(train), dtype=np.int32), epoch)
        alone, mixed = (np.flatnonzero(which).astype(np.int32) for which in (labels < 0, labels >= 0))
        return with_made_rows(train.rows(alone), alone, mixer.mixed(mixed, labels[mixed]), mixed, "labelmix", notes=mixer.notes)


@dataclass(frozen=True, eq=False)
class LabelMixer:
    """LabelMix bound to training rows. Every row depends on seed, epoch and its place only."""

    settings: LabelMix
    train: Split
    label_texts: Texts
    graph: LabelGraph | None
    label_weights: NDArray[np.float64]  # r, 0 for labels without text
    seed: int
    notes: tuple[str, ...] = ()

    def drawn(self, rows: Ints, epoch: int = 0) -> Ints:
        """The label whose text each of these rows gets; -1 for a row that is left alone."""
        found = np.full(len(rows), -1, np.int32)
        mixed = np.flatnonzero(uniforms(self.seed, epoch, rows, WHETHER) <= self.settings.probability)
        if self.settings.probability == 0:
            mixed = mixed[:0]
        which = uniforms(self.seed, epoch, rows[mixed], WHICH)
        for start, end in row_blocks(len(mixed)):
            labels = self.train.labels[rows[mixed[start:end]]]
            found[mixed[start:end]] = pick_labels(labels, self.label_weights, which[start:end])
        return found

    def rows(self, rows: Ints, epoch: int = 0) -> Split:
        """Algorithm 1 on these rows, in their order: a batch of an epoch."""
        labels = self.drawn(rows, epoch)
        alone, mixed = np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)
        made = with_made_rows(
            self.train.rows(rows[alone]), rows[alone], self.mixed(rows[mixed], labels[mixed]), rows[mixed], "labelmix"
        ).split
        back = np.empty(len(rows), np.int64)
        back[np.concatenate([alone, mixed])] = np.arange(len(rows))
        return made.rows(back)

    def mixed(self, rows: Ints, labels: Ints) -> Split:
        """These rows, each with the text and the annotations of its label."""
        assert self.train.texts is not None
        texts = next_to(self.train.texts.take(rows), self.label_texts.take(labels))
        if self.graph is None:
            return Split(texts, self.train.labels[rows])
        made = GrowingRows()
        n_labels = self.train.labels.shape[1]
        for start, end in row_blocks(len(rows)):
            own = self.train.labels[rows[start:end]]
            given = label_targets(self.settings.targets, self.graph, labels[start:end], n_labels, delta=0.0)
            block = _at_most_one(own + given, self.settings.delta)
            made.add(block.indices.astype(np.int32, copy=False), block.data, block.indptr.astype(np.int64), end / len(rows))
        return Split(texts, made.done(n_labels))


def _at_most_one(targets: csr_matrix, delta: float) -> csr_matrix:
    targets = csr_matrix(targets, dtype=np.float32)
    targets.sort_indices()
    np.minimum(targets.data, 1.0, out=targets.data)
    targets.data[targets.data <= np.float32(delta)] = 0
    targets.eliminate_zeros()
    return targets


def pick_labels(labels: csr_matrix, label_weights: NDArray[np.float64], draws: NDArray[np.float64]) -> Ints:
    """One label of each row, in proportion to relevance times weight, by the row's number in [0, 1); -1 where there is none.

    >>> rows = csr_matrix(np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1]], np.float32))
    >>> pick_labels(rows, np.array([1.0, 3.0, 0.0]), np.array([0.2, 0.5, 0.9])).tolist()
    [0, -1, 1]
    """
    ends = labels.indptr.astype(np.int64)
    sums = np.concatenate([[0.0], np.cumsum(labels.data * label_weights[labels.indices], dtype=np.float64)])
    low, high = sums[ends[:-1]], sums[ends[1:]]
    # the rounded product may reach the row's end, where a label of weight 0 would be taken
    wanted = np.minimum(low + draws * (high - low), np.nextafter(high, -np.inf))
    places = np.searchsorted(sums[1:], wanted, side="right")
    found = np.full(len(draws), -1, np.int32)
    some = high > low
    found[some] = labels.indices[places[some]]
    return found

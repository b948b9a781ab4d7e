"""Gandalf: label texts as training rows of their own, annotated with what the label co-occurs with."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.checks import OneOf, Range, Settings, Share, ShareBelowOne
from longtail.core.errors import DataError, SettingError
from longtail.core.values import Ints, LabelGraph, Split, Texts
from longtail.data.augment.estimate import Estimate, estimate
from longtail.data.augment.rows import Augmented, check_labels, has_text, named, next_to, with_made_rows
from longtail.data.augment.targets import TARGETS, Shrink, check_graph, graph_for, label_targets
from longtail.data.frequency import equal_volume_bins

LABEL_MARK = "xxlabelxx"  # one lower-case word: brackets are split off or dropped by most tokenisers, capitals are folded
N_BINS = 5  # of equal training volume, as in the paper's Figure 2


def _original_and_label_rows(rows: Ints, labels: Ints, seed: int) -> tuple[Ints, Ints]:
    return rows, labels


def _label_rows_only(rows: Ints, labels: Ints, seed: int) -> tuple[Ints, Ints]:
    return rows[:0], labels


def _drawn_from_both(rows: Ints, labels: Ints, seed: int) -> tuple[Ints, Ints]:
    """As many as there are training rows, without replacement."""
    drawn = np.sort(np.random.default_rng([seed, 1]).permutation(len(rows) + len(labels))[: len(rows)])
    return rows[drawn[drawn < len(rows)]], labels[drawn[drawn >= len(rows)] - len(rows)]


def _as_shuffled(order: NDArray[np.int64], bins: Ints) -> NDArray[np.int64]:
    return order


def _tail_first(order: NDArray[np.int64], bins: Ints) -> NDArray[np.int64]:
    return order[np.argsort(-bins[order], kind="stable")]


# which training rows and which label rows there are: (training rows, labels, seed) -> those of them
INCLUDED: dict[str, Callable[[Ints, Ints, int], tuple[Ints, Ints]]] = {
    "D+Z": _original_and_label_rows,
    "Z": _label_rows_only,
    "U": _drawn_from_both,
}
# which labels come first where not all are taken: (shuffled places, frequency bin of each place) -> places
ORDERS: dict[str, Callable[[NDArray[np.int64], Ints], NDArray[np.int64]]] = {"random": _as_shuffled, "tail": _tail_first}


@dataclass(frozen=True)
class Gandalf(Settings):
    """D + Z: the training rows and one row per label, its text annotated by equation 6. The defaults are the paper's.

    Args:
        delta: targets must be above it; own label is always kept.
        include: "D+Z"; "Z", label rows only; "U", as many rows as D has, drawn from D+Z without replacement.
        targets: "cooccurrence" (equation 6), "calibrated" (its conditionals corrected by longtail.data.augment.estimate), "onehot"
            (own label only), "glas" (sigma of the symmetric S), "walk" (the random walk graph, each row divided by its own
            label's weight).
        share: of the label rows, how many are made.
        order: which of them: "random", or "tail": from the tail bin first, at random within each of five bins of equal training volume.
        shrink: a in G_ij / (G_jj + a), one number or one per label; 0 is equation 6. For targets "cooccurrence".
        mark: a word put before each label text, so that a model can tell label rows from inputs; LABEL_MARK is one.
        weight: row weight of the label rows.
        doubt: a in n / (n + a), which weighs the label row of a label with n training rows. All that a label row leaves out is learnt
            as wrong, and of a label seen once nobody knows what it goes without. 0 is the paper's; above it, a label that was never seen
            has no label row.

    >>> from longtail.core.values import labels_from_rows
    >>> train = Split(Texts.of(["mario kart", "zelda"]), labels_from_rows([[0, 1], [1]], 2))
    >>> made = Gandalf().augment(train, Texts.of(["racing", "nintendo"]))
    >>> made
    Augmented(2 original + 2 label rows, 7 pairs)
    >>> made.split.texts[2], made.split.labels[2].toarray().tolist()
    ('racing', [[1.0, 1.0]])
    """

    changes: ClassVar[bool] = False

    delta: ShareBelowOne = 0.1
    include: Annotated[str, OneOf(INCLUDED)] = "D+Z"
    targets: Annotated[str, OneOf(TARGETS)] = "cooccurrence"
    share: Share = 1.0
    order: Annotated[str, OneOf(ORDERS)] = "random"
    shrink: Shrink = 0.0
    mark: str | None = None
    weight: Annotated[float, Range(least=0, such_as=0.5)] = 1.0
    doubt: Annotated[float, Range(least=0, such_as=3)] = 0.0

    def check(self) -> None:
        if not np.all(np.asarray(self.shrink) >= 0):
            raise SettingError("shrink came with a number below 0 or none at all; wanted 0 (equation 6) or more.")
        if np.any(np.asarray(self.shrink) > 0) and not TARGETS[self.targets].counts_pairs:
            raise SettingError(f"shrink counts label pairs and has no meaning for targets={self.targets!r}; leave it at 0.")
        if self.mark is not None and not re.fullmatch(r"\S+", self.mark):
            raise SettingError(f"mark came as {self.mark!r}; wanted one word such as {LABEL_MARK!r}.")

    def augment(
        self,
        train: Split,
        label_texts: Texts | None,
        graph: LabelGraph | None = None,
        seed: int = 0,
        label_features: csr_matrix | None = None,
    ) -> Augmented:
        """Make the label rows.

        Args:
            train: the training rows.
            label_texts: the text of every label; None where `label_features` are given.
            graph: the label graph; where not given, the one that `targets` needs is made from the training rows.
            seed: seed of everything that is drawn.
            label_features: (n_labels, n_features) for rows that have features in place of texts.
        """
        check_labels(train, label_texts, graph)
        n_labels = int(train.labels.shape[1])
        if np.ndim(self.shrink) and np.shape(self.shrink) != (n_labels,):
            raise SettingError(f"shrink has shape {np.shape(self.shrink)}; wanted one number, or one for each of {n_labels:,} labels.")
        if graph is not None:
            check_graph(self.targets, graph, self.delta)
        usable, notes = _usable(train, label_texts, label_features)
        counts = np.bincount(train.labels.indices, minlength=n_labels)
        if self.doubt:
            usable = usable[counts[usable] > 0]
        rows, labels = INCLUDED[self.include](np.arange(len(train), dtype=np.int32), self._chosen(usable, counts, seed), seed)
        if TARGETS[self.targets].graph is None:
            graph = None
        elif graph is None:
            graph = graph_for(self.targets, train.labels, self.delta, seed)
        estimated = None
        if TARGETS[self.targets].is_estimated and graph is not None:
            estimated = estimate(train, label_texts, graph)
            notes.append(_note_on(estimated))
        made = Split(
            self._texts(label_texts, labels, train, notes),
            label_targets(self.targets, graph, labels, n_labels, self.delta, self.shrink, estimated),
            features=None if label_features is None else label_features[labels],
        )
        whole = len(rows) == len(train)
        weights = self.weight * counts[labels] / (counts[labels] + self.doubt) if self.doubt else self.weight
        return with_made_rows(train if whole else train.rows(rows), rows, made, labels, "label", weights, tuple(notes))

    def for_epoch(self, epoch: int, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """Return the same rows in every epoch.

        Args:
            epoch: number of the epoch, from 0.
            train: the training rows.
            label_texts: the text of every label.
            graph: the label graph; where not given, it is made from the training rows.
            seed: seed of everything that is drawn.
        """
        return self.augment(train, label_texts, graph, seed)

    def _chosen(self, usable: Ints, counts: NDArray[np.int64], seed: int) -> Ints:
        """The share of the labels that is wanted, by rising id. With one seed, a larger share always holds the smaller."""
        wanted = round(self.share * len(usable))
        order = np.random.default_rng([seed, 0]).permutation(len(usable))
        order = ORDERS[self.order](order, equal_volume_bins(counts, N_BINS)[usable])
        return np.sort(usable[order[:wanted]])

    def _texts(self, label_texts: Texts | None, labels: Ints, train: Split, notes: list[str]) -> Texts | None:
        if label_texts is None or train.texts is None:
            return None
        texts = label_texts if len(labels) == len(label_texts) else label_texts.take(labels)
        if self.mark is None:
            return texts
        word = re.compile(rb"(?<!\w)%b(?!\w)" % re.escape(self.mark.encode()), re.IGNORECASE)
        if any(word.search(text) for text in train.texts.encoded()):
            notes.append(f"The mark {self.mark!r} stands in training texts too; a word such as {LABEL_MARK!r} would tell label rows apart.")
        return next_to(Texts.of([self.mark]).take(np.zeros(len(texts), np.int64)), texts)


def _note_on(estimated: Estimate) -> str:
    if not estimated.n_pairs:
        return "Targets are plain conditionals: there were no pairs to fit to."
    return f"Targets fitted to {estimated.n_pairs:,} pairs of {estimated.source}, {estimated.precision:.0%} of them right."


def _usable(train: Split, label_texts: Texts | None, label_features: csr_matrix | None) -> tuple[Ints, list[str]]:
    """The labels that can be rows, and a note on those that cannot."""
    if train.texts is not None and label_texts is not None:
        filled = has_text(label_texts)
    elif train.features is not None and label_features is not None:
        filled = np.diff(label_features.indptr) > 0
    else:
        raise DataError("Gandalf makes rows of label texts, and these labels have none. Read the data set with its label texts.")
    usable = np.flatnonzero(filled).astype(np.int32)
    without = np.flatnonzero(~filled)
    notes = [f"Labels without text have no row of their own: {named(len(without), without)}."] if len(without) else []
    return usable, notes

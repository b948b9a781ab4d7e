"""Gandalf: label texts as training rows of their own, annotated with what the label co-occurs with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, SettingError, UnknownName
from longtail.core.values import Ints, LabelGraph, Split, Texts
from longtail.data.augment.estimate import estimate
from longtail.data.augment.rows import Augmented, check_labels, check_share, has_text, named, next_to, with_made_rows
from longtail.data.augment.targets import KINDS, Shrink, check_graph, graph_for, label_targets
from longtail.evaluation.frequency import equal_volume_bins

LABEL_MARK = "xxlabelxx"  # one lower-case word: brackets are split off or dropped by most tokenisers, capitals are folded
INCLUDED = ("D+Z", "Z", "U")
ORDERS = ("random", "tail")
N_BINS = 5  # of equal training volume, as in the paper's Figure 2


@dataclass(frozen=True)
class Gandalf:
    """D + Z: the training rows and one row per label, its text annotated by equation 6. The defaults are the paper's.

    Args:
        delta: targets must be above it; own label is always kept.
        include: "D+Z"; "Z", label rows only; "U", as many rows as D has, drawn from D+Z without replacement.
        targets: "cooccurrence" (equation 6), "calibrated" (its conditionals corrected by longtail.data.augment.estimate), "onehot"
            (own label only), "glas" (sigma of the symmetric S), "walk" (the random walk graph, each row divided by its own
            label's weight).
        keep: share of the label rows to keep.
        keep_by: "random", or "tail": from the tail bin first, at random within each of five bins of equal training volume.
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

    delta: float = 0.1
    include: Literal["D+Z", "Z", "U"] = "D+Z"
    targets: Literal["cooccurrence", "calibrated", "onehot", "glas", "walk"] = "cooccurrence"
    keep: float = 1.0
    keep_by: Literal["random", "tail"] = "random"
    shrink: Shrink = 0.0
    mark: str | None = None
    weight: float = 1.0
    doubt: float = 0.0

    def __post_init__(self) -> None:
        for setting, value, known in (
            ("include", self.include, INCLUDED),
            ("targets", self.targets, KINDS),
            ("keep_by", self.keep_by, ORDERS),
        ):
            if value not in known:
                raise UnknownName(f"value of {setting}", value, known)
        check_share("keep", self.keep)
        if not 0 <= self.delta < 1:
            raise SettingError(f"delta is {self.delta!r}; wanted a share from 0 to below 1.")
        if not np.all(np.asarray(self.shrink) >= 0):
            raise SettingError("shrink came with a number below 0 or none at all; wanted 0 (equation 6) or more.")
        if np.any(np.asarray(self.shrink) > 0) and self.targets != "cooccurrence":
            raise SettingError(f"shrink counts label pairs and has no meaning for targets={self.targets!r}; leave it at 0.")
        if self.mark is not None and not re.fullmatch(r"\S+", self.mark):
            raise SettingError(f"mark is {self.mark!r}; wanted one word such as {LABEL_MARK!r}.")
        for setting, number, such in (("weight", self.weight, 0.5), ("doubt", self.doubt, 3)):
            if not (number >= 0 and np.isfinite(number)):
                raise SettingError(f"{setting} is {number!r}; wanted 0 or more, such as {such}.")

    def augment(
        self,
        train: Split,
        label_texts: Texts | None,
        graph: LabelGraph | None = None,
        seed: int = 0,
        label_features: csr_matrix | None = None,
    ) -> Augmented:
        """Make the rows. Without a graph the one that `targets` needs is made from the training rows."""
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
        labels = self._chosen(usable, counts, seed)
        rows = np.arange(len(train), dtype=np.int32)
        if self.include == "Z":
            rows = rows[:0]
        elif self.include == "U":
            drawn = np.sort(np.random.default_rng([seed, 1]).permutation(len(rows) + len(labels))[: len(rows)])
            rows, labels = rows[drawn[drawn < len(rows)]], labels[drawn[drawn >= len(rows)] - len(rows)]
        if self.targets == "onehot":
            graph = None
        elif graph is None:
            graph = graph_for(self.targets, train.labels, self.delta, seed)
        estimated = None
        if self.targets == "calibrated" and graph is not None:
            estimated = estimate(train, label_texts, graph)
            fitted = f"fitted to {estimated.n_pairs:,} pairs of {estimated.source}, {estimated.precision:.0%} of them right"
            notes.append(f"Targets {fitted}." if estimated.n_pairs else "Targets are plain conditionals: there were no pairs to fit to.")
        made = Split(
            self._texts(label_texts, labels, train, notes),
            label_targets(self.targets, graph, labels, n_labels, self.delta, self.shrink, estimated),
            features=None if label_features is None else label_features[labels],
        )
        whole = len(rows) == len(train)
        weights = self.weight * counts[labels] / (counts[labels] + self.doubt) if self.doubt else self.weight
        return with_made_rows(train if whole else train.rows(rows), rows, made, labels, "label", weights, tuple(notes))

    def for_epoch(self, epoch: int, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """The same rows in every epoch."""
        return self.augment(train, label_texts, graph, seed)

    def _chosen(self, usable: Ints, counts: NDArray[np.int64], seed: int) -> Ints:
        """`keep` of the labels, by rising id. With one seed, more kept labels always hold the fewer."""
        wanted = round(self.keep * len(usable))
        order = np.random.default_rng([seed, 0]).permutation(len(usable))
        if self.keep_by == "tail":
            order = order[np.argsort(-equal_volume_bins(counts, N_BINS)[usable[order]], kind="stable")]
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

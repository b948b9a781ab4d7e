"""Description of a data set: its sizes, its tail, its leaks, and whether label texts can stand in for inputs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.values import Dataset, Pairs, Texts
from longtail.data.filters import find_leaks
from longtail.data.frequency import GROUPS, frequency_groups
from longtail.data.matrices import pairs_to_csr
from longtail.data.twins import find_twins

DELTA = 0.1  # Gandalf's threshold on P(i|j)
MAX_TWINS = 5000  # labels examined for Gandalf's assumption; more would not change the shares' first digits


@dataclass(frozen=True)
class Spread:
    """Mean, median and largest of some counts."""

    mean: float
    median: float
    largest: int

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> Spread:
        return cls(float(counts.mean()), float(np.median(counts)), int(counts.max())) if len(counts) else cls(0.0, 0.0, 0)


@dataclass(frozen=True)
class Group:
    """Labels of one frequency group."""

    name: str
    labels: int
    label_share: float  # of all labels
    pair_share: float  # of all training pairs


@dataclass(frozen=True)
class Faulty:
    """Counts of empty and repeated texts, of one kind of rows."""

    rows: int
    empty: int
    duplicates: int  # rows whose text stands in an earlier row too
    without_labels: int


@dataclass(frozen=True)
class LeakCounts:
    """Test labels that can be read off the training data."""

    test_texts_in_train: int
    own_text_pairs: int  # test pairs (row, label) where the label's text is the row's own
    own_text_unfiltered: int
    reciprocal_unfiltered: int  # test pairs whose reverse is a training pair, in the truth and in no filter
    filtered_in_truth: int  # pairs that stand in the test filter and in the truth at once
    train_filter: int | None
    test_filter: int | None


@dataclass(frozen=True)
class GandalfFit:
    """Whether label texts can be used as training inputs whose targets are the labels they co-occur with.

    Measured on the labels that have a twin, a training row with the very text of the label: there, what Gandalf would
    teach for the label (all i with P(i|j) > 0.1, itself left out) can be held against what the twin really carries.
    """

    label_texts_that_are_inputs: float  # share of all label texts
    words_shared: float  # share of the words of label texts, by occurrence, that occur in inputs
    twins: int
    precision: float  # of what Gandalf would teach, how much the twins carry
    recall: float  # of what the twins carry, how much Gandalf would teach
    precision_by_support: dict[str, float]  # the same precision for labels seen once, 2 to 4 times, 5 times or more
    verdict: str


@dataclass(frozen=True)
class Description:
    """Everything that `longtail check` prints."""

    name: str
    train_rows: int
    test_rows: int
    labels: int
    labels_without_points: int
    train_pairs: int
    labels_per_point: Spread
    points_per_label: Spread
    groups: list[Group]
    words_per_text: float
    words_per_label: float
    train: Faulty
    test: Faulty
    label_texts: Faulty
    leaks: LeakCounts
    gandalf: GandalfFit
    notes: tuple[str, ...]
    counts: NDArray[np.int64] = field(repr=False)  # training points of every label

    def to_json(self) -> str:
        held = asdict(self)
        del held["counts"]
        return json.dumps(held, indent=1, ensure_ascii=False) + "\n"

    def warnings(self) -> list[str]:
        """Lines about what deserves attention before training, each with what to type."""
        lines = []
        leaks = self.leaks
        if leaks.test_texts_in_train:
            lines.append(f"{leaks.test_texts_in_train:,} test texts stand in train word for word: their answers can be looked up.")
        if leaks.reciprocal_unfiltered or leaks.own_text_unfiltered:
            lines.append(
                f"{leaks.reciprocal_unfiltered:,} reciprocal and {leaks.own_text_unfiltered:,} own-text test pairs are not filtered: "
                "longtail check DATA --write-filters DIR applies the XC protocol."
            )
        if leaks.filtered_in_truth:
            lines.append(f"{leaks.filtered_in_truth:,} test pairs stand in the filter and in the truth at once: they can never be found.")
        for rows, what in ((self.train, "train rows"), (self.test, "test rows"), (self.label_texts, "labels")):
            if rows.empty:
                lines.append(f"{rows.empty:,} {what} have an empty text.")
        if self.label_texts.duplicates:
            lines.append(f"{self.label_texts.duplicates:,} labels have the text of another label: no text can tell them apart.")
        if self.labels_without_points:
            lines.append(f"{self.labels_without_points:,} labels have no training point: only their text can find them.")
        if not self.test_rows:
            lines.append("There is no test split: read with --test-share 0.2 to hold one out.")
        return lines


def describe(data: Dataset) -> Description:
    """Describe a data set: sizes, spreads, leaks and the fit of Gandalf's assumption.

    The result has `to_json()`, and `warnings()`: what needs attention before training, one line each.

    Args:
        data: the data set.
    """
    counts = data.label_counts()
    group = frequency_groups(counts)
    pairs = max(int(counts.sum()), 1)
    groups = [
        Group(name, int(inside.sum()), float(inside.sum() / max(len(inside), 1)), float(counts[inside].sum() / pairs))
        for name, inside in ((name, group == number) for number, name in enumerate(GROUPS))
    ]
    return Description(
        name=data.name,
        train_rows=len(data.train),
        test_rows=len(data.test),
        labels=data.n_labels,
        labels_without_points=int((counts == 0).sum()),
        train_pairs=int(counts.sum()),
        labels_per_point=Spread.of(np.diff(data.train.labels.indptr).astype(np.int64)),
        points_per_label=Spread.of(counts),
        groups=groups,
        words_per_text=_words(data.train.texts),
        words_per_label=_words(data.label_texts),
        train=_faulty(data.train.texts, np.diff(data.train.labels.indptr)),
        test=_faulty(data.test.texts, np.diff(data.test.labels.indptr)),
        label_texts=_faulty(data.label_texts, counts),
        leaks=_leak_counts(data),
        gandalf=_gandalf(data),
        notes=data.notes,
        counts=counts,
    )


def _words(texts: Texts | None) -> float:
    """Mean number of words, counted as runs of anything but blanks."""
    if texts is None or not len(texts):
        return 0.0
    return sum(len(text.split()) for text in texts) / len(texts)


def _faulty(texts: Texts | None, n_labels: NDArray[np.int64]) -> Faulty:
    without = int((n_labels == 0).sum())
    if texts is None:
        return Faulty(len(n_labels), 0, 0, without)
    distinct = set(texts.encoded())
    empty = sum(1 for text in texts.encoded() if not text.strip())
    return Faulty(len(texts), empty, len(texts) - len(distinct), without)


def _leak_counts(data: Dataset) -> LeakCounts:
    leaks = find_leaks(data)
    known = set() if data.train.texts is None else set(data.train.texts.encoded())
    repeated = 0 if data.test.texts is None else sum(1 for text in data.test.texts.encoded() if text in known)
    shape = data.test.labels.shape
    filtered = pairs_to_csr(data.test.filter if data.test.filter is not None else np.empty((0, 2), np.int32), shape)
    return LeakCounts(
        test_texts_in_train=repeated,
        own_text_pairs=len(leaks.test_own),
        own_text_unfiltered=_not_in(leaks.test_own, filtered),
        reciprocal_unfiltered=_not_in(leaks.reciprocal, filtered),
        filtered_in_truth=int((data.test.labels.multiply(filtered) != 0).nnz),
        train_filter=None if data.train.filter is None else len(data.train.filter),
        test_filter=None if data.test.filter is None else len(data.test.filter),
    )


def _not_in(pairs: Pairs, matrix: csr_matrix) -> int:
    if not len(pairs):
        return 0
    return len(pairs) - int(np.count_nonzero(np.asarray(matrix[pairs[:, 0], pairs[:, 1]])))


def _gandalf(data: Dataset) -> GandalfFit:
    if data.label_texts is None or data.train.texts is None or not data.n_labels:
        return GandalfFit(0.0, 0.0, 0, 0.0, 0.0, {}, "unknown: inputs or labels have no texts")
    twin = find_twins(data.train.texts, data.label_texts)
    labels = np.flatnonzero(twin >= 0)
    share = len(labels) / data.n_labels
    shared = _shared_words(data.train.texts, data.label_texts)
    if len(labels) > MAX_TWINS:
        labels = labels[np.linspace(0, len(labels) - 1, MAX_TWINS).astype(np.int64)]
    if not len(labels):
        verdict = "cannot be measured: no label's text is also an input; "
        return GandalfFit(share, shared, 0, 0.0, 0.0, {}, verdict + f"inputs hold {shared:.0%} of the words of label texts")
    binary = data.train.labels.copy()
    binary.data = np.ones(binary.nnz, np.float32)
    counts = data.label_counts()
    together = csr_matrix(csr_matrix(binary[:, labels].T) @ binary)  # (n_twins, n_labels)
    support = np.repeat(counts[labels], np.diff(together.indptr))
    itself = together.indices == np.repeat(labels, np.diff(together.indptr))
    together.data = ((together.data / np.maximum(support, 1) > DELTA) & ~itself).astype(np.float32)
    together.eliminate_zeros()
    carried = binary[twin[labels]]
    carried.data[carried.indices == np.repeat(labels, np.diff(carried.indptr))] = 0
    carried.eliminate_zeros()
    right = np.diff(csr_matrix(together.multiply(carried)).indptr)
    taught, true = np.diff(together.indptr), np.diff(carried.indptr)
    precision, recall = _ratio(right, taught), _ratio(right, true)
    by_support = {}
    for name, low, high in (("1", 1, 1), ("2-4", 2, 4), ("5+", 5, np.inf)):
        part = (counts[labels] >= low) & (counts[labels] <= high)
        if taught[part].sum():
            by_support[name] = _ratio(right[part], taught[part])
    return GandalfFit(share, shared, len(labels), precision, recall, by_support, _verdict(precision))


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> float:
    return float(part.sum() / max(int(whole.sum()), 1))


def _verdict(precision: float) -> str:
    if precision >= 0.25:
        return "holds: label texts behave like inputs"
    if precision >= 0.1:
        return "holds in part: co-occurrence teaches more wrong than right, weigh it by its support"
    return "does not hold: labels that co-occur are not each other's labels"


def _shared_words(inputs: Texts, labels: Texts) -> float:
    known = {word for text in inputs for word in text.lower().split()}
    words: Counter[str] = Counter(word for text in labels for word in text.lower().split())
    total = sum(words.values())
    return sum(count for word, count in words.items() if word in known) / total if total else 0.0

"""Metrics of ranked labels: one value per row first, the average last.

Definitions follow the XC repository. The conventions, the same for all:

- An empty place (id -1) is a wrong answer; a row shorter than k is not excused.
- A row without true labels scores 0 and stays in the mean.
- Places are taken in the order given; scores are never read, so ties are the predictor's to break.
- A label that stands twice in a row counts where it stands first.
- PSP@k and PSnDCG@k are a ratio of means: what was gained over all rows, by what the best ranking would have gained.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.kernels.hits import find_hits
from longtail.core.values import Ints, Predictions

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Matches:
    """Predictions with the truth they are held against."""

    ids: Ints  # (n, k)
    right: NDArray[np.bool_]  # (n, k): this place holds a true label
    truth: csr_matrix  # (n, n_labels), sorted ids, true labels only
    n_true: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.ids)


def find_matches(found: Predictions, truth: csr_matrix) -> Matches:
    """Mark which places of `found` hold a label whose relevance in `truth` is above 0."""
    if (truth.data <= 0).any():
        truth = truth.copy()
        truth.data[truth.data <= 0] = 0
        truth.eliminate_zeros()
    if not truth.has_sorted_indices:
        truth = truth.sorted_indices()
    right = find_hits(found.ids, truth.indptr, truth.indices) >= 0
    return Matches(found.ids, right, truth, np.diff(truth.indptr).astype(np.int64))


def precision_at(k: int, matches: Matches) -> Reals:
    """Share of the first k places that hold a true label: (n,).

    >>> found = Predictions(np.array([[0, 1, -1]], np.int32), np.zeros((1, 3), np.float32))
    >>> precision_at(3, find_matches(found, csr_matrix([[1, 1, 1]])))
    array([0.66666667])
    """
    return np.asarray(matches.right[:, :k].sum(axis=1) / k)


def recall_at(k: int, matches: Matches) -> Reals:
    """Share of the true labels that stand among the first k places: (n,)."""
    return np.asarray(matches.right[:, :k].sum(axis=1) / np.maximum(matches.n_true, 1))


def hits_at(k: int, matches: Matches) -> Reals:
    """1 where at least one of the first k places is right: (n,)."""
    return np.asarray(matches.right[:, :k].any(axis=1), np.float64)


def ndcg_at(k: int, matches: Matches) -> Reals:
    """Gain discounted by log2(place + 1), over that of the best ranking of min(k, true labels) places: (n,)."""
    return _discounted(k, matches.right) / _ideal_discount(k, matches.n_true)


def _discounted(k: int, gains: NDArray[np.bool_] | Reals) -> Reals:
    discount = 1 / np.log2(np.arange(2, k + 2))
    gains = gains[:, :k]
    return gains @ discount[: gains.shape[1]]


def _ideal_discount(k: int, n_true: NDArray[np.int64]) -> Reals:
    """Sum of the first min(k, n_true) discounts; that of one place where there is no true label, to divide by."""
    sums = np.cumsum(1 / np.log2(np.arange(2, k + 2)))
    return sums[np.clip(n_true, 1, k) - 1]


def inverse_propensity(counts: NDArray[np.int64], n_rows: int, a: float, b: float) -> Reals:
    """Weight of each label by its training count, 1 + C (count + b)^-a with C = (ln n - 1)(b + 1)^a (Jain et al. 2016).

    `counts` and `n_rows` are those of the original training rows; augmented rows would change every PSP.
    """
    c = (np.log(max(n_rows, 1)) - 1) * (b + 1) ** a
    return np.asarray(1 + c * (counts + b) ** -a)


@dataclass(frozen=True, eq=False)
class Gains:
    """The weights of true labels over the first places, in the order predicted and in the best order."""

    matches: Matches
    found: Reals  # (n, places): weight of the label predicted here, 0 where it is wrong
    best: Reals  # (n, places): the row's largest weights, largest first, filled with 0


def find_gains(matches: Matches, weights: Reals, places: int) -> Gains:
    """The weights found in the first `places` places, enough for every k up to that."""
    ids, right = matches.ids[:, :places], matches.right[:, :places]
    found = np.zeros((len(matches), places))
    found[:, : ids.shape[1]] = np.where(right, weights[ids], 0.0)  # id -1 reads the last weight, and is never right
    rows = np.repeat(np.arange(len(matches)), matches.n_true)
    values = weights[matches.truth.indices]
    order = np.lexsort((-values, rows))
    place = np.arange(len(rows)) - np.repeat(matches.truth.indptr[:-1], matches.n_true)
    best = np.zeros((len(matches), places))
    kept = place < places
    best[rows[kept], place[kept]] = values[order][kept]
    return Gains(matches, found, best)


def ps_precision_at(k: int, gains: Gains) -> tuple[Reals, Reals]:
    """(gained, possible) per row; PSP@k is sum(gained) / sum(possible)."""
    return gains.found[:, :k].sum(axis=1) / k, gains.best[:, :k].sum(axis=1) / k


def ps_ndcg_at(k: int, gains: Gains) -> tuple[Reals, Reals]:
    """(gained, possible) per row, both over the row's ideal discount; PSnDCG@k is sum(gained) / sum(possible)."""
    ideal = _ideal_discount(k, gains.matches.n_true)
    return _discounted(k, gains.found) / ideal, _discounted(k, gains.best) / ideal


def coverage_at(k: int, matches: Matches) -> float:
    """Share of the distinct labels of the truth that are found at least once among the first k places."""
    present = len(np.unique(matches.truth.indices))
    found = len(np.unique(matches.ids[:, :k][matches.right[:, :k]]))
    return found / present if present else 0.0


def f1_by_label_at(k: int, matches: Matches) -> Reals:
    """F1 of each label over the first k places: (n_labels,); NaN where a label is neither true nor predicted anywhere."""
    n_labels = matches.truth.shape[1]
    ids, right = matches.ids[:, :k], matches.right[:, :k]
    hit = np.bincount(ids[right], minlength=n_labels)
    predicted = np.bincount(ids[ids >= 0], minlength=n_labels)
    true = np.bincount(matches.truth.indices, minlength=n_labels)
    with np.errstate(invalid="ignore"):
        return 2 * hit / (predicted + true)


def contribution_at(k: int, matches: Matches, bins: Ints) -> Reals:
    """Contribution of the labels of each bin to P@k: (n_bins,), summing to P@k over all rows."""
    ids, right = matches.ids[:, :k], matches.right[:, :k]
    hits = np.bincount(bins[ids[right]], minlength=int(bins.max(initial=0)) + 1)
    return hits / (k * max(len(matches), 1))


def lost_information(clusters: Ints, labels: csr_matrix) -> tuple[float, float]:
    """Mutual information between labels and rows that is lost when labels are merged into clusters.

    I(label; row) - I(cluster; row) with every (row, label) pair equally likely (Dhillon et al. 2003; ECLARE, Table 7).

    Returns:
        The loss in nats, and as a share of I(label; row): 0 keeps all, 1 loses all.
    """
    counts = csr_matrix((np.ones(labels.nnz), labels.indices, labels.indptr), shape=labels.shape)
    member = csr_matrix((np.ones(len(clusters)), (np.arange(len(clusters)), clusters)))
    whole = _mutual_information(counts)
    kept = _mutual_information(csr_matrix(counts @ member))
    return whole - kept, 1 - kept / whole if whole > 0 else 0.0


def _mutual_information(counts: csr_matrix) -> float:
    total = counts.sum()
    if not total:
        return 0.0
    by_row = np.asarray(counts.sum(axis=1)).ravel()
    by_column = np.asarray(counts.sum(axis=0)).ravel()
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    share = counts.data / total
    return float(np.sum(share * np.log(counts.data * total / (by_row[rows] * by_column[counts.indices]))))

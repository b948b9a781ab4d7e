"""Probability that a label's text carries another label: the plain conditional G_ij / G_jj, corrected by what can be observed.

A label seen once gives all its companions probability 1, and companions may be mere siblings. Both show in the training
rows themselves. Some labels have a twin: a training row with the label's very text. What such a row carries is the right
answer to the question, so the estimate is fitted to the twins, over the counts (G_ij, G_jj) behind each pair. Where twins
are too few, each label's rows are taken out one at a time, and the estimate is fitted to what the row taken out carried:
then it corrects for few counts, but cannot see siblings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from longtail.core.values import Ints, LabelGraph, Split, Texts
from longtail.data.twins import carries, find_twins

MIN_PAIRS = 200  # pairs of twins below which they are too few to fit four numbers to
MAX_HELD = 8_000_000  # pairs that are looked at; beyond that, those of some labels stand for all
MAX_PAIRS = 1_000_000  # pairs that are fitted; more change nothing
RIDGE = 1e-4


@dataclass(frozen=True, eq=False)
class Estimate:
    """P(i | text of j) as a logistic function of the counts behind the pair (j, i)."""

    weights: NDArray[np.float64]  # of 1, log G_ij, log G_jj, G_ij / G_jj
    source: str  # "twins", or "rows left out"
    n_pairs: int  # that it was fitted to
    precision: float  # share of them that were right, whatever their counts

    def probability(self, together: NDArray[np.floating], counts: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probability of each pair that met in `together` of the `counts` rows of its first label."""
        return np.asarray(expit(_features(together, counts) @ self.weights))


def estimate(train: Split, label_texts: Texts | None, graph: LabelGraph) -> Estimate:
    """Fit to the twins of `train`, or to rows left out where twins are too few. `graph` is one of co-occurrence."""
    twin = np.full(graph.n_labels, -1, np.int32) if label_texts is None else find_twins(train.texts, label_texts)
    labels, others, together = pairs_of(graph, _some_labels(graph, twin))
    counts = graph.counts[labels].astype(np.float64)
    known = twin[labels] >= 0
    rows, others = twin[labels[known]], others[known]
    right = carries(train.labels, rows, others)
    # a twin that carries its own label is among the rows counted; taken out, it leaves (G_ij - 1, G_jj - 1) or (G_ij, G_jj - 1)
    own = carries(train.labels, rows, labels[known])
    left, of = together[known] - (own & right), counts[known] - own
    seen = _still_stored(left, counts[known], graph)
    if seen.sum() >= MIN_PAIRS:
        return _fit(left[seen], of[seen], right[seen].astype(np.float64), np.ones(int(seen.sum())), "twins")
    # the same for every row of a label, a share G_ij / G_jj of which carries i
    with_it, without = _still_stored(together - 1, counts, graph), counts > together
    left = np.concatenate([together[with_it] - 1, together[without]])
    of = np.concatenate([counts[with_it], counts[without]]) - 1
    share = together / counts
    times = np.concatenate([share[with_it], 1 - share[without]])
    return _fit(left, of, np.repeat([1.0, 0.0], [with_it.sum(), without.sum()]), times, "rows left out")


def _some_labels(graph: LabelGraph, twin: Ints) -> Ints:
    """Labels to learn from: all, or where they have too many pairs to hold, every so many of those with twins."""
    degrees = np.diff(graph.weights.indptr)
    everything = np.arange(graph.n_labels, dtype=np.int32)
    if degrees.sum() <= MAX_HELD:
        return everything
    known = everything[twin >= 0]
    some = known if degrees[known].sum() >= MIN_PAIRS else everything
    return some[:: -(-int(degrees[some].sum()) // MAX_HELD)]


def _still_stored(left: NDArray[np.float64], counts: NDArray[np.float64], graph: LabelGraph) -> NDArray[np.bool_]:
    """Whether a pair that met in `left` of `counts` rows would be in the graph.

    Of pairs that met in (G_ij, G_jj) and lost a row, only those are to be learned from whose like, that lost a row without
    i, are there too; else, close to the threshold, all would seem right.
    """
    return np.asarray(left / counts > float(graph.settings.get("delta", 0.0)))


def _fit(
    together: NDArray[np.float64],
    counts: NDArray[np.float64],
    right: NDArray[np.float64],
    times: NDArray[np.float64],
    source: str,
) -> Estimate:
    """Weighted logistic regression of `right`, each pair counted `times`."""
    n_pairs = len(right)
    total = float(times.sum())
    precision = float((right * times).sum() / total) if total else 0.0
    if not total:  # no pair to learn from, so all that met did so in every row of theirs: the plain conditional, 1, is all there is
        return Estimate(np.array([-50.0, 0, 0, 100.0]), source, 0, 0.0)
    if n_pairs > MAX_PAIRS:
        some = np.linspace(0, n_pairs - 1, MAX_PAIRS).astype(np.int64)
        together, counts, right, times = together[some], counts[some], right[some], times[some]
    features, times = _features(together, counts), times / times.sum()

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = features @ weights
        value = float(times @ (np.logaddexp(0, scores) - right * scores)) + RIDGE * float(weights @ weights)
        return value, features.T @ (times * (expit(scores) - right)) + 2 * RIDGE * weights

    from scipy.optimize import minimize  # a fifth of a second, which loading a model need not wait for

    weights = minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x
    return Estimate(np.asarray(weights), source, n_pairs, precision)


def _features(together: NDArray[np.floating], counts: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.column_stack([np.ones(len(together)), np.log(together), np.log(counts), together / counts])


def pairs_of(graph: LabelGraph, asked: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """(j, i, G_ij) of every stored pair of two different labels, the first among those asked for."""
    rows = graph.weights[asked]
    labels = np.repeat(asked, np.diff(rows.indptr))
    others = rows.indices.astype(np.int32, copy=False)
    apart = labels != others
    together = np.rint(rows.data[apart].astype(np.float64) * graph.counts[labels[apart]])
    return labels[apart], others[apart], together

"""Metrics: worked by hand, against naive versions, and against napkinXC."""

from __future__ import annotations

from math import log, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from longtail import Predictions
from longtail.core.values import labels_from_rows
from longtail.data.frequency import equal_volume_bins
from longtail.evaluation import metrics
from tests import naive

KS = (1, 3, 5)


def predictions(rows: list[list[int]], k: int | None = None) -> Predictions:
    width = max([len(row) for row in rows] + [k or 0])
    ids = np.array([row + [-1] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)
    return Predictions(ids, np.where(ids >= 0, 1.0, -np.inf).astype(np.float32))


# row 0: two of three right; row 1: one right behind a wrong one, then an empty place; row 2: nothing is true
FOUND = predictions([[0, 1, 2], [3, 1, -1], [0, 1, 2]])
TRUTH = labels_from_rows([[0, 2], [1, 2], []], 4)
MATCHES = metrics.find_matches(FOUND, TRUTH)


def test_precision_by_hand() -> None:
    assert metrics.precision_at(1, MATCHES).tolist() == [1, 0, 0]
    assert metrics.precision_at(3, MATCHES).tolist() == [2 / 3, 1 / 3, 0]  # the empty third place counts as wrong
    assert metrics.precision_at(5, MATCHES).tolist() == [2 / 5, 1 / 5, 0]  # so do places that were never predicted


def test_recall_and_hits_by_hand() -> None:
    assert metrics.recall_at(1, MATCHES).tolist() == [1 / 2, 0, 0]
    assert metrics.recall_at(3, MATCHES).tolist() == [1, 1 / 2, 0]  # a row without labels scores 0
    assert metrics.hits_at(1, MATCHES).tolist() == [1, 0, 0]
    assert metrics.hits_at(3, MATCHES).tolist() == [1, 1, 0]


def test_ndcg_by_hand() -> None:
    assert metrics.ndcg_at(1, MATCHES).tolist() == [1, 0, 0]
    ideal = 1 + 1 / log2(3)  # two true labels fill two places, however large k is
    np.testing.assert_allclose(metrics.ndcg_at(3, MATCHES), [(1 + 1 / log2(4)) / ideal, (1 / log2(3)) / ideal, 0])


def test_propensity_by_hand() -> None:
    weights = metrics.inverse_propensity(np.array([0, 3]), n_rows=100, a=0.5, b=1.0)
    c = (log(100) - 1) * 2**0.5
    np.testing.assert_allclose(weights, [1 + c, 1 + c / 2])


def test_psp_is_a_ratio_of_sums() -> None:
    gains = metrics.find_gains(MATCHES, np.array([1.0, 2.0, 4.0, 8.0]), 3)
    gained, possible = metrics.ps_precision_at(1, gains)
    assert gained.tolist() == [1, 0, 0]
    assert possible.tolist() == [4, 4, 0]  # best first: label 2 in both rows, nothing in the row without labels
    gained, possible = metrics.ps_precision_at(3, gains)
    np.testing.assert_allclose(gained * 3, [5, 2, 0])
    np.testing.assert_allclose(possible * 3, [5, 6, 0])


def test_psndcg_by_hand() -> None:
    gains = metrics.find_gains(MATCHES, np.array([1.0, 2.0, 4.0, 8.0]), 3)
    gained, possible = metrics.ps_ndcg_at(3, gains)
    ideal = 1 + 1 / log2(3)
    np.testing.assert_allclose(gained, [(1 + 4 / log2(4)) / ideal, (2 / log2(3)) / ideal, 0])
    np.testing.assert_allclose(possible, [(4 + 1 / log2(3)) / ideal, (4 + 2 / log2(3)) / ideal, 0])


def test_coverage_by_hand() -> None:
    assert metrics.coverage_at(1, MATCHES) == 1 / 3  # of labels 0, 1, 2 only 0 is found in first place
    assert metrics.coverage_at(3, MATCHES) == 1.0


def test_f1_by_label_by_hand() -> None:
    # predicted 2, 3, 2, 1 times; true 1, 1, 2, 0 times; right 1, 1, 1, 0 times
    np.testing.assert_allclose(metrics.f1_by_label_at(3, MATCHES), [2 / 3, 2 / 4, 2 / 4, 0])
    nobody = metrics.find_matches(predictions([[0]]), labels_from_rows([[0]], 2))
    assert np.isnan(metrics.f1_by_label_at(1, nobody)[1])  # neither true nor predicted: no F1


def test_a_repeated_label_counts_once() -> None:
    matches = metrics.find_matches(predictions([[1, 1, 1]]), labels_from_rows([[1]], 2))
    assert metrics.precision_at(3, matches).tolist() == [1 / 3]
    assert metrics.recall_at(3, matches).tolist() == [1]


def test_relevance_of_zero_is_not_true() -> None:
    matches = metrics.find_matches(predictions([[0, 1]]), csr_matrix(([0.0, 0.3], [0, 1], [0, 2]), shape=(1, 2)))
    assert matches.right.tolist() == [[False, True]]


def test_equal_volume_bins_by_hand() -> None:
    # 12 pairs: label 1 alone holds half of them
    assert equal_volume_bins(np.array([1, 6, 1, 4]), 2).tolist() == [1, 0, 1, 1]
    assert equal_volume_bins(np.array([5, 5, 5, 5, 5]), 5).tolist() == [0, 1, 2, 3, 4]
    assert equal_volume_bins(np.array([0, 0]), 5).tolist() == [0, 0]


def test_contributions_add_up_to_precision() -> None:
    bins = np.array([0, 0, 1, 1], np.int32)
    added = metrics.contribution_at(3, MATCHES, bins)
    np.testing.assert_allclose(added, [2 / 9, 1 / 9])
    np.testing.assert_allclose(added.sum(), metrics.precision_at(3, MATCHES).mean())


def test_lost_information_by_hand() -> None:
    # two rows, each with two labels of its own: I(label; row) = log 2
    labels = labels_from_rows([[0, 1], [2, 3]], 4)
    loss, share = metrics.lost_information(np.array([0, 0, 1, 1], np.int32), labels)
    assert (loss, share) == pytest.approx((0, 0), abs=1e-12)  # clusters follow the rows: nothing is lost
    loss, share = metrics.lost_information(np.array([0, 1, 0, 1], np.int32), labels)
    assert (loss, share) == pytest.approx((log(2), 1))  # each cluster is spread over both rows: all is lost


cases = st.integers(2, 8).flatmap(
    lambda n_labels: st.lists(
        st.tuples(st.lists(st.integers(0, n_labels - 1), max_size=7), st.sets(st.integers(0, n_labels - 1), max_size=n_labels)),
        min_size=1,
        max_size=8,
    ).map(lambda rows: (n_labels, rows))
)


@given(cases)
def test_equals_the_naive_version(case: tuple[int, list[tuple[list[int], set[int]]]]) -> None:
    n_labels, rows = case
    matches = metrics.find_matches(
        predictions([found for found, _ in rows]), labels_from_rows([sorted(true) for _, true in rows], n_labels)
    )
    weights = np.linspace(1, 3, n_labels) ** 2
    for k in KS:
        assert metrics.precision_at(k, matches).tolist() == pytest.approx([naive.precision(*row, k) for row in rows])
        assert metrics.recall_at(k, matches).tolist() == pytest.approx([naive.recall(*row, k) for row in rows])
        assert metrics.ndcg_at(k, matches).tolist() == pytest.approx([naive.ndcg(*row, k) for row in rows])
        gained, possible = metrics.ps_precision_at(k, metrics.find_gains(matches, weights, max(KS)))
        assert gained.sum() / max(possible.sum(), 1e-300) == pytest.approx(naive.psp(rows, weights.tolist(), k))
        assert metrics.coverage_at(k, matches) == pytest.approx(naive.coverage(rows, k))


def random_case(seed: int) -> tuple[list[list[int]], list[list[int]], int]:
    """Predictions without repeats, some short, some empty; truths of which some are empty."""
    random = np.random.default_rng(seed)
    n_labels = int(random.integers(6, 60))
    found = [random.permutation(n_labels)[: random.integers(0, 7)].tolist() for _ in range(40)]
    true = [sorted(random.permutation(n_labels)[: random.integers(0, 6)].tolist()) for _ in range(40)]
    return found, true, n_labels


ADVERSARIAL = [
    ([[0, 1, 2, 3, 4]], [[0, 1, 2, 3, 4]], 5),  # all right
    ([[0, 1, 2, 3, 4]], [[5]], 6),  # all wrong
    ([[]], [[0]], 1),  # nothing predicted
    ([[0], [1]], [[], [1]], 2),  # a row without labels
    ([[4], [4], [4]], [[0, 4], [4], [1, 2, 3, 4]], 5),  # one label everywhere, short rows
]


@pytest.mark.parametrize("case", [*(random_case(seed) for seed in range(20)), *ADVERSARIAL])
def test_equals_napkinxc(case: tuple[list[list[int]], list[list[int]], int]) -> None:
    theirs = pytest.importorskip("napkinxc.metrics")
    found, true, n_labels = case
    matches = metrics.find_matches(predictions(found, k=5), labels_from_rows(true, n_labels))
    weights = np.random.default_rng(0).uniform(1, 10, n_labels)
    for k in KS:
        np.testing.assert_allclose(metrics.precision_at(k, matches).mean(), theirs.precision_at_k(true, found, k=k)[-1], atol=1e-6)
        np.testing.assert_allclose(metrics.recall_at(k, matches).mean(), theirs.recall_at_k(true, found, k=k)[-1], atol=1e-6)
        np.testing.assert_allclose(metrics.ndcg_at(k, matches).mean(), theirs.ndcg_at_k(true, found, k=k)[-1], atol=1e-6)
        np.testing.assert_allclose(metrics.coverage_at(k, matches), theirs.coverage_at_k(true, found, k=k)[-1], atol=1e-6)
        for ours, their in ((metrics.ps_precision_at, theirs.psprecision_at_k), (metrics.ps_ndcg_at, theirs.psndcg_at_k)):
            gained, possible = ours(k, metrics.find_gains(matches, weights, max(KS)))
            np.testing.assert_allclose(gained.sum() / possible.sum(), their(true, found, weights, k=k)[-1], atol=1e-6)


def test_propensities_equal_napkinxc() -> None:
    theirs = pytest.importorskip("napkinxc.metrics")
    rows = [[0, 1], [1], [1, 2], [0], [1]]
    counts = np.array([2, 4, 1])
    ours = metrics.inverse_propensity(counts, 5, 0.6, 2.6)
    np.testing.assert_allclose(ours, theirs.Jain_et_al_inverse_propensity(labels_from_rows(rows, 3), A=0.6, B=2.6), atol=1e-6)

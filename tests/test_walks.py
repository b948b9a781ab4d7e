"""Walks, PageRank and what is made from their counts, against plain second versions and the exact Markov chain."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.stats import chi2

from longtail.core.errors import DataError, SettingError, UnknownName
from longtail.core.kernels.walks import walk_rows
from longtail.core.values import labels_from_rows
from longtail.data.graph import normalise
from longtail.data.graph import walks as module
from longtail.data.graph.cooccurrence import cooccurrence
from longtail.data.graph.pagerank import pagerank
from longtail.data.graph.second_order import second_order
from longtail.data.graph.walks import walk
from tests import naive_graph
from tests.test_cooccurrence import label_rows, long_tailed

CHAIN = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 1, 4], [2]]  # labels 0..4 in a ring, with weak links


def counts_of(graph_rows: list[list[int]], n_labels: int, length: int, restart: float, seed: int) -> list[dict[int, int]]:
    """All visit counts, before top-k."""
    labels = labels_from_rows(graph_rows, n_labels)
    by_label = csr_matrix(labels.T)
    ends, ids, found = labels.indptr.astype(np.int64), labels.indices, by_label.indptr.astype(np.int64)
    items, counts, stops = walk_rows(0, n_labels, found, by_label.indices, ends, ids, length, np.uint64(restart * 2.0**32), seed)
    return [dict(zip(items[a:b].tolist(), counts[a:b].tolist(), strict=True)) for a, b in zip(stops, stops[1:], strict=False)]


@given(label_rows(), st.integers(1, 60), st.sampled_from([0.0, 0.3, 0.8, 1.0]), st.integers(0, 2**40))
def test_visits_equal_the_naive_version(rows_and_labels: tuple[list[list[int]], int], length: int, restart: float, seed: int) -> None:
    rows, n_labels = rows_and_labels
    found = counts_of(rows, n_labels, length, restart, seed)
    assert found == [dict(naive_graph.visits(rows, label, length, restart, seed)) for label in range(n_labels)]


def test_more_labels_than_walk_together() -> None:
    rows = [[label for label in row if label % 7] for row in long_tailed(300, 120)]
    found = counts_of(rows, 120, 90, 0.5, 7)
    assert found == [dict(naive_graph.visits(rows, label, 90, 0.5, 7)) for label in range(120)]
    assert not found[7] and found[8], "a label without rows stands among them"


@given(label_rows(), st.integers(1, 4), st.sampled_from([None, 2, 5]), st.integers(0, 9))
def test_graph_equals_the_naive_version(rows_and_labels: tuple[list[list[int]], int], top: int, head: int | None, seed: int) -> None:
    rows, n_labels = rows_and_labels
    labels = labels_from_rows(rows, n_labels)
    counted = naive_graph.dense(naive_graph.walk(rows, n_labels, 40, 0.8, top, head, seed))
    plain = walk(labels, length=40, top=top, head=head, seed=seed, normalise="none").weights
    assert np.array_equal(plain.toarray(), counted)
    scaled = walk(labels, length=40, top=top, head=head, seed=seed).weights
    assert np.allclose(scaled.toarray(), naive_graph.square_root(counted), atol=1e-6)
    assert scaled.has_sorted_indices and scaled.data.max(initial=0) <= 1 + 1e-6
    assert (scaled.diagonal() > 0).all()


@pytest.mark.parametrize(("restart", "length"), [(0.8, 400), (0.2, 50), (0.0, 7), (1.0, 3)])
def test_frequencies_fit_the_exact_chain(restart: float, length: int) -> None:
    """Chi-square over many seeds. Steps of one walk depend on each other, so its last step alone is counted, once a seed;
    and the mean of all steps must lie near the exact expectation."""
    n_labels, label, n_seeds = 5, 0, 3000
    total, last = np.zeros(n_labels), np.zeros(n_labels)
    for seed in range(n_seeds):
        whole, shorter = (counts_of(CHAIN, n_labels, steps, restart, seed)[label] for steps in (length, length - 1))
        for other, count in whole.items():
            total[other] += count
            last[other] += count - shorter.get(other, 0)
    expected = naive_graph.expected_visits(CHAIN, n_labels, label, length, restart)
    final = n_seeds * (expected - naive_graph.expected_visits(CHAIN, n_labels, label, length - 1, restart))
    possible = final > 1e-9
    assert last.sum() == n_seeds and not last[~possible].any()
    statistic = ((last - final)[possible] ** 2 / final[possible]).sum()
    assert statistic < chi2.ppf(0.999, possible.sum() - 1)
    assert np.allclose(total / n_seeds / length, expected / length, atol=0.012)


def test_chi_square_would_find_a_wrong_chain() -> None:
    """The same measure, held against a chain with another restart, must fail."""
    seen, wrong = np.zeros(5), 3000 * naive_graph.expected_visits(CHAIN, 5, 0, 1, 0.8)
    for seed in range(3000):
        for other, count in counts_of(CHAIN, 5, 3, 0.2, seed)[0].items():
            seen[other] += count / 3
    possible = wrong > 1e-9
    assert seen[~possible].any() or ((seen - wrong)[possible] ** 2 / wrong[possible]).sum() > chi2.ppf(0.999, possible.sum() - 1)


@pytest.mark.parametrize("cores", [1, 3])
def test_threads_and_blocks_change_nothing(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = labels_from_rows(long_tailed(300, 120), 120)
    usual = walk(labels, length=50, seed=3).weights
    ranked = pagerank(labels).weights
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(module, "BLOCK_STEPS", 350)
    monkeypatch.setattr("longtail.data.graph.pagerank.BLOCK_PAIRS", 40)
    for before, after in ((usual, walk(labels, length=50, seed=3).weights), (ranked, pagerank(labels).weights)):
        for part in ("data", "indices", "indptr"):
            assert np.array_equal(getattr(before, part), getattr(after, part))


def test_seed_decides() -> None:
    labels = labels_from_rows(CHAIN, 5)
    same, other = (walk(labels, length=30, seed=seed).weights.toarray() for seed in (0, 1))
    assert np.array_equal(same, walk(labels, length=30, seed=0).weights.toarray())
    assert not np.array_equal(same, other)


def test_head_labels_point_to_themselves_only() -> None:
    rows = [[0, 1], [0, 2], [0, 1, 2]]
    weights = walk(labels_from_rows(rows, 4), head=2).weights.toarray()
    assert weights[0].tolist() == [1, 0, 0, 0] and weights[:, 0].tolist() == [1, 0, 0, 0]
    assert weights[3].tolist() == [0, 0, 0, 1], "a label without rows keeps itself"
    assert weights[1, 2] > 0


@pytest.mark.parametrize("sparse", [False, True])
def test_unlike_labels_are_pruned(sparse: bool) -> None:
    rows = [[0, 1, 2, 3]] * 3
    vectors = np.array([[2.0, 0], [1, 0], [0, 1], [0, 0]], np.float32)
    given_vectors = csr_matrix(vectors) if sparse else vectors
    graph = walk(labels_from_rows(rows, 4), label_vectors=given_vectors, min_similarity=0.5)
    near = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]  # a label without a vector keeps itself
    assert (graph.weights.toarray() > 0).astype(int).tolist() == near
    assert graph.settings["min_similarity"] == 0.5
    kept = walk(labels_from_rows(rows, 4), label_vectors=given_vectors, min_similarity=0.0)
    assert kept.weights.nnz == 16


def test_empty_and_single() -> None:
    assert walk(labels_from_rows([], 0)).weights.shape == (0, 0)
    assert walk(labels_from_rows([], 2)).weights.toarray().tolist() == [[1, 0], [0, 1]]
    assert walk(labels_from_rows([[0]], 1)).weights.toarray().tolist() == [[1.0]]
    assert pagerank(labels_from_rows([], 0)).weights.shape == (0, 0)
    assert np.allclose(pagerank(labels_from_rows([[0]], 2), tolerance=1e-9).weights.toarray(), [[1, 0], [0, 0]])


@given(label_rows(), st.sampled_from([0.2, 0.8, 1.0]), st.sampled_from([1e-9, 1e-3, 0.03]))
def test_pagerank_stays_within_its_bound(rows_and_labels: tuple[list[list[int]], int], restart: float, tolerance: float) -> None:
    rows, n_labels = rows_and_labels
    graph = pagerank(labels_from_rows(rows, n_labels), restart, top=n_labels, tolerance=tolerance)
    missing = naive_graph.pagerank(rows, n_labels, restart) - graph.weights.toarray()
    assert missing.min(initial=0) > -1e-6
    assert (missing <= 2 * tolerance * graph.counts + 1e-6).all()


def test_pagerank_is_what_long_walks_count() -> None:
    """A walk counts the label after each hop, PageRank the label before: one hop apart."""
    exact = naive_graph.pagerank(CHAIN, 5, 0.3) @ naive_graph.hops(CHAIN, 5)
    counted = counts_of(CHAIN, 5, 200_000, 0.3, 1)
    for label in range(5):
        assert np.allclose([counted[label].get(other, 0) / 200_000 for other in range(5)], exact[label], atol=0.005)


def test_pagerank_keeps_the_top() -> None:
    labels = labels_from_rows(CHAIN, 5)
    whole, cut = (pagerank(labels, top=top, tolerance=1e-9).weights for top in (5, 3))
    for label in range(5):
        row = whole[label].toarray()[0]
        others = sorted((other for other in range(5) if other != label), key=lambda other: (-row[other], other))[:2]
        assert cut[label].indices.tolist() == sorted([label, *others])


@given(label_rows(), st.sampled_from([None, 1, 3]))
def test_second_order_equals_the_product(rows_and_labels: tuple[list[list[int]], int], top: int | None) -> None:
    rows, n_labels = rows_and_labels
    graph = cooccurrence(labels_from_rows(rows, n_labels))
    weights = graph.weights.toarray().astype(np.float64)
    square = weights @ weights
    if top is not None:
        for row in square:
            order = np.lexsort((np.arange(n_labels), -row))
            row[order[top:]] = 0
    found = second_order(graph, top)
    assert np.allclose(found.weights.toarray(), square, atol=1e-6)
    assert found.settings == {"delta": 0.1, "top": -1, "of": "cooccurrence", "second_order_top": -1 if top is None else top}


def test_normalisations_by_hand() -> None:
    counts = csr_matrix(np.array([[4.0, 0], [5, 4]], np.float32))
    assert np.allclose(normalise.square_root(counts).toarray(), [[4 / np.sqrt(4 * 9), 0], [5 / np.sqrt(9 * 9), 4 / np.sqrt(9 * 4)]])
    assert np.allclose(normalise.diagonal(counts).toarray(), [[1, 0], [1.25, 1]])
    assert normalise.diagonal(csr_matrix((2, 2), dtype=np.float32)).nnz == 0


def test_perron() -> None:
    """Steps of a ring are doubly stochastic, so all labels weigh the same and the two directions are averaged."""
    ring = csr_matrix(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], np.float32))
    assert np.allclose(normalise.perron_vector(ring), 1 / 3)
    assert np.allclose(normalise.perron(ring).toarray(), [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    graph = walk(labels_from_rows(CHAIN, 5), normalise="perron")
    assert np.allclose(graph.weights.toarray(), graph.weights.toarray().T)
    steps = walk(labels_from_rows(CHAIN, 5), normalise="none").weights.toarray()
    steps /= steps.sum(axis=1, keepdims=True)
    vector = normalise.perron_vector(csr_matrix(steps))
    assert np.allclose(0.99 * vector @ steps + 0.01 / 5, vector) and vector.sum() == pytest.approx(1)
    assert normalise.perron(csr_matrix((0, 0), dtype=np.float32)).shape == (0, 0)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"length": 0}, "length came as 0"),
        ({"restart": 1.5}, "restart came as 1.5"),
        ({"seed": -1}, "seed came as -1"),
        ({"top": 0}, "top came as 0"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        walk(labels_from_rows([[0]], 1), **setting)


def test_other_wrong_settings_are_named() -> None:
    labels = labels_from_rows([[0]], 1)
    with pytest.raises(UnknownName, match="Did you mean 'perron'"):
        walk(labels, normalise="peron")
    with pytest.raises(DataError, match="label_vectors came with 2 rows; wanted one for each of 1 labels"):
        walk(labels, label_vectors=np.ones((2, 3), np.float32))
    with pytest.raises(SettingError, match="restart came as 0"):
        pagerank(labels, restart=0)
    with pytest.raises(SettingError, match="tolerance came as 0"):
        pagerank(labels, tolerance=0)

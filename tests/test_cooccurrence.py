"""Co-occurrence graphs, against the definition and a plain second version."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from longtail.core.errors import SettingError
from longtail.core.kernels.cooccurrence import least_counts, sort_distinct
from longtail.core.values import labels_from_rows
from longtail.data.graph import cooccurrence as module
from longtail.data.graph import rows as rows_module
from longtail.data.graph.cooccurrence import cooccurrence, symmetric_cooccurrence
from longtail.data.graph.rows import Rows, blocks_of_equal_work, rows_of_labels
from tests import naive_graph


@st.composite
def label_rows(draw: Any, most_labels: int = 12) -> tuple[list[list[int]], int]:
    """Rows of distinct sorted labels, some empty, and a number of labels that may be larger than needed."""
    n_labels = draw(st.integers(1, most_labels))
    row = st.lists(st.integers(0, n_labels - 1), max_size=n_labels, unique=True).map(sorted)
    return draw(st.lists(row, max_size=25)), n_labels


def long_tailed(n_rows: int, n_labels: int, seed: int = 0) -> list[list[int]]:
    """Rows of very different sizes; low ids are frequent, with more than 255 rows for the first ones."""
    random = np.random.default_rng(seed)
    sizes = np.minimum(random.zipf(1.6, n_rows), 60)
    return [sorted({int(label) for label in random.random(size) ** 3 * n_labels}) for size in sizes]


@given(label_rows(), st.sampled_from([0.0, 0.1, 0.2, 1 / 3, 0.5, 0.9]), st.sampled_from([None, 1, 2, 5]))
def test_equals_the_naive_version(rows_and_labels: tuple[list[list[int]], int], delta: float, top: int | None) -> None:
    rows, n_labels = rows_and_labels
    graph = cooccurrence(labels_from_rows(rows, n_labels), delta, top)
    wanted = naive_graph.dense(naive_graph.cooccurrence(rows, n_labels, delta, top))
    assert np.array_equal(graph.weights.toarray(), wanted.astype(np.float32))
    assert graph.weights.has_sorted_indices and graph.weights.dtype == np.float32
    assert graph.counts.tolist() == [sum(label in row for row in rows) for label in range(n_labels)]


@given(label_rows(), st.sampled_from([0.0, 0.1, 0.5, 0.7]))
def test_symmetric_equals_the_naive_version(rows_and_labels: tuple[list[list[int]], int], delta: float) -> None:
    rows, n_labels = rows_and_labels
    weights = symmetric_cooccurrence(labels_from_rows(rows, n_labels), delta).weights.toarray()
    assert np.array_equal(weights, naive_graph.dense(naive_graph.symmetric(rows, n_labels, delta)).astype(np.float32))
    assert np.array_equal(weights, weights.T)


@pytest.mark.parametrize("delta", [0.0, 0.1, 0.3])
def test_long_rows_and_frequent_labels(delta: float) -> None:
    """Labels in more than 255 rows take larger counters; rows of more than 24 neighbours are sorted through bits."""
    labels = labels_from_rows(long_tailed(2500, 300), 300)
    counts = np.bincount(labels.indices, minlength=300)
    assert counts.max() > 255
    together = (labels.T @ labels).toarray().astype(np.int64)
    shares = together / np.maximum(counts, 1)[:, None]
    graph = cooccurrence(labels, delta)
    assert delta or np.diff(graph.weights.indptr).max() > 24
    assert np.array_equal(graph.weights.toarray(), np.where(shares > delta, shares, 0).astype(np.float32))


@pytest.mark.parametrize("cores", [1, 3, 8])
@pytest.mark.parametrize("top", [None, 4])
def test_threads_and_blocks_change_nothing(cores: int, top: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = labels_from_rows(long_tailed(400, 90), 90)
    usual = cooccurrence(labels, 0.1, top).weights
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(module, "BLOCK_PAIRS", 50)
    other = cooccurrence(labels, 0.1, top).weights
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(usual, part), getattr(other, part))


def test_by_hand(shop: Any) -> None:
    """Juice stands in four rows: with apple in two, with press in two."""
    graph = cooccurrence(shop.train.labels)
    assert graph.weights[1].toarray().tolist() == [[0.5, 1.0, 0.0, 0.5]]
    assert graph.weights[2].toarray().tolist() == [[1.0, 0.0, 1.0, 0.0]]
    assert (graph.kind, graph.settings) == ("cooccurrence", {"delta": 0.1, "top": -1})
    assert cooccurrence(shop.train.labels, delta=0.5).weights[1].toarray().tolist() == [[0.0, 1.0, 0.0, 0.0]]  # above, not at
    assert symmetric_cooccurrence(shop.train.labels).weights[1, 0] == np.float32((2 / 4 + 2 / 3) / 2)


def test_own_label_stays_among_equals() -> None:
    """A label seen once has probability 1 for all its companions; the first of them would push it out."""
    weights = cooccurrence(labels_from_rows([[0, 1, 2, 3]], 4), top=2).weights
    assert [weights[label].indices.tolist() for label in range(4)] == [[0, 1], [0, 1], [0, 2], [0, 3]]


def test_empty_and_single() -> None:
    assert cooccurrence(labels_from_rows([], 0)).weights.shape == (0, 0)
    assert cooccurrence(labels_from_rows([], 3)).weights.nnz == 0
    assert cooccurrence(labels_from_rows([[], []], 3)).weights.nnz == 0
    assert cooccurrence(labels_from_rows([[0], [0]], 1)).weights.toarray().tolist() == [[1.0]]
    unseen = cooccurrence(labels_from_rows([[0, 2]], 4)).weights
    assert np.diff(unseen.indptr).tolist() == [2, 0, 2, 0]


def test_a_label_twice_in_a_row_counts_once() -> None:
    rough = csr_matrix((np.ones(5, np.float32), [1, 0, 1, 1, 0], [0, 3, 5]), shape=(2, 2))
    assert cooccurrence(rough).weights.toarray().tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert rough.indices.tolist() == [1, 0, 1, 1, 0], "what was given stays as it was"


@given(st.integers(0, 5000), st.sampled_from([0.0, 0.1, 0.05, 1 / 3, 0.7, 0.999]))
def test_least_counts_are_the_first_above_the_threshold(count: int, delta: float) -> None:
    least = int(least_counts(np.array([count]), delta)[0])
    if count:
        assert least >= 1 and least / count > delta and (least == 1 or (least - 1) / count <= delta)


@given(st.sets(st.integers(0, 9999), max_size=200))
def test_sort_distinct(items: set[int]) -> None:
    array = np.array(list(items), np.int32)
    words, summary = np.zeros(10_000 // 64 + 1, np.uint64), np.zeros(3, np.uint64)
    sort_distinct(array, words, summary)
    assert array.tolist() == sorted(items)
    assert not words.any() and not summary.any()


@given(label_rows(), st.integers(1, 4))
def test_rows_of_labels(rows_and_labels: tuple[list[list[int]], int], parts: int) -> None:
    rows, n_labels = rows_and_labels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "n_parts", lambda: parts)
        ends, found, masses = rows_of_labels(labels_from_rows(rows, n_labels))
    for label in range(n_labels):
        own = [place for place, row in enumerate(rows) if label in row]
        assert found[ends[label] : ends[label + 1]].tolist() == own
        assert masses[label] == sum(len(rows[place]) for place in own)


@given(st.lists(st.integers(0, 20), max_size=30), st.integers(1, 30))
def test_blocks_cover_everything_once(work: list[int], most: int) -> None:
    blocks = blocks_of_equal_work(np.array(work, np.int64), most)
    assert [place for first, last in blocks for place in range(first, last)] == list(range(len(work)))
    assert all(sum(work[first:last]) <= most or last == first + 1 for first, last in blocks)


def test_rows_grow() -> None:
    rows = Rows(3)
    rows.add(np.array([0, 2], np.int32), np.array([1.0, 0.5], np.float32), np.array([0, 2]))
    rows.add(np.array([1], np.int32), np.array([0.25], np.float32), np.array([0, 0, 1]))
    assert rows.done().toarray().tolist() == [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.0, 0.25, 0.0]]


@pytest.mark.parametrize(
    ("setting", "said"), [({"delta": 1.0}, "delta came as 1.0"), ({"delta": -0.1}, "delta"), ({"top": 0}, "top came as 0")]
)
def test_wrong_settings_are_named(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        cooccurrence(labels_from_rows([[0]], 1), **setting)

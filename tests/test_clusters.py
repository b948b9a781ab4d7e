"""Balanced clusters, centroids and meta-labels, by hand and against plain second versions."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail import Dataset
from longtail.core.errors import DataError, SettingError
from longtail.core.values import labels_from_rows
from longtail.data.graph.cooccurrence import cooccurrence
from longtail.data.graph.walks import walk
from longtail.evaluation.metrics import lost_information
from longtail.training.negatives import clusters as module
from longtail.training.negatives.clusters import Clusters, balanced_clusters, cluster_labels, label_centroids, smooth
from tests.naive_graph import MASK, STEP, mix
from tests.test_cooccurrence import long_tailed

Row = dict[int, np.float32]
STEPS = np.float32(2.0**30)


# ---- the plain second version


def naive_clusters(matrix: NDArray[np.float32], n_clusters: int, seed: int, rounds: int, in_order_of_id: bool) -> list[int]:
    """One node after the other, one row after the other, sums of a half made anew each round.

    Lengths of centroids are sums of squares, and a last bit decides between rows at equal distance; so the order matters:
    features by id, or as they are met.
    """
    unit: dict[int, Row] = {}
    for number, dense in enumerate(matrix):
        length = np.sqrt(sum(float(value) * float(value) for value in dense if value))
        if length > 0:
            unit[number] = {feature: value * np.float32(1 / length) for feature, value in enumerate(dense) if value}
    clusters: dict[int, int] = {}

    def divide(rows: list[int], first: int, last: int) -> None:
        if last - first == 1:
            clusters.update(dict.fromkeys(rows, first))
            return
        middle = (first + last) // 2
        n_left = middle * len(unit) // n_clusters - first * len(unit) // n_clusters
        if 0 < n_left < len(rows):
            left = set(naive_left([unit[row] for row in rows], n_left, seed, first, last, rounds, in_order_of_id))
            rows = [rows[place] for place in sorted(range(len(rows)), key=lambda place: place not in left)]
        divide(rows[:n_left], first, middle)
        divide(rows[n_left:], middle, last)

    divide(list(unit), 0, n_clusters)
    sizes = [list(clusters.values()).count(cluster) for cluster in range(n_clusters)]
    in_turn = sorted(range(n_clusters), key=lambda cluster: sizes[cluster])
    for turn, row in enumerate(row for row in range(len(matrix)) if row not in unit):
        clusters[row] = in_turn[turn % n_clusters]
    return [clusters[row] for row in range(len(matrix))]


def naive_left(rows: list[Row], n_left: int, seed: int, first: int, last: int, rounds: int, in_order_of_id: bool) -> list[int]:
    """The places of the rows that go left."""
    start = mix(mix(seed + STEP & MASK) ^ ((first << 32 | last) * STEP & MASK))
    one = mix(start + STEP & MASK) % len(rows)
    other = mix(start + 2 * STEP & MASK) % (len(rows) - 1)
    halves = [[one], [other + (other >= one)]]
    features = list(dict.fromkeys(feature for row in rows for feature in row))
    if in_order_of_id:
        features.sort()
    similarity = -np.inf
    for finished in range(rounds + 1):
        sums = [{f: sum(int(rows[at].get(f, np.float32(0)) * STEPS) for at in half) for f in features} for half in halves]
        lengths = []
        for half in sums:
            square = 0.0
            for feature in features:
                square += float(half[feature]) * float(half[feature])
            lengths.append(float(np.sqrt(square)))
        by = [1 / length if length else 0.0 for length in lengths]
        direction = {feature: np.float32(sums[0][feature] * by[0] - sums[1][feature] * by[1]) for feature in features}
        before, similarity = similarity, (lengths[0] + lengths[1]) / float(STEPS) / len(rows)
        if finished == 0:
            similarity = -np.inf
        elif similarity - before < 1e-4 or finished == rounds:
            break
        differences = []
        for row in rows:
            total = 0.0
            for feature, value in row.items():
                total += float(value) * float(direction[feature])
            differences.append(np.float32(total))
        ranked = sorted(range(len(rows)), key=lambda place: (-differences[place], place))
        halves = [ranked[:n_left], ranked[n_left:]]
    return halves[0]


@st.composite
def vectors(draw: st.DrawFn) -> tuple[NDArray[np.float32], int]:
    """Few features and small whole numbers, so that rows repeat, stand at equal distances, or are empty."""
    n_rows, n_features = draw(st.integers(1, 24)), draw(st.integers(1, 5))
    values = draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, -1]), min_size=n_rows * n_features, max_size=n_rows * n_features))
    return np.array(values, np.float32).reshape(n_rows, n_features), draw(st.integers(1, n_rows))


@given(vectors(), st.integers(0, 2**40), st.sampled_from([1, 2, 50]), st.booleans())
def test_clusters_equal_the_naive_version(made: tuple[NDArray[np.float32], int], seed: int, rounds: int, together: bool) -> None:
    matrix, n_clusters = made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGE", 1 if together else 1 << 13)
        found = balanced_clusters(csr_matrix(matrix), n_clusters, seed=seed, max_iterations=rounds)
    assert found.tolist() == naive_clusters(matrix, n_clusters, seed, rounds, in_order_of_id=together)


def grouped(n_rows: int, n_features: int, seed: int = 0) -> NDArray[np.float32]:
    """Rows around a dozen centres, nothing at equal distance."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((12, n_features))
    return (centres[random.integers(0, 12, n_rows)] + 0.7 * random.standard_normal((n_rows, n_features))).astype(np.float32)


@pytest.mark.parametrize("large", [30, 1 << 13])
def test_dense_and_sparse_rows_give_the_same_clusters(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = grouped(300, 20)
    matrix[[5, 80]] = 0
    monkeypatch.setattr(module, "LARGE", large)
    dense = balanced_clusters(matrix, 27, seed=3)
    assert np.array_equal(dense, balanced_clusters(csr_matrix(matrix), 27, seed=3))
    assert np.array_equal(dense, naive_clusters(matrix, 27, 3, 50, in_order_of_id=False))


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_threads_change_nothing(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = grouped(1000, 40)
    matrix[np.random.default_rng(1).random(matrix.shape) < 0.8] = 0
    monkeypatch.setattr(module, "LARGE", 150)
    usual = [balanced_clusters(kind(matrix), 100) for kind in (csr_matrix, np.asarray)]
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    for before, kind in zip(usual, (csr_matrix, np.asarray), strict=True):
        assert np.array_equal(before, balanced_clusters(kind(matrix), 100))


@given(st.integers(1, 60), st.integers(0, 60), st.data())
def test_sizes_differ_by_one_at_most(n_rows: int, n_empty: int, data: st.DataObject) -> None:
    n_clusters = data.draw(st.integers(1, n_rows + n_empty))
    matrix = np.concatenate([grouped(n_rows, 4), np.zeros((n_empty, 4), np.float32)])
    sizes = np.bincount(balanced_clusters(matrix, n_clusters), minlength=n_clusters)
    assert len(sizes) == n_clusters and sizes.max() - sizes.min() <= 1


def test_rows_without_features_are_spread() -> None:
    matrix = np.concatenate([grouped(64, 6), np.zeros((32, 6), np.float32)])
    found = balanced_clusters(matrix, 16)
    assert np.bincount(found[:64]).tolist() == [4] * 16 and np.bincount(found[64:]).tolist() == [2] * 16
    assert np.array_equal(found[:64], balanced_clusters(matrix[:64], 16)), "they do not disturb the others"
    assert balanced_clusters(csr_matrix((5, 3), dtype=np.float32), 2).tolist() == [0, 1, 0, 1, 0]
    assert balanced_clusters(np.zeros((3, 0), np.float32), 3).tolist() == [0, 1, 2]


def test_related_rows_come_together() -> None:
    """Two groups along two axes: any split of a group costs similarity."""
    matrix = np.array([[1, 0.1], [0.1, 1], [1, 0], [0, 1], [0.9, 0.1], [0.2, 1]], np.float32)
    for seed in range(10):
        found = balanced_clusters(matrix, 2, seed=seed)
        assert found[[0, 2, 4]].tolist() in ([0] * 3, [1] * 3) and found[[1, 3, 5]].tolist() in ([0] * 3, [1] * 3)


def test_length_of_rows_does_not_matter() -> None:
    matrix = grouped(100, 8)
    longer = matrix * 2.0 ** np.random.default_rng(0).integers(-40, 40, (100, 1))
    assert np.array_equal(balanced_clusters(matrix, 13), balanced_clusters(longer.astype(np.float32), 13))


def test_seed_decides() -> None:
    matrix = grouped(200, 8)
    assert np.array_equal(balanced_clusters(matrix, 32, seed=1), balanced_clusters(matrix, 32, seed=1))
    assert not np.array_equal(balanced_clusters(matrix, 32, seed=1), balanced_clusters(matrix, 32, seed=2))


def test_unsorted_and_repeated_features_count_as_their_sum() -> None:
    matrix = grouped(60, 6)
    backwards = np.tile(np.arange(6)[::-1], 2)  # every feature twice, half of it each time
    values = matrix[:, backwards] / 2
    values[::2, :6], values[::2, 6:] = matrix[::2, ::-1], 0  # in every other row whole at once
    untidy = csr_matrix((values.ravel(), np.tile(backwards, 60), np.arange(0, 721, 12)), shape=(60, 6))
    assert np.array_equal(balanced_clusters(matrix, 20), balanced_clusters(untidy, 20))
    assert untidy.nnz == 720, "the matrix given is left as it was"


def test_what_cannot_be_clustered_is_said() -> None:
    matrix = grouped(6, 3)
    with pytest.raises(SettingError, match=r"^clusters came as 7 for 6 labels; wanted at most one a label: clusters=6 or fewer.$"):
        balanced_clusters(matrix, 7)
    with pytest.raises(SettingError, match="clusters came as 0; wanted 1 or more"):
        balanced_clusters(matrix, 0)
    with pytest.raises(SettingError, match="there is nothing to cluster"):
        balanced_clusters(matrix[:0], 1)
    with pytest.raises(SettingError, match="seed came as -1"):
        balanced_clusters(matrix, 2, seed=-1)
    with pytest.raises(SettingError, match="max_iterations came as 0"):
        balanced_clusters(matrix, 2, max_iterations=0)
    with pytest.raises(DataError, match=r"shape \(3,\)"):
        balanced_clusters(matrix[0], 2)
    matrix[4, 1] = np.nan
    for broken in (matrix, csr_matrix(matrix)):
        with pytest.raises(DataError, match="vector of label 4 is not finite"):
            balanced_clusters(broken, 2)


# ---- centroids


def naive_unit_product(left: NDArray[np.float64], right: NDArray[np.float64], keep: int) -> NDArray[np.float64]:
    found = left @ right
    for row in found:
        row[sorted(range(len(row)), key=lambda at: (-abs(row[at]), at))[keep:]] = 0
        row /= np.linalg.norm(row) or 1
    return found


@given(st.integers(1, 12), st.integers(1, 8), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_centroids_equal_the_naive_version(n_rows: int, n_labels: int, n_features: int, keep: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    features = random.integers(-3, 4, (n_rows, n_features)) * (random.random((n_rows, n_features)) < 0.5)
    labels = random.integers(1, 4, (n_rows, n_labels)) * (random.random((n_rows, n_labels)) < 0.4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_PRODUCTS", 5)
        found = label_centroids(csr_matrix(features, dtype=np.float32), csr_matrix(labels, dtype=np.float32), keep)
    assert found.shape == (n_labels, n_features) and found.has_canonical_format and found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), naive_unit_product(labels.T.astype(float), features.astype(float), keep), atol=1e-6)


def test_centroids_by_hand() -> None:
    features = csr_matrix(np.array([[3, 0, 0], [0, 4, 0], [0, 0, 5]], np.float32))
    labels = csr_matrix(np.array([[1, 0], [0.5, 0], [0, 0]], np.float32))  # the second label has no rows
    np.testing.assert_allclose(label_centroids(features, labels).toarray(), [[3 / 13**0.5, 2 / 13**0.5, 0], [0, 0, 0]], rtol=1e-6)
    assert label_centroids(features, labels, keep=1).toarray().tolist() == [[1, 0, 0], [0, 0, 0]]
    with pytest.raises(DataError, match="Features came with 2 rows and labels with 3"):
        label_centroids(features[:2], labels)
    with pytest.raises(SettingError, match="keep came as 0"):
        label_centroids(features, labels, keep=0)


def test_many_features_a_label() -> None:
    """More than fit an insertion sort, and more than are kept."""
    random = np.random.default_rng(0)
    features = random.random((40, 300)) * (random.random((40, 300)) < 0.3)
    labels = (random.random((40, 6)) < 0.5).astype(np.float32)
    expected = naive_unit_product(labels.T, features.astype(np.float32), 100)
    np.testing.assert_allclose(
        label_centroids(csr_matrix(features, dtype=np.float32), csr_matrix(labels), 100).toarray(), expected, atol=1e-6
    )


def test_smoothing_by_hand(shop: Dataset) -> None:
    centroids = csr_matrix(np.array([[1, 0], [0, 1], [0, 0]], np.float32))
    graph = csr_matrix(np.array([[3, 4, 0], [0, 1, 0], [0, 2, 1]], np.float32))
    np.testing.assert_allclose(smooth(centroids, graph).toarray(), [[0.6, 0.8], [0, 1], [0, 1]], rtol=1e-6)
    own = cooccurrence(shop.train.labels)
    same = smooth(csr_matrix(np.eye(4, dtype=np.float32)), own).toarray()
    np.testing.assert_allclose(same, naive_unit_product(own.weights.toarray(), np.eye(4), 4), atol=1e-6)
    with pytest.raises(DataError, match="The graph has 4 labels, but 3 centroids came"):
        smooth(centroids, own)


# ---- meta-labels

MIXED = Clusters(np.array([1, 0, 1, 2, 0], np.int32))


def test_members_and_matrix_by_hand() -> None:
    assert (MIXED.n_labels, MIXED.n_clusters) == (5, 3)
    assert MIXED.members.offsets.tolist() == [0, 2, 4, 5] and MIXED.members.labels.tolist() == [1, 4, 0, 2, 3]
    assert MIXED.matrix.toarray().tolist() == [[0, 0.5, 0], [0.5, 0, 0], [0, 0.5, 0], [0, 0, 1], [0.5, 0, 0]]
    assert MIXED.members is MIXED.members and repr(MIXED) == "Clusters(5 labels in 3)"
    with pytest.raises(DataError, match="wanted one cluster, from 0, for each label"):
        Clusters(np.array([0, -1], np.int32))


def test_meta_targets_take_the_largest_relevance() -> None:
    labels = csr_matrix(np.array([[0.2, 0, 0.7, 0, 0], [0, 1, 0, 0.5, 0.3], [0, 0, 0, 0, 0]], np.float32))
    found = MIXED.meta_targets(labels)
    np.testing.assert_array_equal(found.toarray(), np.array([[0, 0.7, 0], [1, 0, 0.5], [0, 0, 0]], np.float32))
    assert found.has_canonical_format and labels.nnz == 5
    with pytest.raises(DataError, match="The label rows have 4 labels and the clusters 5"):
        MIXED.meta_targets(labels[:, :4])


def test_meta_text_by_hand() -> None:
    features = csr_matrix(np.array([[3, 0], [1, 0], [0, 4], [0, 0], [1, 0]], np.float32))
    np.testing.assert_allclose(MIXED.meta_text(features).toarray(), [[1, 0], [0.6, 0.8], [0, 0]], rtol=1e-6)
    with pytest.raises(DataError, match="The features are of 2 labels"):
        MIXED.meta_text(features[:2])


def naive_meta_graph(clusters: list[int], graph: NDArray[np.float64], keep: int) -> NDArray[np.float64]:
    n_clusters = max(clusters) + 1
    found = np.zeros((n_clusters, n_clusters))
    for label, cluster in enumerate(clusters):
        for other, other_cluster in enumerate(clusters):
            found[cluster, other_cluster] += graph[label, other] / clusters.count(cluster) / clusters.count(other_cluster)
    for cluster, row in enumerate(found):
        own = row[cluster] or 1
        row[sorted(range(n_clusters), key=lambda at: (-row[at], at))[keep:]] = 0
        row[cluster] = own
    return found / np.sqrt(np.outer(found.sum(axis=1), found.sum(axis=0)))


@given(st.integers(2, 40), st.integers(1, 4), st.integers(0, 99))
def test_meta_graph_equals_the_naive_version(n_labels: int, keep: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    graph = random.random((n_labels, n_labels)) * (random.random((n_labels, n_labels)) < 0.2)
    clusters = Clusters(random.permutation(np.arange(n_labels) % random.integers(1, n_labels)).astype(np.int32))
    found = clusters.meta_graph(csr_matrix(graph, dtype=np.float32), keep)
    assert found.shape == (clusters.n_clusters, clusters.n_clusters) and found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), naive_meta_graph(clusters.of_label.tolist(), graph, keep), rtol=1e-4, atol=1e-7)


def test_meta_graph_of_a_walk() -> None:
    graph = walk(labels_from_rows(long_tailed(300, 120), 120))
    clusters = cluster_labels(graph.weights, 16)
    found = clusters.meta_graph(graph)
    assert (found.diagonal() > 0).all() and np.diff(found.indptr).max() <= 11
    with pytest.raises(DataError, match="The graph has 120 labels and the clusters 5"):
        MIXED.meta_graph(graph)


# ---- head labels


@given(st.integers(2, 40), st.data())
def test_head_labels_stand_apart(n_labels: int, data: st.DataObject) -> None:
    head = np.array(data.draw(st.lists(st.booleans(), min_size=n_labels, max_size=n_labels)))
    n_clusters = data.draw(st.integers(2, n_labels))
    clusters = cluster_labels(grouped(n_labels, 4), n_clusters, head=head)
    assert clusters.n_clusters == n_clusters and len(np.unique(clusters.of_label)) == n_clusters
    if not head.all() and head.any():
        assert clusters.of_label[~head].max() < clusters.of_label[head].min()
        n_head_clusters = len(np.unique(clusters.of_label[head]))
        assert abs(n_head_clusters - n_clusters * head.sum() / n_labels) <= 0.5 or n_head_clusters in (1, n_clusters - 1)
    for part in (head, ~head):
        sizes = np.unique(clusters.of_label[part], return_counts=True)[1]
        assert not len(sizes) or sizes.max() - sizes.min() <= 1


def test_head_labels_by_hand() -> None:
    head = np.arange(12) < 3
    sizes = np.bincount(cluster_labels(csr_matrix(grouped(12, 4)), 4, head=head).of_label)
    assert sizes.tolist() == [3, 3, 3, 3]
    assert sorted(np.bincount(cluster_labels(grouped(12, 4), 4, head=np.arange(12) < 5).of_label)) == [2, 3, 3, 4]
    for few in (np.arange(40) == 7, np.arange(40) != 7):  # a single label apart from 39: it has a cluster nevertheless
        assert sorted(np.bincount(cluster_labels(grouped(40, 4), 4, head=few).of_label)) == [1, 13, 13, 13]
    with pytest.raises(SettingError, match=r"clusters came as 1 with 3 head labels to keep apart; wanted clusters=2 or more"):
        cluster_labels(grouped(12, 4), 1, head=head)
    with pytest.raises(DataError, match=r"head came as bool of shape \(5,\); wanted True or False for each of 12 labels"):
        cluster_labels(grouped(12, 4), 4, head=head[:5])
    with pytest.raises(SettingError, match="clusters=12 or fewer"):
        cluster_labels(grouped(12, 4), 13, head=head)


def test_clusters_of_centroids_lose_less_information_than_random_ones() -> None:
    """Rows about one of 30 themes: labels of a theme share rows and words."""
    random = np.random.default_rng(0)
    themes = random.integers(0, 30, 2000)
    labels = labels_from_rows([sorted({int(theme * 8 + at) for at in random.integers(0, 8, 3)}) for theme in themes], 240)
    words = csr_matrix((np.ones(8000, np.float32), (themes[:, None] * 5 + random.integers(0, 9, (2000, 4))).ravel(), np.arange(0, 8001, 4)))
    centroids = label_centroids(words, labels)
    plain, smoothed = (cluster_labels(vectors, 30).of_label for vectors in (centroids, smooth(centroids, walk(labels, length=100))))
    shuffled = random.permutation(plain)
    lost = [lost_information(clusters, labels)[1] for clusters in (smoothed, plain, shuffled)]
    assert lost[0] <= lost[1] < 0.6 * lost[2]

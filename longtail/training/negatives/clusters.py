"""Labels in balanced clusters: each cluster is a meta-label, and the few best meta-labels of a text bring its shortlist.

Clusters are made from vectors of labels: `label_centroids` sums the training texts of each label, `smooth` lets related labels
complete each other's sum (ECLARE, section 3.6), and `cluster_labels` halves the labels again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, issparse

from longtail.core.errors import DataError, SettingError
from longtail.core.kernels import balanced as kernels
from longtail.core.progress import progress
from longtail.core.values import Floats, Ints, LabelGraph, Offsets
from longtail.data.files import in_order
from longtail.data.graph.normalise import square_root
from longtail.data.graph.rows import blocks_of_equal_work, each_part, n_parts
from longtail.data.growing import GrowingRows, Scratch, bitmap
from longtail.data.matrices import tidy

BLOCK_PRODUCTS = 1 << 20  # of a sparse product, made by one thread at a time
LARGE = 1 << 13  # rows: a larger node is split by all threads together, a smaller one with all below it by one thread

Vectors: TypeAlias = "csr_matrix | Floats"


def label_centroids(features: csr_matrix, labels: csr_matrix, keep: int = 1000) -> csr_matrix:
    """The sum of the features of each label's rows, weighed by relevance, with its `keep` largest entries, of length 1.

    Args:
        features: (n_rows, n_features).
        labels: (n_rows, n_labels). A label without rows gets an empty row.

    Returns:
        (n_labels, n_features).
    """
    if features.shape[0] != labels.shape[0]:
        raise DataError(f"Features came with {features.shape[0]:,} rows and labels with {labels.shape[0]:,}; wanted the same rows.")
    return _product(csr_matrix(labels.T), features, keep, unit=True)


def smooth(centroids: csr_matrix, graph: LabelGraph | csr_matrix, keep: int = 1000) -> csr_matrix:
    """Each label's centroid and those of its neighbours, weighed by the graph and summed; cut and scaled as `label_centroids`."""
    weights = _weights(graph)
    if weights.shape[1] != centroids.shape[0]:
        raise DataError(f"The graph has {weights.shape[1]:,} labels, but {centroids.shape[0]:,} centroids came; wanted one each.")
    return _product(weights, centroids, keep, unit=True)


def _weights(graph: LabelGraph | csr_matrix) -> csr_matrix:
    return graph.weights if isinstance(graph, LabelGraph) else graph


class _Buffers(NamedTuple):
    """Working memory of one thread in a product."""

    sums: NDArray[np.float64]
    seen: NDArray[np.bool_]
    met: Ints
    words: NDArray[np.uint64]
    summary: NDArray[np.uint64]


def _buffers(n_columns: int) -> _Buffers:
    return _Buffers(
        np.zeros(n_columns),
        np.zeros(n_columns, np.bool_),
        np.empty(n_columns + 1, np.int32),  # one place more: the next is written before it is known to be new
        *bitmap(n_columns),
    )


def _product(left: csr_matrix, right: csr_matrix, keep: int | None, unit: bool = False) -> csr_matrix:
    """left @ right with the `keep` largest entries of each row, sorted by id; with `unit` each row of length 1."""
    n_columns = right.shape[1]
    if keep is not None and keep < 1:
        raise SettingError(f"keep came as {keep}; wanted the number of entries to keep a row, 1 or more.")
    most = n_columns if keep is None else min(keep, n_columns)
    factors = (*_arrays(left), *_arrays(right))
    products = kernels.count_products(factors[0], factors[1], factors[3])  # of each row
    bounds = np.minimum(products, most)
    scratch = Scratch(_buffers)
    found = GrowingRows()

    def work(block: tuple[int, int]) -> tuple[Ints, Floats, Offsets]:
        first, last = block
        with scratch.lend(n_columns) as buffers:
            made: tuple[Ints, Floats, Offsets]
            made = kernels.product_rows(first, last, int(bounds[first:last].sum()), *factors, most, unit, *buffers)
        return made

    blocks = blocks_of_equal_work(products, BLOCK_PRODUCTS)
    with progress("Summing", float(products.sum()), "products") as advance:
        for (first, last), made in zip(blocks, in_order(blocks, work), strict=True):
            found.add(*made, share=last / left.shape[0])
            advance(float(products[first:last].sum()))
    return found.done(n_columns)


def _arrays(matrix: csr_matrix) -> tuple[Offsets, Ints, Floats]:
    """(ends, ids, values) in the types that kernels are compiled for."""
    ends = matrix.indptr.astype(np.int64, copy=False)
    return ends, matrix.indices.astype(np.int32, copy=False), matrix.data.astype(np.float32, copy=False)


def balanced_clusters(vectors: Vectors, n_clusters: int, *, seed: int = 0, tolerance: float = 1e-4, max_iterations: int = 50) -> Ints:
    """The cluster of each row: rows are halved again and again by balanced 2-means; sizes differ by at most 1.

    A split begins at two random rows. Rows are ranked by how much nearer, by cosine, they are to the one centroid than to the
    other; the first half goes left, the rest right, and each half has a new centroid; until the mean similarity of rows to
    their centroid grows by less than `tolerance`. Where the number of clusters is no power of 2, halves are uneven in
    proportion. Clusters with near ids are related, as they were split late.

    Rows without features say nothing about where they belong; they are dealt out in turn, to small clusters first.

    Args:
        vectors: (n_rows, n_features), sparse or dense; length does not matter.

    >>> balanced_clusters(np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]], np.float32), 2).tolist()
    [0, 1, 0, 1]
    """
    if vectors.ndim != 2:
        raise DataError(f"Vectors came with shape {vectors.shape}; wanted (n_rows, n_features).")
    n_rows, n_features = vectors.shape
    _check_number(n_clusters, n_rows)
    if not 0 <= seed < 1 << 63:
        raise SettingError(f"seed came as {seed}; wanted a whole number from 0.")
    if max_iterations < 1:
        raise SettingError(f"max_iterations came as {max_iterations}; wanted 1 or more.")
    rows, lengths = _rows(vectors)
    settings = (seed, tolerance, max_iterations)
    order = np.flatnonzero(lengths > 0).astype(np.int32)  # each node has its rows where its clusters will have them
    cuts = np.arange(n_clusters + 1) * len(order) // n_clusters
    large, small = _nodes(cuts)

    def split(node: tuple[int, int]) -> None:
        kernels.split_below(rows, n_features, order, cuts, *node, *settings)

    with progress("Clustering", len(order) * np.log2(n_clusters), "rows") as advance:
        for first, last in large:
            members, n_left = order[cuts[first] : cuts[last]], cuts[(first + last) // 2] - cuts[first]
            if 0 < n_left < len(members):
                _split_together(rows, n_features, members, n_left, (first, last), *settings)
            advance(len(members))
        for (first, last), _ in zip(small, in_order(small, split), strict=True):
            advance((cuts[last] - cuts[first]) * np.log2(last - first))
    sizes = np.diff(cuts)
    clusters = np.empty(n_rows, np.int32)
    clusters[order] = np.repeat(np.arange(n_clusters, dtype=np.int32), sizes)
    without = np.flatnonzero(lengths == 0)
    clusters[without] = np.resize(np.argsort(sizes, kind="stable"), len(without))
    return clusters


def _check_number(n_clusters: int, n_labels: int) -> None:
    if n_clusters < 1:
        raise SettingError(f"clusters came as {n_clusters}; wanted 1 or more.")
    if n_clusters > n_labels:
        wanted = f"wanted at most one a label: clusters={n_labels} or fewer" if n_labels else "there is nothing to cluster"
        raise SettingError(f"clusters came as {n_clusters:,} for {n_labels:,} labels; {wanted}.")


def _rows(vectors: Vectors) -> tuple[kernels.SparseRows | kernels.DenseRows, NDArray[np.float64]]:
    """Rows as the kernels take them, and their lengths."""
    if issparse(vectors):
        matrix = csr_matrix(vectors)
        if not matrix.has_canonical_format:  # the length of a row wants every feature once
            matrix = matrix.copy()
            matrix.sum_duplicates()
        ends, ids, values = _arrays(matrix)
        lengths = kernels.sparse_lengths(ends, values)
        return kernels.SparseRows(ends, ids, values, _scales(lengths)), lengths
    dense = np.ascontiguousarray(vectors, np.float32)
    lengths = np.sqrt(np.einsum("rf,rf->r", dense, dense, dtype=np.float64))
    return kernels.DenseRows(dense, _scales(lengths)), lengths


def _scales(lengths: NDArray[np.float64]) -> Floats:
    """Factors that make rows of these lengths unit rows. A length too small to be a usual float32 becomes 0."""
    if not np.isfinite(lengths).all():
        raise DataError(f"The vector of label {np.flatnonzero(~np.isfinite(lengths))[0]:,} is not finite; wanted numbers without NaN.")
    lengths[lengths < np.finfo(np.float32).tiny] = 0
    return (1 / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _nodes(cuts: NDArray[np.int64]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The nodes of the tree with more than LARGE rows, a node before its halves, and the topmost of the others.

    A node is a run of clusters (first, last).
    """
    large, small = [], []
    waiting = [(0, len(cuts) - 1)]
    for first, last in waiting:
        if last - first == 1 or cuts[last] - cuts[first] < 2:
            continue
        if cuts[last] - cuts[first] > LARGE:
            large.append((first, last))
            waiting += [(first, (first + last) // 2), ((first + last) // 2, last)]
        else:
            small.append((first, last))
    return large, small


def _split_together(
    rows: kernels.SparseRows | kernels.DenseRows,
    n_features: int,
    members: Ints,
    n_left: int,
    node: tuple[int, int],
    seed: int,
    tolerance: float,
    max_iterations: int,
) -> None:
    """Move the better half of the members before the rest, as the kernel does for small nodes, on all threads."""
    features = np.arange(n_features, dtype=np.int32)
    direction = np.zeros(n_features, np.float32)
    differences = np.empty(len(members), np.float32)
    before, now = np.zeros(len(members), np.bool_), np.zeros(len(members), np.bool_)
    sums = np.zeros((n_parts(), n_features), np.int64)  # of the members of each part
    whole = np.zeros(n_features, np.int64)
    one, other = kernels.two_seeds(len(members), seed, *node)
    kernels.point_between(rows, members[one], members[other], features, whole, sums[0], direction)
    each_part(len(members), lambda part, first, last: kernels.add_all(rows, members[first:last], sums[part]))
    whole += sums.sum(axis=0)
    sums[:] = 0  # from here on of the members in the left half

    def compare(part: int, first: int, last: int) -> None:
        kernels.differences_of(rows, members[first:last], direction, differences[first:last])

    def move(part: int, first: int, last: int) -> None:
        kernels.add_moved(rows, members[first:last], before[first:last], now[first:last], sums[part])

    similarity = -np.inf
    for _ in range(max_iterations):
        each_part(len(members), compare)
        kernels.take_left(differences, n_left, now)
        each_part(len(members), move)
        last_similarity = similarity
        similarity = kernels.point(features, whole, sums.sum(axis=0), direction) / len(members)
        if similarity - last_similarity < tolerance:
            break
    kernels.left_first(members, now)


class Members(NamedTuple):
    """The labels of each cluster: those of cluster c are labels[offsets[c]:offsets[c + 1]], in ascending order."""

    offsets: Offsets  # (n_clusters + 1,)
    labels: Ints  # (n_labels,)


@dataclass(frozen=True, eq=False)
class Clusters:
    """Which cluster each label is in, and the meta-labels that this makes.

    How much is lost by looking at clusters instead of labels: longtail.evaluation.metrics.lost_information(clusters.of_label, labels).
    """

    of_label: Ints  # (n_labels,): 0 .. n_clusters - 1

    def __post_init__(self) -> None:
        if self.of_label.ndim != 1 or self.of_label.min(initial=0) < 0:
            raise DataError(f"of_label came with shape {self.of_label.shape}; wanted one cluster, from 0, for each label.")

    @property
    def n_labels(self) -> int:
        return len(self.of_label)

    @cached_property
    def n_clusters(self) -> int:
        return int(self.of_label.max(initial=-1)) + 1

    @cached_property
    def members(self) -> Members:
        """The labels of each cluster."""
        offsets = np.zeros(self.n_clusters + 1, np.int64)
        np.cumsum(np.bincount(self.of_label, minlength=self.n_clusters), out=offsets[1:])
        return Members(offsets, np.argsort(self.of_label, kind="stable").astype(np.int32))

    @cached_property
    def matrix(self) -> csr_matrix:
        """(n_labels, n_clusters): 1 over the size of its cluster at each label, so that columns sum to 1 (ECLARE's M)."""
        shares = (1 / np.diff(self.members.offsets)[self.of_label]).astype(np.float32)
        return csr_matrix((shares, self.of_label, np.arange(self.n_labels + 1)), shape=(self.n_labels, self.n_clusters))

    def meta_targets(self, labels: csr_matrix) -> csr_matrix:
        """(n_rows, n_clusters): the clusters of each row's labels, with the largest relevance of a label in them."""
        self._check(labels.shape[1], "The label rows have")
        moved = (labels.data.astype(np.float32), self.of_label[labels.indices], labels.indptr)
        return tidy(csr_matrix(moved, shape=(labels.shape[0], self.n_clusters)))[0]

    def meta_text(self, label_features: csr_matrix) -> csr_matrix:
        """(n_clusters, n_features): the sum of the features of a cluster's labels, of length 1."""
        self._check(label_features.shape[0], "The features are of")
        return _product(self._by_cluster(np.ones(self.n_labels, np.float32)), label_features, None, unit=True)

    def meta_graph(self, graph: LabelGraph | csr_matrix, keep: int = 10) -> csr_matrix:
        """(n_clusters, n_clusters): M'GM, how strongly clusters point to each other on average (ECLARE's G_M).

        Of each row the `keep` largest weights stay, and always the cluster's own, or 1 where it has none. Then weights are
        divided by the square roots of the sums of their row and column.
        """
        weights = _weights(graph)
        self._check(weights.shape[0], "The graph has")
        shares = self.matrix.data  # (n_labels,)
        from_label = np.repeat(np.arange(self.n_labels, dtype=np.int32), np.diff(weights.indptr))
        to_cluster = self.of_label[weights.indices]
        averaged = weights.data * shares[weights.indices]
        joined = csr_matrix((averaged, to_cluster, weights.indptr), shape=(self.n_labels, self.n_clusters))  # GM, unsummed
        found = _product(self._by_cluster(shares), joined, keep)
        within = self.of_label[from_label] == to_cluster
        own = np.bincount(to_cluster[within], averaged[within] * shares[from_label[within]], self.n_clusters)
        added = np.where(own > 0, own, 1.0) * (found.diagonal() == 0)
        return square_root(csr_matrix(found + diags(added)))

    def _by_cluster(self, values: Floats) -> csr_matrix:
        """(n_clusters, n_labels), a value for each label at its cluster."""
        offsets, labels = self.members
        return csr_matrix((values[labels], labels, offsets), shape=(self.n_clusters, self.n_labels))

    def _check(self, n_labels: int, whose: str) -> None:
        if n_labels != self.n_labels:
            raise DataError(f"{whose} {n_labels:,} labels and the clusters {self.n_labels:,}; wanted the same labels.")

    def __repr__(self) -> str:
        return f"Clusters({self.n_labels:,} labels in {self.n_clusters:,})"


def cluster_labels(vectors: Vectors, n_clusters: int, *, head: NDArray[np.bool_] | None = None, seed: int = 0) -> Clusters:
    """Balanced clusters of labels.

    Args:
        vectors: (n_labels, n_features), such as smoothed centroids.
        head: True for labels with so many training rows that they would distort the others, above 500 in ECLARE. They
            have clusters of their own, the last ones, as many as is their share of the labels; None clusters all together.
    """
    if head is None:
        return Clusters(balanced_clusters(vectors, n_clusters, seed=seed))
    n_labels = vectors.shape[0]
    if head.shape != (n_labels,) or head.dtype != np.bool_:
        raise DataError(f"head came as {head.dtype} of shape {head.shape}; wanted True or False for each of {n_labels:,} labels.")
    _check_number(n_clusters, n_labels)
    n_head = int(np.count_nonzero(head))
    if not 0 < n_head < n_labels:
        return Clusters(balanced_clusters(vectors, n_clusters, seed=seed))
    if n_clusters == 1:
        raise SettingError(f"clusters came as 1 with {n_head:,} head labels to keep apart; wanted clusters=2 or more, or no head labels.")
    for_head = min(max(round(n_clusters * n_head / n_labels), 1), n_clusters - 1)  # on either side no more than labels
    of_label = np.empty(n_labels, np.int32)
    of_label[~head] = balanced_clusters(vectors[~head], n_clusters - for_head, seed=seed)
    of_label[head] = balanced_clusters(vectors[head], for_head, seed=seed) + (n_clusters - for_head)
    return Clusters(of_label)

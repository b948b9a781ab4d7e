"""Label centroids and balanced clusters at the sizes of public data sets, compared with the same in scipy and numpy.

python benchmarks/clusters.py [--like LF-AmazonTitles-131K] [--clusters 32768] [--times 3]

Rows and labels are a generated catalogue of that shape; features are tf-idf of words. The plain version follows the same
definition, one node after the other, each round a few calls of scipy; it is run for up to 200 K labels. The quality of clusters
is the share of the mutual information between labels and training rows that is lost with them: less is better.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, load_npz, save_npz
from side_by_side import Measured, contend, measure, table

from longtail import Texts
from longtail.core.values import Ints
from longtail.data.graph.walks import walk
from longtail.data.synth import SHAPES, shape_of, synth
from longtail.evaluation.metrics import lost_information
from longtail.training.negatives.clusters import Clusters, balanced_clusters, cluster_labels, label_centroids, smooth

WORD = re.compile(r"\w+")
TOLERANCE, MAX_ROUNDS, HEAD = 1e-4, 50, 500
PLAIN_MOST = 200_000  # labels
DIM = 300  # of the dense vectors


def tf_idf(texts: Texts) -> csr_matrix:
    words: dict[str, int] = {}
    ids: list[int] = []
    ends = [0]
    for text in texts:
        ids += [words.setdefault(word, len(words)) for word in WORD.findall(text.lower())]
        ends.append(len(ids))
    matrix = csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(texts), len(words)))
    matrix.sum_duplicates()
    matrix.data *= np.log(len(texts) / np.bincount(matrix.indices, minlength=len(words))).astype(np.float32)[matrix.indices]
    return plain_unit(matrix)


# ---- contenders


def plain_unit(matrix: csr_matrix) -> csr_matrix:
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    values = matrix.data / np.repeat(np.where(lengths > 0, lengths, 1), np.diff(matrix.indptr))
    return csr_matrix((values.astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)


def plain_clusters(vectors: csr_matrix, n_clusters: int) -> Ints:
    """Halves of halves; n_clusters is a power of 2."""
    unit = plain_unit(vectors)
    random = np.random.default_rng(0)
    nodes = [np.arange(unit.shape[0])]
    while len(nodes) < n_clusters:
        nodes = [half for node in nodes for half in plain_halves(unit[node], node, random)]
    clusters = np.empty(unit.shape[0], np.int32)
    for number, node in enumerate(nodes):
        clusters[node] = number
    return clusters


def plain_halves(rows: csr_matrix, node: NDArray[np.int64], random: np.random.Generator) -> list[NDArray[np.int64]]:
    middle = (len(node) + 1) // 2
    centroids = rows[random.choice(len(node), 2, replace=False)].toarray()  # (2, n_features)
    before = -np.inf
    for _ in range(MAX_ROUNDS):
        similarities = rows @ centroids.T  # (n, 2)
        order = np.argsort(similarities[:, 1] - similarities[:, 0], kind="stable")
        halves = [order[:middle], order[middle:]]
        now = sum(similarities[half, side].sum() for side, half in enumerate(halves)) / len(node)
        if now - before < TOLERANCE:
            break
        before = now
        centroids = np.concatenate([np.asarray(rows[half].sum(axis=0)) for half in halves])
        centroids /= np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-9)
    return [node[half] for half in halves]


def dense_vectors(centroids: csr_matrix) -> NDArray[np.float32]:
    """A random projection: what a trained encoder would give, as far as time goes."""
    made = np.random.default_rng(0).standard_normal((centroids.shape[1], DIM)).astype(np.float32)
    return np.asarray(centroids @ made)


Work = Callable[[], object]
CONTENDERS: dict[str, Callable[[Path, int], Work]] = {}


def contender(name: str) -> Callable[[Callable[[Path, int], Work]], Callable[[Path, int], Work]]:
    def register(prepare: Callable[[Path, int], Work]) -> Callable[[Path, int], Work]:
        CONTENDERS[name] = prepare
        return prepare

    return register


@contender("longtail label_centroids")
def _(folder: Path, n_clusters: int) -> Work:
    features, labels = load_npz(folder / "features.npz"), load_npz(folder / "labels.npz")
    label_centroids(features[:9], labels[:9])  # compile
    return lambda: label_centroids(features, labels)


@contender("scipy Y.T @ X, sorted, unit rows")
def _(folder: Path, n_clusters: int) -> Work:
    features, labels = load_npz(folder / "features.npz"), load_npz(folder / "labels.npz")
    return lambda: plain_unit(csr_matrix(labels.T @ features).sorted_indices())


@contender("longtail smooth")
def _(folder: Path, n_clusters: int) -> Work:
    centroids, graph = load_npz(folder / "centroids.npz"), load_npz(folder / "graph.npz")
    smooth(centroids, graph[:9])
    return lambda: smooth(centroids, graph)


@contender("scipy G @ C, sorted, unit rows")
def _(folder: Path, n_clusters: int) -> Work:
    centroids, graph = load_npz(folder / "centroids.npz"), load_npz(folder / "graph.npz")
    return lambda: plain_unit(csr_matrix(graph @ centroids).sorted_indices())


def clusters_of(file: str) -> Callable[[Path, int], Work]:
    def prepare(folder: Path, n_clusters: int) -> Work:
        vectors = load_npz(folder / file)
        balanced_clusters(vectors[:99], 9)
        return lambda: balanced_clusters(vectors, n_clusters)

    return prepare


CONTENDERS["longtail clusters, centroids"] = clusters_of("centroids.npz")
CONTENDERS["longtail clusters, smoothed"] = clusters_of("smoothed.npz")


@contender(f"longtail clusters, dense {DIM}")
def _(folder: Path, n_clusters: int) -> Work:
    vectors = dense_vectors(load_npz(folder / "centroids.npz"))
    balanced_clusters(vectors[:99], 9)
    return lambda: balanced_clusters(vectors, n_clusters)


@contender("scipy clusters, centroids")
def _(folder: Path, n_clusters: int) -> Work:
    vectors = load_npz(folder / "centroids.npz")
    return lambda: plain_clusters(vectors, n_clusters)


@contender("scipy clusters, smoothed")
def _(folder: Path, n_clusters: int) -> Work:
    vectors = load_npz(folder / "smoothed.npz")
    return lambda: plain_clusters(vectors, n_clusters)


def result_bytes(made: object) -> int:
    if isinstance(made, csr_matrix):
        return made.data.nbytes + made.indices.nbytes + made.indptr.nbytes
    return made.nbytes if isinstance(made, np.ndarray) else 0


# ---- contenders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", choices=SHAPES, default="LF-AmazonTitles-131K")
    parser.add_argument("--clusters", type=int, default=1 << 15)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--contender", choices=CONTENDERS)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.contender:
        contend(CONTENDERS[options.contender](options.folder, options.clusters), result_bytes)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(options.like, Path(folder), options.clusters, options.times)


def compare(like: str, folder: Path, n_clusters: int, times: int) -> None:
    data = synth(shape_of(like, test=1))
    assert data.train.texts is not None
    labels, features = data.train.labels, tf_idf(data.train.texts)
    centroids = label_centroids(features, labels)
    graph = walk(labels).weights
    smoothed = smooth(centroids, graph)
    parts = {"features": features, "labels": labels, "centroids": centroids, "graph": graph, "smoothed": smoothed}
    for name, matrix in parts.items():
        save_npz(folder / f"{name}.npz", matrix, compressed=False)
    print(f"\n==== {like}: {labels.shape[0]:,} rows, {labels.shape[1]:,} labels, {features.shape[1]:,} words, {n_clusters:,} clusters")
    print("     entries a row: " + ", ".join(f"{name} {matrix.nnz / matrix.shape[0]:.1f}" for name, matrix in parts.items()))

    def run(name: str, times: int = times) -> Measured:
        return measure(__file__, name, "--folder", str(folder), "--clusters", str(n_clusters), times=times)

    with_plain = labels.shape[1] <= PLAIN_MOST
    names = list(CONTENDERS)
    for title, ours, plain in (("Sums of training rows", names[0], names[1]), ("Sums over the graph", names[2], names[3])):
        table(title, {ours: run(ours), **({plain: run(plain)} if with_plain else {})}, ours)
    for ours, plain in ((names[4], names[7]), (names[5], names[8]), (names[6], None)):
        found = {ours: run(ours), **({plain: run(plain, times=1)} if plain and with_plain else {})}
        table("Balanced clusters", found, ours)
        print(f"  {labels.shape[1] / found[ours].seconds:,.0f} labels/s")
    quality(labels, centroids, smoothed, n_clusters, with_plain)


def quality(labels: csr_matrix, centroids: csr_matrix, smoothed: csr_matrix, n_clusters: int, with_plain: bool) -> None:
    head = np.bincount(labels.indices, minlength=labels.shape[1]) > HEAD
    found = {
        "random": Clusters(np.random.default_rng(0).permutation(np.arange(labels.shape[1], dtype=np.int32) % n_clusters)),
        "centroids": cluster_labels(centroids, n_clusters),
        "smoothed": cluster_labels(smoothed, n_clusters),
        f"smoothed, {head.sum():,} head labels apart": cluster_labels(smoothed, n_clusters, head=head),
    }
    if with_plain:
        found["scipy, smoothed"] = Clusters(plain_clusters(smoothed, n_clusters))
    print("\nInformation lost")
    for name, clusters in found.items():
        nats, share = lost_information(clusters.of_label, labels)
        print(f"  {name:<40}{nats:>8.3f} nats{share:>8.1%}")


if __name__ == "__main__":
    main()

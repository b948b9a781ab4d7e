"""All metrics for 134,835 test rows x 100 predictions over 131,073 labels, compared with napkinXC's functions.

python benchmarks/metrics.py [--rows N]         # rows given to napkinXC too; fewer rows for a quick look
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.sparse import csr_matrix

import longtail
from longtail import Dataset, Predictions, Split

ROWS, LABELS, PLACES, TRAIN_ROWS = 134_835, 131_073, 100, 294_805  # the shape of LF-AmazonTitles-131K


def shape(rows: int) -> tuple[Dataset, Predictions]:
    """Truths of 2.3 labels a row, predictions that find some of them, and the filter's 79,663 pairs."""
    random = np.random.default_rng(0)

    def labels(n: int) -> csr_matrix:
        sizes = random.poisson(1.29, n) + 1
        ends = np.concatenate([[0], np.cumsum(sizes)])
        ids = (random.zipf(1.2, ends[-1]) * 7919) % LABELS
        matrix = csr_matrix((np.ones(len(ids), np.float32), ids.astype(np.int32), ends), shape=(n, LABELS))
        matrix.sum_duplicates()
        matrix.data[:] = 1
        return matrix

    truth = labels(rows)
    # place p holds labels that are p modulo 100, so that none stands twice; every second true label is found
    ids = (random.integers(0, LABELS // PLACES, (rows, PLACES)) * PLACES + np.arange(PLACES)).astype(np.int32)
    row = np.repeat(np.arange(rows), np.diff(truth.indptr))[::2]
    ids[row, truth.indices[::2] % PLACES] = truth.indices[::2]
    scores = -np.sort(-random.random((rows, PLACES), dtype=np.float32), axis=1)
    pairs = np.column_stack([random.integers(0, rows, 79_663 * rows // ROWS), random.integers(0, LABELS, 79_663 * rows // ROWS)])
    test = Split(None, truth, np.unique(pairs, axis=0).astype(np.int32))
    return Dataset("LF-AmazonTitles-131K", Split(None, labels(TRAIN_ROWS)), test, None), Predictions(ids, scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args()
    data, found = shape(options.rows)
    longtail.evaluate(Predictions(found.ids[:9], found.scores[:9]), _first(data, 9), resamples=1)  # compile the kernel

    start = time.perf_counter()
    result = longtail.evaluate(found, data, resamples=0)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    longtail.evaluate(found, data)
    with_intervals = time.perf_counter() - start

    from napkinxc import metrics as theirs

    from longtail.evaluation.metrics import inverse_propensity
    from longtail.evaluation.predictions import drop_filtered

    kept = drop_filtered(found, data.test.filter)  # type: ignore[arg-type]
    start = time.perf_counter()
    rows = [row[row >= 0].tolist() for row in kept.ids]
    truth = data.test.labels.tolil().rows.tolist()
    weights = inverse_propensity(data.label_counts(), len(data.train), 0.6, 2.6)
    values = {
        "P@5": theirs.precision_at_k(truth, rows, k=5)[-1],
        "nDCG@5": theirs.ndcg_at_k(truth, rows, k=5)[-1],
        "PSP@5": theirs.psprecision_at_k(truth, rows, weights, k=5)[-1],
        "PSnDCG@5": theirs.psndcg_at_k(truth, rows, weights, k=5)[-1],
        "R@100": theirs.recall_at_k(truth, rows, k=100)[-1],
        "coverage@5": theirs.coverage_at_k(truth, rows, k=5)[-1],
    }
    napkin = time.perf_counter() - start
    print(f"{options.rows:,} rows x {PLACES} predictions over {LABELS:,} labels")
    print(f"  longtail, all {len(result.metrics)} metrics   {ours:6.2f} s")
    print(f"  the same with bootstrap intervals {with_intervals:6.2f} s")
    print(f"  napkinXC, {len(values)} functions          {napkin:6.2f} s   {napkin / ours:.1f} times ours")
    worst = max(abs(result.metrics[name] - 100 * value) for name, value in values.items())
    print(f"  largest difference between the two: {worst:.1e} percent points")


def _first(data: Dataset, rows: int) -> Dataset:
    test = Split(None, data.test.labels[:rows], np.array([[0, 0]], np.int32))
    return Dataset(data.name, data.train, test, None)


if __name__ == "__main__":
    main()

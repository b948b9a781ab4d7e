"""Indexes of label vectors compared: recall@10 against exact search, milliseconds of a text, texts a second, size, building.

python benchmarks/search.py [--labels 25000,200000] [--kinds exact,int8,binary,hnsw] [--recall 0.98] [--dim 256] [--model FOLDER]

Vectors are made with a seed: labels around topics, topics around fields, all of unit length; texts are labels with noise. With --model
the label vectors of a trained model are searched instead, for its label texts without some of their words. "first" is the seconds that
a fresh process takes from its start to its first answer, from mapped files that the system has in memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.inference.search.kinds import KINDS
from longtail.inference.search.labels import Floats, Labels
from longtail.inference.search.tune import tune

N_TEXTS, K = 500, 10
AT_ONCE = 50_000
PER_TOPIC, PER_FIELD = 200, 50
NAMES = ("labels", "kind", "effort", "recall", "p50 ms", "p99 ms", "texts/s", "B/label", "build s", "first s")


def clustered(n: int, dim: int, seed: int = 0) -> tuple[Floats, Floats]:
    """(n, dim) label vectors and (N_TEXTS, dim) texts."""
    random = np.random.default_rng(seed)
    n_topics = max(8, n // PER_TOPIC)
    fields = random.standard_normal((max(4, n_topics // PER_FIELD), dim), np.float32)
    topics = fields[random.integers(0, len(fields), n_topics)] + random.standard_normal((n_topics, dim), np.float32)
    vectors = np.empty((n, dim), np.float32)
    for start in range(0, n, AT_ONCE):
        part = vectors[start : start + AT_ONCE]
        part[:] = topics[random.integers(0, n_topics, len(part))] + 0.8 * random.standard_normal(part.shape, np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    texts = vectors[random.integers(0, n, N_TEXTS)] + 0.05 * random.standard_normal((N_TEXTS, dim), np.float32)
    return vectors, texts / np.linalg.norm(texts, axis=1, keepdims=True)


def of_model(folder: Path) -> tuple[Floats, Floats | None, Floats]:
    """Vectors, biases and texts of a trained model that scores all labels."""
    from longtail.core.values import Texts
    from longtail.storage.indexing import CPU, encoded, shortened
    from longtail.storage.model_folder import load_model

    stored = load_model(folder, CPU, indexed=False)
    assert stored.label_texts is not None
    searched = stored.all_labels
    assert searched is not None
    labels = searched.searched()
    texts = encoded(stored, Texts.of(shortened(stored.label_texts, N_TEXTS, seed=1)))
    return labels.vectors, labels.bias if len(labels.bias) else None, texts


def first_answer(folder: Path, kind: str, effort: int) -> float:
    command = [sys.executable, __file__, "--first", str(folder), "--kinds", kind, "--effort", str(effort)]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


def answer_once(folder: Path, kind: str, effort: int) -> None:
    bias = np.load(folder / "bias.npy") if (folder / "bias.npy").exists() else None
    labels = Labels.of(np.load(folder / "vectors.npy", mmap_mode="r"), bias)
    texts: NDArray[np.float32] = np.load(folder / "texts.npy")
    KINDS[kind].open(labels, folder / kind, effort).search(texts[:1], K)


def measure(vectors: Floats, bias: Floats | None, texts: Floats, kinds: list[str], recall: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "vectors.npy", vectors)
        np.save(folder / "texts.npy", texts)
        if bias is not None:
            np.save(folder / "bias.npy", bias)
        for kind in kinds:
            (folder / kind).mkdir()
            found = tune(vectors, bias, texts, kind, folder / kind, recall, K)
            began = time.perf_counter()
            found.index.search(texts, K)
            per_second = len(texts) / (time.perf_counter() - began)
            answer_once(folder, kind, found.effort)  # kernels are compiled once for arrays that may not be written to
            first = first_answer(folder, kind, found.effort)
            cells = [f"{len(vectors):,}", kind, found.effort, f"{found.recall:.3f}", f"{found.p50_ms:.2f}", f"{found.p99_ms:.2f}"]
            cells += [f"{per_second:,.0f}", f"{found.n_bytes / len(vectors):.0f}", f"{found.build_s:.1f}", f"{first:.2f}"]
            print("".join(f"{cell:>11}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", default="25000,200000")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--recall", type=float, default=0.98)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--first", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--effort", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.first:
        return answer_once(given.first, given.kinds, given.effort)
    print("".join(f"{name:>11}" for name in NAMES))
    if given.model:
        return measure(*of_model(given.model), given.kinds.split(","), given.recall)
    for n in map(int, given.labels.split(",")):
        vectors, texts = clustered(n, given.dim)
        measure(vectors, None, texts, given.kinds.split(","), given.recall)


if __name__ == "__main__":
    main()

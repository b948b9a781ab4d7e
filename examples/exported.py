"""Read an exported folder without longtail, in the environment of the other system."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer

K = 100  # places a row: enough for k = 5 after the filter


def read_rows(path: Path) -> tuple[list[str], list[list[int]]]:
    """Texts and label ids of `ids<TAB>text` lines."""
    lines = [line.split("\t", 1) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    return [text for _, text in lines], [[int(label) for label in ids.split(",") if label] for ids, _ in lines]


def read_folder(folder: Path) -> tuple[csr_matrix, csr_matrix, csr_matrix]:
    """Tf-idf of training rows, their labels, tf-idf of test rows.

    Words and pairs of words; their rarity comes from training inputs and label texts, never from test rows. Both sides of the
    comparison have the same texts there, in the training rows or in labels.txt.
    """
    train, rows = read_rows(folder / "train.txt")
    test, _ = read_rows(folder / "test.txt")
    label_texts = (folder / "labels.txt").read_text(encoding="utf-8").split("\n")[:-1]
    words = TfidfVectorizer(ngram_range=(1, 2), dtype=np.float32)
    words.fit(list(dict.fromkeys(train + label_texts)))
    ends = np.cumsum([0] + [len(row) for row in rows])
    ids = np.array([label for row in rows for label in row], np.int32)
    labels = csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(train), len(label_texts)))
    return csr_matrix(words.transform(train)), labels, csr_matrix(words.transform(test))


def write_found(path: Path, ids: list[list[int]], scores: list[list[float]]) -> None:
    """The predictions file that `longtail evaluate` reads: best first, short rows filled with -1."""
    found = np.full((len(ids), K), -1, np.int32)
    values = np.full((len(ids), K), -np.inf, np.float32)
    for row, (labels, weights) in enumerate(zip(ids, scores)):  # noqa: B905
        order = np.argsort(-np.asarray(weights), kind="stable")[:K]
        found[row, : len(order)] = np.asarray(labels)[order]
        values[row, : len(order)] = np.asarray(weights)[order]
    np.savez_compressed(path, ids=found, scores=values)

"""Nearest-text baseline, which needs no training: labels of the nearest texts by tf-idf cosine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags, vstack

from longtail.core.errors import DataError, UnknownName
from longtail.core.kernels.nearest import labels_of_nearest
from longtail.core.progress import progress
from longtail.core.values import Dataset, Predictions, Texts
from longtail.tokens.idf import inverse_document_frequency

WORD = re.compile(r"\w+")
ROWS_AT_ONCE = 1024
COMMON = 0.05  # a word in more than this share of the texts says little and costs most; it is left out ...
COMMON_FLOOR = 20_000  # ... unless its list is short anyway
MANNERS = {"labels": (True, False), "inputs": (False, True), "both": (True, True)}  # whether (label texts, training texts) count


def nearest_text(data: Dataset, by: str = "both", k: int = 100, neighbours: int = 20) -> Predictions:
    """Predict the labels of the nearest texts for every test row, by the cosine of tf-idf.

    Args:
        data: the data set, with texts of inputs and of labels.
        by: "labels" ranks labels by the similarity of their own text; "inputs" lets the nearest training texts vote for their labels, each
            with its similarity; "both" adds the two.
        k: labels per row.
        neighbours: training texts that vote.
    """
    if by not in MANNERS:
        raise UnknownName("manner", by, MANNERS)
    if data.train.texts is None or data.test.texts is None or data.label_texts is None:
        raise DataError(f"{data.name} lacks texts of inputs or labels; the nearest-text baseline needs both.")
    train, labels, test = _tf_idf(data.train.texts, data.label_texts, data.test.texts)
    inverted = [by_word(labels), by_word(train)]
    lists = [array for part in inverted for array in (part.indptr, part.indices, part.data)]
    lists += [data.train.labels.indptr, data.train.labels.indices]
    manner = MANNERS[by]

    def answer(start: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        part = test[start : start + ROWS_AT_ONCE]
        query = (part.indptr, part.indices, part.data)
        found: tuple[NDArray[np.int32], NDArray[np.float32]]
        found = labels_of_nearest(*query, *lists, data.n_labels, k, neighbours, *manner)
        return found

    starts = range(0, len(data.test), ROWS_AT_ONCE)
    parts = [(np.empty((0, k), np.int32), np.empty((0, k), np.float32))]
    with ThreadPoolExecutor(os.cpu_count()) as pool, progress("Nearest texts", len(data.test)) as advance:
        for part in pool.map(answer, starts):
            parts.append(part)
            advance(len(part[0]))
    return Predictions(np.concatenate([ids for ids, _ in parts]), np.concatenate([scores for _, scores in parts]))


def by_word(matrix: csr_matrix) -> csr_matrix:
    """The texts of each word, without the words that are in too many."""
    lists = csr_matrix(matrix.T)
    lengths = np.diff(lists.indptr)
    lists.data[np.repeat(lengths > max(COMMON * matrix.shape[0], COMMON_FLOOR), lengths)] = 0
    lists.eliminate_zeros()
    return lists


def _tf_idf(*groups: Texts) -> list[csr_matrix]:
    """Unit-length tf-idf rows of each group of texts; words and their idf come from all groups but the last, the queries."""
    vocabulary: dict[str, int] = {}
    known, *others = (_counts(group, vocabulary, grow=number < len(groups) - 1) for number, group in enumerate(groups))
    width = len(vocabulary)
    matrices = []
    for matrix in (known, *others):
        matrix.resize(matrix.shape[0], width)
        matrices.append(matrix)
    seen = vstack(matrices[:-1], format="csr")
    rows_with_word = np.bincount(seen.indices, minlength=width)
    idf = inverse_document_frequency(rows_with_word, seen.shape[0])
    return [_unit_rows(csr_matrix(matrix.multiply(idf[None, :]), dtype=np.float32)) for matrix in matrices]


def _counts(texts: Iterable[str], vocabulary: dict[str, int], grow: bool) -> csr_matrix:
    ids: list[int] = []
    ends = [0]
    for text in texts:
        words = WORD.findall(text.lower())
        if grow:
            ids += [vocabulary.setdefault(word, len(vocabulary)) for word in words]
        else:
            ids += [vocabulary[word] for word in words if word in vocabulary]
        ends.append(len(ids))
    counts = csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(ends) - 1, max(len(vocabulary), 1)))
    counts.sum_duplicates()
    return counts


def _unit_rows(matrix: csr_matrix) -> csr_matrix:
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return csr_matrix(diags(1 / np.maximum(norms, 1e-12)) @ matrix, dtype=np.float32)

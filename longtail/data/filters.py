"""Filter files, and the XC protocol that makes them.

A pair in a filter is neither rewarded nor punished. The protocol: where a test pair's reverse is a training pair, the
answer can be read off the training data, so the pair leaves the test truth and enters the test filter; and the label
whose text is the query's own text, trivially found, is filtered in both splits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Pairs, Split, Texts
from longtail.data.faults import Faults
from longtail.data.files import blocks, existing, shorten
from longtail.data.matrices import csr_to_pairs, pairs_to_csr

TRAIN_NAMES = ("filter_labels_train.txt", "trn_filter_labels.txt")
TEST_NAMES = ("filter_labels_test.txt", "tst_filter_labels.txt")


def read_filters(folder: Path, train: Split, test: Split) -> tuple[Split, Split]:
    """Both splits with the filters of the folder, where it has any."""
    done = []
    for split, names in ((train, TRAIN_NAMES), (test, TEST_NAMES)):
        path = existing(folder, *names)
        done.append(split if path is None else replace(split, filter=read_filter(path, split.labels.shape)))
    return done[0], done[1]


def read_filter(path: Path, shape: tuple[int, int]) -> Pairs:
    """`row label` pairs of zero-based ints, one a line; an empty file is an empty filter."""
    data = b"".join(block.bytes for block in blocks(path))
    tokens = data.split()
    try:
        numbers = np.array(tokens, dtype=np.int64) if tokens else np.empty(0, np.int64)
    except (ValueError, OverflowError):
        numbers = None
    lines = data.splitlines()
    plain = numbers is not None and all(len(line.split()) == 2 for line in lines)
    if plain and numbers is not None:
        pairs = numbers.reshape(-1, 2)
        if not len(pairs) or ((pairs >= 0).all() and (pairs < shape).all()):
            return pairs.astype(np.int32)
    raise _fault(path, lines, shape)


def _fault(path: Path, lines: list[bytes], shape: tuple[int, int]) -> DataError:
    faults = Faults(path)
    for number, line in enumerate(lines, start=1):
        parts = line.split()
        if len(parts) != 2 or not all(part.isdigit() and len(part) < 20 for part in parts):
            faults.add("form", number, f"{shorten(line.decode(errors='replace'))!r} came; wanted two whole numbers: row label.")
        elif int(parts[0]) >= shape[0] or int(parts[1]) >= shape[1]:
            came = line.decode().strip()
            faults.add("range", number, f"pair {came!r} is outside {shape[0]} rows x {shape[1]} labels. Both count from 0.")
    try:
        faults.check()
    except DataError as error:
        return error
    return DataError(f"{path}: wanted lines of two whole numbers: row label.")


def write_filters(folder: Path, data: Dataset) -> None:
    """Write the filters of a data set under the XC repository's names."""
    for split, names in ((data.train, TRAIN_NAMES), (data.test, TEST_NAMES)):
        if split.filter is not None:
            write_filter(folder / names[0], split.filter)


def write_filter(path: Path, pairs: Pairs) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{row} {label}\n" for row, label in pairs.tolist())


@dataclass(frozen=True)
class Leaks:
    """Pairs that the XC protocol filters in a data set, whatever its filter files say."""

    train_own: Pairs  # the label's text is the training row's own text
    test_own: Pairs
    reciprocal: Pairs  # test pairs whose reverse is a training pair, in the test truth still


def find_leaks(data: Dataset) -> Leaks:
    """Own-text and reciprocal pairs, found by comparing texts exactly."""
    empty = np.empty((0, 2), np.int32)
    if data.label_texts is None or data.train.texts is None or data.test.texts is None:
        return Leaks(empty, empty, empty)
    train_own, test_own = own_pairs(data.train.texts, data.label_texts), own_pairs(data.test.texts, data.label_texts)
    n_labels = data.n_labels
    # own: row -> labels that are this row; pairs[b, a] > 0 where a training row that is label a carries label b
    own_train = pairs_to_csr(train_own, (len(data.train), n_labels))
    own_test = pairs_to_csr(test_own, (len(data.test), n_labels))
    pairs = csr_matrix(_binary(data.train.labels).T @ own_train)
    found = csr_matrix(_binary(data.test.labels).multiply(own_test @ pairs))
    found.sort_indices()
    return Leaks(train_own, test_own, csr_to_pairs(found))


def own_pairs(texts: Texts, label_texts: Texts) -> Pairs:
    """Rows and labels that have the same text."""
    places: dict[bytes, list[int]] = {}
    for label, text in enumerate(label_texts.encoded()):
        if text:
            places.setdefault(text, []).append(label)
    pairs = [(row, label) for row, text in enumerate(texts.encoded()) for label in places.get(text, ())]
    return np.array(pairs, np.int32).reshape(-1, 2)


def _binary(matrix: csr_matrix) -> csr_matrix:
    return csr_matrix((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)


def apply_protocol(data: Dataset) -> Dataset:
    """The data set under the XC protocol: reciprocal pairs out of the test truth, filters written down.

    Pairs that the filters hold already stay there. Test rows that lose their last label keep their place, so that
    row numbers of other files still fit.
    """
    leaks = find_leaks(data)
    gone = pairs_to_csr(leaks.reciprocal, data.test.labels.shape)
    truth = data.test.labels - data.test.labels.multiply(gone)
    truth = csr_matrix(truth)
    truth.eliminate_zeros()
    truth.sort_indices()
    test_filter = _union(data.test.filter, leaks.test_own, leaks.reciprocal)
    train_filter = _union(data.train.filter, leaks.train_own)
    return replace(
        data,
        train=replace(data.train, filter=train_filter),
        test=replace(data.test, labels=truth.astype(np.float32), filter=test_filter),
    )


def _union(*parts: Pairs | None) -> Pairs:
    present = [part for part in parts if part is not None and len(part)]
    return np.unique(np.concatenate(present), axis=0).astype(np.int32) if present else np.empty((0, 2), np.int32)

"""The rows of a comparison as files that every peer can read: features, labels and texts, the same for all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, diags, save_npz

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Split, Texts
from longtail.data.files import new_file, new_folder
from longtail.tokens.words import Words

TOKENS = Words(ngrams=2, ngram_count=1, max_tokens=512)


def write_rows(train: Split, data: Dataset, folder: Path) -> Path:
    """Write training rows (augmented, it may be) and test rows into a folder below `folder`, once; its name stands for what it holds.

    train_features.npz, test_features.npz: tf-idf of words and bigrams, rows of length 1; words and idf come from the training rows
        alone. Where there are no texts, the features that the data set brings.
    train_labels.npz: 1 for every target above 0.
    train.txt, test.txt, labels.txt: one text a line, where there are texts.
    """
    if train.labels.shape[1] != data.n_labels:
        raise DataError(
            f"The training rows have {train.labels.shape[1]:,} labels, {data.name} has {data.n_labels:,}; wanted rows of that data."
        )
    if not len(train) or not len(data.test):
        raise DataError(f"{data.name} has {len(train):,} training and {len(data.test):,} test rows; a comparison needs both.")
    target = folder / f"rows-{_fingerprint(train, data)[:16]}"
    if target.is_dir():
        return target
    with new_folder(target) as unfinished:
        seen, asked = _features(train, data)
        save_npz(unfinished / "train_features.npz", seen)
        save_npz(unfinished / "test_features.npz", asked)
        save_npz(unfinished / "train_labels.npz", binary(train.labels))
        for name, texts in (("train", train.texts), ("test", data.test.texts), ("labels", data.label_texts)):
            if texts is not None:
                _write_lines(unfinished / f"{name}.txt", texts)
    return target


def binary(labels: csr_matrix) -> csr_matrix:
    """1 for every target above 0: linear learners know no soft targets.

    >>> binary(csr_matrix([[0.2, 0.0], [0.0, 1.0]])).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    ones = csr_matrix(labels, dtype=np.float32, copy=True)
    ones.data = (ones.data > 0).astype(np.float32)
    ones.eliminate_zeros()
    ones.sort_indices()
    return ones


def _features(train: Split, data: Dataset) -> tuple[csr_matrix, csr_matrix]:
    """Features of training rows and of test rows."""
    if train.texts is not None and data.test.texts is not None:
        tokenizer = TOKENS.fit(train.texts)
        return tokenizer(train.texts).to_csr(), tokenizer(data.test.texts).to_csr()
    if train.features is not None and data.test.features is not None:
        return _unit_rows(train.features), _unit_rows(data.test.features)
    raise DataError(f"{data.name} has neither texts nor features for training and test rows; a peer needs one of them.")


def _unit_rows(matrix: csr_matrix) -> csr_matrix:
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    scaled = csr_matrix(diags(1 / np.maximum(lengths, 1e-12)) @ matrix, dtype=np.float32)
    scaled.sort_indices()
    return scaled


def _write_lines(path: Path, texts: Texts) -> None:
    """One text a line; line breaks and other white space inside become blanks."""
    with new_file(path) as fresh, open(fresh, "w", encoding="utf-8", newline="\n") as file:
        for text in texts:
            file.write(" ".join(text.split()) + "\n")


def _fingerprint(train: Split, data: Dataset) -> str:
    digest = hashlib.sha256(repr(TOKENS).encode())
    for matrix in (train.labels, train.features, data.test.features):
        if matrix is not None:
            for array in (matrix.indptr, matrix.indices, matrix.data):
                digest.update(np.ascontiguousarray(array).tobytes())
    for texts in (train.texts, data.test.texts, data.label_texts):
        digest.update(b"none" if texts is None else texts.offsets.tobytes() + texts.buffer.tobytes())
    return digest.hexdigest()

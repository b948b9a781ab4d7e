"""Twins: training rows with the very text of a label. What they carry is what a label's text stands for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.values import Ints, Texts


def find_twins(texts: Texts | None, label_texts: Texts | None) -> Ints:
    """The first training row with the very text of each label, -1 where there is none: (n_labels,)."""
    if texts is None or label_texts is None:
        return np.full(0 if label_texts is None else len(label_texts), -1, np.int32)
    first: dict[bytes, int] = {}
    for row, text in enumerate(texts.encoded()):
        if text:
            first.setdefault(text, row)
    return np.fromiter((first.get(text, -1) for text in label_texts.encoded()), np.int32, len(label_texts))


def carries(labels: csr_matrix, rows: Ints, asked: Ints) -> NDArray[np.bool_]:
    """Whether each of `rows` carries the label at the same place of `asked`."""
    n_labels = int(labels.shape[1])
    stored = np.repeat(np.arange(labels.shape[0], dtype=np.int64), np.diff(labels.indptr)) * n_labels + labels.indices
    if not len(stored):
        return np.zeros(len(asked), bool)
    wanted = rows.astype(np.int64) * n_labels + asked
    place = np.searchsorted(stored, wanted)
    return np.asarray((place < len(stored)) & (stored[np.minimum(place, len(stored) - 1)] == wanted))

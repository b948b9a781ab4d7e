"""Fingerprint of a data set, equal for equal data."""

from __future__ import annotations

import hashlib

import numpy as np

from longtail.core.values import Dataset


def fingerprint(data: Dataset) -> str:
    """Hash of everything in a data set that a result depends on."""
    digest = hashlib.sha256(data.name.encode())
    for split in (data.train, data.test):
        for array in (split.labels.indptr, split.labels.indices, split.labels.data):
            digest.update(np.ascontiguousarray(array).tobytes())
        if split.filter is not None:
            digest.update(np.ascontiguousarray(split.filter).tobytes())
    for texts in (data.train.texts, data.test.texts, data.label_texts):
        if texts is not None:
            digest.update(texts.offsets.tobytes())
            digest.update(texts.buffer.tobytes())
    return digest.hexdigest()

"""Inverse document frequency: how much a token that few texts have tells about them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def inverse_document_frequency(document_frequency: NDArray[np.integer], n_texts: int) -> NDArray[np.float64]:
    """idf = log((1 + n) / (1 + df)) + 1 of each token, where df is the number of texts that have it.

    >>> inverse_document_frequency(np.array([3, 1, 0]), n_texts=3).round(2).tolist()
    [1.0, 1.69, 2.39]
    """
    return np.asarray(np.log((1 + n_texts) / (1 + document_frequency)) + 1)

"""Labels by the number of their training points: head, torso and tail, and bins of equal volume."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.core.values import Ints

GROUPS = ("head", "torso", "tail", "unseen")
TAIL_MOST = 5  # the papers' tail: at most five training points
TORSO_MOST = 100


def frequency_groups(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each label's group in GROUPS.

    >>> frequency_groups(np.array([0, 1, 5, 6, 100, 101])).tolist()
    [3, 2, 2, 1, 1, 0]
    """
    return np.select([counts > TORSO_MOST, counts > TAIL_MOST, counts > 0], [0, 1, 2], 3)


def equal_volume_bins(counts: NDArray[np.int64], n_bins: int = 5) -> Ints:
    """Bin of each label, 0 the most frequent, such that every bin holds about the same number of training pairs.

    Labels are taken by falling count (ties by id), and a label belongs to the bin its middle pair falls into: the
    "equi-voluminous" bins of the Gandalf paper, Figure 2.
    """
    order = np.argsort(-counts, kind="stable")
    volume = counts[order]
    middle = np.cumsum(volume) - volume / 2
    bins = np.empty(len(counts), np.int32)
    bins[order] = np.minimum(middle * n_bins // max(int(volume.sum()), 1), n_bins - 1)
    return bins

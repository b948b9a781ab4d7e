"""Head, torso and tail: labels by the number of their training points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUPS = ("head", "torso", "tail", "unseen")
TAIL_MOST = 5  # the papers' tail: at most five training points
TORSO_MOST = 100


def frequency_groups(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each label's group in GROUPS.

    >>> frequency_groups(np.array([0, 1, 5, 6, 100, 101])).tolist()
    [3, 2, 2, 1, 1, 0]
    """
    return np.select([counts > TORSO_MOST, counts > TAIL_MOST, counts > 0], [0, 1, 2], 3)

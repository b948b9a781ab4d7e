"""Learning rates as functions of the share of a stage that is done, so that a resumed run needs no memory of them."""

from __future__ import annotations

import math
from collections.abc import Callable

WARM_UP = 0.1  # share of a one-cycle run in which the rate rises
FIRST, LAST = 1 / 25, 1e-5  # of the top rate


def one_cycle(done: float) -> float:
    """Up along a cosine, then down to nearly nothing (Smith and Topin, 2018).

    >>> [round(one_cycle(share), 3) for share in (0.0, 0.1, 1.0)]
    [0.04, 1.0, 0.0]
    """
    if done < WARM_UP:
        return FIRST + (1 - FIRST) * (1 - math.cos(math.pi * done / WARM_UP)) / 2
    return LAST + (1 - LAST) * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2


def halved(done: float) -> float:
    """Halved when half is done, the step of DeepXML, DECAF and ECLARE.

    >>> halved(0.49), halved(0.5)
    (1.0, 0.5)
    """
    return 1.0 if done < 0.5 else 0.5


def constant(done: float) -> float:
    """The same all along."""
    return 1.0


def linear(done: float) -> float:
    """Straight down to nothing, after the same warm-up.

    >>> [round(linear(share), 3) for share in (0.05, 0.1, 0.55, 1.0)]
    [0.5, 1.0, 0.5, 0.0]
    """
    return done / WARM_UP if done < WARM_UP else (1 - done) / (1 - WARM_UP)


SCHEDULES: dict[str, Callable[[float], float]] = {"onecycle": one_cycle, "halved": halved, "linear": linear, "constant": constant}

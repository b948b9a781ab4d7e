"""Platt calibration: curves that are known, and rows of which nothing can be learnt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.inference.calibration import MIN_SLOPE, Reals, fit_platt, probabilities


def cost(scores: Reals, right: np.ndarray, slope: float, offset: float) -> float:  # type: ignore[type-arg]
    """The loss of the fit: cross-entropy with Platt's targets."""
    n_right, n_wrong = right.sum(), (~right).sum()
    targets = np.where(right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    fitted = probabilities(scores, slope, offset)
    return float(-(targets * np.log(fitted) + (1 - targets) * np.log1p(-fitted)).sum())


def test_the_curve_that_made_the_rows_is_found() -> None:
    generator = np.random.default_rng(0)
    scores = generator.normal(8, 5, 50_000)  # far from where a plain sigmoid tells anything apart
    right = generator.random(50_000) < probabilities(scores, 0.7, -9.0)
    slope, offset = fit_platt(scores, right)
    assert slope == pytest.approx(0.7, abs=0.03) and offset == pytest.approx(-9.0, abs=0.3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=40))
def test_no_curve_nearby_is_likelier(pairs: list[tuple[float, bool]]) -> None:
    scores, right = np.array([score for score, _ in pairs]), np.array([is_right for _, is_right in pairs])
    slope, offset = fit_platt(scores, right)
    assert slope >= MIN_SLOPE and np.isfinite(offset)
    if slope > MIN_SLOPE and np.ptp(scores) > 1e-3:
        least = cost(scores, right, slope, offset)
        for tilt, lift in ((1.01, 0.0), (0.99, 0.0), (1.0, 0.01), (1.0, -0.01)):
            assert cost(scores, right, slope * tilt, offset + lift) >= least - 1e-5


def test_a_better_score_is_never_a_smaller_probability() -> None:
    slope, offset = fit_platt(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, False]))
    assert slope == MIN_SLOPE and probabilities(np.array([2.5]), slope, offset)[0] == pytest.approx(0.5, abs=1e-6)


def test_nothing_to_learn_from() -> None:
    slope, offset = fit_platt(np.zeros(0), np.zeros(0, np.bool_))
    assert probabilities(np.zeros(1), slope, offset)[0] == pytest.approx(0.5)
    slope, offset = fit_platt(np.full(8, 3.0), np.zeros(8, np.bool_))
    assert probabilities(np.array([3.0]), slope, offset)[0] == pytest.approx(0.1, abs=0.01)  # one right among ten, two of them made up

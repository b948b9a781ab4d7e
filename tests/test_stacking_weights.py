"""Stacking weights: against a plain second implementation of the loss, and answers that are plain to see."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.inference.stacking_weights import RIDGE, Reals, fit_stacking_weights


def cost(scores: Reals, right: np.ndarray, counted: np.ndarray, worth: Reals, weights: Reals) -> float:  # type: ignore[type-arg]
    """Row by row, label by label."""
    spread = scores[counted].std(axis=0)
    spread[spread == 0] = 1.0
    total, n_rows = 0.0, len(scores)
    mean_worth = worth[right & counted].mean()
    for row in range(n_rows):
        sums = [float(weights @ scores[row, place]) for place in range(scores.shape[1])]
        wrong = [sums[place] for place in range(len(sums)) if counted[row, place] and not right[row, place]]
        for place in range(len(sums)):
            if counted[row, place] and right[row, place] and wrong:
                gaps = [math.exp(other - sums[place]) for other in wrong]
                total += worth[row, place] / mean_worth * math.log1p(sum(gaps)) / n_rows
    return total + RIDGE / 2 * float(((weights * spread) ** 2).sum())


@given(st.integers(0, 10_000))
def test_no_other_weights_near_by_cost_less(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = random.integers(2, 12), random.integers(2, 6)
    right, counted, worth = random.random(shape) < 0.3, random.random(shape) < 0.8, random.random(shape) + 0.5
    scores = random.normal(size=(*shape, 3)) + right[..., None] * np.array([1.0, 0.3, 0.0])
    if not (right & counted).any() or (right & counted).sum() == counted.sum():
        return
    found = fit_stacking_weights(scores, right, counted, worth)
    assert (found >= 0).all()
    least = cost(scores, right, counted, worth, found)
    for place in range(3):
        for change in (-0.01, 0.01):
            other = found.copy()
            other[place] = max(0.0, other[place] * (1 + change) + change * 0.1)
            assert cost(scores, right, counted, worth, other) >= least - 1e-5


def test_the_better_score_has_the_larger_weight() -> None:
    random = np.random.default_rng(0)
    right = np.zeros((200, 10), bool)
    right[:, 0] = True
    noise = random.normal(size=(200, 10, 3))
    scores = noise + right[..., None] * np.array([3.0, 1.0, 0.0])
    good, poor, useless = fit_stacking_weights(scores, right, np.ones_like(right), np.ones(right.shape))
    assert good > poor > 0.3 and useless < 0.2


def test_units_do_not_matter() -> None:
    random = np.random.default_rng(1)
    right = random.random((50, 8)) < 0.2
    right[0, 0] = True
    scores = random.normal(size=(50, 8, 2)) + right[..., None]
    args = right, np.ones_like(right), np.ones(right.shape)
    plain, other = fit_stacking_weights(scores, *args), fit_stacking_weights(scores * np.array([1.0, 100.0]) + np.array([5.0, -7.0]), *args)
    assert other * np.array([1.0, 100.0]) == pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("is_right", [True, False])
def test_where_there_is_nothing_to_learn_from_all_weights_are_equal(is_right: bool) -> None:
    right = np.full((3, 4), is_right)
    assert fit_stacking_weights(np.zeros((3, 4, 2)), right, np.ones((3, 4), bool), np.ones((3, 4))).tolist() == [1.0, 1.0]

"""Texts that spell out their labels: small data whose right answers are plain to see, and recipes small enough to learn it at once."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from longtail import Dataset, Split, Texts
from longtail.values import labels_from_rows

ONSETS, RHYMES = "bdfgklmnprst", ("ala", "emo", "iru", "onta")
SMALL = {  # settings that keep a recipe what it is and make it small
    "astec": ("dim=32", "stages.0.epochs=8", "stages.1.epochs=8", "batch_size=16", "learning_rate=0.01", "dropout=0.1"),
}


def spelled_out(n_labels: int = 24, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Each text is the words of two labels, the one with the lower id first; pairs of the test rows are never met in training."""
    labels = [f"{ONSETS[place % 12]}{RHYMES[place // 12 % 4]} {ONSETS[place % 12]}{RHYMES[place // 12 % 4][::-1]}n" for place in range(n_labels)]
    pairs = list(combinations(range(n_labels), 2))
    order = np.random.default_rng(seed).permutation(len(pairs))
    n_test = round(test_share * len(pairs))

    def split(places: np.ndarray) -> Split:
        chosen = [pairs[place] for place in places]
        return Split(Texts.of([f"{labels[one]} {labels[other]}" for one, other in chosen]), labels_from_rows(chosen, n_labels))

    return Dataset("spelled", split(np.sort(order[n_test:])), split(np.sort(order[:n_test])), Texts.of(labels))

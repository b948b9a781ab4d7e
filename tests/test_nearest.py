"""The nearest-text baseline and its kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import Dataset, LongtailError, nearest_text
from longtail.core.kernels.nearest import keep_best
from tests.conftest import dataset


def test_labels_by_their_own_text(shop: Dataset) -> None:
    found = nearest_text(shop, by="labels", k=2)
    assert found.ids.tolist() == [[2, -1], [3, 0], [-1, -1]]  # "press" is rarer than "apple"; nobody knows "water"
    assert found.scores[2].tolist() == [-np.inf, -np.inf]


def test_inputs_vote_for_their_labels() -> None:
    data = dataset([("red shoe", [0]), ("blue shoe", [1]), ("red hat", [0, 2])], [("red", [0])], ["a", "b", "c"])
    found = nearest_text(data, by="inputs", k=3)
    assert found.ids.tolist() == [[0, 2, -1]]  # two red inputs carry a, one of them c
    assert nearest_text(data, by="inputs", k=3, neighbours=1).ids.tolist() == [[0, -1, -1]]  # ties go to the earlier row


def test_both_adds_the_two(shop: Dataset) -> None:
    labels, inputs, both = (nearest_text(shop, by=by, k=4) for by in ("labels", "inputs", "both"))
    for row in range(3):
        sums: dict[int, float] = {}
        for found in (labels, inputs):
            for label, score in zip(found.ids[row].tolist(), found.scores[row].tolist(), strict=True):
                if label >= 0:
                    sums[label] = sums.get(label, 0.0) + score
        scores = {label: score for label, score in zip(both.ids[row].tolist(), both.scores[row].tolist(), strict=True) if label >= 0}
        assert scores == pytest.approx(sums)


def test_learns_what_texts_spell_out() -> None:
    words = [f"word{number}" for number in range(20)]
    train = [(f"{words[i]} {words[(i + 3) % 20]}", [i, (i + 3) % 20]) for i in range(20)]
    test = [(f"{words[i]} {words[(i + 7) % 20]}", [i, (i + 7) % 20]) for i in range(20)]  # pairs never met in training
    found = nearest_text(dataset(train, test, words), by="both", k=2)
    assert all(set(row) == set(true) for row, (_, true) in zip(found.ids.tolist(), test, strict=True))


def test_unknown_manner_and_missing_texts(shop: Dataset) -> None:
    from dataclasses import replace

    with pytest.raises(LongtailError, match="Did you mean 'labels'"):
        nearest_text(shop, by="label")
    with pytest.raises(LongtailError, match="lacks texts"):
        nearest_text(replace(shop, label_texts=None))


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 8))
def test_heap_keeps_the_best(scores: list[int], most: int) -> None:
    items, held = np.empty(most, np.int32), np.empty(most, np.float32)
    size = 0
    for item, score in enumerate(scores):
        size = keep_best(items, held, size, np.int32(item), np.float32(score))
    best = sorted(range(len(scores)), key=lambda item: (-scores[item], item))[:most]
    assert sorted(items[:size].tolist()) == sorted(best)

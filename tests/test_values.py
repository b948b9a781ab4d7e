"""Texts and splits behave like the lists they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import LongtailError, Predictions, Split, Texts
from longtail.core.values import labels_from_rows

lists = st.lists(st.text(max_size=12), max_size=12)


@given(lists, st.data())
def test_texts_equal_their_list(texts: list[str], data: st.DataObject) -> None:
    packed = Texts.of(texts)
    assert list(packed) == texts
    assert len(packed) == len(texts)
    assert packed == texts
    assert [text.decode() for text in packed.encoded()] == texts
    places = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=20) if texts else st.just([]))
    assert list(packed.take(np.array(places, int))) == [texts[place] for place in places]
    assert list(packed[1:-1]) == texts[1:-1]
    for place in range(-len(texts), len(texts)):
        assert packed[place] == texts[place]


@given(st.lists(lists, max_size=4))
def test_join_is_concatenation(parts: list[list[str]]) -> None:
    assert list(Texts.join([Texts.of(part) for part in parts])) == [text for part in parts for text in part]


def test_texts_beyond_the_end() -> None:
    with pytest.raises(IndexError):
        Texts.of(["a"])[1]


def test_half_a_character_becomes_a_replacement_mark() -> None:
    assert Texts.of(["a\ud800b"])[0] == "a\ufffdb"


def test_texts_of_something_else() -> None:
    with pytest.raises(LongtailError, match="came with 3"):
        Texts.of(["a", 3])  # type: ignore[list-item]


def test_rows_of_a_split_take_their_filter_along() -> None:
    split = Split(Texts.of(["a", "b", "c"]), labels_from_rows([[0], [1], [0, 1]], 2), np.array([[0, 1], [2, 0]], np.int32))
    part = split.rows(np.array([2, 1]))
    assert list(part.texts or []) == ["c", "b"]
    assert part.labels.toarray().tolist() == [[1, 1], [0, 1]]
    assert part.filter is not None and part.filter.tolist() == [[0, 0]]


def test_predictions_of_two_shapes() -> None:
    with pytest.raises(LongtailError, match="one \\(n_texts, k\\) shape"):
        Predictions(np.zeros((2, 3), np.int32), np.zeros((2, 2), np.float32))

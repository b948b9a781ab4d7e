"""Predictions files and the filter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from longtail import LongtailError, Predictions, read_predictions
from longtail.evaluation.predictions import drop_filtered, most_filtered, write_predictions

FOUND = Predictions(np.array([[4, 2, 0], [1, -1, -1]], np.int32), np.array([[0.9, 0.5, 1e-7], [0.25, -np.inf, -np.inf]], np.float32))


@pytest.mark.parametrize("name", ["found.npz", "found.jsonl"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    write_predictions(tmp_path / name, FOUND)
    again = read_predictions(tmp_path / name)
    np.testing.assert_array_equal(again.ids, FOUND.ids)
    np.testing.assert_array_equal(again.scores, FOUND.scores)


def test_scores_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "found.jsonl").write_text('{"labels": [2, 1]}\n{"labels": []}\n')
    assert read_predictions(tmp_path / "found.jsonl").ids.tolist() == [[2, 1], [-1, -1]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "wanted {"),
        ('{"labels": [1, -2]}', "whole numbers from 0"),
        ('{"labels": [1.5]}', "whole numbers from 0"),
        ('{"labels": [1, 2], "scores": [1]}', "one number for each of 2 labels"),
        ('{"labels": [1, 2], "scores": [0.1, 0.9]}', "best first"),
        ("", "wanted {"),
    ],
)
def test_bad_lines(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "found.jsonl"
    path.write_text('{"labels": [0]}\n' + line + "\n")
    with pytest.raises(LongtailError) as caught:
        read_predictions(path)
    assert message in str(caught.value)
    assert "found.jsonl:2" in str(caught.value) or "row 1" in str(caught.value)


def test_bad_arrays(tmp_path: Path) -> None:
    path = tmp_path / "found.npz"
    np.savez(path, ids=np.array([[0.5]]))
    with pytest.raises(LongtailError, match="whole numbers"):
        read_predictions(path)
    np.savez(path, ids=np.array([[-2]]))
    with pytest.raises(LongtailError, match="-1 for an empty place"):
        read_predictions(path)
    np.savez(path, labels=np.array([[1]]))
    with pytest.raises(LongtailError, match="wanted the arrays ids and scores"):
        read_predictions(path)
    path.write_bytes(b"PK not really")
    with pytest.raises(LongtailError, match="not an .npz file"):
        read_predictions(path)
    with pytest.raises(LongtailError, match="does not exist"):
        read_predictions(tmp_path / "nowhere.npz")


def test_filtered_labels_leave_and_the_rest_moves_up() -> None:
    kept = drop_filtered(FOUND, np.array([[0, 2], [0, 7], [1, 4]], np.int32))
    assert kept.ids.tolist() == [[4, 0, -1], [1, -1, -1]]
    assert kept.scores[0].tolist() == [np.float32(0.9), np.float32(1e-7), -np.inf]
    assert FOUND.ids.tolist()[0] == [4, 2, 0]  # the original is left as it was


def test_most_filtered() -> None:
    assert most_filtered(np.array([[0, 2], [0, 7], [1, 4]], np.int32), 3) == 2
    assert most_filtered(None, 3) == 0

"""Evaluation: the filter, the constants, intervals, the paired test, and what gets written."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtail import Dataset, LongtailError, Predictions, Split, Texts, evaluate
from longtail.core.kernels.resample import weighted_sums
from longtail.core.values import labels_from_rows
from longtail.evaluation.evaluate import compare, propensity_constants


def found(rows: list[list[int]]) -> Predictions:
    ids = np.array(rows, np.int32)
    return Predictions(ids, np.where(ids >= 0, 1, -np.inf).astype(np.float32))


def test_by_hand(shop: Dataset) -> None:
    result = evaluate(found([[2, 0, 1], [0, 1, 3], [0, 2, 3]]), shop)
    assert result.metrics["P@1"] == pytest.approx(100 * 2 / 3)
    assert result.metrics["P@3"] == pytest.approx(100 * (1 + 2) / 9)
    assert result.metrics["R@3"] == pytest.approx(100 * 2 / 3)
    assert result.metrics["hits@3"] == pytest.approx(100 * 2 / 3)
    assert result.metrics["coverage@3"] == pytest.approx(75)
    assert result.about["A"] == 0.55 and result.about["B"] == 1.5
    assert result.about["train_rows"] == 5
    assert sum(row["P@5"] for row in result.bins) == pytest.approx(result.metrics["P@5"])
    assert sum(row["labels"] for row in result.bins) == 4


def test_the_filter_neither_rewards_nor_punishes(shop: Dataset) -> None:
    # row 2 puts the filtered label 0 before the right one
    filtered = replace(shop, test=replace(shop.test, filter=np.array([[2, 0]], np.int32)))
    rows = found([[2, 0, -1], [0, 1, -1], [0, 1, -1]])
    assert evaluate(rows, shop).metrics["P@1"] == pytest.approx(100 * 2 / 3)
    assert evaluate(rows, filtered).metrics["P@1"] == pytest.approx(100)
    assert evaluate(rows, filtered, filtered=False).metrics["P@1"] == pytest.approx(100 * 2 / 3)


def test_too_few_places_for_the_filter_are_noted(shop: Dataset) -> None:
    filtered = replace(shop, test=replace(shop.test, filter=np.array([[2, 0], [2, 1]], np.int32)))
    result = evaluate(found([[2], [0], [0]]), filtered, ks=(1,))
    assert "1 places" in result.notes[0] and "3 make sure" in result.notes[0]
    assert not evaluate(found([[2, 0, 1], [0, 1, 2], [0, 1, 2]]), filtered, ks=(1,)).notes


def test_constants_can_be_given_and_change_only_psp(shop: Dataset) -> None:
    rows = found([[2, 0, 1], [0, 1, 3], [0, 2, 3]])
    known, other = evaluate(rows, shop), evaluate(rows, shop, a=0.6, b=2.6)
    assert other.about["A"] == 0.6 and other.about["B"] == 2.6
    assert other.metrics["PSP@1"] != known.metrics["PSP@1"]
    assert other.metrics["P@1"] == known.metrics["P@1"]


def test_constants_by_name() -> None:
    assert propensity_constants("LF-WikiTitles-500K") == (0.5, 0.4)
    assert propensity_constants("AmazonTitles_1.3M") == (0.6, 2.6)
    assert propensity_constants("LF-WikiSeeAlsoTitles-320K") == (0.55, 1.5)


def test_predictions_of_other_data(shop: Dataset) -> None:
    with pytest.raises(LongtailError, match="2 rows of predictions came; shop has 3 test rows"):
        evaluate(found([[0], [0]]), shop)
    with pytest.raises(LongtailError, match="Row 1 of the predictions names label 4; shop has labels 0..3"):
        evaluate(found([[0], [4], [1]]), shop)
    with pytest.raises(LongtailError, match="wanted places from 1"):
        evaluate(found([[0], [1], [1]]), shop, ks=(0,))
    with pytest.raises(LongtailError, match="no test rows"):
        evaluate(found([[0], [1], [1]]), replace(shop, test=shop.test.rows(np.array([], int))))


def test_intervals_hold_the_value_and_shrink_with_rows(shop: Dataset) -> None:
    rows = [[2, 0, 1], [0, 1, 3], [0, 2, 3]]
    many = replace(shop, test=shop.test.rows(np.tile(np.arange(3), 300)))
    small, large = evaluate(found(rows), shop), evaluate(found(rows * 300), many)
    for name, (low, high) in large.intervals.items():
        assert low <= large.metrics[name] <= high
    low, high = large.intervals["P@1"]
    # 900 rows, 2/3 of them right: the standard error is sqrt(2/9/900) = 1.57 %, the interval twice 1.96 of that
    assert high - low == pytest.approx(2 * 1.96 * 1.571, rel=0.15)
    assert high - low < small.intervals["P@1"][1] - small.intervals["P@1"][0]
    assert evaluate(found(rows), shop, resamples=0).intervals == {}
    assert evaluate(found(rows), shop, seed=1).intervals == evaluate(found(rows), shop, seed=1).intervals


def test_paired_test_tells_a_difference_from_none(shop: Dataset) -> None:
    many = replace(shop, test=shop.test.rows(np.tile(np.arange(3), 60)))
    good, bad = [[2], [0], [1]] * 60, [[2], [0], [0]] * 60
    first, second = evaluate(found(bad), many), evaluate(found(good), many)
    difference = {row.name: row for row in compare(first, second)}["P@1"]
    assert difference.second - difference.first == pytest.approx(100 / 3)
    assert difference.low <= 100 / 3 <= difference.high
    assert difference.p_value < 0.001
    same = {row.name: row for row in compare(first, first)}["P@1"]
    assert same.p_value == 1.0 and same.low == same.high == 0.0


def test_p_value_by_enumeration(shop: Dataset) -> None:
    # two rows differ, both for the better: of four sign patterns two are as large, so p is one half
    first, second = evaluate(found([[0], [3], [0]]), shop), evaluate(found([[2], [3], [1]]), shop)
    difference = {row.name: row for row in compare(first, second, flips=4000)}["P@1"]
    assert difference.p_value == pytest.approx(0.5, abs=0.03)


def test_written_files(shop: Dataset, tmp_path: Path) -> None:
    result = evaluate(found([[2, 0, 1], [0, 1, 3], [0, 2, 3]]), shop)
    result.save(tmp_path / "metrics.json")
    held = json.loads((tmp_path / "metrics.json").read_text())
    assert held["P@1"] == result.metrics["P@1"] and held["A"] == 0.55 and held["data"] == "shop"
    result.save(tmp_path / "metrics.csv")
    rows = {row["metric"]: row for row in csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines())}
    assert float(rows["PSP@5"]["percent"]) == result.metrics["PSP@5"]
    assert float(rows["P@1"]["low"]) == result.intervals["P@1"][0]


def test_prints_as_a_table(shop: Dataset) -> None:
    text = str(evaluate(found([[2, 0, 1], [0, 1, 3], [0, 2, 3]]), shop))
    assert "shop, 3 test rows" in text
    assert "66.67" in text
    assert "A = 0.55, B = 1.5" in text


def test_weighted_sums_equal_the_matrix_product() -> None:
    random = np.random.default_rng(0)
    times, values = random.integers(-2, 4, (50, 7), dtype=np.int32), random.normal(size=(50, 5))
    np.testing.assert_allclose(weighted_sums(times, values), times.T @ values, atol=1e-12)


def test_labels_without_training_rows_are_judged_apart_against_all_labels() -> None:
    train = Split(Texts.of(["a", "b"]), labels_from_rows([[0], [1]], 4))  # 2 and 3 were never seen
    test = Split(Texts.of(["c", "d", "e"]), labels_from_rows([[0, 2], [3], [1]], 4))
    data = Dataset("small", train, test, Texts.of(["0", "1", "2", "3"]))
    found = Predictions(np.array([[2, 0], [0, 3], [1, 2]], np.int32), np.tile(np.float32([1.0, 0.5]), (3, 1)))
    reached = evaluate(found, data, resamples=0, ks=(1, 2)).metrics
    # rows 0 and 1 carry one: 2 stands first, 3 second
    assert (reached["unseen P@1"], reached["unseen P@2"], reached["unseen R@2"]) == (50.0, 50.0, 100.0)
    seen = replace(data, test=test.rows(np.array([2])))
    assert not any(name.startswith("unseen") for name in evaluate(Predictions(found.ids[2:], found.scores[2:]), seen, resamples=0).metrics)

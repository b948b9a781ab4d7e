"""What `longtail check` tells, on data small enough to count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtail import Dataset, Texts, describe
from longtail.data.zipf import save_zipf, sparkline
from longtail.evaluation.tables import description_table, to_text
from tests.conftest import dataset


def test_sizes(shop: Dataset) -> None:
    seen = describe(shop)
    assert (seen.train_rows, seen.test_rows, seen.labels, seen.train_pairs) == (5, 3, 4, 10)
    assert seen.labels_per_point.mean == 2.0 and seen.labels_per_point.largest == 3
    assert seen.points_per_label.mean == 2.5 and seen.points_per_label.median == 2.5
    assert {group.name: group.labels for group in seen.groups} == {"head": 0, "torso": 0, "tail": 4, "unseen": 0}
    assert seen.words_per_text == 2.0 and seen.words_per_label == 1.0
    assert not seen.warnings()


def test_faults_and_leaks() -> None:
    data = dataset(
        train=[("a", [1]), ("a", [0]), ("", []), ("x", [0])],
        test=[("b", [0]), ("a", [2])],
        labels=["a", "b", "b", ""],
    )
    seen = describe(data)
    assert (seen.train.empty, seen.train.duplicates, seen.train.without_labels) == (1, 1, 1)
    assert (seen.label_texts.empty, seen.label_texts.duplicates, seen.labels_without_points) == (1, 1, 2)
    assert seen.leaks.test_texts_in_train == 1  # a
    assert seen.leaks.reciprocal_unfiltered == 1  # b -> a, while train has a -> b
    assert seen.leaks.own_text_pairs == seen.leaks.own_text_unfiltered == 3  # b is two labels, a one
    lines = " ".join(seen.warnings())
    for part in ("1 test texts stand in train", "1 reciprocal and 3 own-text", "1 train rows have an empty text", "no training point"):
        assert part in lines


def test_filtered_leaks_are_not_warned_of() -> None:
    data = dataset(train=[("a", [1]), ("x", [0])], test=[("b", [0])], labels=["a", "b"])
    filtered = replace(data, test=replace(data.test, filter=np.array([[0, 0], [0, 1]], np.int32)))
    leaks = describe(filtered).leaks
    assert (leaks.own_text_unfiltered, leaks.reciprocal_unfiltered, leaks.filtered_in_truth) == (0, 0, 1)


def test_gandalf_holds_where_relations_are_mutual() -> None:
    # a, b, c are bought together, whatever the page
    data = dataset([("a", [1, 2]), ("b", [0, 2]), ("c", [0, 1]), ("abc set", [0, 1, 2])], [], ["a", "b", "c"])
    gandalf = describe(data).gandalf
    assert gandalf.label_texts_that_are_inputs == 1.0 and gandalf.twins == 3
    assert gandalf.precision == gandalf.recall == 1.0
    assert gandalf.verdict.startswith("holds:")


def test_gandalf_fails_where_companions_are_siblings() -> None:
    # p and q both belong to x, and each has a label of its own: co-occurrence teaches the wrong thing
    data = dataset([("x", [0, 1]), ("p", [2]), ("q", [3])], [], ["p", "q", "r", "s"])
    gandalf = describe(data).gandalf
    assert gandalf.twins == 2
    assert gandalf.precision == 0.0
    assert gandalf.precision_by_support == {"1": 0.0}
    assert gandalf.verdict.startswith("does not hold")


def test_without_texts_and_without_rows(shop: Dataset) -> None:
    bare = replace(shop, train=replace(shop.train, texts=None), label_texts=None)
    assert describe(bare).gandalf.verdict.startswith("unknown: ")
    empty = dataset([], [], [])
    assert describe(empty).train_rows == 0
    to_text(description_table(describe(empty)))


def test_as_json_and_as_table(shop: Dataset) -> None:
    seen = describe(replace(shop, notes=("trn.json: 2 labels stood twice in a row and count once.",)))
    held = json.loads(seen.to_json())
    assert held["labels_per_point"]["mean"] == 2.0 and held["gandalf"]["twins"] == 0
    table = to_text(description_table(seen))
    assert "5 train, 3 test" in table and "stood twice" in table
    assert "No faults, no leaks." in to_text(description_table(describe(shop)))


def test_sparkline_falls() -> None:
    line = sparkline(np.arange(1, 500))
    assert line[0] == "█" and line[-1] == "▁"
    assert sparkline(np.zeros(3, np.int64)) == ""
    assert sparkline(np.ones(3, np.int64)) == "▁▁▁"  # all labels alike: a flat line


def test_zipf_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    save_zipf(tmp_path / "zipf.png", "tiny", np.array([200, 50, 7, 3, 1, 1, 0]))
    save_zipf(tmp_path / "none.png", "nothing", np.zeros(0, np.int64))
    assert (tmp_path / "zipf.png").read_bytes().startswith(b"\x89PNG")
    assert not [path for path in tmp_path.iterdir() if "unfinished" in path.name]


def test_texts_are_counted_once(shop: Dataset) -> None:
    data = replace(shop, label_texts=Texts.of(["apple", "apple", "apple", "press"]))
    assert describe(data).label_texts.duplicates == 2

"""The XC protocol, on pairs that can be followed by eye."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from longtail import Dataset, LongtailError
from longtail.data.filters import apply_protocol, find_leaks, read_filter, write_filter
from tests.conftest import dataset


@pytest.fixture
def related() -> Dataset:
    """Labels a, b, c. Train: a -> b, c. Test: b -> a (the reverse of a -> b) and b -> c; x -> a."""
    return dataset(train=[("a", [1, 2]), ("y", [0])], test=[("b", [0, 2]), ("x", [0])], labels=["a", "b", "c"])


def test_leaks(related: Dataset) -> None:
    leaks = find_leaks(related)
    assert leaks.train_own.tolist() == [[0, 0]]  # train row 0 is label a
    assert leaks.test_own.tolist() == [[0, 1]]  # test row 0 is label b
    assert leaks.reciprocal.tolist() == [[0, 0]]  # test b -> a, while train has a -> b


def test_protocol_moves_reciprocal_pairs_from_truth_to_filter(related: Dataset) -> None:
    clean = apply_protocol(related)
    assert clean.test.labels.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert clean.test.filter is not None and clean.test.filter.tolist() == [[0, 0], [0, 1]]
    assert clean.train.filter is not None and clean.train.filter.tolist() == [[0, 0]]
    assert clean.train.labels.toarray().tolist() == related.train.labels.toarray().tolist()  # training keeps its pairs
    assert not len(find_leaks(clean).reciprocal)
    again = apply_protocol(clean)
    assert again.test.filter is not None and again.test.filter.tolist() == clean.test.filter.tolist()


def test_no_leaks_without_texts_in_common() -> None:
    leaks = find_leaks(dataset([("x", [0])], [("y", [0])], ["a"]))
    assert not len(leaks.train_own) and not len(leaks.test_own) and not len(leaks.reciprocal)


def test_empty_texts_are_nobodys_own() -> None:
    assert not len(find_leaks(dataset([("", [0])], [("", [0])], [""])).test_own)


def test_filter_files(tmp_path: Path) -> None:
    path = tmp_path / "filter_labels_test.txt"
    pairs = np.array([[3, 1], [0, 2]], np.int32)
    write_filter(path, pairs)
    assert read_filter(path, (4, 3)).tolist() == pairs.tolist()
    path.write_text("")
    assert read_filter(path, (4, 3)).shape == (0, 2)
    path.write_text("0 1\r\n3 2")  # line breaks of another system, none at the end
    assert read_filter(path, (4, 3)).tolist() == [[0, 1], [3, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0 1\n0 9\n1 8\n", "filter.txt:2: pair '0 9' is outside 4 rows x 3 labels. Both count from 0. (2 lines with this fault)"),
        ("0 1\n0\n1 1 1\n", "filter.txt:2: '0' came; wanted two whole numbers: row label. (2 lines with this fault)"),
        ("0 -1\n", "filter.txt:1: '0 -1' came; wanted two whole numbers: row label."),
        ("a b\n", "filter.txt:1: 'a b' came; wanted two whole numbers: row label."),
    ],
)
def test_bad_filter_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "filter.txt"
    path.write_text(content)
    with pytest.raises(LongtailError) as caught:
        read_filter(path, (4, 3))
    assert str(caught.value).endswith(message)

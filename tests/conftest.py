"""Small data sets that the tests share."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import settings

from longtail import Dataset, Split, Texts
from longtail.core.values import labels_from_rows

# the same cases on every run, and no failure because a kernel compiles
settings.register_profile("longtail", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("longtail")


def dataset(train: list[tuple[str, list[int]]], test: list[tuple[str, list[int]]], labels: list[str], name: str = "tiny") -> Dataset:
    """A data set written out by hand: (text, label ids) rows and label texts."""

    def split(rows: list[tuple[str, list[int]]]) -> Split:
        return Split(Texts.of([text for text, _ in rows]), labels_from_rows([ids for _, ids in rows], len(labels)))

    return Dataset(name, split(train), split(test), Texts.of(labels))


@pytest.fixture
def shop() -> Dataset:
    """Four labels, five training and three test rows of a small shop."""
    return dataset(
        train=[
            ("red apple", [0, 1]),
            ("green apple", [0, 2]),
            ("apple juice", [1]),
            ("pear juice", [1, 3]),
            ("juice press", [0, 1, 3]),
        ],
        test=[("green pear", [2]), ("apple press", [0, 3]), ("water", [1])],
        labels=["apple", "juice", "pear", "press"],
        name="shop",
    )


@pytest.fixture
def xc_folder(tmp_path: Path) -> Path:
    """A folder in the XC raw layout: two labels, two training rows, one test row, filters."""
    folder = tmp_path / "LF-TinyTitles"
    folder.mkdir()
    rows = {
        "trn": [("red apple", [0], [1.0]), ("pear & café 🍐", [0, 1], [1.0, 0.5])],
        "tst": [("apple", [1], [1.0])],
    }
    for name, lines in rows.items():
        with gzip.open(folder / f"{name}.json.gz", "wt", encoding="utf-8") as file:
            for place, (text, ids, relevance) in enumerate(lines):
                row = {"uid": f"{name}{place}", "title": text, "content": "more", "target_ind": ids, "target_rel": relevance}
                file.write(json.dumps(row) + "\n")
    with gzip.open(folder / "lbl.json.gz", "wt", encoding="utf-8") as file:
        for place, text in enumerate(["apple", "pear"]):
            file.write(json.dumps({"uid": f"lbl{place}", "title": text, "content": ""}, ensure_ascii=False) + "\n")
    (folder / "filter_labels_test.txt").write_text("0 0\n")
    (folder / "filter_labels_train.txt").write_text("")
    return folder

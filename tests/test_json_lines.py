"""JSON lines that the kernel writes, against Python's json."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from longtail import Texts
from longtail.data import json_lines as module
from longtail.data.json_lines import blocks_of_rows, json_lines, write_gzipped

texts = st.text(st.characters(codec="utf-8"), max_size=12)
rows = st.lists(st.tuples(texts, texts, st.dictionaries(st.integers(0, 2**31 - 2), st.floats(0, 1, width=32), max_size=4)), max_size=6)


@given(rows)
def test_every_line_reads_back(rows: list[tuple[str, str, dict[int, float]]]) -> None:
    ends = np.cumsum([0, *(len(labels) for _, _, labels in rows)])
    ids = np.array([label for _, _, labels in rows for label in labels], np.int32)
    values = np.array([value for _, _, labels in rows for value in labels.values()], np.float32)
    matrix = csr_matrix((values, ids, ends), shape=(len(rows), 2**31 - 1))
    lines = json_lines(Texts.of(uid for uid, _, _ in rows), Texts.of(text for _, text, _ in rows), matrix)
    read = [json.loads(line) for line in lines.tobytes().decode().split("\n")[:-1]]
    assert [(line["uid"], line["title"], line["target_ind"]) for line in read] == [(uid, text, list(labels)) for uid, text, labels in rows]
    assert [np.float32(value) for line in read for value in line["target_rel"]] == values.tolist()
    assert all(line["content"] == "" for line in read)


def test_same_bytes_as_pythons_json() -> None:
    title = 'a "quoted" \\ tab\t line\n feed\x0c bell\x07 café 🍐'
    matrix = csr_matrix(([1.0, np.float32(0.1)], [3, 12], [0, 2]), shape=(1, 20))
    line = {"uid": "u1", "title": title, "content": "", "target_ind": [3, 12], "target_rel": [1.0, 0.1]}
    assert json_lines(Texts.of(["u1"]), Texts.of([title]), matrix).tobytes().decode() == json.dumps(line, ensure_ascii=False) + "\n"
    label = {"uid": "lbl0", "title": title, "content": ""}
    assert json_lines(Texts.of(["lbl0"]), Texts.of([title])).tobytes().decode() == json.dumps(label, ensure_ascii=False) + "\n"


def test_blocks_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ROWS", 3)
    monkeypatch.setattr(module, "BLOCK_PAIRS", 4)
    assert list(blocks_of_rows(np.array([1, 1, 1, 1, 9, 2, 2, 2]))) == [(0, 3), (3, 4), (4, 5), (5, 7), (7, 8)]
    labels = csr_matrix(np.eye(8, dtype=np.float32))
    write_gzipped(tmp_path / "x.json.gz", Texts.of(f"text {row}" for row in range(8)), None, "trn", labels)
    with gzip.open(tmp_path / "x.json.gz", "rt") as file:
        read = [json.loads(line) for line in file]
    assert [(line["uid"], line["title"], line["target_ind"]) for line in read] == [(f"trn{i}", f"text {i}", [i]) for i in range(8)]


def test_no_rows_are_an_empty_file(tmp_path: Path) -> None:
    write_gzipped(tmp_path / "x.json.gz", Texts.of([]), None, "trn", csr_matrix((0, 3), dtype=np.float32))
    with gzip.open(tmp_path / "x.json.gz", "rb") as file:
        assert file.read() == b""

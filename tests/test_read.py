"""The XC layouts and how a path is recognised."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix, save_npz

import longtail
from longtail import LongtailError
from longtail.data.files import BLOCK_BYTES, blocks
from longtail.data.lines import read_lines


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="utf-8")
    return folder


def test_xc_raw(xc_folder: Path) -> None:
    data = longtail.read(xc_folder)
    assert data.name == "LF-TinyTitles"
    assert list(data.train.texts or []) == ["red apple", "pear & café 🍐"]
    assert data.train.labels.toarray().tolist() == [[1, 0], [1, 0.5]]
    assert list(data.label_texts or []) == ["apple", "pear"]
    assert list(data.train.uids or []) == ["trn0", "trn1"] and list(data.label_uids or []) == ["lbl0", "lbl1"]
    assert data.test.filter is not None and data.test.filter.tolist() == [[0, 0]]
    assert data.train.filter is not None and data.train.filter.shape == (0, 2)


def test_title_and_content(xc_folder: Path) -> None:
    data = longtail.read(xc_folder, fields=("title", "content"))
    assert list(data.test.texts or []) == ["apple more"]
    assert list(data.label_texts or []) == ["apple", "pear"]  # an empty content adds nothing


def test_raw_subfolder_and_plain_files(tmp_path: Path) -> None:
    write(tmp_path / "raw", trn__json='{"title": "a", "target_ind": [2, 0]}\n')
    data = longtail.read(tmp_path)
    assert data.n_labels == 3 and data.label_texts is None and len(data.test) == 0


def test_a_label_named_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path, trn__json='{"title": "a", "target_ind": [1, 0, 1], "target_rel": [0.2, 1, 0.7]}\n')
    data = longtail.read(tmp_path)
    np.testing.assert_allclose(data.train.labels.toarray(), [[1, 0.7]])
    assert "1 labels stood twice" in data.notes[0]


def test_latin1(tmp_path: Path) -> None:
    (tmp_path / "trn.json").write_bytes('{"title": "café", "target_ind": [0]}\n'.encode("latin-1"))
    with pytest.raises(LongtailError, match=r"trn.json:1: bytes e9 22 2c 20 are not UTF-8.*encoding='latin-1'"):
        longtail.read(tmp_path)
    assert list(longtail.read(tmp_path, encoding="latin-1").train.texts or []) == ["café"]
    with pytest.raises(LongtailError, match="No encoding called 'latin-one'"):
        longtail.read(tmp_path, encoding="latin-one")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"title": "x"', "trn.json:2: not JSON"),
        ("[1]", "trn.json:2: a JSON list came: '[1]'; wanted an object."),
        ('{"name": "x"}', "trn.json:2: field 'title' is missing; wanted a text. Fields of the line: 'name'."),
        ('{"title": 3}', "trn.json:2: field 'title' is 3; wanted a text."),
        ('{"title": "x", "target_ind": [-1]}', "trn.json:2: label -1"),
        ('{"title": "x", "target_ind": [1.5]}', "trn.json:2: label 1.5"),
        ('{"title": "x", "target_ind": "1"}', "trn.json:2: field 'target_ind' is '1'; wanted a list of finite numbers."),
        ('{"title": "x", "target_ind": [1], "target_rel": []}', "trn.json:2: 1 entries in target_ind but 0 in target_rel"),
    ],
)
def test_faults_of_raw_lines(tmp_path: Path, line: str, message: str) -> None:
    write(tmp_path, trn__json='{"title": "a", "target_ind": [0]}\n' + line + "\n" + '{"title": "b"}\n' + line + "\n")
    with pytest.raises(LongtailError) as caught:
        longtail.read(tmp_path)
    assert message in str(caught.value)
    assert "(2 lines with this fault)" in str(caught.value)


def test_damaged_gzip(xc_folder: Path) -> None:
    path = xc_folder / "trn.json.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(LongtailError, match="the gzip data is damaged or cut short"):
        longtail.read(xc_folder)


def test_xc_sparse(tmp_path: Path) -> None:
    write(
        tmp_path,
        trn_X_Y__txt="2 3\n0:1 2:0.5\n\n",
        tst_X_Y__txt="1 3\n1:1\n",
        trn_X__txt="red apple\npear\n",
        tst_X__txt="apple",
        Y__txt="a\nb\nc\n",
        trn_X_Xf__txt="2 4\n3:0.25 1:1e-3\n0:-2\n",
        lbl_X_Xf__txt="3 4\n0:1\n1:1\n2:1\n",
        tst_filter_labels__txt="0 2\n",
    )
    data = longtail.read(tmp_path)
    assert data.train.labels.toarray().tolist() == [[1, 0, 0.5], [0, 0, 0]]
    assert list(data.test.texts or []) == ["apple"]
    assert data.train.features is not None
    np.testing.assert_allclose(data.train.features.toarray(), [[0, 1e-3, 0, 0.25], [-2, 0, 0, 0]])
    assert data.label_features is not None and data.label_features.shape == (3, 4)
    assert data.test.filter is not None and data.test.filter.tolist() == [[0, 2]]


def test_npz_labels(tmp_path: Path) -> None:
    write(tmp_path, trn_X__txt="a\nb\n", tst_X__txt="c\n", Y__txt="x\ny\n")
    save_npz(tmp_path / "Y.trn.npz", csr_matrix([[1, 0], [1, 1]]))
    save_npz(tmp_path / "Y.tst.npz", csr_matrix([[0, 1]]))
    data = longtail.read(tmp_path)
    assert data.train.labels.toarray().tolist() == [[1, 0], [1, 1]]
    assert data.test.labels.dtype == np.float32


def test_old_single_file(tmp_path: Path) -> None:
    write(tmp_path, train__txt="3 5 4\n0,2 1:0.5 4:1\n 3:1\n1 0:2\n", test__txt="1 5 4\n3 2:1\n")
    data = longtail.read(tmp_path)
    assert data.train.labels.toarray().tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert data.train.features is not None
    assert data.train.features.toarray().tolist() == [[0, 0.5, 0, 0, 1], [0, 0, 0, 1, 0], [2, 0, 0, 0, 0]]
    assert data.train.texts is None and data.label_texts is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("2 3\n0:1\n", "1 lines came after the header; wanted 2"),
        ("2\n0:1\n", "trn_X_Y.txt:1: '2' came; wanted the header 'rows columns'."),
        ("1 3\n0:1 x\n", "trn_X_Y.txt:2: 'x' came; wanted id:value pairs."),
        ("2 3\n0:1 3:1\n4:1\n", "trn_X_Y.txt:2: id 3 is outside 0..2, the header's range. (2 lines with this fault)"),
        ("1 3\n0:nan\n", "trn_X_Y.txt:2: '0:nan' came"),
        ("1 3\n0:1e99\n", "trn_X_Y.txt:2: '0:1e99' came"),
        ("1 3\n-1:1\n", "trn_X_Y.txt:2: '-1:1' came"),
    ],
)
def test_faults_of_sparse_lines(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path, trn_X_Y__txt=content)
    with pytest.raises(LongtailError) as caught:
        longtail.read(tmp_path)
    assert message in str(caught.value)


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    write(tmp_path, trn_X_Y__txt="2 3\n0:1\n1:1\n", trn_X__txt="a\n")
    with pytest.raises(LongtailError, match=r"trn_X.txt: 1 rows came; wanted 2, as trn_X_Y.txt has."):
        longtail.read(tmp_path)
    write(tmp_path, trn_X__txt="a\nb\n", Y__txt="x\n")
    with pytest.raises(LongtailError, match=r"Y.txt has 1 lines"):
        longtail.read(tmp_path)


def test_hold_out(tmp_path: Path) -> None:
    write(tmp_path, trn__json="".join(json.dumps({"title": f"t{i}", "target_ind": [i % 3]}) + "\n" for i in range(20)))
    data = longtail.read(tmp_path, test_share=0.25, seed=3)
    assert (len(data.train), len(data.test)) == (15, 5)
    assert set(data.train.texts or []) | set(data.test.texts or []) == {f"t{i}" for i in range(20)}
    again = longtail.read(tmp_path, test_share=0.25, seed=3)
    assert again.test.texts == data.test.texts
    assert longtail.read(tmp_path, test_share=0.25, seed=4).test.texts != data.test.texts


def test_blocks_hold_whole_lines_with_their_numbers(tmp_path: Path) -> None:
    lines = [b"x" * (BLOCK_BYTES // 3) for _ in range(7)] + [b"y" * (2 * BLOCK_BYTES), b"", b"last"]
    path = tmp_path / "long.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"\xef\xbb\xbf" + b"\n".join(lines))
    seen = list(blocks(path))
    assert len(seen) > 2
    assert b"".join(block.bytes for block in seen).split(b"\n") == lines
    for block in seen:
        assert lines[block.line - 1].startswith(block.bytes[:1].strip())
    assert [len(text) for text in read_lines(path)] == [len(line) for line in lines]


def test_line_breaks_of_other_systems(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes("a\r\n\r\nb\u2028c\x0bd\r\n".encode())
    assert list(read_lines(path)) == ["a", "", "b\u2028c\x0bd"]
    path.write_bytes(b"")
    assert list(read_lines(path)) == []

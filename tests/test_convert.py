"""Round trips through every format that can be written: nothing it can hold is lost, and what is lost is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, SettingError, UnknownName
from longtail.core.values import Dataset, Split, Texts, labels_from_rows
from longtail.data.convert import convert, writable
from longtail.data.files import new_folder
from longtail.data.formats.base import Format, ReadOptions
from longtail.data.formats.fasttext import FastText
from longtail.data.formats.parquet import ParquetTable
from longtail.data.formats.pecos import Pecos
from longtail.data.formats.sparse import XCSparse
from longtail.data.formats.xc import XCRaw
from longtail.data.lists import from_lists
from longtail.data.read import read, recognise

FORMS: dict[str, type[Format]] = {"xc": XCRaw, "sparse": XCSparse, "parquet": ParquetTable, "pecos": Pecos, "fasttext": FastText}
HOLDS_RELEVANCE = {"xc", "sparse", "parquet", "pecos"}
ODD_TEXTS = [
    "  two  blanks ",
    "tab\there\tand",
    "nel\x85 ls\u2028 ps\u2029 vt\x0b ff\x0c",
    "😀 é \u0000",
    "",
    "3,7\tx",
    "12 13 14",
    'quo"te, \\n',
]


def odd_data() -> Dataset:
    relevance = csr_matrix((np.array([0.1, 2.5, 1e-7, 1], np.float32), ([0, 0, 3, 7], [2, 0, 1, 4])), shape=(8, 5))
    test = Split(Texts.of(["q", " q", ""]), labels_from_rows([[0, 4], [], [3]], 5), np.array([[0, 1], [2, 4]], np.int32))
    train = Split(Texts.of(ODD_TEXTS), relevance, np.array([[1, 2], [7, 0]], np.int32))
    return Dataset("odd", train, test, Texts.of(["a", "", " b ", "c\u2028d", "e\tf"]))


def write(name: str, data: Dataset, folder: Path) -> list[str]:
    with new_folder(folder) as unfinished:
        return FORMS[name]().write(data, unfinished)


def same(left: Dataset, right: Dataset, relevance: bool = True) -> None:
    assert left.label_texts == right.label_texts and left.n_labels == right.n_labels
    for one, other in ((left.train, right.train), (left.test, right.test)):
        assert one.texts == other.texts
        assert one.labels.shape == other.labels.shape and one.labels.dtype == other.labels.dtype == np.float32
        assert np.array_equal(one.labels.indptr, other.labels.indptr) and np.array_equal(one.labels.indices, other.labels.indices)
        assert not relevance or np.array_equal(one.labels.data, other.labels.data)
        assert (one.filter is None) == (other.filter is None)
        assert one.filter is None or other.filter is None or np.array_equal(one.filter, other.filter)


def test_every_writable_format_is_tested() -> None:
    assert writable() == FORMS


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_through_two_formats(tmp_path: Path, first: str, second: str) -> None:
    data = odd_data()
    lost = write(first, data, tmp_path / "a")
    assert isinstance(recognise(tmp_path / "a"), FORMS[first])
    same(data, read(tmp_path / "a"), first in HOLDS_RELEVANCE)
    lost += convert(tmp_path / "a", tmp_path / "b", to=second)
    same(data, read(tmp_path / "b"), {first, second} <= HOLDS_RELEVANCE)
    assert any("Relevance is left out" in note for note in lost) == ("fasttext" in (first, second))


@pytest.mark.parametrize("name", FORMS)
def test_relevance_of_one_and_no_test_rows(tmp_path: Path, name: str) -> None:
    data = from_lists(["a b", "c", "d"], [["x"], [], ["y", "x"]])
    write(name, data, tmp_path / "a")
    same(data, read(tmp_path / "a"))
    if name == "pecos":
        assert (tmp_path / "a" / "train.txt").read_text() == "0\ta b\n\tc\n0,1\td\n"
    if name == "fasttext":
        assert (tmp_path / "a" / "train.txt").read_text() == "__label__0 a b\nc\n__label__0 __label__1 d\n"


@pytest.mark.parametrize("name", FORMS)
def test_empty_data(tmp_path: Path, name: str) -> None:
    data = from_lists([], [], label_texts=[])
    write(name, data, tmp_path / "a")
    same(data, FORMS[name]().read(tmp_path / "a", ReadOptions()))


@pytest.mark.parametrize("name", ["sparse", "pecos", "fasttext"])
def test_line_formats_replace_line_breaks_and_say_so(tmp_path: Path, name: str) -> None:
    lost = write(name, from_lists(["a\nb\r\nc", "d\r"], [["x\ny"], []]), tmp_path / "a")
    data = read(tmp_path / "a")
    assert list(data.train.texts or []) == ["a b  c", "d "] and list(data.label_texts or []) == ["x y"]
    assert sum("line breaks in 2 texts became blanks" in note for note in lost) == 1
    assert sum("line breaks in 1 texts became blanks" in note for note in lost) == 1


def test_parquet_keeps_uids_and_missing_label_texts(tmp_path: Path) -> None:
    data = odd_data()
    with_uids = replace(
        data,
        train=replace(data.train, uids=Texts.of([f"r{row}" for row in range(8)])),
        label_uids=Texts.of(list("abcde")),
        label_texts=None,
    )
    assert write("parquet", with_uids, tmp_path / "a") == []
    back = read(tmp_path / "a")
    same(with_uids, back)
    assert back.train.uids == with_uids.train.uids and back.test.uids is None and back.label_uids == with_uids.label_uids


def test_parquet_spans_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.data.formats.parquet.GROUP_ROWS", 3)
    data = odd_data()
    write("parquet", data, tmp_path / "a")
    same(data, read(tmp_path / "a"))


def test_parquet_ids_out_of_range_are_counted(tmp_path: Path) -> None:
    data = odd_data()
    write("parquet", replace(data, test=replace(data.test, filter=None)), tmp_path / "a")
    write("parquet", from_lists(["a"], [["x"]]), tmp_path / "b")
    (tmp_path / "a" / "labels.parquet").write_bytes((tmp_path / "b" / "labels.parquet").read_bytes())
    with pytest.raises(
        DataError, match=r"train.parquet:1: label 2 is outside 0\.\.0\. labels.parquet has 1 rows\. \(3 lines with this fault\)"
    ):
        read(tmp_path / "a")


@pytest.mark.parametrize("name", ["xc", "parquet", "pecos", "fasttext"])
def test_features_are_left_out_with_a_note(tmp_path: Path, name: str) -> None:
    data = from_lists(["a"], [["x"]])
    with_features = replace(data, train=replace(data.train, features=csr_matrix([[1.0, 2.0]])))
    assert any("Features are left out" in note for note in write(name, with_features, tmp_path / "a"))
    without_texts = replace(data, train=Split(None, data.train.labels, features=csr_matrix([[1.0]])))
    with pytest.raises(DataError, match=r"features but no texts; .* needs texts\. Convert it to 'sparse'\."):
        write(name, without_texts, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_pecos_lines_of_others(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("3:0.5,1:1e-1\tmario\r\n2\tkart\ttwo\n\tnone", newline="")
    data = read(tmp_path)
    assert isinstance(recognise(tmp_path), Pecos) and data.label_texts is None
    assert list(data.train.texts or []) == ["mario", "kart\ttwo", "none"]
    assert data.train.labels.toarray().tolist() == [[0, np.float32(0.1), 0, 0.5], [0, 0, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0\ta\nno tab\n1\tb\nnone\n", r"train.txt:2: 'no tab' has no tab; wanted ids<TAB>text\. \(2 lines with this fault\)"),
        ("0\ta\n1,x\tb\n", r"train.txt:2: '1,x' came; wanted ids such as 3,7 or 3:0.5,7:1 before the tab\."),
        ("0:1\ta\n1:1,\tb\n", r"train.txt:2: '1:1,' came"),
        ("0:1\ta\n1:nan\tb\n", r"train.txt:2: '1:nan' came"),
        ("0\ta\n1,7\tb\n", r"train.txt:2: label 7 is outside 0\.\.1\. Label ids count the lines of labels.txt from 0\."),
        ("99999999999\ta\n", r"train.txt:1: '99999999999' came"),
    ],
)
def test_pecos_faults(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "train.txt").write_text(content)
    (tmp_path / "labels.txt").write_text("x\ny\n")
    with pytest.raises(DataError, match=message):
        Pecos().read(tmp_path, ReadOptions())


def test_fasttext_file_of_others(tmp_path: Path) -> None:
    path = tmp_path / "cooking.train"
    path.write_text(
        "__label__sauce __label__cheese_cake How much\t salt ?\n\t__label__cheese_cake   __label__sauce\n"
        " no label __label__here\n__label__ x\n"
    )
    data = read(path)
    assert data.name == "cooking" and list(data.label_texts or []) == ["sauce", "cheese_cake", ""]
    assert list(data.train.texts or []) == ["How much\t salt ?", "", " no label __label__here", "x"]
    assert data.train.labels.toarray().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_fasttext_label_names_may_hold_odd_blanks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("__label__a\x0bb\u2028 __label__a__label__c x".encode())
    assert list(read(tmp_path / "a.txt").label_texts or []) == ["a\x0bb\u2028", "a__label__c"]


def test_pecos_is_known_by_a_first_line_longer_than_its_head(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(",".join(map(str, range(20_000))) + "\tmario\nno tab\n")
    with pytest.raises(DataError, match="train.txt:2: 'no tab' has no tab"):
        read(tmp_path)


def test_fasttext_faults(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("__label__0 a\n__label__x b\n__label__2 c\n")
    (tmp_path / "labels.txt").write_text("x\ny\n")
    with pytest.raises(
        DataError, match=r"train.txt:2: label 'x' is not an id in labels.txt, which has 2 lines.*\(2 lines with this fault\)"
    ):
        read(tmp_path)
    (tmp_path / "labels.txt").unlink()
    (tmp_path / "test.txt").write_text("__label__9 a\n")
    with pytest.raises(DataError, match=r"test.txt:1: label '9' has no training row"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"Text '  __label__x' \(row 0\) begins as fastText labels do"):
        write("fasttext", from_lists(["  __label__x"], [["a"]]), tmp_path / "a")


def test_fasttext_first_rows_that_look_like_another_format(tmp_path: Path) -> None:
    write("xc", from_lists(["1\tx", "b"], [[], ["y"]]), tmp_path / "a")
    assert convert(tmp_path / "a", tmp_path / "b", to="fasttext") == ["uids are left out: the fastText layout numbers its rows."]
    same(read(tmp_path / "a"), read(tmp_path / "b"))
    write("xc", from_lists(["1 2 3", "b"], [[], ["y"]]), tmp_path / "c")
    with pytest.raises(DataError, match="written as fasttext would be taken for the XC sparse layout"):
        convert(tmp_path / "c", tmp_path / "d", to="fasttext")
    assert not (tmp_path / "d").exists()
    write("xc", from_lists(["a"], [[]], label_texts=["y"]), tmp_path / "e")
    with pytest.raises(DataError, match="written as fasttext would not be recognised"):
        convert(tmp_path / "e", tmp_path / "f", to="fasttext")


def test_convert_refuses_before_it_reads(tmp_path: Path) -> None:
    with pytest.raises(
        UnknownName, match=r"No format to write called 'parket'\. Did you mean 'parquet'\? Known: fasttext, parquet, pecos, sparse, xc\."
    ):
        convert(tmp_path / "nowhere", tmp_path / "b", to="parket")
    with pytest.raises(UnknownName):
        convert(tmp_path / "nowhere", tmp_path / "b", to="table")
    with pytest.raises(SettingError, match="already exists and is not an empty folder"):
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").touch()
        convert(tmp_path / "nowhere", tmp_path / "full")
    with pytest.raises(DataError, match="does not exist"):
        convert(tmp_path / "nowhere", tmp_path / "b")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["full"]


def test_convert_passes_options_of_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("headline,topics\nmario,racing/nintendo\n")
    assert convert(tmp_path / "a.csv", tmp_path / "b", text="headline", labels="topics", separator="/") == []
    assert list(read(tmp_path / "b").label_texts or []) == ["racing", "nintendo"]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\ufeff"), max_size=12)


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    label_texts = draw(st.lists(TEXT, max_size=6))
    n_labels = len(label_texts)

    def split(least: int) -> Split:
        texts = draw(st.lists(TEXT, min_size=least, max_size=5))
        ids = st.lists(st.integers(0, n_labels - 1), unique=True).map(sorted) if n_labels else st.just([])
        labels = labels_from_rows([draw(ids) for _ in texts], n_labels)
        if draw(st.booleans()):
            values = draw(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=labels.nnz, max_size=labels.nnz))
            labels.data[:] = values
        pairs = None
        if draw(st.booleans()):
            kept = draw(st.lists(st.tuples(st.integers(0, len(texts) - 1), st.integers(0, n_labels - 1)))) if texts and n_labels else []
            pairs = np.array(kept, np.int32).reshape(-1, 2)
        return Split(Texts.of(texts), labels, pairs)

    return Dataset("drawn", split(1), split(0), Texts.of(label_texts))


@pytest.mark.parametrize("name", FORMS)
@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=datasets())
def test_any_data_set_survives(tmp_path_factory: pytest.TempPathFactory, name: str, data: Dataset) -> None:
    folder = tmp_path_factory.mktemp("any") / "a"
    write(name, data, folder)
    same(data, FORMS[name]().read(folder, ReadOptions()), name in HOLDS_RELEVANCE)

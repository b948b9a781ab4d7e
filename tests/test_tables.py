"""Tables as people have them: columns recognised, cells taken apart, labels looked up, faults counted."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, MissingExtra, SettingError
from longtail.core.values import Dataset, Split
from longtail.data.lists import from_lists
from longtail.data.read import read


def rows(split: Split) -> list[list[int]]:
    return [split.labels.indices[a:b].tolist() for a, b in zip(split.labels.indptr, split.labels.indptr[1:], strict=False)]


def named(data: Dataset, split: Split) -> list[list[str]]:
    assert data.label_texts is not None
    return [[data.label_texts[label] for label in row] for row in rows(split)]


def put(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_csv_with_quotes_line_breaks_and_empty_cells(tmp_path: Path) -> None:
    path = put(tmp_path / "shop.csv", 'title,tags\n"mario, ""kart""",racing|nintendo\n"two\nlines",nintendo\n,\nplain,\n')
    data = read(path)
    assert data.name == "shop"
    assert list(data.train.texts or []) == ['mario, "kart"', "two\nlines", "", "plain"]
    assert list(data.label_texts or []) == ["racing", "nintendo"]  # in order of first appearance
    assert rows(data.train) == [[0, 1], [1], [], []]
    assert len(data.test) == 0 and data.test.labels.shape == (0, 2)
    assert any("separated by '|'" in note for note in data.notes)


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (["a|b", "a|c, d"], [["a", "b"], ["a", "c, d"]]),
        (["a;b", "c, d"], [["a", "b"], ["c, d"]]),
        (["a\tb", "c, d"], [["a", "b"], ["c, d"]]),
        (["a, b", "c"], [["a", "b"], ["c"]]),
        (["a b", "c"], [["a b"], ["c"]]),
        (['["a, x", "b"]', "[]"], [["a, x", "b"], []]),
        (["['a', \"b|c\"]", ""], [["a", "b|c"], []]),
        (["a|b;c", "d|e", "f;g"], [["a", "b;c"], ["d", "e"], ["f;g"]]),  # '|' and ';' in two cells each: '|' comes first
        (["a||b| ", "| c"], [["a", "b"], ["c"]]),
    ],
)
def test_separator_is_recognised(tmp_path: Path, cells: list[str], wanted: list[list[str]]) -> None:
    with open(tmp_path / "train.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "labels"], *(["t", cell] for cell in cells)])
    data = read(tmp_path / "train.csv")
    assert named(data, data.train) == wanted


def test_separator_can_be_given(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", 'text,labels\nx,"a, b / c"\ny,"c"\n')
    data = read(path, separator="/")
    assert named(data, data.train) == [["a, b", "c"], ["c"]]
    data = read(path, separator="")
    assert named(data, data.train) == [["a, b / c"], ["c"]]
    tabs = put(tmp_path / "b.csv", 'text,labels\nx,"a|b\tc"\n')
    data = read(tabs, separator="\\t")
    assert named(data, data.train) == [["a|b", "c"]]


def test_tsv_takes_stray_quotes_as_they_are(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", 'query\tlabel\n"5" disk\ta\n"quoted ""x"""\tb\n6" nail\tc\r\n')
    assert list(read(path).train.texts or []) == ['"5" disk', 'quoted "x"', '6" nail']


def test_tsv_cells_may_span_lines_when_quoted(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", 'query\tlabel\n"one\ntwo ""x"""\ta\nfour\tb\n')
    assert list(read(path).train.texts or []) == ['one\ntwo "x"', "four"]


def test_semicolon_csv(tmp_path: Path) -> None:
    data = read(put(tmp_path / "a.csv", "Title;Labels\nx, y;a|b\n"))
    assert list(data.train.texts or []) == ["x, y"] and named(data, data.train) == [["a", "b"]]


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".json", ".jsonl.gz"])
def test_json_lines(tmp_path: Path, ending: str) -> None:
    lines = [
        {"uid": "u1", "text": "a\u2028b", "labels": ["x, y", "z"]},
        {"text": "", "labels": [], "uid": "u2"},
        {"text": None, "more": {"a": [1]}},
    ]
    content = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()
    (tmp_path / f"set{ending}").write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    data = read(tmp_path / f"set{ending}")
    assert list(data.train.texts or []) == ["a\u2028b", "", ""]
    assert list(data.train.uids or []) == ["u1", "u2", ""]
    assert named(data, data.train) == [["x, y", "z"], [], []]


def test_json_array(tmp_path: Path) -> None:
    data = read(put(tmp_path / "set.json", '\n[{"name": "a", "label": 3},\n {"name": "b", "label": 7.0}]'))
    assert list(data.label_texts or []) == ["3", "7"] and rows(data.train) == [[0], [1]]
    assert any("numbers serve as label texts" in note for note in data.notes)


def test_relevance_column(tmp_path: Path) -> None:
    data = read(put(tmp_path / "a.jsonl", '{"text": "a", "target_ind": [4, 2], "target_rel": [0.5, 2]}\n'))
    assert data.train.labels.toarray().tolist() == [[0.5, 2.0]] and list(data.label_texts or []) == ["4", "2"]
    with pytest.raises(DataError, match=r"b.jsonl:1: 2 labels but 1 values of relevance; wanted as many\."):
        read(put(tmp_path / "b.jsonl", '{"text": "a", "target_ind": [4, 2], "target_rel": [0.5]}\n'))
    with pytest.raises(DataError, match=r"c.jsonl:1: relevance NaN|c.jsonl:1: relevance nan came; wanted a finite number"):
        read(put(tmp_path / "c.jsonl", '{"text": "a", "target_ind": [4], "target_rel": [NaN]}\n'))


def test_split_column(tmp_path: Path) -> None:
    data = read(put(tmp_path / "a.csv", "text,labels,Split\na,x,train\nb,x,TEST\nc,x,dev\nd,x,train\n"))
    assert list(data.train.texts or []) == ["a", "d"] and list(data.test.texts or []) == ["b"]
    assert "1 validation rows are not read" in "".join(data.notes)
    with pytest.raises(
        DataError, match=r"b.csv:3: the column 'split' is 'tset'; wanted train, test or validation\. \(2 lines with this fault\)"
    ):
        read(put(tmp_path / "b.csv", "text,labels,split\na,x,train\nb,x,tset\nb,x,tset\n"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("labels.txt", "red\ngreen, light\nblue\n"),
        ("labels.csv", 'id,text\n0,red\n1,"green, light"\n2,blue\n'),
        ("labels.tsv", "uid\ttitle\nr\tred\ng\tgreen, light\nb\tblue\n"),
        ("labels.jsonl", '{"name": "red"}\n{"name": "green, light"}\n{"name": "blue"}\n'),
    ],
)
def test_label_file_by_id_and_by_text(tmp_path: Path, name: str, content: str) -> None:
    put(tmp_path / name, content)
    put(tmp_path / "train.csv", 'text,labels\na,"2|0"\nb,1\n')
    put(tmp_path / "tst.tsv", "text\tlabels\nc\t1\n")
    put(tmp_path / "valid.csv", "")
    by_id = read(tmp_path)
    assert rows(by_id.train) == [[0, 2], [1]] and rows(by_id.test) == [[1]]
    assert list(by_id.label_texts or []) == ["red", "green, light", "blue"]
    assert "valid.csv is not read" in "".join(by_id.notes)
    put(tmp_path / "train.csv", 'text,labels\na,"blue|red"\nb,"green, light"\n')
    put(tmp_path / "tst.tsv", "text\tlabels\nc\tgreen, light\n")
    by_text = read(tmp_path)
    assert rows(by_text.train) == rows(by_id.train) and rows(by_text.test) == rows(by_id.test)


def test_label_ids_that_are_not_line_numbers(tmp_path: Path) -> None:
    put(tmp_path / "names.csv", "label_id,name\n30,red\n10,green\nx7,blue\n")
    path = put(tmp_path / "a.csv", "text,labels\na,10;x7\nb,30\n")
    data = read(path, label_texts=tmp_path / "names.csv")
    assert rows(data.train) == [[1, 2], [0]]
    put(tmp_path / "names.csv", "label_id,name\n30,red\n30,green\n")
    with pytest.raises(DataError, match=r"names.csv:3: the label id '30' stands twice; wanted each once\."):
        read(path, label_texts=tmp_path / "names.csv")


def test_labels_by_uid_and_texts_that_stand_twice(tmp_path: Path) -> None:
    labels = put(tmp_path / "l.jsonl", '{"uid": "u0", "text": "red"}\n{"uid": "u1", "text": "red"}\n{"uid": "u2", "text": "blue"}\n')
    by_uid = read(put(tmp_path / "a.csv", "text,labels\na,u1|u2\n"), label_texts=labels)
    assert rows(by_uid.train) == [[1, 2]] and list(by_uid.label_uids or []) == ["u0", "u1", "u2"]
    by_text = read(put(tmp_path / "b.csv", "text,labels\na,blue|red\n"), label_texts=labels)
    assert rows(by_text.train) == [[0, 2]] and "1 label texts stand twice" in "".join(by_text.notes)


def test_unknown_labels_are_counted(tmp_path: Path) -> None:
    put(tmp_path / "labels.txt", "red\nblue\n")
    put(tmp_path / "train.csv", "text,labels\na,0\nb,5|7\nc,1\nd,9\n")
    with pytest.raises(DataError, match=r"train.csv:3: label '5' is not in labels.txt, which has 2 labels\. \(2 lines with this fault\)"):
        read(tmp_path)
    (tmp_path / "labels.txt").unlink()
    put(tmp_path / "test.csv", "text,labels\na,0\nb,11\nc,12\n")
    with pytest.raises(DataError, match=r"test.csv:3: label '11' has no training row\. Name all labels .* \(2 lines with this fault\)"):
        read(tmp_path)


def test_columns_are_named_in_the_error(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "headline,topics\nmario,racing\n")
    with pytest.raises(DataError) as caught:
        read(path)
    assert "a.csv: no column has a usual name for text (" in str(caught.value)
    assert str(caught.value).endswith("It has: 'headline', 'topics'. Name one: text='...' in Python, --text on the command line.")
    with pytest.raises(DataError, match="usual name for labels"):
        read(path, text="headline")
    with pytest.raises(DataError, match=r"no column called 'heading'\. It has: 'headline', 'topics'\."):
        read(path, text="heading", labels="topics")
    data = read(path, text="headline", labels="topics")
    assert list(data.train.texts or []) == ["mario"] and named(data, data.train) == [["racing"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "a.csv: the file is empty; wanted a header line"),
        ("a.csv", "text,labels\na,b\nc\nd,e,f\n", r"a.csv:3: 1 cells came; wanted 2, as the header has\. \(2 lines with this fault\)"),
        ("a.csv", 'text,labels\na,b\n"open,c\nd,e\n', r"a.csv:3: a row that begins here and ends at line 4 is not CSV"),
        ("a.csv", 'text,labels\n"a"b,c\n', r"a.csv:2: a row that begins here and ends at line 2 is not CSV"),
        (
            "a.jsonl",
            '{"text": "a", "labels": []}\n\nnope\n[1]\n',
            r"a.jsonl:3: not JSON \(Expecting value\): 'nope'; .* \| .*:4: a JSON list came",
        ),
        ("a.jsonl", '{"text": "a", "labels": []}\n{"labels": []}\n', r"a.jsonl:2: the text 'text' is missing; wanted a text"),
        ("a.jsonl", '{"text": 5, "labels": []}\n', r"a.jsonl:1: the text 'text' is 5; wanted a text"),
        ("a.jsonl", '{"text": "", "labels": [true]}\n', r"a.jsonl:1: label True is a bool; wanted a text or a whole number"),
        ("a.jsonl", '{"text": "", "labels": {"a": 1}}\n', r"a.jsonl:1: label \{'a': 1\} is a dict"),
        ("a.json", '[{"text": "a"},\n', r"a.json:2: the array is not JSON"),
        ("a.csv", 'text,labels\na,"[1, 2]"\nb,"[1, 2,, 3]"\n', r"a.csv:3: labels '\[1, 2,, 3\]' came; wanted a list such as"),
        ("a.parquet", "no parquet", r"a.parquet: not readable as Parquet \("),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = put(tmp_path / name, content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_large_cells_are_read_and_the_limit_of_csv_stays(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    text = "long " * 60_000
    assert list(read(put(tmp_path / "a.csv", f"text,labels\n{text},x\n")).train.texts or []) == [text]
    assert csv.field_size_limit() == limit


def test_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text,labels\ncafé,à\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a.csv:2: bytes e9 2c e0 0a are not UTF-8"):
        read(tmp_path / "a.csv")
    assert list(read(tmp_path / "a.csv", encoding="latin-1").train.texts or []) == ["café"]


def test_options_a_table_does_not_use(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="has no use for the option 'fields'"):
        read(put(tmp_path / "a.csv", "text,labels\na,b\n"), fields=("title", "content"))


def test_hold_out_from_a_table(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "text,labels\n" + "".join(f"t{row},l{row % 3}\n" for row in range(20)))
    data = read(path, test_share=0.25, seed=3)
    assert len(data.train) == 15 and len(data.test) == 5
    assert sorted([*(data.train.texts or []), *(data.test.texts or [])]) == sorted(f"t{row}" for row in range(20))


def test_parquet_table_of_others(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = pa.table({"title": ["a", None, "c"], "subjects": [["x", "y"], [], None], "id": [7, 8, 9]})
    parquet.write_table(table, tmp_path / "books.parquet")
    data = read(tmp_path / "books.parquet")
    assert list(data.train.texts or []) == ["a", "", "c"]
    assert named(data, data.train) == [["x", "y"], [], []]
    assert list(data.train.uids or []) == ["7", "8", "9"]
    with pytest.raises(DataError, match="no column called 'nothing'"):
        read(tmp_path / "books.parquet", text="nothing")


def test_parquet_read_by_columns_agrees_with_the_fast_way(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from longtail.data.convert import convert

    put(tmp_path / "a.csv", "text,labels,split,uid\na,x|y,train,1\nb,,train,2\nc,y,test,3\n")
    convert(tmp_path / "a.csv", tmp_path / "p", to="parquet")
    fast, slow = read(tmp_path / "p"), read(tmp_path / "p", text="text")
    assert fast.train.texts == slow.train.texts and fast.train.uids == slow.train.uids and fast.label_texts == slow.label_texts
    assert (fast.train.labels != slow.train.labels).nnz == 0 and (fast.test.labels != slow.test.labels).nnz == 0


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=r"Reading Parquet needs an extra: pip install 'longtail\[parquet\]'"):
        read(put(tmp_path / "a.parquet", "any"))


def test_from_lists_of_texts() -> None:
    data = from_lists(["a", "b"], [["x", "y", "x"], []], test=(["c"], [["y"]]), name="mine")
    assert data.name == "mine" and list(data.label_texts or []) == ["x", "y"]
    assert rows(data.train) == [[0, 1], []] and rows(data.test) == [[1]]
    assert data.notes == ("labels: 1 labels stood twice in a row and count once.",)


def test_from_lists_of_ids_and_matrices() -> None:
    by_id = from_lists(["a", "b"], [[2], np.array([0, 1])], label_texts=["x", "y", "z", "w"])
    assert by_id.n_labels == 4 and rows(by_id.train) == [[2], [0, 1]]
    without_texts = from_lists(["a"], [[2]], test=(["b"], [[4]]))
    assert without_texts.n_labels == 5 and without_texts.label_texts is None and without_texts.train.labels.shape == (1, 5)
    matrix = csr_matrix(np.array([[0, 0.5, 0], [2, 0, 0]]))
    from_matrix = from_lists(["a", "b"], matrix, label_texts=["x", "y", "z"])
    assert from_matrix.train.labels.toarray().tolist() == matrix.toarray().tolist() and from_matrix.train.labels.dtype == np.float32


def test_from_lists_holds_out() -> None:
    data = from_lists([str(row) for row in range(10)], [["x"]] * 10, test_share=0.3, seed=1)
    again = from_lists([str(row) for row in range(10)], [["x"]] * 10, test_share=0.3, seed=1)
    assert (len(data.train), len(data.test)) == (7, 3) and data.test.texts == again.test.texts


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["a"], []), {}, r"1 texts came with 0 rows of labels; wanted as many\."),
        (("abc", [["x"]]), {}, r"texts is 'abc' \(str\); wanted a list of str\."),
        (([1], [["x"]]), {}, r"texts\[0\] is 1 \(int\); wanted a str\."),
        ((["a"], ["x"]), {}, r"labels\[0\] is 'x' \(str\); wanted a list of label texts or of ids\."),
        ((["a"], 5), {}, r"labels is 5 \(int\); wanted a list of lists, or a sparse matrix\."),
        ((["a"], [[0.5]]), {}, r"labels\[0\] holds 0\.5 \(float\); wanted label texts \(str\) or ids \(int\)\."),
        ((["a", "b"], [["x"], [1]]), {}, r"labels\[1\] holds the number 1 but other rows hold texts"),
        ((["a"], [[3]]), {"label_texts": ["x", "y"]}, r"labels\[0\] holds the id 3; wanted a whole number from 0 to 1\."),
        ((["a"], [[-1]]), {}, r"labels\[0\] holds the id -1; wanted a whole number from 0"),
        ((["a"], [["q"]]), {"label_texts": ["x", "y"]}, r"labels\[0\] holds 'q', which is none of the 2 labels"),
        ((["a"], [["q"]]), {"test": (["b"], [["r"]])}, r"test labels\[0\] holds 'r', which is none of the 1 labels"),
        ((["a"], [["q"]]), {"test": (["b"],)}, r"wanted a pair: \(texts, labels\)\."),
        ((["a"], csr_matrix((1, 5))), {"label_texts": ["x"]}, r"labels: the matrix has 5 columns; wanted at most 1"),
        ((["a"], csr_matrix([[np.nan]])), {}, r"labels: 1 values are not finite"),
        ((["a"], [["x"]]), {"label_texts": "x"}, r"label_texts is 'x' \(str\); wanted a list of str\."),
    ],
)
def test_from_lists_says_what_is_wrong(arguments: tuple[object, object], options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_lists(*arguments, **options)  # type: ignore[arg-type]

"""Readers under any bytes: a Dataset or a LongtailError of one line, never another exception; kernels against naive parsers."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix, csc_matrix, csr_matrix, save_npz

from longtail.core.errors import DataError, LongtailError
from longtail.core.kernels.sparse_text import scan_sparse_text, sparse_scratch
from longtail.core.values import Dataset, Texts
from longtail.data.filters import read_filter
from longtail.data.formats.base import Format, ReadOptions
from longtail.data.formats.fasttext import FastText
from longtail.data.formats.json_rows import IDS, LARGEST, RELEVANCE, read_json_rows
from longtail.data.formats.parquet import ParquetTable
from longtail.data.formats.pecos import Pecos
from longtail.data.formats.sparse import XCSparse, read_matrix
from longtail.data.formats.table import Table
from longtail.data.formats.xc import XCRaw
from longtail.data.lists import from_lists
from longtail.data.read import read

RAW = b'{"uid": "u", "title": "mario \\u00e9", "target_ind": [0, 2], "target_rel": [1.0, 0.5]}\n{"title": "", "target_ind": []}\n'
LABELS = b'{"title": "a"}\n{"title": "b", "uid": "l"}\n{"title": "c"}\n'


def npz_of(matrix: object) -> bytes:
    file = io.BytesIO()
    save_npz(file, matrix)
    return file.getvalue()


def parquet_of(name: str, folder: Path) -> bytes:
    data = from_lists(["mario kart", "", "é"], [["a", "b"], [], ["c"]])
    ParquetTable().write(data, folder)
    return (folder / name).read_bytes()


class Case:
    """A layout of valid files; one of them, `fuzzed`, gets other bytes."""

    def __init__(self, form: type[Format], fuzzed: str, **files: bytes) -> None:
        self.form = form
        self.fuzzed = fuzzed
        self.files = {name.replace("__", "."): content for name, content in files.items()}

    def path(self, folder: Path) -> Path:
        return folder if self.form is not Table or len(self.files) > 1 else folder / self.fuzzed


SPARSE = {"trn_X_Y__txt": b"2 3\n0:1 2:0.5\n\n", "trn_X__txt": b"mario\nkart\n", "Y__txt": b"a\nb\nc\n"}
SINGLE = b"2 4 3\n0,2 1:0.5 3:1e-2\n 2:1\n"
CSV = b'text,labels,split,id\n"mario, ""x""",a|b,train,1\nkart,b,test,2\n,,train,3\n'
TSV = b'title\ttags\nmario\t["a", "b"]\n"k\nart"\t[]\n'
JSONL = b'{"text": "mario", "labels": ["a", 3], "relevance": [1, 2.5]}\n{"text": null, "labels": []}\n'
CASES = {
    "xc-train": Case(XCRaw, "trn.json", trn__json=RAW, lbl__json=LABELS),
    "xc-test": Case(XCRaw, "tst.json", trn__json=RAW, tst__json=RAW, lbl__json=LABELS),
    "xc-labels": Case(XCRaw, "lbl.json", trn__json=RAW, lbl__json=LABELS),
    "xc-gzip": Case(XCRaw, "trn.json.gz", trn__json__gz=gzip.compress(RAW, mtime=0), lbl__json=LABELS),
    "sparse-labels": Case(XCSparse, "trn_X_Y.txt", **SPARSE),
    "sparse-texts": Case(XCSparse, "trn_X.txt", **SPARSE),
    "sparse-label-texts": Case(XCSparse, "Y.txt", **SPARSE),
    "sparse-features": Case(XCSparse, "trn_X_Xf.txt", trn_X_Xf__txt=b"2 2\n0:1\n1:2\n", **SPARSE),
    "sparse-label-features": Case(XCSparse, "Yf.txt", Yf__txt=b"3 2\n0:1\n1:2\n\n", **SPARSE),
    "sparse-single": Case(XCSparse, "train.txt", train__txt=SINGLE, test__txt=SINGLE),
    "sparse-single-test": Case(XCSparse, "test.txt", train__txt=SINGLE, test__txt=SINGLE),
    "sparse-npz": Case(XCSparse, "Y.trn.npz", Y__trn__npz=npz_of(csr_matrix(np.eye(2, 3))), trn_X__txt=b"a\nb\n"),
    "sparse-npz-csc": Case(XCSparse, "trn_X_Y.npz", trn_X_Y__npz=npz_of(csc_matrix(np.eye(2, 3)))),
    "sparse-npz-coo": Case(XCSparse, "tst_X_Y.npz", trn_X_Y__txt=b"0 3\n", tst_X_Y__npz=npz_of(coo_matrix(np.eye(2, 3)))),
    "filter": Case(XCSparse, "filter_labels_train.txt", filter_labels_train__txt=b"0 1\n1 2\n", **SPARSE),
    "filter-gzip": Case(XCSparse, "trn_filter_labels.txt.gz", trn_filter_labels__txt__gz=gzip.compress(b"0 1\n1 2\n", mtime=0), **SPARSE),
    "csv": Case(Table, "a.csv", a__csv=CSV),
    "csv-gzip": Case(Table, "a.csv.gz", a__csv__gz=gzip.compress(CSV, mtime=0)),
    "csv-folder": Case(Table, "train.csv", train__csv=CSV, test__csv=b"text,labels\nx,b\n"),
    "tsv": Case(Table, "a.tsv", a__tsv=TSV),
    "jsonl": Case(Table, "a.jsonl", a__jsonl=JSONL),
    "json-array": Case(Table, "a.json", a__json=b'[{"text": "mario", "labels": "a"},\n{"text": "b", "labels": 5}]'),
    "labels-txt": Case(Table, "labels.txt", labels__txt=b"a\nb\n", train__csv=b"text,labels\nx,a|b\n"),
    "labels-csv": Case(Table, "labels.csv", labels__csv=b"id,text\n5,a\n6,b\n", train__csv=b"text,labels\nx,5|6\n"),
    "labels-jsonl": Case(Table, "labels.jsonl", labels__jsonl=LABELS, train__csv=b"text,labels\nx,0|1\n"),
    "pecos": Case(Pecos, "train.txt", train__txt=b"0,1\tmario\n\tkart\n", labels__txt=b"a\nb\n"),
    "pecos-relevance": Case(Pecos, "test.txt", train__txt=b"0,1\tmario\n", test__txt=b"0:0.5,1:1\tmario\n1\tkart\n"),
    "pecos-labels": Case(Pecos, "labels.txt", train__txt=b"0,1\tmario\n", labels__txt=b"a\nb\n"),
    "fasttext": Case(FastText, "train.txt", train__txt=b"__label__0 __label__1 mario  kart\nx\n", labels__txt=b"a\nb\n"),
    "fasttext-names": Case(FastText, "train.txt", train__txt=b"__label__a __label__b_c mario  kart\nx\n", test__txt=b"__label__a x\n"),
}
PIECES = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"\t",
        b" ",
        b",",
        b";",
        b"|",
        b":",
        b'"',
        b"\\",
        b"[",
        b"]",
        b"{",
        b"}",
        b"0",
        b"1",
        b"2 3",
        b"-1",
        b"1e400",
        b"\xff",
        b"\x00",
    ]
    + [
        b"99999999999",
        b"9" * 5000,
        "²".encode(),
        "\u2028".encode(),
        "\x85".encode(),
        b"\xef\xbb\xbf",
        b"__label__",
        b"NaN",
        b"null",
        b"true",
    ]
    + [
        b'"title"',
        b'"target_ind"',
        b'"text"',
        b'"labels"',
        b"text,labels\n",
        b'{"title": "x", "a\\nb": 1}',
        b'{"title": 5, "\\ud800": 1}',
        b"\\u0",
    ]
    + [b'{"title": "x", "target_ind": [' + b"1" + b"0" * 400 + b"]}", b'{"title": "x", "target_ind": [1], "target_rel": [true]}', b"0:1"]
)
ANY_BYTES = st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=12).map(b"".join))


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """The valid bytes with some of them flipped, cut, doubled or added."""
    content = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "cut", "cut off", "add", "double"]))
        if kind == "flip" and content:
            content[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del content[place : place + draw(st.integers(1, 8))]
        elif kind == "cut off":
            del content[place:]
        elif kind == "double":
            content[place:place] = content[place : place + 20]
        else:
            content[place:place] = draw(ANY_BYTES)
    return bytes(content)


def attempt(work: Callable[[], object]) -> object:
    """What the work returns, or None after an error that is one printable line."""
    try:
        return work()
    except LongtailError as error:
        message = str(error)
        assert len(message.splitlines()) == 1 and message.encode() and message.isprintable(), message
        return None


def check(case: Case, folder: Path, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    for name, valid in case.files.items():
        (folder / name).write_bytes(content if name == case.fuzzed else valid)
    path = case.path(folder)
    for work in (lambda: case.form().read(path, ReadOptions()), lambda: read(path)):
        found = attempt(work)
        if isinstance(found, Dataset):
            for split in (found.train, found.test):
                assert split.labels.shape == (len(split), found.n_labels)
                split.labels.check_format(full_check=True)
                assert np.isfinite(split.labels.data).all()
                assert split.texts is None or len(list(split.texts)) == len(split)
            assert found.label_texts is None or len(list(found.label_texts)) == found.n_labels


@pytest.mark.parametrize("name", CASES)
def test_valid_files_are_read(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    for file, content in case.files.items():
        (tmp_path / file).write_bytes(content)
    assert isinstance(case.form().read(case.path(tmp_path), ReadOptions()), Dataset)


@pytest.mark.parametrize("name", CASES)
@settings(derandomize=True, deadline=None, max_examples=40)
@given(drawn=st.data())
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, name: str, drawn: st.DataObject) -> None:
    case = CASES[name]
    content = drawn.draw(ANY_BYTES)
    folder = tmp_path_factory.getbasetemp() / "any"
    shutil.rmtree(folder, ignore_errors=True)
    check(case, folder, content)
    if name.endswith("gzip"):
        check(case, folder, gzip.compress(content))


@pytest.mark.parametrize("name", CASES)
@settings(derandomize=True, deadline=None, max_examples=50)
@given(drawn=st.data())
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, name: str, drawn: st.DataObject) -> None:
    case = CASES[name]
    folder = tmp_path_factory.getbasetemp() / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    check(case, folder, drawn.draw(damaged(case.files[case.fuzzed])))


@pytest.fixture(scope="module")
def parquet_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("parquet")
    parquet_of("train.parquet", folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["train.parquet", "labels.parquet"])
@settings(derandomize=True, deadline=None, max_examples=150)
@given(drawn=st.data())
def test_damaged_parquet(
    tmp_path_factory: pytest.TempPathFactory, parquet_files: dict[str, bytes], name: str, drawn: st.DataObject
) -> None:
    case = Case(ParquetTable, name, **parquet_files)
    folder = tmp_path_factory.getbasetemp() / "damaged-parquet"
    content = drawn.draw(st.one_of(damaged(parquet_files[name]), ANY_BYTES))
    check(case, folder, content)
    attempt(lambda: read(folder, text="text"))  # by columns
    attempt(lambda: read(folder / "train.parquet"))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    content=st.lists(st.sampled_from([b"0", b"1", b"7", b" ", b" ", b"\n", b"\r\n", b"\t", b"-", b"_", b"x", b"\x0b"]), max_size=12).map(
        b"".join
    )
)
@example(content=b"0\n1 2 0\n")
@example(content=b"9" * 5000 + b" 1\n")
def test_filter_against_a_naive_parser(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "filter.txt"
    path.write_bytes(content)
    lines = content.decode().replace("\r\n", "\n").split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    pairs = [re.fullmatch(r"\s*(\d+)\s+(\d+)\s*", line) for line in lines]
    found = attempt(lambda: read_filter(path, (5, 8)))
    if all(pair and len(pair[1]) < 10 and int(pair[1]) < 5 and int(pair[2]) < 8 for pair in pairs):
        assert isinstance(found, np.ndarray) and found.tolist() == [[int(pair[1]), int(pair[2])] for pair in pairs if pair]
    elif b"_" not in content and b"-0" not in content:  # which Python takes for numbers
        assert found is None


@pytest.mark.parametrize("header", ["² 3", "9" * 5000 + " 3", "2 7", "2", "2 3 4", "-2 3"])
def test_headers_that_do_not_fit(tmp_path: Path, header: str) -> None:
    (tmp_path / "trn_X_Y.txt").write_text(f"{header}\n0:1 2:1\n\n", encoding="utf-8")
    (tmp_path / "Y.txt").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match="columns came; wanted at most 3" if header == "2 7" else "wanted the header 'rows columns'"):
        read(tmp_path)


def test_npz_that_lies_about_its_ids(tmp_path: Path) -> None:
    for indices in ([0, 7], [-1, 0]):
        content = {"data": np.ones(2), "indices": np.array(indices), "indptr": np.array([0, 1, 2, 2]), "shape": np.array([2, 3])}
        np.savez(tmp_path / "Y.npz", format=np.array(b"csc"), **content)  # type: ignore[arg-type]
        with pytest.raises(DataError, match="not a sparse matrix"):
            read_matrix(tmp_path / "Y.npz")


# ---- JSON lines: the kernel against Python's json ----

BLANKS = st.sampled_from(["", "", "", " ", "\t", "  ", " \r"])
NUMBERS = st.one_of(
    st.integers(0, 12).map(str),
    st.sampled_from(
        ["-0", "0.0", "3.0", "1e1", "2E+0", "10e-1", "-1", "0.5", "2147483647", "2147483648", "1e400", "-1.5e-7", "00", "1.", ".5", "+1"]
    ),
    st.sampled_from(["3.4028235e38", "3.5e38", "1e-400", "NaN", "Infinity", "true", "null", '"1"', "0x1", "1" + "0" * 400]),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda value: repr(float(str(np.float32(value))))),
)


@st.composite
def spelled_string(draw: st.DrawFn) -> str:
    parts = []
    for character in draw(st.text(max_size=5)):
        if draw(st.booleans()) or ord(character) < 32 or character in '"\\':
            units = character.encode("utf-16-be", "surrogatepass")
            code = "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
            parts.append(code if draw(st.booleans()) else code.upper().replace("\\U", "\\u"))
        else:
            parts.append(character)
    parts.append(
        draw(
            st.sampled_from(
                ["", "", "\\n", "\\/", '\\"', "\\\\", "\\b\\f\\r\\t", "\\ud83d\\ude00", "\\ud800", "\\udc00\\ud800", "\\x", "\\u12", "\x01"]
            )
        )
    )
    return '"' + "".join(parts) + '"'


@st.composite
def spelled_list(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    inner = f"{draw(BLANKS)},{draw(BLANKS)}".join(draw(st.lists(items, max_size=3)))
    return f"[{draw(BLANKS)}{inner}{draw(BLANKS)}]"


PLAIN = st.one_of(
    spelled_string(), NUMBERS, st.sampled_from(["null", "true", "false", "[]", "{}", "[[1], {}]", '{"title": "in"}', "nul", ""])
)
IDS_SPELLED = st.one_of(spelled_list(st.integers(0, 9).map(str)), spelled_list(NUMBERS), st.sampled_from(["null", "5", "[[1]]", "[1,]"]))


@st.composite
def spelled_object(draw: st.DrawFn) -> str:
    fields = [("title", spelled_string())]
    if draw(st.booleans()):
        ids = draw(st.lists(st.integers(0, 9).map(str), max_size=3))
        fields.append((IDS, st.just("[" + ",".join(ids) + "]")))
        if draw(st.booleans()):
            fields.append(
                (RELEVANCE, st.lists(NUMBERS, min_size=len(ids), max_size=len(ids)).map(lambda values: "[" + ", ".join(values) + "]"))
            )
    odd = st.sampled_from(
        [
            ("uid", spelled_string()),
            ("other", PLAIN),
            (IDS, IDS_SPELLED),
            (RELEVANCE, IDS_SPELLED),
            ("title", PLAIN),
            ("ti\\u0074le", PLAIN),
        ]
    )
    fields += draw(st.lists(odd, max_size=2))
    fields = draw(st.permutations(fields))
    cells = [f'{draw(BLANKS)}"{name}"{draw(BLANKS)}:{draw(BLANKS)}{draw(value)}{draw(BLANKS)}' for name, value in fields]
    return draw(BLANKS) + "{" + ",".join(cells) + "}" + draw(BLANKS) + draw(st.sampled_from(["", "", "", "", "x", ","]))


def naive_row(line: str) -> tuple[str, str, list[int], list[float]] | None:
    """What json.loads reads, or None where the row is not one of the XC raw layout."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not isinstance(row.get("title"), str) or not isinstance(row.get("uid", ""), str):
        return None
    ids = row.get(IDS, [])
    relevance: list[float] = row[RELEVANCE] if row.get(RELEVANCE) is not None else [1.0] * (len(ids) if isinstance(ids, list) else 0)
    for values in (ids, relevance):
        if not isinstance(values, list) or any(type(value) not in (int, float) or not abs(value) <= LARGEST for value in values):
            return None
    if len(ids) != len(relevance) or any(label != int(label) or not 0 <= label < 2**31 for label in ids):
        return None
    title, uid = (Texts.of([text])[0] for text in (row["title"], row.get("uid", "")))  # with lone surrogates replaced
    return title, uid, [int(label) for label in ids], relevance


@settings(derandomize=True, deadline=None, max_examples=600)
@given(lines=st.lists(spelled_object(), min_size=1, max_size=3))
@example(lines=['{"title": "a", "target_ind": [1], "target_rel": [true]}'])
@example(lines=['{"title": "a", "target_ind": [1' + "0" * 400 + "]}"])
@example(lines=['{"title": "a", "x": {}, "target_ind": [3], "target_rel": [3.4028235e38]}'])
@example(lines=['{"title": "a", "target_ind": [3], "target_rel": [3.5e38]}'])
@example(lines=['{"title": ""}'.encode("utf-16-le").decode()])
def test_json_rows_against_python(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.json"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    wanted = [naive_row(line) for line in lines]
    rows = attempt(lambda: read_json_rows(path, ["title", "uid"]))
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError:
        assert rows is None
        return
    if any(row is None for row in wanted):
        assert rows is None
        return
    assert rows is not None
    good = [row for row in wanted if row is not None]
    assert list(rows.strings[0]) == [row[0] for row in good] and list(rows.strings[1]) == [row[1] for row in good]  # type: ignore[attr-defined]
    assert rows.labels.indices.tolist() == [label for row in good for label in row[2]]  # type: ignore[attr-defined]
    assert np.array_equal(rows.labels.data, np.array([value for row in good for value in row[3]], np.float32))  # type: ignore[attr-defined]
    assert np.diff(rows.labels.indptr).tolist() == [len(row[2]) for row in good]  # type: ignore[attr-defined]


def test_fields_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"título": "a", "x": {}}\n{"título": "b"}\n', encoding="utf-8")
    assert list(read_json_rows(tmp_path / "a.json", ["título"]).strings[0]) == ["a", "b"]
    with pytest.raises(LongtailError, match="holds a quote, a backslash or a control character"):
        read_json_rows(tmp_path / "a.json", ['ti"tle'])


# ---- sparse text: the kernel against split and float ----

PAIR = re.compile(r"(\d+):(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.ASCII)
LABEL_LIST = re.compile(r"\d+(?:,\d+)*", re.ASCII)
TOKENS = st.one_of(
    st.tuples(st.integers(0, 20), NUMBERS).map(lambda pair: f"{pair[0]}:{pair[1]}"),
    st.sampled_from(
        [
            "0:1",
            "007:1",
            "3",
            "3,4",
            "3,",
            ",3",
            "3:",
            ":3",
            "1:2:3",
            "1,2:3",
            "2147483647:1",
            "2147483648:1",
            "a:1",
            "1:1\r",
            "-1:1",
            "²:1",
        ]
    ),
)
SPARSE_LINES = st.lists(
    st.tuples(st.lists(st.tuples(TOKENS, st.sampled_from([" ", "  ", "\t"])), max_size=4), st.sampled_from(["", " "])), max_size=4
)


def naive_line(line: str, labels_first: bool) -> tuple[list[int], list[tuple[int, float]]] | None:
    line = line.removesuffix("\r")
    tokens = [token for token in re.split("[ \t]", line) if token]
    labels: list[int] = []
    if labels_first and line and line[0] not in " \t" and LABEL_LIST.fullmatch(tokens[0]):
        labels = [int(label) for label in tokens.pop(0).split(",")]
    found = [PAIR.fullmatch(token) for token in tokens]
    pairs = [(int(pair[1]), float(pair[2])) for pair in found if pair]
    if (
        len(pairs) < len(tokens)
        or any(column >= 2**31 or abs(value) > LARGEST for column, value in pairs)
        or any(label >= 2**31 for label in labels)
    ):
        return None
    return labels, pairs


@pytest.mark.parametrize("labels_first", [False, True])
@settings(derandomize=True, deadline=None, max_examples=500)
@given(drawn=SPARSE_LINES, ends_in_break=st.booleans())
def test_sparse_text_against_split(labels_first: bool, drawn: list[tuple[list[tuple[str, str]], str]], ends_in_break: bool) -> None:
    lines = [start + "".join(token + blank for token, blank in tokens) for tokens, start in drawn]
    content = "\n".join(lines) + ("\n" if ends_in_break and lines else "")
    wanted = [naive_line(line, labels_first) for line in (lines if ends_in_break or not lines or lines[-1] else lines[:-1])]
    ids, values, ends, labels, label_ends, n_faults, fault_line, _, _ = scan_sparse_text(
        np.frombuffer(content.encode(), np.uint8), labels_first, *sparse_scratch(len(content.encode()))
    )
    assert len(ends) - 1 == len(label_ends) - 1 == len(wanted)
    faulty = [line for line, row in enumerate(wanted) if row is None]
    assert n_faults == len(faulty) and (not faulty or fault_line == faulty[0])
    good = [row or ([], []) for row in wanted]
    assert labels.tolist() == [label for row in good for label in row[0]]
    assert np.diff(label_ends).tolist() == [len(row[0]) for row in good]
    assert ids.tolist() == [column for row in good for column, _ in row[1]]
    assert np.array_equal(values, np.array([value for row in good for _, value in row[1]], np.float32))
    assert np.diff(ends).tolist() == [len(row[1]) for row in good]

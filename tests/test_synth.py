"""The generated catalogue: exact sizes, the XC protocol, titles that tell the answer, the same bytes every time."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail.data.synth as synth_module
from longtail.core.errors import SettingError, UnknownName
from longtail.core.values import Dataset, Split, Texts
from longtail.data.catalogue import (
    COLOURS,
    DEPARTMENTS,
    LOOKS_EACH,
    MAX_SERIES,
    N_SERIES,
    PRODUCTS_EACH,
    SERIES,
    SIZES,
    USES,
    brand_names,
    series_names,
    shop_words,
)
from longtail.data.describe import describe
from longtail.data.filters import apply_protocol, find_leaks
from longtail.data.read import read
from longtail.data.synth import SHAPES, Shape, shape_like, shape_of, synth, write_synth

MIDDLE = Shape(train=6000, test=1500, labels=2500, labels_per_point=2.29)


@pytest.fixture(scope="module")
def middle() -> Dataset:
    return synth(MIDDLE, seed=3)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    train, test, labels = draw(st.integers(1, 80)), draw(st.integers(1, 40)), draw(st.integers(1, 80))
    least = max(1.0, labels / train)
    if least > labels:
        labels, least = 1, 1.0
    return Shape(train, test, labels, draw(st.floats(least, labels)) if least < labels else float(labels))


def check_promises(data: Dataset, shape: Shape) -> None:
    """What holds for every shape."""
    assert (len(data.train), len(data.test), data.n_labels) == (shape.train, shape.test, shape.labels)
    assert data.train.labels.nnz == round(shape.train * shape.labels_per_point)
    assert data.label_counts().min() >= 1
    for split in (data.train, data.test):
        assert np.diff(split.labels.indptr).min() >= 1
        for row in range(len(split)):
            ids = split.labels.indices[split.labels.indptr[row] : split.labels.indptr[row + 1]]
            assert (np.diff(ids) > 0).all()
    assert data.label_texts is not None and data.train.texts is not None and data.test.texts is not None
    assert len(set(data.label_texts)) == shape.labels
    texts = [*data.train.texts, *data.test.texts]
    assert len(set(texts)) == len(texts)
    check_protocol(data)


def check_protocol(data: Dataset) -> None:
    """Own labels in both filters and never in the truth; no reciprocal pair in the test truth, each in the filter."""
    assert data.label_texts is not None and data.train.texts is not None and data.test.texts is not None
    label_of = {text: label for label, text in enumerate(data.label_texts)}
    carried = {}  # label -> labels of its page in train
    for row, text in enumerate(data.train.texts):
        if text in label_of:
            carried[label_of[text]] = set(labels_of(data.train, row))
    pages = [(row, label_of[text]) for row, text in enumerate(data.train.texts) if text in label_of]
    assert pairs_of(data.train) == pages
    assert all(label not in labels_of(data.train, row) for row, label in pages)
    filtered = Counter(row for row, _ in pairs_of(data.test))
    for row, text in enumerate(data.test.texts):
        own = label_of.get(text)
        if own is None:
            assert row not in filtered
            continue
        assert (row, own) in set(pairs_of(data.test))
        assert own not in labels_of(data.test, row)
        assert not any(own in carried.get(label, ()) for label in labels_of(data.test, row))
    for row, label in pairs_of(data.test):
        assert data.test.texts[row] == data.label_texts[label] or label_of[data.test.texts[row]] in carried[label]
    leaks = find_leaks(data)
    assert len(leaks.reciprocal) == 0
    assert leaks.train_own.tolist() == [list(pair) for pair in pages]


def labels_of(split: Split, row: int) -> list[int]:
    found: list[int] = split.labels.indices[split.labels.indptr[row] : split.labels.indptr[row + 1]].tolist()
    return found


def pairs_of(split: Split) -> list[tuple[int, int]]:
    assert split.filter is not None
    return [(row, label) for row, label in split.filter.tolist()]


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), seed=st.integers(-3, 2**64))
def test_any_small_shape_is_met_exactly(shape: Shape, seed: int) -> None:
    check_promises(synth(shape, seed), shape)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 1, 1, 1),
        Shape(50, 20, 10, 2.5),
        Shape(50, 20, 10, 10),  # every row holds every label
        Shape(20, 20, 10, 9.5),
        Shape(10, 5, 3000, 300),  # every label once
        Shape(3000, 50, 3, 1),
        Shape(400, 300, 200, 22.2),
    ],
    ids=str,
)
def test_exact_counts(shape: Shape) -> None:
    check_promises(synth(shape), shape)


def test_middle_size(middle: Dataset) -> None:
    check_promises(middle, MIDDLE)
    assert middle.train.labels.nnz == 13_740


@pytest.mark.parametrize(
    ("name", "points_per_label", "labels_per_point"),
    [
        ("LF-AmazonTitles-131K", "5.15", "2.29"),
        ("LF-WikiSeeAlsoTitles-320K", "4.67", "2.11"),
        ("LF-WikiTitles-500K", "17.15", "4.74"),
        ("LF-AmazonTitles-1.3M", "38.24", "22.20"),
    ],
)
def test_known_shapes_have_the_published_averages(name: str, points_per_label: str, labels_per_point: str) -> None:
    shape = SHAPES[name]
    assert f"{shape.pairs / shape.labels:.2f}" == points_per_label
    assert f"{shape.pairs / shape.train:.2f}" == labels_per_point
    assert shape_like(name.removeprefix("LF-")) is shape_like(name) is shape


def test_written_reads_back_as_in_memory(tmp_path: Path) -> None:
    shape = Shape(700, 300, 150, 3.3)
    summary = write_synth(tmp_path, shape, seed=5)
    data, made = read(tmp_path), synth(shape, seed=5)
    assert data.label_texts == made.label_texts and data.label_uids == made.label_uids and not data.notes
    for got, wanted in ((data.train, made.train), (data.test, made.test)):
        assert got.texts == wanted.texts and got.uids == wanted.uids
        assert got.filter is not None and wanted.filter is not None and got.filter.tolist() == wanted.filter.tolist()
        assert (got.labels != wanted.labels).nnz == 0
    assert (summary.train, summary.test, summary.labels) == (700, 300, 150)
    assert (summary.train_pairs, summary.test_pairs) == (2310, made.test.labels.nnz)
    assert summary.train_pages == len(pairs_of(made.train))
    assert summary.reciprocal == len(pairs_of(made.test)) - summary.test_pages
    assert summary.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert summary.most_points == made.label_counts().max()
    assert "3.30 labels per point, 15.40 points per label" in str(summary)


def test_lines_are_what_json_writes(tmp_path: Path) -> None:
    write_synth(tmp_path, Shape(40, 20, 15, 2.0))
    for name, fields in (("trn", 5), ("tst", 5), ("lbl", 3)):
        with gzip.open(tmp_path / f"{name}.json.gz", "rt", encoding="utf-8") as file:
            lines = file.read().splitlines()
        for number, line in enumerate(lines):
            row = json.loads(line)
            assert row["uid"] == f"{name}{number}" and row["content"] == "" and len(row) == fields
            assert row.get("target_rel", []) == [1.0] * len(row.get("target_ind", []))
            assert json.dumps(row, ensure_ascii=False) == line


def folder_digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_same_seed_same_bytes_on_any_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(900, 400, 200, 2.29)
    digests = []
    for name, seed, cores in (("a", 1, 1), ("b", 1, 5), ("c", 2, 5)):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        monkeypatch.setattr(synth_module, "BLOCK_ROWS", 128)  # several members, so that their order matters
        (tmp_path / name).mkdir()
        write_synth(tmp_path / name, shape, seed)
        digests.append(folder_digest(tmp_path / name))
    assert digests[0] == digests[1]
    assert not set(digests[0].values()) & set(digests[2].values())


def test_block_size_changes_nothing_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = []
    for block_rows in (1, 37, 100_000):
        monkeypatch.setattr(synth_module, "BLOCK_ROWS", block_rows)
        folder = tmp_path / str(block_rows)
        folder.mkdir()
        write_synth(folder, Shape(150, 80, 60, 3.0), 7)
        contents.append({path.name: gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1] == contents[2]


def test_the_bytes_are_the_same_on_every_machine() -> None:
    """A digest written down once: a change here is a change of every data set generated before."""
    data = synth(Shape(300, 100, 80, 2.29))
    digest = hashlib.sha256()
    for split in (data.train, data.test):
        assert split.texts is not None and split.filter is not None
        for part in (split.texts.buffer, split.labels.indices.astype("<i4"), split.labels.indptr.astype("<i8"), split.filter.astype("<i4")):
            digest.update(part.tobytes())
    assert digest.hexdigest()[:16] == "6a1fa9c0b3b7961f"


def test_a_nearest_neighbour_finds_the_answer(middle: Dataset) -> None:
    """Words tell: labels of the titles with the most telling common words are right 15 times as often as the commonest label."""
    found = nearest_neighbour_labels(middle)
    right = np.mean([label in labels_of(middle.test, row) for row, label in enumerate(found)])
    commonest = int(middle.label_counts().argmax())
    by_chance = np.mean([commonest in labels_of(middle.test, row) for row in range(len(middle.test))])
    assert right > 0.2
    assert right > 15 * by_chance


def nearest_neighbour_labels(data: Dataset) -> list[int]:
    """For each test row the label with the most tf-idf weight among its ten nearest training rows, filter respected."""
    assert data.train.texts is not None and data.test.texts is not None
    postings: dict[str, list[int]] = {}
    for row, text in enumerate(data.train.texts):
        for word in words_of(text):
            postings.setdefault(word, []).append(row)
    filtered = set(pairs_of(data.test))
    best = []
    for row, text in enumerate(data.test.texts):
        score = np.zeros(len(data.train))
        for word in words_of(text) & postings.keys():
            score[postings[word]] += math.log(len(data.train) / len(postings[word])) ** 2
        votes: dict[int, float] = {}
        for near in np.argsort(-score, kind="stable")[:10]:
            for label in labels_of(data.train, int(near)):
                votes[label] = votes.get(label, 0.0) + float(score[near])
        best.append(max((label for label in votes if (row, label) not in filtered), key=votes.__getitem__, default=-1))
    return best


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def test_labels_have_a_long_tail(middle: Dataset) -> None:
    falling = np.sort(middle.label_counts())[::-1]
    assert np.mean(falling <= 5) > 0.6  # of a mean of 5.5
    assert falling[: len(falling) // 100].sum() > 0.07 * falling.sum()  # the first percent: more than 7 times its share
    assert falling[0] > 10 * falling.mean() and falling[len(falling) // 2] <= 3
    sizes = np.diff(middle.train.labels.indptr)
    assert np.median(sizes) < sizes.mean() and sizes.max() > 6 * sizes.mean()


def test_labels_co_occur_and_point_back(middle: Dataset) -> None:
    """Products of one niche stand together in rows, and pages of labels often carry each other."""
    together = (middle.train.labels.T @ middle.train.labels).tocsr()
    together.setdiag(0)
    together.eliminate_zeros()
    chance = 2 * together.nnz / middle.n_labels**2
    assert np.mean(together.data > 1) > 5 * chance  # a pair met once is met again far more often than any pair is met
    page_of = {label: row for row, label in pairs_of(middle.train)}
    pairs = [(own, label) for own, row in page_of.items() for label in labels_of(middle.train, row) if label in page_of]
    back = np.mean([own in labels_of(middle.train, page_of[label]) for own, label in pairs])
    assert back > 0.3  # one in a thousand by chance
    pages = len({row for row, _ in pairs_of(middle.test)})
    assert 0.5 < (len(pairs_of(middle.test)) - pages) / pages < 1.5  # reciprocal pairs of a test page


def test_labels_that_co_occur_are_on_each_others_pages(middle: Dataset) -> None:
    """What Gandalf assumes, as far as it holds in real sets of this shape: the more rows tell of a label the better."""
    found = describe(middle).gandalf
    assert found.twins > 1000
    assert 0.25 < found.precision < 0.5 and found.recall > 0.45
    assert found.precision_by_support["5+"] > found.precision_by_support["1"] + 0.05


def test_no_word_is_in_most_titles(middle: Dataset) -> None:
    assert middle.train.texts is not None
    rows = Counter(word for text in middle.train.texts for word in words_of(text))
    assert rows.most_common(1)[0][1] < 0.06 * len(middle.train)
    assert sum(1 for count in rows.values() if count < 10) > len(rows) / 2


def test_families_are_as_large_as_their_rows_are_long() -> None:
    """20 rows of one label in the first half, of 9 in the second; 50 labels: 5 stand along the first half, 45 along the second."""
    row_ends = np.cumsum([0, *[1] * 20, *[9] * 20])
    assert synth_module._families(row_ends, 2, 50).tolist() == [0, 5, 50]
    assert synth_module._families(row_ends, 4, 50).tolist() == [0, 3, 5, 28, 50]
    assert synth_module._families(row_ends, 2, 500).tolist() == [0, 50, 200, 350, 500]  # none of more than MAX_FAMILY
    assert synth_module._families(row_ends, 4, 4).tolist() == [0, 1, 3, 4]  # none without a label


def test_a_quarter_to_a_half_of_the_rows_are_pages_of_labels(middle: Dataset) -> None:
    for split in (middle.train, middle.test):
        assert 0.2 < len({row for row, _ in pairs_of(split)}) / len(split) < 0.5


def test_protocol_has_nothing_left_to_do(middle: Dataset) -> None:
    again = apply_protocol(middle)
    assert (again.test.labels != middle.test.labels).nnz == 0
    assert pairs_of(again.test) == pairs_of(middle.test) and pairs_of(again.train) == pairs_of(middle.train)
    assert len(pairs_of(middle.test)) > len(find_leaks(middle).test_own)  # there were reciprocal pairs to take out


def test_titles_read_like_products(middle: Dataset) -> None:
    assert middle.label_texts is not None
    products = {product for products, _ in DEPARTMENTS.values() for product in products.split(", ")}
    uses, colours, sizes = (kind.replace(", ", "|") for kind in (USES, COLOURS, SIZES))
    pattern = re.compile(rf"\w+ \w+ [\w -]+ ({uses}) ({'|'.join(products)}), ({colours}) ({sizes})")
    for text in middle.label_texts:
        assert pattern.fullmatch(text), text


def test_the_words_of_the_shop_are_distinct() -> None:
    products = [product for products, _ in DEPARTMENTS.values() for product in products.split(", ")]
    assert len(set(products)) == len(products) == len(DEPARTMENTS) * PRODUCTS_EACH
    named = [f"{look} {product}" for items, looks in DEPARTMENTS.values() for product in items.split(", ") for look in looks.split(", ")]
    assert len(set(named)) == len(named) == len(products) * LOOKS_EACH
    assert len(set(SERIES.split(", "))) == N_SERIES
    assert len(set(series_names(MAX_SERIES))) == MAX_SERIES
    for kind in (USES, COLOURS, SIZES):
        assert len(set(kind.split(", "))) == len(kind.split(", "))
    assert math.gcd(77, LOOKS_EACH * len(USES.split(", "))) == 1  # the step that mixes looks and uses meets all of them
    assert math.gcd(77, len(COLOURS.split(", ")) * len(SIZES.split(", "))) == 1  # and that of colours and sizes
    assert synth_module.MAX_FAMILY <= len(COLOURS.split(", ")) * len(SIZES.split(", "))
    assert len(set(brand_names(14_000))) == 14_000  # more than the syllables give
    words = shop_words(brands_each=8, n_series=200)
    texts = Texts(words.buffer, words.offsets)
    assert (texts[words.product], texts[words.look + LOOKS_EACH], texts[words.use]) == ("kettle", "galvanised", "travel")
    assert not re.search(r'["\\\n,]', "".join(texts))  # nothing that JSON would have to escape


def test_more_niches_than_the_tree_has_leaves() -> None:
    """The tree has 69,120 leaves; beyond that a mark tells niches of one leaf apart."""
    leaf, mark, product_ends = synth_module._spread(150, n_products=4, leaves_each=10)
    assert len(set(zip(leaf.tolist(), mark.tolist(), strict=True))) == 150
    assert mark.max() == 3 and mark.min() == 0
    assert product_ends.tolist() == [0, 38, 75, 113, 150]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 5, 5, 2), "train came as 0; wanted a number from 1 to 1,073,741,823."),
        ((5, -1, 5, 2), "test came as -1; wanted a number from 1 to 1,073,741,823."),
        ((5, 5, 0, 2), "labels came as 0; wanted a number from 1 to 1,073,741,823."),
        ((5.5, 5, 5, 2), "train came as 5.5; wanted a whole number."),
        ((5, 5, 2**30, 2), "labels came as 1073741824; wanted a number from 1 to 1,073,741,823."),
        ((5, 5, 5, 0.5), "labels_per_point came as 0.5; wanted 1 to 5"),
        ((5, 5, 5, 0), "labels_per_point came as 0; wanted 1 to 5"),
        ((5, 5, 5, -2), "labels_per_point came as -2; wanted 1 to 5"),
        ((5, 5, 5, 6), "labels_per_point came as 6; wanted 1 to 5"),
        ((5, 5, 5, math.nan), "labels_per_point came as nan; wanted 1 to 5"),
        ((5, 5, 30, 2), "10 pairs, fewer than the 30 labels; every label wants one. Ask for labels_per_point of 6 or more"),
        ((2**29, 5, 2**28, 2**20), "are too many"),
    ],
)
def test_impossible_shapes(sizes: tuple[int, int, int, float], message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)) as caught:
        Shape(*sizes)
    assert "\n" not in str(caught.value)


def test_shapes_from_settings() -> None:
    assert shape_of("WikiTitles-500K") == SHAPES["LF-WikiTitles-500K"]
    assert shape_of("LF-WikiTitles-500K", test=10) == Shape(1_813_391, 10, 501_070, 4.74)
    assert shape_of(None, 50, 20, 10, 2.0) == Shape(50, 20, 10, 2.0)
    with pytest.raises(UnknownName, match="Did you mean 'LF-AmazonTitles-131K'"):
        shape_of("LF-AmazonTitle-131K")
    with pytest.raises(SettingError, match="No test, labels_per_point given; wanted all of train, test, labels, labels_per_point"):
        shape_of(train=50, labels=10)
    with pytest.raises(SettingError, match="fewer than the 131,073 labels"):
        shape_of("LF-AmazonTitles-131K", train=100)

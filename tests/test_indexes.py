"""Search over label vectors: every kind by hand, against brute force, in a folder and in a model, and what is wrong with a folder."""

from __future__ import annotations

import copy
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

import longtail
from longtail import XMC
from longtail.core.errors import DataError, MissingExtra, SettingError, UnknownName
from longtail.core.kernels.search import encode_bytes, scan_bits, scan_bytes, select
from longtail.core.values import Texts
from longtail.evaluation.tables import to_text
from longtail.inference.scorer import Scorer
from longtail.inference.search import all_labels, exact, products
from longtail.inference.search.exact import Exact
from longtail.inference.search.kinds import KINDS, kind_of
from longtail.inference.search.labels import Index, Labels
from longtail.inference.search.quantised import Bits, Bytes
from longtail.inference.search.tune import Tuned, recall_of, tune
from longtail.inference.towers import SearchedTower
from longtail.storage.index_folder import ABOUT, FILES, describe_index, open_index, replaced_folder
from longtail.storage.indexing import fastest, index_model, index_table, near_labels, shortened
from longtail.storage.model_folder import INDEX, load_model, save_model
from longtail.tokens.rows import TokenRows
from tests.spelled import trained

CPU = torch.device("cpu")
ALL = tuple(KINDS)
NOTHING = np.zeros(0, np.float32)
Found = tuple[NDArray[np.int64], NDArray[np.float32]]


def brute(vectors: NDArray[Any], bias: NDArray[Any] | None, texts: NDArray[Any], k: int) -> Found:
    """The definition: every score, sorted, of equal ones the smaller id first."""
    scores = texts.astype(np.float64) @ vectors.T.astype(np.float64) + (0 if bias is None else bias.astype(np.float64))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1).astype(np.float32)


def clustered(n: int, dim: int = 32, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Vectors around a few topics, of different lengths and off the middle; biases; and texts near some of them."""
    random = np.random.default_rng(seed)
    topics = random.standard_normal((max(2, n // 20), dim))
    vectors = topics[random.integers(0, len(topics), n)] + 0.5 * random.standard_normal((n, dim)) + 0.5
    vectors *= random.uniform(0.5, 1.5, (n, 1))
    texts = vectors[random.integers(0, n, 60)] + 0.3 * random.standard_normal((60, dim))
    return vectors.astype(np.float32), random.standard_normal(n).astype(np.float32), texts.astype(np.float32)


def made(kind: str, vectors: NDArray[Any], bias: NDArray[Any] | None, texts: NDArray[Any], folder: Path, effort: int) -> Index:
    folder.mkdir(exist_ok=True)
    labels = Labels.of(vectors, bias)
    KINDS[kind].build(labels, texts, folder, 0)
    return KINDS[kind].open(labels, folder, effort)


# ---- exact


def test_by_hand() -> None:
    labels = Labels.of(np.array([[1, 0], [0, 1], [1, 1]], np.float32), np.array([0, 0.5, -3], np.float32))
    ids, scores = Exact(labels).search(np.array([[1, 0], [0, 2]], np.float32), 2)
    # text 0 scores 1, 0.5, -2 and text 1 scores 0, 2.5, -1
    assert ids.tolist() == [[0, 1], [1, 0]] and ids.dtype == np.int64
    assert scores.tolist() == [[1, 0.5], [2.5, 0]] and scores.dtype == np.float32


def test_recall_by_hand() -> None:
    right = np.array([[0, 1, 2, 3], [4, 5, -1, -1]])
    assert recall_of(right, right) == 1
    assert recall_of(np.array([[3, 2, 9, 8], [7, 6, -1, -1]]), right) == 2 / 6
    assert recall_of(np.array([[5, 4], [4, 5]]), right) == 2 / 6


@pytest.mark.parametrize("numbers", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_texts", [1, 3, 4, 50])
@pytest.mark.parametrize("with_bias", [False, True])
def test_exact_is_brute_force(n_texts: int, with_bias: bool, numbers: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes where texts are few, by products in numbers of either size where they are many."""
    monkeypatch.setattr(exact, "FEW_TEXTS", 4)
    monkeypatch.setattr(exact, "SCORES_AT_ONCE", 1 << 13)  # several blocks of labels and of texts
    monkeypatch.setattr(products, "matrix_type", lambda device: numbers)
    vectors, bias, texts = clustered(1500)
    own = bias if with_bias else None
    ids, scores = Exact(Labels.of(vectors, own)).search(texts[:n_texts], 7)
    right, values = brute(vectors, own, texts[:n_texts], 7)
    assert ids.tolist() == right.tolist()
    np.testing.assert_allclose(scores, values, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_exact_is_argsort(data: st.DataObject) -> None:
    """Whole numbers, so that scores have no rounding and ties are ties."""
    n, dim, b = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 5)), data.draw(st.integers(0, 6))
    k = data.draw(st.integers(1, 45))
    seed = data.draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    vectors, texts = (random.integers(-2, 3, (m, dim)).astype(np.float32) for m in (n, b))
    bias = random.integers(-1, 2, n).astype(np.float32) if data.draw(st.booleans()) else None
    right, values = brute(vectors, bias, texts, k)
    filled = min(k, n)
    for few in (1, 7):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(exact, "FEW_TEXTS", few)
            ids, scores = Exact(Labels.of(vectors, bias)).search(texts, k)
        assert ids.shape == scores.shape == (b, k)
        assert ids[:, :filled].tolist() == right.tolist() and scores[:, :filled].tolist() == values.tolist()
        assert (ids[:, filled:] == -1).all() and (scores[:, filled:] == -np.inf).all()


@pytest.mark.parametrize("few", [1, 100])
def test_labels_of_very_different_lengths(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is rounded away of a long vector is more than a short one has: near products alone would be wrong."""
    monkeypatch.setattr(exact, "FEW_TEXTS", few)
    monkeypatch.setattr(products, "matrix_type", lambda device: torch.bfloat16)
    random = np.random.default_rng(3)
    vectors = (random.standard_normal((3000, 48)) * 10.0 ** random.uniform(-3, 3, (3000, 1))).astype(np.float32)
    texts = random.standard_normal((20, 48)).astype(np.float32)
    bias = -(vectors @ texts[0]) + random.standard_normal(3000).astype(np.float32)  # the first text has scores around 0
    ids, _ = Exact(Labels.of(vectors, bias)).search(texts, 10)
    wanted, _ = brute(vectors, bias, texts, 10)
    assert ids[1:].tolist() == wanted[1:].tolist()
    scores = (vectors @ texts[0] + bias).astype(np.float64)  # float32 leaves some hundredths of these
    assert scores[ids[0]].min() >= np.sort(scores)[-10] - 0.1


# ---- kernels, against the same in numpy


def test_bytes_hold_numbers_to_half_a_step() -> None:
    vectors, _, _ = clustered(50, dim=9)
    vectors[3] = 0
    codes, scales = np.empty(vectors.shape, np.int8), np.empty(50, np.float32)
    encode_bytes(vectors, codes, scales)
    assert (np.abs(codes).max(axis=1)[np.arange(50) != 3] == 127).all() and not codes[3].any()
    assert (np.abs(vectors - codes * scales[:, None]) <= scales[:, None] * 0.501).all()


def kept(scores: NDArray[Any], keep: int) -> list[list[int]]:
    return np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :keep], axis=1).tolist()


@pytest.mark.parametrize("keep", [1, 5, 700])
def test_scans_keep_the_best(keep: int) -> None:
    random = np.random.default_rng(1)
    n, dim, b = 700, 70, 3  # more labels than a chunk, more numbers than a word
    bias = random.integers(-9, 9, n).astype(np.float32)
    codes, texts = random.integers(-3, 4, (n, dim)).astype(np.int8), random.integers(-5, 6, (b, dim)).astype(np.int16)
    scales, units = 2.0 ** random.integers(-2, 3, n).astype(np.float32), np.array([1, 2, 0.5], np.float32)
    products = texts.astype(int) @ codes.astype(int).T
    vectors, whole = codes * scales[:, None], texts * units[:, None]
    for own in (bias, NOTHING):
        found = scan_bytes(codes, scales, own, vectors, whole, texts, units, np.zeros(b, np.float32), keep)
        assert np.sort(found, axis=1).tolist() == kept(units[:, None] * scales * products + (own if len(own) else 0), keep)

    bits, asked = random.integers(0, 2, (n, 128)), random.integers(0, 2, (b, 128))
    words, asked_words = (np.packbits(part.astype(np.uint8), axis=1).view(np.uint64) for part in (bits, asked))
    tables = np.arange(129, 0, -1, dtype=np.float32) * units[:, None]
    differ = (bits[None] != asked[:, None]).sum(axis=2)
    found = scan_bits(words, scales, bias, asked_words, tables, keep)
    assert np.sort(found, axis=1).tolist() == kept(np.take_along_axis(tables, differ, axis=1) * scales + bias, keep)


@pytest.mark.parametrize("with_bias", [False, True])
def test_nearly_known_products_are_enough(with_bias: bool) -> None:
    """However wrong they are within their bounds; and not, where they are more wrong than that."""
    random = np.random.default_rng(5)
    n, b, k = 900, 6, 8
    vectors, texts = random.standard_normal((n, 20)).astype(np.float32), random.standard_normal((b, 20)).astype(np.float32)
    bias, slack, reaches = (random.uniform(0, 3, size).astype(np.float32) for size in (n, n, b))
    own = bias if with_bias else NOTHING
    near = (texts @ vectors.T + random.uniform(-1, 1, (b, n)) * reaches[:, None] * slack * 0.999).astype(np.float32)
    wanted = kept(texts.astype(np.float64) @ vectors.T + (bias if with_bias else 0), k)

    def found(share: float) -> list[list[int]]:
        ids, scores, held = np.full((b, k), -1, np.int32), np.empty((b, k), np.float32), np.zeros(b, np.int64)
        for first in (0, 500):
            select(near[:, first : first + 500], first, reaches * np.float32(share), slack, own, vectors, texts, ids, scores, held)
        return np.sort(ids, axis=1).tolist()  # type: ignore[no-any-return]

    assert found(1.0) == wanted and found(0.0) != wanted


# ---- all kinds


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("kind", ALL)
def test_every_kind_answers_best_first_with_exact_scores(kind: str, with_bias: bool, tmp_path: Path) -> None:
    vectors, bias, texts = clustered(1000)
    own = bias if with_bias else None
    index = made(kind, vectors, own, texts, tmp_path, KINDS[kind].efforts[-1])
    right, _ = Exact(Labels.of(vectors, own)).search(texts, 10)
    for asked in (texts, texts[:1], texts[:2]):
        ids, scores = index.search(asked, 10)
        assert ids.dtype == np.int64 and scores.dtype == np.float32
        assert all(len(set(row)) == 10 for row in ids.tolist()) and ids.min() >= 0
        assert (np.diff(scores, axis=1) <= 0).all()
        products = np.einsum("bd,bkd->bk", asked.astype(np.float64), vectors[ids].astype(np.float64)) + (bias[ids] if with_bias else 0)
        np.testing.assert_allclose(scores, products, rtol=1e-5, atol=1e-5)
        # a graph may leave a label where no way leads to
        assert recall_of(ids, right[: len(asked)]) >= (0.97 if kind == "hnsw" else 0.99)
    one_by_one = np.concatenate([index.search(texts[row : row + 1], 10)[1] for row in range(len(texts))])
    assert one_by_one.tobytes() == index.search(texts, 10)[1].tobytes()


@pytest.mark.parametrize("kind", ["binary", "hnsw"])
def test_little_effort_finds_less(kind: str, tmp_path: Path) -> None:
    """So that what is tuned is what recall hangs on."""
    vectors, bias, texts = clustered(5000, dim=64)
    right, _ = Exact(Labels.of(vectors, bias)).search(texts, 10)
    reached = []
    made(kind, vectors, bias, texts, tmp_path, 1)
    for effort in (KINDS[kind].efforts[0], KINDS[kind].efforts[-1]):
        reached.append(recall_of(KINDS[kind].open(Labels.of(vectors, bias), tmp_path, effort).search(texts, 10)[0], right))
    assert reached[0] < 0.95 and reached[1] >= 0.99


@pytest.mark.parametrize(("kind", "effort"), [("int8", 1), ("binary", 20), ("hnsw", 512)])
def test_biases_and_what_labels_have_in_common(kind: str, effort: int, tmp_path: Path) -> None:
    """Biases that count, and vectors and texts far off the middle: a few candidates are enough all the same."""
    vectors, bias, texts = clustered(5000, dim=64)
    vectors, bias, texts = vectors + 1, 10 * bias, texts + 1
    right, _ = Exact(Labels.of(vectors, bias)).search(texts, 10)
    reached = recall_of(made(kind, vectors, bias, texts, tmp_path, effort).search(texts, 10)[0], right)
    assert reached >= 0.9, reached


@pytest.mark.parametrize("kind", ALL)
def test_edges(kind: str, tmp_path: Path) -> None:
    """Fewer labels than wanted, one label, equal vectors, vectors of nothing, no texts."""
    for n in (1, 3):
        index = made(kind, np.ones((n, 5), np.float32), None, np.ones((2, 5), np.float32), tmp_path / str(n), KINDS[kind].efforts[-1])
        ids, scores = index.search(np.ones((2, 5), np.float32), 4)
        assert ids.tolist() == [[*range(n), *[-1] * (4 - n)]] * 2  # ties go to the smaller id
        assert scores.tolist() == [[5.0] * n + [-np.inf] * (4 - n)] * 2
        none = index.search(np.zeros((0, 5), np.float32), 4)
        assert none[0].shape == none[1].shape == (0, 4)
    index = made(kind, np.zeros((6, 5), np.float32), None, np.zeros((1, 5), np.float32), tmp_path / "zero", KINDS[kind].efforts[-1])
    ids, scores = index.search(np.zeros((1, 5), np.float32), 6)
    assert sorted(ids[0].tolist()) == [0, 1, 2, 3, 4, 5] and not scores.any()


def test_a_score_that_is_no_number_is_left_out() -> None:
    vectors = np.array([[1], [np.nan], [2]], np.float32)
    for texts in (1, exact.FEW_TEXTS):
        ids, scores = Exact(Labels.of(vectors)).search(np.ones((texts, 1), np.float32), 3)
        assert ids.tolist() == [[2, 0, -1]] * texts and scores.tolist() == [[2, 1, -np.inf]] * texts


def test_what_is_refused(tmp_path: Path) -> None:
    vectors, bias, texts = clustered(40)
    with pytest.raises(DataError, match=r"Label vectors came with the shape \(0, 3\)"):
        Labels.of(np.zeros((0, 3), np.float32))
    with pytest.raises(DataError, match=r"A bias came with the shape \(39,\); wanted one for each of 40 labels"):
        Labels.of(vectors, bias[:39])
    with pytest.raises(DataError, match=r"shape \(60, 31\); wanted \(texts, 32\)"):
        Exact(Labels.of(vectors)).search(texts[:, :31], 3)
    with pytest.raises(SettingError, match="k came as 0"):
        Exact(Labels.of(vectors)).search(texts, 0)
    with pytest.raises(UnknownName, match="No kind of index called 'hsnw'. Did you mean 'hnsw'"):
        kind_of("hsnw")
    for wrong in (0.0, 1.1):
        with pytest.raises(SettingError, match=f"recall came as {wrong:g}"):
            tune(vectors, bias, texts, "exact", tmp_path, recall=wrong)
    with pytest.raises(DataError, match="No texts came"):
        tune(vectors, bias, texts[:0], "exact", tmp_path)


def test_without_usearch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    vectors, bias, texts = clustered(40)
    with pytest.raises(MissingExtra, match=r"pip install 'longtail\[index\]'"):
        tune(vectors, bias, texts, "hnsw", tmp_path)


# ---- tuning


@pytest.mark.parametrize("kind", ALL)
def test_the_least_effort_that_reaches_the_recall(kind: str, tmp_path: Path) -> None:
    vectors, bias, texts = clustered(3000, dim=48)
    right, _ = Exact(Labels.of(vectors, bias)).search(texts, 5)
    found = tune(vectors, bias, texts, kind, tmp_path, recall=0.9, k=5)
    assert found.kind == kind and found.recall >= 0.9 and found.k == 5
    assert recall_of(found.index.search(texts, 5)[0], right) == found.recall
    assert found.n_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 0 < found.p50_ms <= found.p99_ms and found.build_s >= 0
    for effort in KINDS[kind].efforts:
        if effort < found.effort:
            cheaper = KINDS[kind].open(Labels.of(vectors, bias), tmp_path, effort)
            assert recall_of(cheaper.search(texts, 5)[0], right) < 0.9


def test_the_fastest_good_one() -> None:
    vectors, bias, _ = clustered(30)
    index = Bytes(Labels.of(vectors, bias), np.zeros((30, 32), np.int8), bias)
    slow, fast, bad = (Tuned(index, 1, recall, 10, ms, ms, 1, 0.1) for ms, recall in ((2.0, 1.0), (1.0, 0.98), (0.1, 0.5)))
    assert fastest([slow, fast, bad], 0.98) is fast and fastest([slow, fast, bad], 0.99) is slow
    with pytest.raises(SettingError, match="int8 reaches a recall@10 of 0.500; 0.9 was wanted"):
        fastest([bad], 0.9)


def test_texts_to_tune_with() -> None:
    texts = Texts.of(["a b c d e f", "g", "", "h i"])
    asked = shortened(texts, 10, seed=0)
    assert asked == shortened(texts, 10, seed=0) != shortened(texts, 10, seed=1)
    words = sorted(asked, key=lambda text: -len(text))
    assert set(words[0].split()) <= set("abcdef") and "g" in asked and "" in asked
    assert len(shortened(texts, 2, seed=0)) == 2
    labels = Labels.of(np.eye(300, dtype=np.float32))
    near = near_labels(labels, 5, seed=0)
    assert near.shape == (5, 300) and (near.argmax(axis=1) >= 0).all()
    assert not labels.vectors[labels.vectors != 1].any()  # noise went into a copy


# ---- folders


@pytest.mark.parametrize("kind", ALL)
def test_through_a_folder(kind: str, tmp_path: Path) -> None:
    vectors, bias, texts = clustered(500)
    (tmp_path / "index" / FILES).mkdir(parents=True)
    found = tune(vectors, bias, texts, kind, tmp_path / "index" / FILES)
    describe_index(tmp_path / "index", "mark", found)
    again = open_index(tmp_path / "index", "mark", lambda: Labels.of(vectors, bias))
    assert again.kind == kind
    for one, other in zip(again.search(texts, 10), found.index.search(texts, 10), strict=True):
        assert one.tobytes() == other.tobytes()


def mapped(array: NDArray[Any]) -> bool:
    return isinstance(array, np.memmap) or (isinstance(array.base, np.ndarray) and mapped(array.base))


def test_files_are_mapped(tmp_path: Path) -> None:
    vectors, bias, texts = clustered(500)
    bytes_index, bits_index = (made(kind, vectors, bias, texts, tmp_path / kind, 2) for kind in ("int8", "binary"))
    assert isinstance(bytes_index, Bytes) and mapped(bytes_index.codes) and mapped(bytes_index.scales)
    assert isinstance(bits_index, Bits) and mapped(bits_index.codes) and mapped(bits_index.lengths)
    assert bytes_index.codes.nbytes == 500 * 32 and bits_index.codes.nbytes == 500 * 8


def pages_of(path: Path) -> int:
    """KB of a file that this process has looked at."""
    kb, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            kb += int(line.split()[1])
    return kb


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_opening_reads_little_of_a_file(tmp_path: Path) -> None:
    n, dim = 100_000, 256
    np.lib.format.open_memmap(tmp_path / "codes.npy", "w+", "int8", (n, dim))[:] = 1
    np.save(tmp_path / "scales.npy", np.ones(n, np.float32))
    np.save(tmp_path / "vectors.npy", np.ones((n, dim), np.float32))
    labels = Labels.of(np.load(tmp_path / "vectors.npy", mmap_mode="r"))
    index = Bytes.open(labels, tmp_path, 1)
    assert pages_of(tmp_path / "codes.npy") < 1000
    index.search(np.ones((1, dim), np.float32), 3)
    assert pages_of(tmp_path / "codes.npy") > 20_000  # now all of the 25 MB
    assert mapped(labels.vectors)


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "index"
    for content in ("first", "second"):
        with replaced_folder(place) as fresh:
            (fresh / "file").write_text(content)
            assert not place.exists() or (place / "file").read_text() == "first"
        assert (place / "file").read_text() == content
    with pytest.raises(KeyError), replaced_folder(place) as fresh:
        (fresh / "file").write_text("third")
        raise KeyError
    assert (place / "file").read_text() == "second" and [path.name for path in tmp_path.iterdir()] == ["index"]


# ---- models


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where scores without an index are looked at: rounded to bfloat16 they may come in another order."""
    monkeypatch.setattr(all_labels, "matrix_type", lambda device: torch.float32)


TEXTS = ["morv nalk bush ment", "", "unknownword", "nalk ment"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One network that is asked by all labels; with biases."""
    place = tmp_path_factory.mktemp("models") / "model"
    trained("default").save(place)
    return place


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def scorers(folder: Path) -> list[Scorer]:
    return load_model(folder, CPU).scorers


@pytest.mark.parametrize("kind", ALL)
def test_a_model_answers_with_its_index(kind: str, folder: Path, in_float32: None) -> None:
    before = longtail.load(folder, device="cpu").predict(TEXTS, 24)
    assert before.ids.min() >= 0
    tried = index_model(folder, kind, recall=0.9)
    assert tried.chosen.kind == kind and [one.kind for one in tried.kinds] == [kind]
    (scorer,) = scorers(folder)
    assert scorer.index is not None and scorer.index.kind == kind
    after = longtail.load(folder, device="cpu").predict(TEXTS, 24)
    assert before.ids.tolist() == after.ids.tolist()
    np.testing.assert_allclose(before.scores, after.scores, rtol=1e-4)
    assert load_model(folder, CPU, indexed=False).scorers[0].index is None
    assert sorted(path.name for path in (folder / INDEX).iterdir()) == sorted([FILES, ABOUT])
    assert not list(folder.glob(".*"))


def test_the_fastest_kind_is_chosen(folder: Path) -> None:
    tried = index_model(folder, recall=0.9)
    assert [one.kind for one in tried.kinds] == list(ALL)
    assert tried.chosen.p50_ms == min(one.p50_ms for one in tried.kinds if one.recall >= 0.9)
    assert json.loads((folder / INDEX / ABOUT).read_text())["index"]["kind"] == tried.chosen.kind
    lines = to_text(index_table(tried)).splitlines()
    assert "recall@10" in lines[2] and f"{tried.chosen.recall:.3f}" in next(line for line in lines if "*" in line)
    assert [kind for kind in ALL for line in lines if f" {kind} " in line] == list(ALL)
    index_model(folder, "exact")
    (scorer,) = scorers(folder)
    assert scorer.index is not None and scorer.index.kind == "exact"


def test_all_kinds_but_one_without_usearch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    tried = index_model(folder, recall=0.5)
    assert [one.kind for one in tried.kinds] == ["exact", "int8", "binary"]
    with pytest.raises(MissingExtra):
        index_model(folder, "hnsw")
    assert len(scorers(folder)) == 1 and not list(folder.glob(".*"))


def test_vectors_stay_on_disk(folder: Path) -> None:
    index_model(folder, "int8", recall=0.5)
    (scorer,) = scorers(folder)
    assert scorer.index is not None
    assert scorer.index.labels.vectors.ctypes.data == scorer.vectors.data_ptr()  # no copy of them
    (plain,) = load_model(folder, CPU, indexed=False).scorers
    assert torch.equal(plain.vectors, scorer.vectors)


class Known(nn.Module):
    """A network whose projections make four dimensions of the id of a text's only token."""

    def hidden(self, tokens: TokenRows) -> Tensor:
        return tokens.ids[:, None].float()

    def project(self, hidden: Tensor, task: str) -> Tensor:
        return torch.cos(hidden * torch.arange(1.0, 5.0) + len(task)) / 2


@pytest.mark.parametrize("gives_cosines", [True, False])
def test_two_towers_and_cosines(gives_cosines: bool, in_float32: None) -> None:
    """Scores of towers are added up, and the bias of one has the share of its tower."""
    random = np.random.default_rng(0)
    vectors, bias = torch.from_numpy(random.standard_normal((50, 8)).astype(np.float32)), torch.linspace(-1, 1, 50)
    vectors /= vectors.norm(dim=1, keepdim=True)
    towers = SearchedTower("labels", 1.0, 1.4), SearchedTower("classifiers", 0.0, 0.6)
    plain = Scorer(Known(), vectors, bias, towers=towers, gives_cosines=gives_cosines)  # type: ignore[arg-type]
    assert plain.beta == 0.3
    np.testing.assert_allclose(plain.all_labels.searched().bias, 0.6 * np.linspace(-1, 1, 50), rtol=1e-5, atol=1e-6)
    tokens = TokenRows.from_arrays(np.arange(9, dtype=np.int32), np.ones(9, np.float32), np.arange(10), 9)
    assert plain.encode(tokens).shape == (9, 8)
    ids, scores = replace(plain, index=Exact(plain.all_labels.searched())).top_k(tokens, 5)
    found, values = plain.top_k(tokens, 5)
    assert ids.tolist() == found.tolist()
    np.testing.assert_allclose(scores.numpy(), values.numpy(), rtol=1e-5)


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """The folder of a model of two networks, of which the second is the first with other label vectors."""
    stored = trained("default").trained
    assert stored is not None
    (scorer,) = stored.scorers
    assert scorer.bias is not None
    turned = replace(scorer, network=copy.deepcopy(scorer.network), vectors=scorer.vectors.roll(1, 0) / 2, bias=scorer.bias.clone())
    save_model(tmp_path / "pair", replace(stored, members=[replace(stored.members[0], scorers=[scorer, turned])]))
    return tmp_path / "pair"


@pytest.mark.parametrize("kind", ALL)
def test_several_networks_have_one_index(kind: str, pair: Path) -> None:
    before = longtail.load(pair, device="cpu").predict(TEXTS, 24)
    tried = index_model(pair, kind, recall=0.9)
    assert tried.chosen.kind == kind
    model = longtail.load(pair, device="cpu")
    assert model.trained is not None and model.trained.ensemble.concatenated is not None
    index = model.trained.ensemble.concatenated.all_labels.index
    assert index is not None and index.kind == kind and all(scorer.index is None for scorer in model.trained.scorers)
    one, other = model.trained.scorers
    concatenated = torch.cat([one.vectors, other.vectors], dim=1) / 2**0.5  # each counts half, of which text and label have a root
    np.testing.assert_allclose(index.labels.vectors, concatenated.numpy(), rtol=1e-6)
    after = model.predict(TEXTS, 24)
    assert before.ids.tolist() == after.ids.tolist()
    np.testing.assert_allclose(before.scores, after.scores, rtol=1e-4)
    model.remove_labels([int(before.ids[0, 0])])
    assert label_ids(model, TEXTS[0], 3) == before.ids[0, 1:4].tolist()
    (added,) = model.add_labels(["morv nalk bush ment"])
    assert added == 24 and 24 in label_ids(model, TEXTS[0], 3)
    assert longtail.load(pair, device="cpu").predict(TEXTS, 3).ids.tolist() == model.predict(TEXTS, 3).ids.tolist()


def label_ids(model: XMC, text: str, k: int) -> list[int]:
    return [int(label) for label in model.predict([text], k).ids[0]]


def test_an_index_of_other_networks(pair: Path, tmp_path: Path) -> None:
    index_model(pair, "int8", recall=0.5)
    model = longtail.load(pair, device="cpu")
    stored = model.trained
    assert stored is not None
    one, other = stored.scorers
    save_model(tmp_path / "other", replace(stored, members=[replace(stored.members[0], scorers=[other, one])]))
    shutil.copytree(pair / INDEX, tmp_path / "other" / INDEX)
    fails(tmp_path / "other", "index is of other label vectors than .*other has")


def test_labels_removed_and_added(folder: Path) -> None:
    index_model(folder, "exact")
    (scorer,) = scorers(folder)
    stored = load_model(folder, CPU)
    tokens = stored.tokenizer(Texts.of(TEXTS))
    ids, scores = scorer.top_k(tokens, 24)
    gone = ids[0, :20]
    left, left_scores = scorer.without(gone).top_k(tokens, 3)
    for row in range(len(TEXTS)):
        stay = [place for place in range(24) if ids[row, place] not in gone][:3]
        assert left[row].tolist() == ids[row, stay].tolist()
        # a sigmoid of few numbers may differ in its last bit from that among many
        assert torch.allclose(left_scores[row], scores[row, stay], rtol=1e-6, atol=0)
    # the best label of each text once more, at the end
    assert scorer.bias is not None
    twin = int(ids[0, 0])
    grown = replace(
        scorer, vectors=torch.cat([scorer.vectors, scorer.vectors[[twin]]]), bias=torch.cat([scorer.bias, scorer.bias[[twin]] + 1])
    )
    found, _ = grown.top_k(tokens, 2)
    assert found[0].tolist() == [24, twin]


def test_a_model_that_needs_none(tmp_path: Path) -> None:
    model = trained("decaf").trained
    assert model is not None
    save_model(tmp_path / "model", model)
    with pytest.raises(SettingError, match="finds labels by clusters, which needs no index"):
        index_model(tmp_path / "model")
    assert not (tmp_path / "model" / INDEX).exists() and not list((tmp_path / "model").glob(".*"))


def test_a_model_without_label_texts(tmp_path: Path) -> None:
    stored = trained("default").trained
    assert stored is not None
    save_model(tmp_path / "model", replace(stored, label_texts=None))
    for texts in (None, TEXTS):
        tried = index_model(tmp_path / "model", "int8", recall=0.5, texts=texts)
        assert tried.chosen.recall >= 0.5
    with pytest.raises(DataError, match="No texts came"):
        index_model(tmp_path / "model", "int8", texts=[])


# ---- what is wrong with a folder


def fails(folder: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        longtail.load(folder, device="cpu")
    assert str(raised.value).endswith(f"`longtail index {folder}` builds it anew.") and "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["int8", "binary", "hnsw"])
@pytest.mark.parametrize("damage", ["empty", "nonsense", "cut short", "another end", "missing"])
def test_damaged_files(kind: str, damage: str, folder: Path) -> None:
    index_model(folder, kind, recall=0.5)
    place = max((folder / INDEX / FILES).iterdir(), key=lambda path: path.stat().st_size)
    content = place.read_bytes()
    if damage == "missing":
        place.unlink()
    else:
        changed = {"empty": b"", "nonsense": bytes(len(content)), "cut short": content[: len(content) // 2]}
        place.write_bytes({**changed, "another end": content[:-1] + bytes([content[-1] ^ 1])}[damage])
    fails(folder, "index is damaged")
    index_model(folder, kind, recall=0.5)  # which opens the model all the same
    assert longtail.load(folder, device="cpu").predict(TEXTS).ids.shape == (4, 5)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 2, "index": {}}', '{"format": 2, "index": 3}'])
def test_damaged_descriptions(content: str, folder: Path) -> None:
    index_model(folder, "exact")
    (folder / INDEX / ABOUT).write_text(content)
    fails(folder, "index is damaged")


def test_foreign_indexes(folder: Path, tmp_path: Path) -> None:
    index_model(folder, "int8", recall=0.5)
    stored = trained("default").trained
    assert stored is not None
    (scorer,) = stored.scorers
    changed = replace(scorer, vectors=scorer.vectors * 1.001)
    save_model(tmp_path / "other", replace(stored, members=[replace(stored.members[0], scorers=[changed])]))
    shutil.copytree(folder / INDEX, tmp_path / "other" / INDEX)
    fails(tmp_path / "other", "index is of other label vectors than .*other has")
    described = json.loads((folder / INDEX / ABOUT).read_text())
    (folder / INDEX / ABOUT).write_text(json.dumps({**described, "format": 9}))
    fails(folder, "index is of format 9; this longtail reads format 2")
    (folder / INDEX / ABOUT).write_text(json.dumps({**described, "index": {**described["index"], "kind": "tree"}}))
    fails(folder, "index is damaged")

"""Augmentation: equation 6 by hand, the variants of the papers, and what must hold for every made row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from longtail import Dataset, Split, Texts, read
from longtail.core.errors import DataError, SettingError
from longtail.core.values import LabelGraph, labels_from_rows
from longtail.data.augment.draws import uniforms
from longtail.data.augment.gandalf import LABEL_MARK, Gandalf
from longtail.data.augment.labelmix import LabelMix
from longtail.data.augment.mixup import LabelMixUp, ManifoldMixUp, MixUp
from longtail.data.augment.rows import Augmentation, Augmented, above, has_text, next_to, to_dataset
from longtail.data.augment.synonyms import Synonyms
from longtail.data.augment.targets import label_targets
from longtail.data.convert import write
from longtail.data.graph.cooccurrence import cooccurrence, symmetric_cooccurrence

LABELS = Texts.of(["apple", "juice", "pear", "press"])


def rows_of(matrix: csr_matrix) -> list[dict[int, float]]:
    """Each row as {label: target}, rounded to what float32 holds."""
    ends = matrix.indptr
    return [
        {int(label): round(float(value), 6) for label, value in zip(matrix.indices[a:b], matrix.data[a:b], strict=True)}
        for a, b in zip(ends, ends[1:], strict=False)
    ]


def split_of(rows: list[list[int]], n_labels: int) -> Split:
    return Split(Texts.of([f"row {place}" for place in range(len(rows))]), labels_from_rows(rows, n_labels))


# --- Gandalf by hand. The shop: 0 in rows {0, 1, 4}, 1 in {0, 2, 3, 4}, 2 in {1}, 3 in {3, 4}.


def test_equation_6_by_hand(shop: Dataset) -> None:
    made = Gandalf(delta=0.4).augment(shop.train, shop.label_texts)
    assert made.n_original == 5 and made.n_made == 4 and made.kind == "label"
    assert rows_of(made.split.labels[5:]) == [
        {0: 1, 1: 0.666667},  # P(2|0) and P(3|0) are 1/3
        {0: 0.5, 1: 1, 3: 0.5},
        {0: 1, 2: 1},
        {0: 0.5, 1: 1, 3: 1},
    ]
    assert list(made.split.texts or []) == [*(shop.train.texts or []), *LABELS]
    assert made.source.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert made.row_weights.tolist() == [1.0] * 9


def test_the_threshold_is_strict(shop: Dataset) -> None:
    assert rows_of(Gandalf(delta=0.5, include="Z").augment(shop.train, shop.label_texts).split.labels)[1] == {1: 1}


def test_one_of_ten_is_not_above_a_tenth() -> None:
    train = split_of([[0, 1]] + [[0]] * 9, 2)  # P(1|0) = 1/10, which as float32 is above the double 0.1
    for given_graph in (None, cooccurrence(train.labels, 0.0)):
        made = Gandalf(include="Z").augment(train, Texts.of(["a", "b"]), given_graph)
        assert rows_of(made.split.labels) == [{0: 1}, {0: 1, 1: 1}]
    assert rows_of(Gandalf(include="Z", delta=0.0).augment(train, Texts.of(["a", "b"])).split.labels)[0] == {0: 1, 1: 0.1}


def test_one_hot_targets(shop: Dataset) -> None:
    made = Gandalf(targets="onehot", include="Z").augment(shop.train, shop.label_texts)
    assert made.n_original == 0
    assert made.split.labels.toarray().tolist() == np.eye(4).tolist()


def test_shrinking_by_hand(shop: Dataset) -> None:
    made = Gandalf(delta=0.2, include="Z", shrink=2.0).augment(shop.train, shop.label_texts)
    # G_ij / (G_jj + 2), thresholded after: 2/5; 2/6, 2/6; 1/3; 1/4, 2/4. Own label stays 1
    assert rows_of(made.split.labels) == [
        {0: 1, 1: 0.4},
        {0: 0.333333, 1: 1, 3: 0.333333},
        {0: 0.333333, 2: 1},
        {0: 0.25, 1: 0.5, 3: 1},
    ]
    each = Gandalf(delta=0.2, include="Z", shrink=np.array([0.0, 2.0, 100.0, 0.0])).augment(shop.train, shop.label_texts)
    assert rows_of(each.split.labels)[1:3] == [{0: 0.333333, 1: 1, 3: 0.333333}, {2: 1}]
    assert rows_of(each.split.labels)[0] == {0: 1, 1: 0.666667, 2: 0.333333, 3: 0.333333}


def test_glas_by_hand(shop: Dataset) -> None:
    def sigma(value: float) -> float:
        return round(float(np.float32(1 / (1 + np.exp(-value)))), 6)

    s01, s02, s03, s13 = (2 / 3 + 2 / 4) / 2, (1 / 3 + 1) / 2, (1 / 3 + 1 / 2) / 2, (2 / 4 + 2 / 2) / 2
    wanted = [
        {0: sigma(1), 1: sigma(s01), 2: sigma(s02), 3: sigma(s03)},
        {0: sigma(s01), 1: sigma(1), 3: sigma(s13)},
        {0: sigma(s02), 2: sigma(1)},  # 2 and 1 never met: nothing, not sigma(0) = 0.5
        {0: sigma(s03), 1: sigma(s13), 3: sigma(1)},
    ]
    for graph in (None, cooccurrence(shop.train.labels, 0.1), symmetric_cooccurrence(shop.train.labels, 0.1)):
        assert rows_of(Gandalf(targets="glas", include="Z").augment(shop.train, shop.label_texts, graph).split.labels) == wanted
    high = Gandalf(targets="glas", include="Z", delta=0.6).augment(shop.train, shop.label_texts)  # acts on S
    assert rows_of(high.split.labels)[0] == {0: sigma(1), 2: sigma(s02)}


def test_a_graph_made_for_equation_6_gives_all_glas_targets() -> None:
    """A pair that is strong in one direction only is stored once; S needs both conditionals."""
    train = split_of([[0, 1]] + [[0]] * 19, 2)  # P(1|0) = 0.05 is not stored, P(0|1) = 1 is
    made = Gandalf(targets="glas", include="Z").augment(train, Texts.of(["a", "b"]), cooccurrence(train.labels, 0.1))
    assert made.split.labels[0, 1] == made.split.labels[1, 0] == pytest.approx(1 / (1 + np.exp(-0.525)))


def test_walk_targets_are_divided_by_the_own_weight() -> None:
    weights = csr_matrix(np.array([[0.5, 0.1, 0.04], [0.6, 0.4, 0.0], [0.3, 0.0, 0.0]], np.float32))
    graph = LabelGraph(weights, np.array([2, 2, 1]), "walk")
    train = split_of([[0, 1], [0, 1], [2]], 3)
    made = Gandalf(targets="walk", include="Z").augment(train, Texts.of(["a", "b", "c"]), graph)
    # 0.04 / 0.5 is below delta, 0.6 / 0.4 is cut to 1, a row without a weight of its own holds its own label
    assert rows_of(made.split.labels) == [{0: 1, 1: 0.2}, {0: 1, 1: 1}, {2: 1}]


def test_as_many_rows_as_before(shop: Dataset) -> None:
    whole = Gandalf().augment(shop.train, shop.label_texts)
    seen = set()
    for seed in range(20):
        made = Gandalf(include="U").augment(shop.train, shop.label_texts, seed=seed)
        assert len(made) == 5
        drawn = [*made.source[: made.n_original].tolist(), *(made.source[made.n_original :] + 5).tolist()]
        assert drawn == sorted(set(drawn))  # without replacement, originals first and in order
        assert rows_of(made.split.labels) == [rows_of(whole.split.labels)[place] for place in drawn]
        assert list(made.split.texts or []) == [list(whole.split.texts or [])[place] for place in drawn]
        seen |= set(drawn)
    assert seen == set(range(9))


def test_kept_labels_are_nested_and_tail_first() -> None:
    counts = [40, 10, 10, 5, 4, 3, 2, 2, 2, 2]  # 80 pairs: five bins of 16
    train = split_of([[label] for label, count in enumerate(counts) for _ in range(count)], 10)
    texts = Texts.of([f"label {place}" for place in range(10)])

    def kept(share: float, by: str, seed: int = 0) -> list[int]:
        return Gandalf(share=share, order=by, include="Z").augment(train, texts, seed=seed).source.tolist()

    assert {len(kept(share, by)) for share in (0.5,) for by in ("random", "tail")} == {5}
    for by in ("random", "tail"):
        assert set(kept(0.2, by)) < set(kept(0.5, by)) < set(kept(1.0, by)) == set(range(10))
    for seed in range(10):
        assert min(kept(0.4, "tail", seed)) >= 4  # the tail bin holds more than these four
    assert {tuple(kept(0.4, "tail", seed)) for seed in range(10)} > {tuple(kept(0.4, "tail", 0))}  # at random within the bin
    assert any(min(kept(0.4, "random", seed)) < 4 for seed in range(10))
    assert kept(0.0, "random") == []


def test_mark_and_weight(shop: Dataset) -> None:
    made = Gandalf(mark=LABEL_MARK, weight=0.5).augment(shop.train, shop.label_texts)
    assert list(made.split.texts or [])[4:7] == ["juice press", "xxlabelxx apple", "xxlabelxx juice"]
    assert made.row_weights.tolist() == [1.0] * 5 + [0.5] * 4 and made.notes == ()
    notes = Gandalf(mark="Juice").augment(shop.train, shop.label_texts).notes
    assert notes == ("The mark 'Juice' stands in training texts too; a word such as 'xxlabelxx' would tell label rows apart.",)
    assert Gandalf(mark="jui").augment(shop.train, shop.label_texts).notes == ()


def test_doubt_weighs_label_rows_by_how_often_their_label_was_seen(shop: Dataset) -> None:
    made = Gandalf(doubt=3.0).augment(shop.train, shop.label_texts)
    assert made.row_weights.tolist() == pytest.approx([1.0] * 5 + [3 / 6, 4 / 7, 1 / 4, 2 / 5])
    halved = Gandalf(doubt=3.0, weight=0.5).augment(shop.train, shop.label_texts)
    assert halved.row_weights[5:].tolist() == pytest.approx((made.row_weights[5:] / 2).tolist())
    plain = Gandalf().augment(shop.train, shop.label_texts)
    assert rows_of(made.split.labels) == rows_of(plain.split.labels)  # targets are not touched


def test_with_doubt_a_label_without_rows_has_no_label_row() -> None:
    train = split_of([[0, 1], [1]], 3)
    made = Gandalf(doubt=1.0, include="Z").augment(train, Texts.of(["a", "b", "c"]))
    assert made.source.tolist() == [0, 1] and made.row_weights.tolist() == pytest.approx([1 / 2, 2 / 3])


def test_labels_without_text_or_points_are_named_not_crashed_on() -> None:
    train = split_of([[0, 1], [1, 2]], 8)
    made = Gandalf(include="Z").augment(train, Texts.of(["a", "", "c", " ", "", "", "", "h"]))
    assert made.source.tolist() == [0, 2, 7]
    # label 1 is no row but stays a target; label 7 has no points and gets only itself
    assert rows_of(made.split.labels) == [{0: 1, 1: 1}, {1: 1, 2: 1}, {7: 1}]
    assert made.notes == ("Labels without text have no row of their own: 5 (1, 3, 4, 5, 6).",)


def test_rows_with_features_only() -> None:
    features = csr_matrix(np.array([[1, 0], [0, 2]], np.float32))
    train = Split(None, labels_from_rows([[0], [0, 1]], 2), features=features)
    label_features = csr_matrix(np.array([[3, 0], [0, 0]], np.float32))
    made = Gandalf().augment(train, None, label_features=label_features)
    assert made.split.features is not None and made.split.features.toarray().tolist() == [[1, 0], [0, 2], [3, 0]]
    assert made.split.texts is None and "1 (1)" in made.notes[0]
    with pytest.raises(DataError, match="these labels have none"):
        Gandalf().augment(train, None)


def test_what_only_originals_have() -> None:
    train = Split(
        Texts.of(["x", "y"]),
        labels_from_rows([[0], [1]], 2),
        filter=np.array([[1, 0]], np.int32),
        uids=Texts.of(["u0", "u1"]),
        features=csr_matrix(np.eye(2, dtype=np.float32)),
    )
    made = Gandalf().augment(train, Texts.of(["a", "b"]))
    assert made.split.filter is not None and made.split.filter.tolist() == [[1, 0]]
    assert list(made.split.uids or []) == ["u0", "u1", "label:0", "label:1"]
    assert made.split.features is None and made.notes == ("Features are left out: made rows have texts only.",)


# --- what cannot work


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"include": "D"}, "include came as 'D'; wanted one of D[+]Z, Z, U[.]"),
        ({"targets": "gals"}, "targets came as 'gals'; wanted one of cooccurrence, calibrated, glas, walk, onehot. Did you mean 'glas'[?]"),
        ({"order": "head"}, "order came as 'head'; wanted one of random, tail."),
        ({"share": 1.5}, "share came as 1.5; wanted a number from 0 to 1"),
        ({"delta": 1.0}, "delta came as 1.0; wanted a number from 0 to below 1"),
        ({"delta": float("nan")}, "delta came as nan"),
        ({"shrink": -1.0}, "shrink came with a number below 0"),
        ({"shrink": float("nan")}, "shrink came with a number below 0"),
        ({"shrink": 1.0, "targets": "walk"}, "no meaning for targets='walk'"),
        ({"mark": "two words"}, "wanted one word"),
        ({"weight": -1.0}, "weight came as -1.0"),
        ({"weight": float("inf")}, "weight came as inf; wanted 0 or more, such as 0.5"),
        ({"doubt": -3.0}, "doubt came as -3.0"),
        ({"doubt": float("nan")}, "doubt came as nan; wanted 0 or more, such as 3"),
    ],
)
def test_settings_that_cannot_work_are_told(chosen: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Gandalf(**chosen)  # type: ignore[arg-type]


def test_parts_that_do_not_fit_are_told(shop: Dataset) -> None:
    with pytest.raises(SettingError, match="left out weights up to 0.3; delta=0.1 wants"):
        Gandalf().augment(shop.train, shop.label_texts, cooccurrence(shop.train.labels, 0.3))
    with pytest.raises(SettingError, match="targets='walk' came with a graph of kind 'cooccurrence'"):
        Gandalf(targets="walk").augment(shop.train, shop.label_texts, cooccurrence(shop.train.labels))
    with pytest.raises(DataError, match="The graph has 2 labels, the rows have 4"):
        Gandalf().augment(shop.train, shop.label_texts, cooccurrence(labels_from_rows([[0, 1]], 2)))
    with pytest.raises(DataError, match="There are 1 label texts for 4 labels"):
        Gandalf().augment(shop.train, Texts.of(["apple"]))
    with pytest.raises(SettingError, match=r"shrink has shape \(2,\)"):
        Gandalf(shrink=np.ones(2)).augment(shop.train, shop.label_texts)


# --- what holds for every augmentation

ROWS = st.lists(st.sets(st.integers(0, 5), max_size=4), max_size=12)
WAYS: list[Augmentation] = [
    Gandalf(),
    Gandalf(include="Z", delta=0.0),
    Gandalf(include="U", share=0.5, order="tail", shrink=1.5, mark=LABEL_MARK),
    Gandalf(targets="onehot"),
    Gandalf(targets="glas"),
    Gandalf(targets="walk"),
    LabelMix(),
    LabelMix(probability=1.0, soft=False, skew=0.0),
    MixUp(0.4),
    LabelMixUp(0.4),
    Synonyms(0.5, {"row": [1.0, 0.0], "line": [0.9, 0.1], "1": [0.0, 1.0], "one": [0.1, 0.9]}),
]


def features_of(n_rows: int) -> csr_matrix:
    return csr_matrix(np.arange(n_rows * 3, dtype=np.float32).reshape(n_rows, 3) + 1)


def made_by(way: Augmentation, train: Split, texts: Texts, seed: int, epoch: int | None = None) -> Augmented:
    extra = {"label_features": features_of(6)} if isinstance(way, LabelMixUp) else {}
    if isinstance(way, (MixUp, LabelMixUp)):
        train = replace(train, features=features_of(len(train)))
    if epoch is None:
        return way.augment(train, texts, None, seed, **extra)  # type: ignore[call-arg]
    return way.for_epoch(epoch, train, texts, None, seed, **extra)  # type: ignore[call-arg]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way!r:.60}")
@settings(max_examples=12)
@given(rows=ROWS, texts=st.lists(st.sampled_from(["", "word", "two words"]), min_size=6, max_size=6), seed=st.integers(0, 3))
def test_every_augmentation_keeps_its_promises(way: Augmentation, rows: list[set[int]], texts: list[str], seed: int) -> None:
    train = split_of([sorted(row) for row in rows], 6)
    counts = np.bincount(train.labels.indices, minlength=6)
    before = (train.labels.data.copy(), train.labels.indices.copy(), train.labels.indptr.copy())
    assert isinstance(way, Augmentation)
    for epoch in (None, 0, 1):
        made = made_by(way, train, Texts.of(texts), seed, epoch)
        labels = made.split.labels
        n = made.n_original
        assert labels.shape == (len(made), 6) and labels.dtype == np.float32 and labels.has_canonical_format
        assert ((labels.data > 0) & (labels.data <= 1)).all()
        assert len(made.row_weights) == len(made.source) == len(made) == n + made.n_made
        assert (np.diff(made.source[:n]) > 0).all()  # originals first, in order, untouched
        assert (labels[:n] != train.labels[made.source[:n]]).nnz == 0
        if made.split.texts is not None:
            assert len(made.split.texts) == len(made)
            assert list(made.split.texts[:n]) == [f"row {place}" for place in made.source[:n].tolist()]
        if made.split.features is not None:
            assert made.split.features.shape == (len(made), 3)
        again = made_by(way, train, Texts.of(texts), seed, epoch)
        assert (again.split.labels != labels).nnz == 0 and again.split.texts == made.split.texts
        assert again.source.tolist() == made.source.tolist()
        if epoch is None and not (isinstance(way, Gandalf) and way.include != "D+Z"):
            assert n == len(train)
    # nothing that propensities, head and tail rest on has moved
    assert np.array_equal(np.bincount(train.labels.indices, minlength=6), counts)
    assert all(np.array_equal(a, b) for a, b in zip(before, (train.labels.data, train.labels.indices, train.labels.indptr), strict=True))


@settings(max_examples=30)
@given(rows=ROWS, delta=st.sampled_from([0.0, 0.1, 0.3, 0.5]), shrink=st.sampled_from([0.0, 1.0, 3.0]))
def test_label_rows_equal_the_naive_ones(rows: list[set[int]], delta: float, shrink: float) -> None:
    train = split_of([sorted(row) for row in rows], 6)
    made = Gandalf(include="Z", delta=delta, shrink=shrink).augment(train, Texts.of("abcdef"))
    for j, found in enumerate(rows_of(made.split.labels)):
        with_j = [row for row in rows if j in row]
        shares = {i: sum(i in row for row in with_j) / (len(with_j) + shrink) for i in range(6) if with_j and i != j}
        assert found == {j: 1.0} | {i: round(float(np.float32(share)), 6) for i, share in shares.items() if share > delta}


def test_an_augmented_data_set_leaves_the_real_one_alone(shop: Dataset) -> None:
    """Propensities come from the real rows; the exported set is another value, with another name and other counts."""
    made = to_dataset(Gandalf().augment(shop.train, shop.label_texts), shop)
    assert shop.label_counts().tolist() == [3, 4, 1, 2] and len(shop.train) == 5
    assert made.label_counts().tolist() == [7, 7, 3, 5] and made.name == "shop+label"
    assert made.test is shop.test


# --- export


def test_every_format_holds_the_rows(shop: Dataset, tmp_path: Path) -> None:
    made = Gandalf(delta=0.4).augment(shop.train, shop.label_texts)
    soft, hard = to_dataset(made, shop), to_dataset(made, shop, binary=True)
    assert list(soft.train.uids or [])[4:6] == ["trn4", "label:0"]
    for form in ("xc", "sparse", "pecos", "parquet"):
        write(soft, tmp_path / form, form)
        back = read(tmp_path / form)
        assert rows_of(back.train.labels) == rows_of(made.split.labels), form
        assert list(back.train.texts or []) == list(made.split.texts or []), form
        assert (back.test.labels != shop.test.labels).nnz == 0
    for form in ("fasttext", "pecos"):
        write(hard, tmp_path / f"{form}-binary", form)
        assert rows_of(read(tmp_path / f"{form}-binary").train.labels) == [dict.fromkeys(row, 1.0) for row in rows_of(made.split.labels)]


def test_binary_threshold_and_wrong_data(shop: Dataset) -> None:
    made = Gandalf(delta=0.4).augment(shop.train, shop.label_texts)
    hard = to_dataset(made, shop, binary=True, threshold=0.6)
    assert rows_of(hard.train.labels[5:]) == [{0: 1, 1: 1}, {1: 1}, {0: 1, 2: 1}, {1: 1, 3: 1}]
    other = replace(shop, train=split_of([[0]], 1))
    with pytest.raises(DataError, match="The augmented rows have 4 labels, shop has 1"):
        to_dataset(made, other)


# --- small parts


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=6))
def test_next_to_joins_texts(pairs: list[tuple[str, str]]) -> None:
    pairs = [(a.encode(errors="replace").decode(), b.encode(errors="replace").decode()) for a, b in pairs]
    joined = next_to(Texts.of([a for a, _ in pairs]), Texts.of([b for _, b in pairs]))
    assert list(joined) == [f"{a} {b}" for a, b in pairs]


def test_next_to_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.data.augment.rows.ROWS_AT_ONCE", 2)
    assert list(next_to(Texts.of("abcde"), Texts.of("vwxyz"))) == ["a v", "b w", "c x", "d y", "e z"]
    train = split_of([[0, 1], [1, 2], [0], [3, 4]], 5)
    blocks = Gandalf().augment(train, Texts.of("abcde")).split.labels
    monkeypatch.undo()
    assert (blocks != Gandalf().augment(train, Texts.of("abcde")).split.labels).nnz == 0


def test_has_text() -> None:
    assert has_text(Texts.of(["", "a", " \t", " é"])).tolist() == [False, True, False, True]
    assert has_text(Texts.of([])).tolist() == []


def test_above_keeps_shape() -> None:
    assert above(csr_matrix((2, 3), dtype=np.float32), 0.5).shape == (2, 3)


def test_label_targets_may_repeat_labels(shop: Dataset) -> None:
    graph = cooccurrence(shop.train.labels)
    twice = label_targets("cooccurrence", graph, np.array([2, 0, 2]), 4)
    assert rows_of(twice)[0] == rows_of(twice)[2] == {0: 1, 2: 1}


def test_draws_are_splitmix64() -> None:
    """The published generator, in plain integers."""

    def mixed(state: int) -> int:
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        return state ^ (state >> 31)

    for seed, epoch, draw, row in [(0, 0, 0, 0), (3, 2, 1, 77), (2**40, 5, 9, 2**31 - 1)]:
        state = 0
        for part in (seed, epoch, draw, row):
            state = mixed((state + (part + 1) * 0x9E3779B97F4A7C15) % 2**64)
        assert uniforms(seed, epoch, np.array([row]), draw).tolist() == [(state >> 11) / 2**53]


def test_draws_are_even_and_apart() -> None:
    """120 streams together: chi-square of each in 20 bins, and no two streams alike."""
    rows = np.arange(20_000)
    drawn = np.stack([uniforms(seed, epoch, rows, draw) for seed in range(5) for epoch in range(6) for draw in range(4)])
    assert ((drawn >= 0) & (drawn < 1)).all()
    counts = np.stack([np.histogram(row, bins=20, range=(0, 1))[0] for row in drawn])
    chi_square = ((counts - 1000) ** 2 / 1000).sum(axis=1)  # 19 degrees of freedom: mean 19, variance 38
    assert abs(chi_square.mean() - 19) < 3.3 * np.sqrt(38 / len(drawn)) and chi_square.max() < 55  # 2e-5 each
    assert np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 5 / np.sqrt(len(rows))


def test_unknown_names_are_setting_errors() -> None:
    with pytest.raises(SettingError, match="targets came as 'onehot'; wanted one of cooccurrence, walk."):
        LabelMix(targets="onehot")
    assert ManifoldMixUp().layers == 2

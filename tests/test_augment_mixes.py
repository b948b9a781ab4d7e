"""LabelMix against a literal transcription, MixUp and its kin, synonyms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from longtail import Dataset, Split, Texts
from longtail.core.errors import DataError, SettingError
from longtail.core.values import LabelGraph, labels_from_rows
from longtail.data.augment.draws import uniforms
from longtail.data.augment.labelmix import WHETHER, WHICH, LabelMix, pick_labels
from longtail.data.augment.mixup import LabelMixUp, ManifoldMixUp, Mix, MixUp
from longtail.data.augment.synonyms import Synonyms, nearest
from longtail.data.graph.cooccurrence import cooccurrence

N_LABELS = 5
LABELS = Texts.of(["apple", "juice", "pear", "press", "jam"])


def algorithm_1(
    x: str, y: np.ndarray, r: np.ndarray, z: list[str], lcg: np.ndarray, first: float, second: float, soft: bool
) -> tuple[str, np.ndarray]:
    """Line by line from the paper, on dense vectors. `first` and `second` are its two random numbers."""
    if first > 0.4:
        return x, y
    p_a = y * r
    if p_a.sum() == 0:
        return x, y  # the paper's rows all have labels
    shares = np.cumsum(p_a / p_a.sum())
    j = int(np.searchsorted(shares / shares[-1], second, side="right"))  # numpy.random.choice
    if not soft:
        return f"{x} {z[j]}", y
    y_lm = lcg[j] / lcg[j, j]
    y_a = np.minimum(y + y_lm, 1.0)
    return f"{x} {z[j]}", np.where(y_a > 0.1, y_a, 0)


@settings(max_examples=40)
@given(
    rows=st.lists(st.sets(st.integers(0, N_LABELS - 1), max_size=4), min_size=1, max_size=10),
    relevance=st.sampled_from([None, 0.3, 0.05]),
    soft=st.booleans(),
    kind=st.sampled_from(["cooccurrence", "walk"]),
    seed=st.integers(0, 9),
)
def test_labelmix_equals_the_paper(rows: list[set[int]], relevance: float | None, soft: bool, kind: str, seed: int) -> None:
    texts = [f"text {place}" for place in range(len(rows))]
    labels = labels_from_rows([sorted(row) for row in rows], N_LABELS)
    if relevance is not None and labels.nnz:
        labels.data[0] = relevance
    dense = labels.toarray()
    counts = (dense > 0).sum(axis=0)
    lcg = np.diag(np.full(N_LABELS, 0.5)).astype(np.float32)
    lcg[0, 1], lcg[1, 0], lcg[2, 3], lcg[3, 4] = 0.9, 0.04, 0.2, 0.06  # LCG[0, 1] is above LCG[0, 0]
    graph = LabelGraph(csr_matrix(lcg), counts, "walk")
    if kind == "cooccurrence":
        together = ((dense > 0).T.astype(float)) @ (dense > 0)
        lcg = together / np.maximum(counts, 1)[:, None] + np.diag(counts == 0)
        graph = cooccurrence(labels, 0.0)
    weights = np.maximum(counts, 1) ** -0.5
    train = Split(Texts.of(texts), labels)
    mixer = LabelMix(soft=soft, skew=0.5, targets=kind).bind(train, LABELS, graph, seed)  # type: ignore[arg-type]
    places = np.arange(len(rows), dtype=np.int32)
    for epoch in (0, 3):
        made = mixer.rows(places, epoch)
        first, second = (uniforms(seed, epoch, places, draw) for draw in (WHETHER, WHICH))
        for place, text in enumerate(texts):
            draws = (float(first[place]), float(second[place]))
            wanted_text, wanted = algorithm_1(text, dense[place], weights, list(LABELS), lcg, *draws, soft)
            assert made.texts is not None and made.texts[place] == wanted_text
            assert made.labels[place].toarray()[0] == pytest.approx(wanted, abs=1e-6)


def test_a_row_is_the_same_in_any_batch_and_new_in_another_epoch(shop: Dataset) -> None:
    mixer = LabelMix(probability=0.5).bind(shop.train, shop.label_texts, seed=3)
    whole = mixer.rows(np.arange(5, dtype=np.int32), epoch=2)
    part = mixer.rows(np.array([4, 0], np.int32), epoch=2)
    assert list(part.texts or []) == [(whole.texts or [])[4], (whole.texts or [])[0]]
    assert (part.labels != whole.labels[[4, 0]]).nnz == 0
    assert len({tuple(mixer.rows(np.arange(5, dtype=np.int32), epoch).texts or []) for epoch in range(8)}) > 3


def test_an_epoch_has_every_row_once(shop: Dataset) -> None:
    for epoch in range(6):
        made = LabelMix().for_epoch(epoch, shop.train, shop.label_texts, seed=1)
        assert sorted(made.source.tolist()) == [0, 1, 2, 3, 4] and len(made) == 5
    whole = LabelMix(probability=1.0).augment(shop.train, shop.label_texts)
    assert (whole.n_original, whole.n_made, whole.kind) == (5, 5, "labelmix")
    assert LabelMix(probability=0.0).augment(shop.train, shop.label_texts).n_made == 0


def test_mixing_happens_as_often_as_asked() -> None:
    """Judged over 40 epochs: a single stream of 20,000 rows may well stand three standard errors off by chance."""
    rows = np.arange(20_000, dtype=np.int32)
    train = Split(Texts.of(["x"] * len(rows)), labels_from_rows([[0]] * len(rows), 1))
    mixer = LabelMix(soft=False).bind(train, Texts.of(["z"]))
    mixed = np.array([(mixer.drawn(rows, epoch) >= 0).mean() for epoch in range(40)])
    errors = (mixed - 0.4) / np.sqrt(0.4 * 0.6 / len(rows))
    assert abs(errors.mean()) < 3.3 / np.sqrt(40) and np.abs(errors).max() < 4.5
    assert 0.6 < errors.std() < 1.4
    assert (LabelMix(soft=False).for_epoch(0, train, Texts.of(["z"])).split.texts or [])[-1] == "x z"


def test_skew_draws_by_frequency_to_the_power() -> None:
    """Label 0 stands in every row, label 1 in one of 16: r = 1 and 16 ** -skew below 1 for the frequent one."""
    rows = [[0, 1]] * 1_000 + [[0]] * 15_000
    train = Split(Texts.of(["x"] * len(rows)), labels_from_rows(rows, 2))
    for skew, wanted in ((0.0, 1 / 2), (0.25, 2 / 3), (0.5, 4 / 5)):
        mixer = LabelMix(probability=1.0, soft=False, skew=skew).bind(train, Texts.of(["head", "tail"]))
        drawn = mixer.drawn(np.arange(1_000, dtype=np.int32))
        assert (drawn == 1).mean() == pytest.approx(wanted, abs=0.05)
    given_weights = LabelMix(probability=1.0, soft=False, skew=np.array([0.0, 1.0])).bind(train, Texts.of(["head", "tail"]))
    drawn = given_weights.drawn(np.arange(2_000, dtype=np.int32))
    assert set(drawn[:1_000].tolist()) == {1} and set(drawn[1_000:].tolist()) == {-1}


def test_labels_without_text_are_not_mixed_in(shop: Dataset) -> None:
    made = LabelMix(probability=1.0).augment(shop.train, Texts.of(["", "juice", "", "press"]))
    assert made.notes == ("Labels without text are not mixed in: 2 (0, 2).",)
    assert made.source[5:].tolist() == [0, 2, 3, 4]  # row 1 has the labels 0 and 2 only
    assert all(text.endswith((" juice", " press")) for text in list(made.split.texts or [])[5:])


@given(
    rows=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=1, max_size=6),
    weights=st.lists(st.sampled_from([0.0, 1e-9, 1.0, 1e6]), min_size=4, max_size=4),
    draw=st.sampled_from([0.0, 0.3, 0.999999, 1 - 2.0**-53]),
)
def test_picked_labels_always_have_weight(rows: list[list[float]], weights: list[float], draw: float) -> None:
    labels = csr_matrix(np.array(rows, np.float32))
    found = pick_labels(labels, np.array(weights), np.full(len(rows), draw))
    for row, label in zip(rows, found.tolist(), strict=True):
        chances = [value * weight for value, weight in zip(row, weights, strict=True)]
        assert chances[label] > 0 if label >= 0 else sum(chances) <= 1e-9 * 4


def test_labelmix_tells_what_cannot_work(shop: Dataset) -> None:
    with pytest.raises(SettingError, match="probability came as 1.2; wanted"):
        LabelMix(probability=1.2)
    with pytest.raises(SettingError, match="label weights below 0"):
        LabelMix(skew=np.array([-1.0]))
    with pytest.raises(SettingError, match=r"skew has shape \(2,\)"):
        LabelMix(skew=np.ones(2)).bind(shop.train, shop.label_texts)
    with pytest.raises(SettingError, match="delta came as -1; wanted"):
        LabelMix(delta=-1)
    with pytest.raises(DataError, match="one of them is missing"):
        LabelMix().bind(shop.train, None)


# --- MixUp


def test_mixing_by_hand() -> None:
    mix = Mix(np.array([1, 0]), np.array([0.75, 1.0]))
    assert mix.vectors(np.array([[4.0, 0.0], [0.0, 8.0]])).tolist() == [[3.0, 2.0], [0.0, 8.0]]
    targets = mix.targets(csr_matrix(np.array([[1, 0, 1], [1, 1, 0]], np.float32)))
    assert targets.toarray().tolist() == [[1.0, 0.25, 0.75], [1.0, 1.0, 0.0]]
    assert targets.nnz == 5  # a share of 0 leaves nothing behind
    assert mix.vectors(csr_matrix(np.eye(2))).toarray().tolist() == [[0.75, 0.25], [0.0, 1.0]]
    deep = np.arange(12.0).reshape(2, 3, 2)  # hidden vectors of sequences mix in the same way
    assert mix.vectors(deep)[0].tolist() == (0.75 * deep[0] + 0.25 * deep[1]).tolist()


def test_torch_mixes_as_numpy_does() -> None:
    torch = pytest.importorskip("torch")
    mix = MixUp(0.4, each_row=True).draw(6, seed=1, step=2)
    own = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    assert mix.vectors(torch.tensor(own)).numpy() == pytest.approx(mix.vectors(own), abs=1e-6)


def test_draws_depend_on_seed_and_step_only() -> None:
    first, again, other = (MixUp(0.4).draw(50, seed=1, step=step) for step in (7, 7, 8))
    assert first.partner.tolist() == again.partner.tolist() != other.partner.tolist()
    assert first.share.tolist() == again.share.tolist() != other.share.tolist()
    assert sorted(first.partner.tolist()) == list(range(50))  # everybody is a partner once
    assert len(set(first.share.tolist())) == 1 and len(set(MixUp(0.4, each_row=True).draw(50, 1, 7).share.tolist())) == 50


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_follow_the_beta_distribution(alpha: float) -> None:
    shares = MixUp(alpha, each_row=True).draw(20_000, seed=0, step=0).share
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.004)


def test_manifold_mixup_draws_layers_evenly() -> None:
    mixup = ManifoldMixUp(layers=3)
    seen = np.bincount([mixup.layer(0, step) for step in range(3_000)])
    assert len(seen) == 3 and seen.min() > 900
    assert mixup.draw(4, 0, 1).partner.tolist() == MixUp(2.0).draw(4, 0, 1).partner.tolist()


def test_label_mixup_by_hand(shop: Dataset) -> None:
    way = LabelMixUp(0.4)
    labels = shop.train.labels
    mix = way.draw(labels, seed=0, epoch=0)
    label_vectors = np.diag([1.0, 2.0, 3.0, 4.0])
    mixed = mix.vectors(np.zeros((5, 4)), label_vectors)
    targets = way.targets(mix, labels).toarray()
    soft = LabelMixUp(0.4, soft=True).targets(mix, labels, cooccurrence(labels)).toarray()
    for row in range(5):
        label, share = mix.partner[row], mix.share[row]
        assert labels[row, label] == 1
        assert mixed[row] == pytest.approx((1 - share) * label_vectors[label])
        assert targets[row] == pytest.approx(share * labels[row].toarray()[0] + (1 - share) * np.eye(4)[label])
        assert (soft[row] >= targets[row] - 1e-6).all() and soft[row].max() <= 1
    part = way.draw(labels[[3]], seed=0, epoch=0, rows=np.array([3], np.int32))
    assert (part.partner[0], part.share[0]) == (mix.partner[3], mix.share[3])
    alone = way.draw(csr_matrix((1, 4), dtype=np.float32), seed=0, epoch=0)
    assert alone.share.tolist() == [1.0]


def test_mixup_tells_what_cannot_work(shop: Dataset) -> None:
    with pytest.raises(SettingError, match="alpha came as 0; wanted"):
        MixUp(0)
    with pytest.raises(SettingError, match="alpha came as nan; wanted"):
        LabelMixUp(float("nan"))
    with pytest.raises(SettingError, match="layers came as 0; wanted"):
        ManifoldMixUp(layers=0)
    with pytest.raises(SettingError, match="MixUp mixes vectors, and these rows have texts only"):
        MixUp().augment(shop.train, shop.label_texts)
    with pytest.raises(SettingError, match="from a graph; give one"):
        LabelMixUp(soft=True).targets(LabelMixUp().draw(shop.train.labels, 0, 0), shop.train.labels)
    with pytest.raises(DataError, match="give label_features"):
        LabelMixUp().augment(Split(None, labels_from_rows([[0]], 1), features=csr_matrix(np.eye(1))), None)


# --- synonyms

VECTORS = {"car": [1.0, 0.0, 0.0], "auto": [0.9, 0.1, 0.0], "truck": [0.7, 0.3, 0.0], "pear": [0.0, 1.0, 0.0], "café": [0.0, 0.0, 2.0]}


def test_synonyms_by_hand() -> None:
    train = Split(Texts.of(["Car, auto & car-park", "pear café", ""]), labels_from_rows([[0], [1], []], 2))
    made = Synonyms(1.0, VECTORS).augment(train, None)
    # auto is nearest to car and car to auto; pear is nearest to truck at cosine 0.39, café to nothing
    assert list(made.split.texts or [])[3:] == ["auto, car & auto-park"]
    assert made.source.tolist() == [0, 1, 2, 0] and made.split.labels[3].indices.tolist() == [0]
    low = Synonyms(1.0, VECTORS, floor=0.3).for_epoch(0, train, None)
    assert list(low.split.texts or []) == ["", "auto, car & auto-park", "truck café"] and low.n_original == 1
    assert Synonyms(0.0, VECTORS).augment(train, None).n_made == 0
    assert Synonyms(1.0, {}).augment(train, None).n_made == 0


def test_synonyms_are_replaced_as_often_as_asked() -> None:
    train = Split(Texts.of(["car " * 50] * 100), labels_from_rows([[0]] * 100, 1))
    words = " ".join(Synonyms(0.3, VECTORS, among=2).replaced(train, seed=0, epoch=0)[0]).split()
    assert words.count("car") / len(words) == pytest.approx(0.7, abs=0.03)
    assert words.count("auto") == pytest.approx(words.count("truck"), rel=0.15)
    other = Synonyms(0.3, VECTORS, among=2).replaced(train, seed=0, epoch=1)[0]
    assert " ".join(other).split() != words


@settings(max_examples=30)
@given(seed=st.integers(0, 99), n=st.integers(1, 40), k=st.integers(1, 4))
def test_nearest_in_blocks_equals_the_plain_search(seed: int, n: int, k: int) -> None:
    vectors = np.random.default_rng(seed).integers(-2, 3, (n, 2)).astype(np.float32)  # many ties
    queries = np.arange(n)[::2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longtail.data.augment.synonyms.WORDS_AT_ONCE", 3)
        patch.setattr("longtail.data.augment.synonyms.CANDIDATES_AT_ONCE", 7)
        ids, scores = nearest(vectors, queries, k)
    for query, found, cosines in zip(queries, ids.tolist(), scores.tolist(), strict=True):
        products = vectors @ vectors[query]
        wanted = sorted((other for other in range(n) if other != query), key=lambda other: (-products[other], other))[:k]
        assert found == wanted + [-1] * (k - len(wanted))
        assert cosines[: len(wanted)] == products[wanted].tolist()


def test_synonyms_tells_what_cannot_work() -> None:
    with pytest.raises(SettingError, match="among came as 0; wanted"):
        Synonyms(0.1, VECTORS, among=0)
    with pytest.raises(SettingError, match="floor came as 2; wanted"):
        Synonyms(0.1, VECTORS, floor=2)
    with pytest.raises(DataError, match="features only"):
        Synonyms(0.1, VECTORS).augment(Split(None, labels_from_rows([[0]], 1)), None)

"""Prediction: rankings by hand and against brute force, and answers as they are written."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from longtail import XMC, Texts
from longtail.core import registry
from longtail.core.errors import DataError, SettingError, UnknownName
from longtail.core.kernels.ensemble import best_named, best_sums, each_once, scores_at
from longtail.inference import scorer as scorers
from longtail.inference.ensemble import Member, predict
from longtail.inference.retrieval import GAME_SPEAKERS, AllLabelsRetrieval, ClusterRetrieval, FusedRetrieval, Retrieval
from longtail.inference.scorer import Scorer
from longtail.inference.search import all_labels, clusters
from longtail.inference.search.clusters import ClusterIndex, Neighbours
from longtail.models.losses import candidates
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer
from longtail.tokens.words import Words
from tests.spelled import N_LABELS, Command, small_model, spelled_out, trained
from tests.spelled import command as command
from tests.tensors import same_numbers as same_numbers

CPU = torch.device("cpu")
BY_ALL = AllLabelsRetrieval()
WORDS = ("zero", "one", "two")
TOKENIZER = Words().fit([" ".join(WORDS)])  # ids 1, 2, 3


@pytest.fixture(autouse=True)
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding to bfloat16, where the machine can, would make numbers that nobody works out by hand."""
    for module in (all_labels, candidates, clusters):
        monkeypatch.setattr(module, "matrix_type", lambda device: torch.float32)


class Known(nn.Module):
    """A network that knows the vector of each text, by the id of its only token."""

    def __init__(self, labels: list[list[float]], clusters: list[list[float]] | None = None) -> None:
        super().__init__()
        self.of = {"labels": torch.tensor(labels), "clusters": torch.tensor(clusters or labels)}

    def encode(self, tokens: TokenRows, task: str = "labels") -> Tensor:
        return self.of[task][tokens.ids - 1]

    def hidden(self, tokens: TokenRows) -> TokenRows:
        return tokens

    def project(self, hidden: TokenRows, task: str) -> Tensor:
        return self.encode(hidden, task)


def rows(*texts: int) -> TokenRows:
    ids = np.array(texts, np.int32) + 1
    return TokenRows.from_arrays(ids, np.ones(len(ids), np.float32), np.arange(len(ids) + 1), 100)


def scorer(network: Known, vectors: list[list[float]], bias: list[float] | None = None, retrieval: Retrieval = BY_ALL) -> Scorer:
    return Scorer(network, torch.tensor(vectors), None if bias is None else torch.tensor(bias), retrieval)  # type: ignore[arg-type]


def sigmoid(x: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-np.asarray(x))))


# ---- all labels


def test_all_labels_by_hand() -> None:
    found = scorer(Known([[1.0, 0.0], [0.0, 2.0]]), [[1, 0], [0, 1], [1, 1]], bias=[0.0, 0.5, -3.0])
    ids, scores = found.top_k(rows(0, 1, 0), k=2)
    # text 0 scores 1, 0.5, -2 and text 1 scores 0, 2.5, -1
    assert ids.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert np.allclose(scores, sigmoid(np.array([[1, 0.5], [2.5, 0], [1, 0.5]])))


@pytest.mark.parametrize("scores_at_once", [1, 7, 40, 1 << 25])
@pytest.mark.parametrize("texts_at_once", [2, 1024])
def test_all_labels_against_brute_force(scores_at_once: int, texts_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is held at a time."""
    monkeypatch.setattr(all_labels, "SCORES_AT_ONCE", scores_at_once)
    monkeypatch.setattr(scorers, "TEXTS_AT_ONCE", texts_at_once)
    random = np.random.default_rng(0)
    texts, vectors, bias = (random.normal(size=size).astype(np.float32) for size in ((5, 8), (33, 8), (33,)))
    found = scorer(Known(texts.tolist()), vectors.tolist(), bias.tolist())
    ids, scores = found.top_k(rows(0, 1, 2, 3, 4), k=7)
    expected = texts @ vectors.T + bias
    best = np.argsort(-expected, axis=1)[:, :7]
    assert ids.tolist() == best.tolist()
    assert np.allclose(scores, sigmoid(np.take_along_axis(expected, best, axis=1)), atol=1e-6)
    for numbers in (torch.float32, torch.bfloat16):  # as a GPU does it
        monkeypatch.setattr(all_labels, "matrix_type", lambda device, numbers=numbers: numbers)
        ids, scores = found.all_labels._scored(torch.from_numpy(texts), 7)
        assert ids.tolist() == best.tolist()
        assert np.allclose(scores, np.take_along_axis(expected, best, axis=1), atol=1e-5)


def test_a_trained_model_against_brute_force() -> None:
    model, data = trained("default"), spelled_out()
    assert model.trained is not None and data.test.texts is not None
    (one,) = model.trained.scorers
    assert one.bias is not None
    tokens = model.trained.tokenizer(data.test.texts)
    texts = one.network.encode(tokens.batch()).numpy()
    expected = texts @ one.vectors.numpy().T + one.bias.numpy()
    found = model.predict(data.test.texts, k=5)
    assert np.allclose(found.scores, -np.sort(-sigmoid(expected), axis=1)[:, :5], atol=1e-6)
    assert np.allclose(np.take_along_axis(sigmoid(expected), found.ids.astype(np.int64), axis=1), found.scores, atol=1e-6)


@pytest.mark.parametrize("n_texts", [1, 3, 80])
def test_removed_labels_are_not_found(n_texts: int) -> None:
    """With biases and without; and where fewer are left than are wanted, places stay empty."""
    random = np.random.default_rng(0)
    texts, vectors, bias = (random.normal(size=size).astype(np.float32) for size in ((n_texts, 8), (33, 8), (33,)))
    for own in (bias, None):
        expected = texts @ vectors.T + (0 if own is None else own)
        gone = np.argsort(-expected[0])[:30]
        plain = scorer(Known(texts.tolist()), vectors.tolist(), None if own is None else own.tolist())
        ids, scores = plain.without(torch.from_numpy(gone)).top_k(rows(*range(n_texts)), k=5)
        expected[:, gone] = -np.inf
        assert ids.tolist() == [[*order[:3], -1, -1] for order in np.argsort(-expected, axis=1).tolist()]
        assert (scores[:, :3] > 0).all() and not scores[:, 3:].any()


# ---- by clusters


def by_clusters(beam: int, graph: Neighbours | None = None) -> Scorer:
    """Labels 0 and 3 in cluster 0, 1 and 2 in cluster 1; a text has another vector for clusters than for labels."""
    network = Known(labels=[[1.0, 0.0], [0.0, 1.0]], clusters=[[2.0, 0.0], [0.0, 1.0]])
    index = ClusterIndex(torch.eye(2), torch.tensor([0.0, 1.0]), torch.tensor([[0, 3], [1, 2]]), None, beam)
    return scorer(network, [[1, 0], [3, 0], [0, 2], [-1, 1]], [0, 0, 0, -2], ClusterRetrieval(index, graph))


# text 0: clusters score 2 and 1, labels 1, 3, 0, -3; text 1: clusters 0 and 2, labels 0, 0, 2, -1
JOINT = sigmoid(np.array([[2, 1, 1, 2], [0, 2, 2, 0]])) * sigmoid(np.array([[1, 3, 0, -3], [0, 0, 2, -1]]))


def test_scores_by_clusters_are_products_of_chances() -> None:
    ids, scores = by_clusters(beam=2).top_k(rows(0, 1), k=4)
    for row in range(2):
        assert ids[row].tolist() == np.argsort(-JOINT[row]).tolist()
        assert np.allclose(scores[row], np.sort(JOINT[row])[::-1])


def test_labels_outside_the_beam_are_not_found() -> None:
    ids, scores = by_clusters(beam=1).top_k(rows(0, 1), k=4)
    assert ids.tolist() == [[0, 3, -1, -1], [2, 1, -1, -1]]
    assert np.allclose(scores, [[*JOINT[0, [0, 3]], 0, 0], [*JOINT[1, [2, 1]], 0, 0]])


def test_game_passes_scores_of_labels_on_by_hand() -> None:
    """r = G r~: label 3 receives half of label 1; label 0 itself and a quarter of label 2; 1 and 2 themselves."""
    weights = csr_matrix(np.array([[1, 0, 0.25, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0.5, 0, 0]], np.float32))
    ids, scores = by_clusters(beam=2, graph=Neighbours.of(weights, 10, CPU)).top_k(rows(0), k=4)
    own = sigmoid(np.array([1, 3, 0, -3]))
    retrieved = np.array([own[0] + 0.25 * own[2], own[1], own[2], 0.5 * own[1]]) * sigmoid(np.array([2, 1, 1, 2]))
    assert ids[0].tolist() == np.argsort(-retrieved).tolist()
    assert np.allclose(scores[0], np.sort(retrieved)[::-1])


def test_game_leaves_labels_outside_the_shortlist_out() -> None:
    """Label 1 passes all it has to label 0; with cluster 0 alone it is not there to speak."""
    weights = csr_matrix(np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32))
    ids, scores = by_clusters(beam=1, graph=Neighbours.of(weights, 10, CPU)).top_k(rows(0), k=4)
    assert ids[0].tolist() == [0, 3, -1, -1]
    assert np.allclose(scores[0, :2], JOINT[0, [0, 3]])


def test_game_finds_as_many_labels_as_are_asked_for() -> None:
    """More than the best few, whose scores are passed on."""
    n_labels = 4 * GAME_SPEAKERS
    index = ClusterIndex(torch.ones(2, 2), None, torch.arange(n_labels).view(2, -1), None, beam=2)
    alone = Neighbours.of(csr_matrix(np.eye(n_labels, dtype=np.float32)), 10, CPU, share=0.5)
    vectors = np.random.default_rng(0).normal(size=(n_labels, 2)).tolist()
    without, passed = (scorer(Known([[1.0, 0.0]]), vectors, None, ClusterRetrieval(index, graph)) for graph in (None, alone))
    ids, scores = passed.top_k(rows(0), k=3 * GAME_SPEAKERS)
    assert ids.tolist() == without.top_k(rows(0), k=3 * GAME_SPEAKERS)[0].tolist() and (scores > 0).all()


def test_scores_after_game_are_at_most_one() -> None:
    everything = Neighbours.of(csr_matrix(np.ones((4, 4), np.float32)), 10, CPU)
    found = predict([Member(TOKENIZER, [by_clusters(beam=2, graph=everything)])], Texts.of(["zero", "one"]), 4, CPU)
    assert found.scores.max() == 1.0 and (np.diff(found.scores, axis=1) <= 0).all()


def test_clusters_are_searched_with_the_encoder_they_were_learnt_with() -> None:
    """DECAF and ECLARE begin their last stage with a fresh encoder, for labels alone."""
    for recipe in ("decaf", "eclare"):
        model = trained(recipe)
        assert model.trained is not None
        network = model.trained.scorers[0].network
        tokens = model.trained.tokenizer(["morv nalk bush ment"])
        batch = tokens.batch()
        assert network.cluster_encoder is not None
        with torch.no_grad():
            own = network.cluster_encoder(batch, network.table.weight)
        assert torch.equal(network.encode(batch, "clusters"), own)
        assert not torch.allclose(network.encode(batch, "labels"), own)


# ---- fused


def fused(shortlist: int, beta: float) -> Scorer:
    centroids = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    return scorer(Known([[2.0, 0.0]]), [[0, 1], [2, 0], [1, 0]], None, FusedRetrieval(centroids, shortlist, beta))


@pytest.mark.parametrize("beta", [0.0, 0.25, 1.0])
def test_classifier_and_nearness_are_fused_by_hand(beta: float) -> None:
    chances, nearness = sigmoid(np.array([0, 4, 2])), sigmoid(np.array([1, 0, 0.6]))  # products, and cosines with (1, 0)
    expected = beta * chances / chances.max() + (1 - beta) * nearness / nearness.max()
    ids, scores = fused(shortlist=3, beta=beta).top_k(rows(0), k=3)
    assert ids[0].tolist() == np.argsort(-expected).tolist()
    assert np.allclose(scores[0], np.sort(expected)[::-1])


def test_only_the_nearest_are_fused() -> None:
    chances, nearness = sigmoid(np.array([0, 2])), sigmoid(np.array([1, 0.6]))  # labels 0 and 2 are nearest
    expected = 0.5 * chances / chances.max() + 0.5 * nearness / nearness.max()
    ids, scores = fused(shortlist=2, beta=0.5).top_k(rows(0), k=3)
    assert ids[0].tolist() == [2, 0, -1]
    assert np.allclose(scores[0], [expected[1], expected[0], 0])


# ---- texts in, predictions out


def test_an_ensemble_takes_the_mean_of_log_odds() -> None:
    one = scorer(Known([[1.0], [0.0], [0.0]]), [[1], [2], [-1]])
    other = scorer(Known([[0.0], [0.0], [1.0]]), [[3], [0], [1]], bias=[0, 0, 4])
    found = predict([Member(TOKENIZER, [one, other])], Texts.of(["zero", "two"]), 3, CPU)
    first, second = np.array([1 + 0, 2 + 0, -1 + 4]), np.array([0 + 3, 0 + 0, 0 + 5])
    for row, expected in enumerate((sigmoid(first / 2), sigmoid(second / 2))):
        assert found.ids[row].tolist() == np.argsort(-expected).tolist()
        assert np.allclose(found.scores[row], np.sort(expected)[::-1])


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_scores_of_networks_are_added_up_as_by_a_dictionary(data: st.DataObject) -> None:
    entries = st.tuples(st.integers(-1, 5), st.integers(0, 8))
    said = data.draw(st.lists(st.lists(entries, min_size=6, max_size=6), min_size=1, max_size=4))
    k = data.draw(st.integers(1, 8))
    both = np.array(said)
    ids, scores = best_sums(both[..., 0].astype(np.int64), (both[..., 1] / 8).astype(np.float32), k)
    for row, pairs in enumerate(said):
        sums = {label: sum(value / 8 for other, value in pairs if other == label) for label, _ in pairs if label >= 0}
        wanted = sorted(((label, value) for label, value in sums.items() if value > 0), key=lambda pair: (-pair[1], pair[0]))[:k]
        wanted += [(-1, 0)] * (k - len(wanted))
        assert list(zip(ids[row].tolist(), scores[row].tolist(), strict=True)) == wanted


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_known_and_what_is_computed_as_by_loops(data: st.DataObject) -> None:
    named = st.lists(st.integers(-1, 9), min_size=5, max_size=5)
    asked = data.draw(st.lists(named, min_size=1, max_size=4))
    ids = np.array(asked, np.int64)
    once, most = each_once(ids)
    assert [[label for label in row if label >= 0] for row in once.tolist()] == [sorted(set(row) - {-1}, reverse=True) for row in asked]
    assert most == max(len(set(row) - {-1}) for row in asked)
    dice = np.random.default_rng(0)
    texts, vectors = dice.random((len(ids), 4), np.float32), dice.random((10, 4), np.float32)
    for bias in (np.zeros(0, np.float32), dice.random(10, np.float32)):
        whole = texts @ vectors.T + (bias if len(bias) else 0)
        known_ids = np.tile(np.array([[7, 2, -1]]), (len(ids), 1))
        known = np.tile(np.array([[70.0, 20.0, -np.inf]], np.float32), (len(ids), 1))  # differs from what would be computed
        scores = scores_at(once, known_ids, known, texts, vectors, bias)
        for row, labels in enumerate(once.tolist()):
            wanted = [0.0 if label < 0 else {7: 70.0, 2: 20.0}.get(label, whole[row, max(0, label)]) for label in labels]
            assert scores[row].tolist() == pytest.approx(wanted, rel=1e-5)
            kept = sorted((-np.float32(score), label) for score, label in zip(scores[row], labels, strict=True) if label >= 0)[:3]
            best, levels = best_named(once[row : row + 1], scores[row : row + 1], 3)
            assert best[0].tolist() == [label for _, label in kept] + [-1] * (3 - len(kept))
            assert levels[0].tolist() == [-score for score, _ in kept] + [-np.inf] * (3 - len(kept))


def test_what_one_of_an_ensemble_names_is_put_to_the_others() -> None:
    many = 40  # of which each names 24
    one = scorer(Known([[1.0]]), [[float(label)] for label in range(many)])
    other = scorer(Known([[1.0]]), [[-1.5 * label] for label in range(many)])
    found = predict([Member(TOKENIZER, [one, other])], Texts.of(["zero"]), 1, CPU)
    assert found.ids[0].tolist() == [0] and found.scores[0, 0] == pytest.approx(0.5)  # the first has it last: (0 - 0) / 2


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_concatenated_networks_against_brute_force(data: st.DataObject) -> None:
    """Members of one or two networks each, of any weights, slopes and dimensions, with and without biases and removed labels."""
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    n_labels, gone = 12, data.draw(st.lists(st.integers(0, 11), max_size=3))
    members, levels, alone = [], np.zeros((len(WORDS), n_labels)), data.draw(st.booleans())
    for _ in range(1 if alone else data.draw(st.integers(2, 3))):
        n_networks, weight, offset = data.draw(st.integers(2 if alone else 1, 3)), random.random() + 0.1, random.normal()
        scorers = []
        for _ in range(n_networks):
            dim, has_bias = int(random.integers(1, 5)), bool(random.integers(2))
            texts, vectors = random.normal(size=(len(WORDS), dim)), random.normal(size=(n_labels, dim))
            bias = random.normal(size=n_labels) if has_bias else np.zeros(n_labels)
            one = scorer(Known(texts.tolist()), vectors.tolist(), bias=bias.tolist() if has_bias else None)
            one = replace(one, slope=float(random.normal()), offset=float(random.normal()))
            scores = texts @ vectors.T + bias
            levels += (one.slope * scores + one.offset if alone else weight * scores) / n_networks
            scorers.append(one.without(torch.tensor(gone)) if gone else one)
        levels += 0 if alone else offset
        members.append(Member(TOKENIZER, scorers, weight, offset))
    levels[:, gone] = -np.inf
    k = data.draw(st.integers(1, n_labels))
    found = predict(members, Texts.of(WORDS), k, CPU)
    wanted = -np.sort(-levels, axis=1)[:, :k]
    assert ((found.ids == -1) == np.isneginf(wanted)).all()
    assert np.allclose(np.where(found.ids < 0, 0, found.scores), sigmoid(wanted), atol=1e-5)
    assert np.allclose(np.take_along_axis(levels, np.maximum(found.ids, 0), axis=1)[found.ids >= 0], wanted[found.ids >= 0], atol=1e-4)


def test_one_member_that_is_left_of_several_has_its_weight() -> None:
    one = scorer(Known([[1.0], [0.0], [0.0]]), [[1], [2], [-1]])
    members = [Member(TOKENIZER, [one], weight=0.0, offset=0.5), Member(TOKENIZER, [one], weight=2.0)]
    found = predict(members, Texts.of(["zero"]), 3, CPU)
    assert found.ids.tolist() == [[1, 0, 2]]
    assert np.allclose(found.scores[0], sigmoid(0.5 + 2 * np.array([2.0, 1.0, -1.0])))


def test_networks_with_the_same_tokens_tokenise_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(Tokenizer, "__call__", lambda self, texts, read=Tokenizer.__call__: asked.append(len(texts)) or read(self, texts))
    one = scorer(Known([[1.0], [0.0], [0.0]]), [[1], [2], [-1]])
    predict([Member(TOKENIZER, [one, one]), Member(TOKENIZER, [one])], Texts.of(["zero", "two"]), 3, CPU)
    assert asked == [2]


def test_an_ensemble_of_beams_counts_what_one_did_not_find_as_nothing() -> None:
    found = predict([Member(TOKENIZER, [by_clusters(beam=1), by_clusters(beam=2)])], Texts.of(["zero"]), 4, CPU)
    expected = (JOINT[0] + JOINT[0] * np.array([1, 0, 0, 1])) / 2
    assert found.ids[0].tolist() == np.argsort(-expected).tolist()
    assert np.allclose(found.scores[0], np.sort(expected)[::-1])


def test_empty_places_and_no_texts() -> None:
    found = predict([Member(TOKENIZER, [by_clusters(beam=1)])], Texts.of(["zero"]), 3, CPU)
    assert found.ids.dtype == np.int32 and found.ids.tolist() == [[0, 3, -1]]
    assert found.scores.dtype == np.float32 and found.scores[0, 2] == -np.inf
    nothing = predict([Member(TOKENIZER, [by_clusters(beam=1)])], Texts.of([]), 3, CPU)
    assert nothing.ids.shape == nothing.scores.shape == (0, 3)


def test_many_texts_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = Texts.of([WORDS[place % 2] for place in range(50)])
    whole = predict([Member(TOKENIZER, [by_clusters(beam=2)])], texts, 3, CPU)
    monkeypatch.setattr(scorers, "TEXTS_AT_ONCE", 2)  # 16 texts are tokenized at a time, and 2 are encoded
    parts = predict([Member(TOKENIZER, [by_clusters(beam=2)])], texts, 3, CPU)
    assert parts.ids.tolist() == whole.ids.tolist() and parts.scores.tolist() == whole.scores.tolist()


@pytest.mark.parametrize("recipe", registry.recipes())
def test_what_every_model_answers(recipe: str) -> None:
    model = trained(recipe)
    label = (spelled_out().label_texts or Texts.of([]))[4]
    texts = [label, "", "unknownword", f"{label} {label}", "日本 🍐 \ud800"]
    found = model.predict(texts, k=3)
    assert found.ids.shape == (5, 3) and found.texts[0][0] == label
    assert (found.ids >= 0).all() and (found.scores >= 0).all() and (found.scores <= 1).all()
    assert (np.diff(found.scores, axis=1) <= 0).all()
    alone = [model.predict([text], k=3).ids[0].tolist() for text in texts]
    assert alone == found.ids.tolist()  # an answer does not depend on the texts around it
    assert model.predict(texts, k=1).ids.tolist() == found.ids[:, :1].tolist()
    assert model.predict(texts, k=1000).ids.shape == (5, N_LABELS)
    assert model.predict([], k=3).ids.shape == (0, 3)
    assert model.predict(Texts.of(texts), k=3).ids.tolist() == found.ids.tolist()


def test_what_cannot_be_asked() -> None:
    model = trained("default")
    with pytest.raises(SettingError, match=r"^One text came where a list of texts was wanted; type predict\(\[text\]\)[.]"):
        model.predict("one string")
    with pytest.raises(SettingError, match="^k came as 0; wanted 1 or more"):
        model.predict(["x"], k=0)
    with pytest.raises(DataError, match="Texts came with 7"):
        model.predict([7])  # type: ignore[list-item]
    fresh = small_model("default")
    assert repr(fresh) == "XMC('default', not trained)"
    for ask in (lambda: fresh.predict(["x"]), lambda: fresh.save("x"), lambda: fresh.history, lambda: fresh.megabytes):
        with pytest.raises(SettingError, match="^This model is not trained yet; call fit, or XMC.load a folder[.]"):
            ask()


def test_places_enough_for_the_filter() -> None:
    """So many labels are asked for that the filter leaves ten, where there are so many."""
    data = spelled_out()
    pairs = np.array([[3, label] for label in range(12)], np.int32)
    filtered = replace(data, test=replace(data.test, filter=pairs))
    model = trained("default")
    assert model.predict_test(filtered, k=5).k == 22
    assert model.predict_test(data, k=5).k == 10
    assert model.predict_test(data).k == N_LABELS
    with pytest.raises(DataError, match="spelled has no texts of test rows to predict for"):
        model.predict_test(replace(data, test=replace(data.test, texts=None)))


# ---- the command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predict") / "model"
    trained("default").save(path)
    return path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_bytes('morv nalk\r\n\nunbekannt, näml"ich [/b] [red]\n'.encode())
    return path


LINES = ["morv nalk", "", 'unbekannt, näml"ich [/b] [red]']


def check_json_lines(written: str, model: XMC, k: int) -> None:
    found = model.predict(LINES, k)
    answers = [json.loads(line) for line in written.splitlines()]
    assert [answer["text"] for answer in answers] == LINES
    assert [answer["labels"] for answer in answers] == found.texts
    assert [answer["ids"] for answer in answers] == found.ids.tolist()
    assert np.allclose([answer["scores"] for answer in answers], found.scores, atol=1e-4)


def test_json_lines_of_a_file(folder: Path, texts: Path, command: Command, tmp_path: Path) -> None:
    out, _ = command.run("predict", folder, texts, "-k", "2")
    check_json_lines(out, trained("default"), 2)
    out, err = command.run("predict", folder, texts, "--out", tmp_path / "found.jsonl")
    assert out == "" and err == f"Wrote labels of 3 texts to {tmp_path / 'found.jsonl'}.\n"
    check_json_lines((tmp_path / "found.jsonl").read_text(), trained("default"), 5)


def test_json_lines_of_standard_input(folder: Path, texts: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(texts) as file:
        monkeypatch.setattr(sys, "stdin", file)
        out, _ = command.run("predict", folder, "-k", "3")
    check_json_lines(out, trained("default"), 3)


def test_csv(folder: Path, texts: Path, command: Command, tmp_path: Path) -> None:
    out, _ = command.run("predict", folder, texts, "-k", "2", "--form", "csv")
    command.run("predict", folder, texts, "-k", "2", "--out", tmp_path / "found.csv")
    assert (tmp_path / "found.csv").read_bytes().decode() == out.replace("\r\n", "\n").replace("\n", "\r\n")
    header, *lines = csv.reader(io.StringIO(out))
    found = trained("default").predict(LINES, k=2)
    assert header == ["text", "rank", "label", "id", "score"]
    assert [(line[0], int(line[1]), line[2], int(line[3])) for line in lines] == [
        (text, rank + 1, found.texts[row][rank], found.ids[row, rank]) for row, text in enumerate(LINES) for rank in range(2)
    ]
    assert np.allclose([float(line[4]) for line in lines], found.scores.ravel(), atol=1e-4)


def test_tables_show_brackets_as_they_are(folder: Path, texts: Path, command: Command, tmp_path: Path) -> None:
    out, _ = command.run("predict", folder, texts, "-k", "2", "--form", "table")
    assert LINES[2] in " ".join(out.split()) and "0.9" in out and "█" in out
    assert [line for line in out.splitlines() if line.startswith("morv nalk")]
    out, _ = command.run("predict", folder, texts, "-k", "2", "--form", "table", "--out", tmp_path / "found.txt")
    assert out == "" and LINES[2] in " ".join((tmp_path / "found.txt").read_text().split())


def test_no_texts(folder: Path, command: Command, tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("")
    assert command.run("predict", folder, tmp_path / "none.txt")[0] == ""


def test_encodings(folder: Path, command: Command, tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"gut\n" * 3000 + "nämlich\n".encode("latin-1") + b"gut\n")
    line = command.fails("predict", folder, path)
    assert line == f"longtail: {path}:3001: not in utf-8; type --encoding latin-1, or whatever it is in."
    out, _ = command.run("predict", folder, path, "--encoding", "latin-1", "-k", "1")
    assert json.loads(out.splitlines()[3000])["text"] == "nämlich"
    path.write_text("nämlich\n日本\n", encoding="utf-16")
    out, _ = command.run("predict", folder, path, "--encoding", "utf-16", "-k", "1")
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["nämlich", "日本"]
    path.write_bytes(path.read_bytes()[:-1])
    assert "not in utf-16" in command.fails("predict", folder, path, "--encoding", "utf-16")
    assert "No encoding called 'klingon'" in command.fails("predict", folder, path, "--encoding", "klingon")


def test_nothing_is_left_of_answers_that_broke_off(folder: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\n")
    command.fails("predict", folder, tmp_path / "bad.txt", "--out", tmp_path / "found.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.txt"]
    with open(tmp_path / "bad.txt") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert "longtail: standard input:2: not in utf-8" in command.fails("predict", folder)


def test_what_the_command_refuses(folder: Path, texts: Path, command: Command, tmp_path: Path) -> None:
    assert "nowhere.txt is not there; wanted a file with a text a line" in command.fails("predict", folder, tmp_path / "nowhere.txt")
    assert "-k is 0; wanted 1 or more" in command.fails("predict", folder, texts, "-k", "0")
    assert "'xml' came as the form of predictions; wanted one of table, jsonl, csv" in command.fails(
        "predict", folder, texts, "--form", "xml"
    )
    assert "'txt' came as the form" in command.fails("predict", folder, texts, "--out", tmp_path / "found.txt")
    assert "is not a model folder: model.json is missing" in command.fails("predict", tmp_path, texts)
    assert "'gpu' came as the device; wanted cpu or cuda" in command.fails("predict", folder, texts, "--device", "gpu")


def test_a_model_answers_in_every_way_it_was_trained_for() -> None:
    model, text = trained("decaf"), ["morv nalk bush ment"]
    assert model.trained is not None
    exact = model.trained.scorers[0].by("all").top_k(model.trained.tokenizer(text), 2)[0]
    assert model.predict(text, k=2, by="all").ids.tolist() == exact.tolist()
    assert model.predict(text, k=2, by="clusters").ids.tolist() == model.predict(text, k=2).ids.tolist()
    with pytest.raises(SettingError, match="cannot predict by 'fused', for which it was not trained; wanted one of all, clusters[.]"):
        model.predict(text, by="fused")
    with pytest.raises(UnknownName, match="No way to predict called 'cluster'. Did you mean 'clusters'"):
        model.predict(text, by="cluster")

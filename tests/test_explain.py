"""Explanations: parts and tokens add up to the score, by hand where one can; rows and paths in the graph are the right ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from longtail import XMC
from longtail.core.errors import SettingError
from longtail.data.graph.search import strongest_path
from longtail.models.encoders.bag import BagEncoder
from longtail.storage.model_folder import ROWS
from tests.spelled import N_LABELS, label_names, small_model, spelled_out, trained
from tests.tensors import same_numbers as same_numbers

NAMES = label_names(N_LABELS)
TEXT = f"{NAMES[4]} {NAMES[18]}"


def close(value: float) -> object:
    return pytest.approx(value, abs=1e-4)


def test_a_bag_by_hand() -> None:
    """default: x = r + relu(W r + b) with r = relu(sum of tokens), scored as <x, text part> + <x, free part> + bias."""
    model = trained("default")
    stored = model.trained
    assert stored is not None
    scorer, tokenizer = stored.scorers[0], stored.tokenizer
    encoder = scorer.network.encoder
    assert isinstance(encoder, BagEncoder) and encoder.block is not None and scorer.bias is not None
    weight, shift = encoder.block.weight.detach().numpy(), encoder.block.bias.detach().numpy()
    table = scorer.network.table.weight.detach().numpy()
    rows = tokenizer([TEXT])
    summed = rows.weights.numpy() @ table[rows.ids.numpy()]
    first = summed > 0
    second = weight @ (summed * first) + shift > 0
    vector = scorer.vectors[4].numpy()
    back = first * (vector + weight.T @ (second * vector))  # what a change of the sum changes
    wanted: dict[str, float] = {}
    for token, share in zip(rows.ids.tolist(), rows.weights.tolist(), strict=True):
        name = tokenizer.names()[token]
        wanted[name] = wanted.get(name, 0.0) + float(share * table[token] @ back)
    why = model.explain(TEXT, 4)
    assert {token.name: token.brings for token in why.tokens} == pytest.approx(wanted, abs=1e-4)
    assert why.rest == close(float((second * shift) @ vector) + float(scorer.bias[4]))
    text = summed * first + second * (weight @ (summed * first) + shift)
    own = tokenizer([NAMES[4]])
    by_text = float(text @ (own.weights.numpy() @ table[own.ids.numpy()]))
    assert [part.name for part in why.parts] == ["text", "free"]
    assert [part.brings for part in why.parts] == [close(by_text), close(float(text @ vector) - by_text)]
    assert why.parts[0].share == close(abs(by_text) / (abs(by_text) + abs(float(text @ vector) - by_text)))
    assert why.evidence == close(float(text @ vector) + float(scorer.bias[4])) and why.bias == close(float(scorer.bias[4]))


@pytest.mark.parametrize("recipe", ["default", "eclare", "decaf", "siamesexml", "renee", "inceptionxml"])
def test_everything_adds_up_to_the_evidence(recipe: str) -> None:
    model = trained(recipe)
    for label in (4, 11):
        why = model.explain(TEXT, label)
        assert sum(part.brings for part in why.parts) + why.bias == close(why.evidence)
        assert sum(token.brings for token in why.tokens) + why.rest == close(why.evidence)
        assert sum(part.share for part in why.parts) == close(1.0)
        found = model.predict([TEXT], N_LABELS)
        if why.place is not None:
            assert found.ids[0, why.place - 1] == label and why.score == pytest.approx(float(found.scores[0, why.place - 1]))
    if recipe in ("default", "renee"):  # the score is the evidence as a chance
        # all labels may be scored with fewer digits
        assert why.score == pytest.approx(1 / (1 + np.exp(-why.evidence)), abs=5e-3)


@pytest.mark.parametrize("recipe", ["default", "eclare", "siamesexml", "renee"])
def test_the_words_of_a_label_bring_it_most(recipe: str) -> None:
    why = trained(recipe).explain(TEXT, NAMES[4])
    assert why.label == 4 and why.label_text == NAMES[4]
    best = {token.name for token in sorted(why.tokens, key=lambda token: -token.brings)[:2]}
    assert best <= {token.name for token in why.tokens if token.in_label}
    assert {token.name for token in why.tokens if token.in_label} >= set(NAMES[4].split())
    assert not {token.name for token in why.tokens if token.in_label} & set(NAMES[18].split())
    brings = [abs(token.brings) for token in why.tokens]
    assert brings == sorted(brings, reverse=True)


def test_leaving_a_word_out_by_hand() -> None:
    model = trained("inceptionxml")
    stored = model.trained
    assert stored is not None
    words = TEXT.split()
    vector = stored.scorers[0].vectors[4]

    def product(text: str) -> float:
        return float(stored.scorers[0].encode(stored.tokenizer([text]))[0] @ vector)

    why = model.explain(TEXT, 4)
    for place, word in enumerate(words):
        without = " ".join(words[:place] + words[place + 1 :])
        assert next(token.brings for token in why.tokens if token.name == word) == close(product(TEXT) - product(without))


def test_attention_is_read_from_the_folder(tmp_path: Path) -> None:
    model = small_model("eclare", "stages.2.epochs=2").fit(spelled_out())
    model.save(tmp_path / "model")
    before, after = model.explain(TEXT, 4), XMC.load(tmp_path / "model", device="cpu").explain(TEXT, 4)
    assert [part.name for part in after.parts] == ["text", "graph", "free"]
    assert stored_attention(model) == pytest.approx([part.share for part in before.parts], abs=1e-5)
    assert [part.share for part in after.parts] == pytest.approx([part.share for part in before.parts], abs=1e-5)


def stored_attention(model: XMC) -> list[float]:
    """Of label 4, by the modules that trained it."""
    assert model.trained is not None
    network = model.trained.scorers[0].network
    tower = network.tower("labels")
    seen: list[torch.Tensor] = []
    tower.mix.register_forward_pre_hook(lambda module, parts: seen.extend(parts[0]))
    with torch.no_grad():
        network.all_label_vectors("labels")
        return tower.mix.weights(seen)[4].tolist()  # type: ignore[operator, no-any-return]


def test_an_added_label_and_one_that_is_gone() -> None:
    model = small_model("default", "epochs=2").fit(spelled_out())
    words = f"{NAMES[0].split()[0]} {NAMES[12].split()[1]}"
    (label,) = model.add_labels([words])
    why = model.explain(words, label)
    assert [part.name for part in why.parts] == ["text", "neighbours"] and why.rows == ()
    assert sum(part.brings for part in why.parts) + why.bias == close(why.evidence)
    model.remove_labels([3])
    with pytest.raises(SettingError, match="Label 3 is removed"):
        model.explain(TEXT, 3)


def test_training_rows_that_carry_the_label(tmp_path: Path) -> None:
    model, data = small_model("default", "epochs=2"), spelled_out()
    model.fit(data)
    why = model.explain(TEXT, 4)
    assert data.train.texts is not None and len(why.rows) == 3
    for row in why.rows:
        place = list(data.train.texts).index(row.text)
        assert 4 in data.train.labels[place].indices
    cosines = [row.cosine for row in why.rows]
    assert cosines == sorted(cosines, reverse=True)
    own = data.train.texts[int(data.train.labels[:, 4].nonzero()[0][0])]
    assert model.explain(own, 4).rows[0].text == own and model.explain(own, 4).rows[0].cosine == close(1.0)
    # kept where asked for, and read again
    model.save(tmp_path / "without")
    assert not (tmp_path / "without" / ROWS).exists() and XMC.load(tmp_path / "without").explain(TEXT, 4).rows == ()
    model.save(tmp_path / "with", rows=True)
    assert XMC.load(tmp_path / "with").explain(TEXT, 4).rows == why.rows
    shutil.copytree(tmp_path / "with", tmp_path / "damaged")
    (tmp_path / "damaged" / ROWS).write_bytes(b"nonsense")
    assert XMC.load(tmp_path / "damaged").predict([TEXT]).ids.shape == (1, 5)


def test_rows_that_are_many_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.storage.open_model.MAX_ROW_BYTES", 100)
    model = XMC(trained("default").recipe, device="cpu")
    model.trained, model._rows = trained("default").trained, (spelled_out().train.texts or [], spelled_out().train.labels)  # type: ignore[assignment]
    model.save(tmp_path / "model", rows=True)
    assert not (tmp_path / "model" / ROWS).exists()


def test_the_strongest_path_in_the_graph() -> None:
    """From 3 to 0: over 1 with 0.5 * 0.4 = 0.2, straight with 0.1, over 2 with 0.9 * 0.3 = 0.27."""
    graph = np.zeros((5, 5), np.float32)
    graph[0, 1], graph[1, 3], graph[0, 3], graph[0, 2], graph[2, 3] = 0.5, 0.4, 0.1, 0.9, 0.3
    weights = csr_matrix(graph)
    assert strongest_path(weights, [3], 0) == [(3, 1.0), (2, pytest.approx(0.3)), (0, pytest.approx(0.9))]
    assert strongest_path(weights, [3, 1], 0) == [(1, 1.0), (0, pytest.approx(0.5))]  # the nearer of two
    assert strongest_path(weights, [0], 3) == []  # edges have a direction
    assert strongest_path(weights, [4], 0) == [] and strongest_path(weights, [], 0) == []


def test_a_model_with_a_graph_shows_a_path() -> None:
    model = trained("eclare")
    assert model.trained is not None and model.trained.graph is not None
    why = model.explain(TEXT, 4)
    assert why.path[-1].label == 4 and why.path[-1].text == NAMES[4] and why.path[0].weight == 1.0
    assert why.path[0].label in model.predict([TEXT], 6).ids[0].tolist()
    for one, other in zip(why.path, why.path[1:], strict=False):
        assert model.trained.graph.weights[other.label, one.label] == pytest.approx(other.weight, abs=1e-5)
    assert trained("default").explain(TEXT, 4).path == ()


def test_it_prints_itself() -> None:
    shown = str(trained("eclare").explain(TEXT))
    for piece in (f"{TEXT}  ->  ", "place 1", "evidence", "text (", "graph (", "bias", "tokens of the text", " *", "by the label graph"):
        assert piece in shown, shown
    assert all(line == line.rstrip() and len(line) < 200 for line in shown.split("\n"))


def test_what_cannot_be_explained() -> None:
    model = trained("default")
    with pytest.raises(SettingError, match="No label of the model is called 'nobody'"):
        model.explain(TEXT, "nobody")
    with pytest.raises(SettingError, match="Label 24 is outside 0..23 of the model"):
        model.explain(TEXT, 24)
    with pytest.raises(SettingError, match="came as a text to explain"):
        model.explain(["a"], 0)  # type: ignore[arg-type]
    for text in ("", "日本"):
        why = model.explain(text, 2)
        assert why.tokens == () and sum(part.brings for part in why.parts) + why.bias == close(why.evidence)

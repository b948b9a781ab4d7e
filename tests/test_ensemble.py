"""Several recipes that answer together: how their scores are added up, stacking weights, and that a folder keeps them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail import XMC, Dataset
from longtail.core.errors import DataError
from longtail.inference import stacking
from longtail.inference.ensemble import Member, candidates_of, mean_of, predict
from longtail.inference.retrieval import RetrievedShortlist
from longtail.inference.search import labels as search_labels
from longtail.inference.stacking import with_stacking_weights
from longtail.inference.stacking_weights import fit_stacking_weights
from longtail.recipes import fit
from tests.spelled import SMALL, of_member, share_found, small_model, spelled_out
from tests.tensors import same_numbers as same_numbers

OWN = """
validation = 0.2
[encoder]
kind = "bag"
dim = 32
[labels]
parts = ["text", "free"]
[[stages]]
epochs = 6
batch_size = 16
learning_rate = 0.02
"""


def test_the_mean_of_scores_of_which_what_nobody_names_is_nothing() -> None:
    one = torch.tensor([[3, 1]]), torch.tensor([[0.8, 0.4]])
    other = torch.tensor([[1, 2]]), torch.tensor([[0.9, 0.6]])
    ids, scores = mean_of([one, other], 3)
    assert ids.tolist() == [[1, 3, 2]]
    assert scores[0].tolist() == pytest.approx([(0.4 + 0.9) / 2, 0.8 / 2, 0.6 / 2])


def test_every_label_that_was_found_is_named_once() -> None:
    found = [torch.tensor([[3, 1], [2, -1]]), torch.tensor([[1, 2], [2, -1]])]
    retrieved = [[RetrievedShortlist(ids, torch.zeros(2, 2))] for ids in found]
    assert candidates_of(retrieved).tolist() == [[3, 2, 1], [2, -1, -1]]


def test_what_clusters_did_not_find_has_as_little_evidence_as_the_last_they_did() -> None:
    retrieved = RetrievedShortlist(torch.tensor([[4, 2, -1]]), torch.tensor([[0.9, 0.2, 0.0]]))
    least = torch.logit(torch.tensor(1e-6)).item()
    logits = [torch.logit(torch.tensor(chance)).item() for chance in (0.2, 0.9)]
    assert retrieved.evidence(torch.tensor([[2, 7, 4]]))[0].tolist() == pytest.approx([logits[0], least, logits[1]], rel=1e-4)


def recipe_file(folder: Path, *members: str) -> Path:
    """own.toml with these [[members]], and other.toml, which is half as wide and has none."""
    (folder / "other.toml").write_text(OWN.replace("validation = 0.2", "").replace("dim = 32", "dim = 16"))
    (folder / "own.toml").write_text(OWN + "".join(f"[[members]]\n{member}\n" for member in members))
    return folder / "own.toml"


def with_member(recipe: str, member: str) -> XMC:
    """A small recipe with another as its member, both as small as they can be."""
    return small_model(recipe, "validation=0.2", f'members=[{{base="{member}"}}]', *of_member(0, SMALL[member]))


def test_members_are_trained_stacked_and_kept(tmp_path: Path) -> None:
    data = spelled_out()
    model = XMC.from_recipe(recipe_file(tmp_path, f'base = "{tmp_path / "other.toml"}"'), device="cpu").fit(data)
    assert model.trained is not None and data.test.texts is not None
    members = model.trained.members
    assert len(members) == 2 and members[0].weight > 0 and members[1].weight >= 0
    assert [member.scorers[0].network.dim for member in members] == [32, 16]
    found = model.predict(data.test.texts, k=2)
    assert share_found(found, data) > 0.9
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "tokenizer-1.json").is_file()
    again = XMC.load(tmp_path / "model", device="cpu")
    assert again.trained is not None and [member.weight for member in again.trained.members] == [member.weight for member in members]
    assert again.predict(data.test.texts, k=2).ids.tolist() == found.ids.tolist()
    (tmp_path / "model" / "tokenizer-1.json").unlink()
    with pytest.raises(DataError, match="model is not whole: tokenizer-1.json is missing"):
        XMC.load(tmp_path / "model", device="cpu")


def test_a_useless_member_has_a_small_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its vectors are drawn at random behind its back: on validation rows it can only do harm."""
    model = XMC.from_recipe(recipe_file(tmp_path, f'base = "{tmp_path / "other.toml"}"'), device="cpu")

    def spoilt(members: list, held_out: object, device: object) -> list:  # type: ignore[type-arg]
        torch.nn.init.normal_(members[1].scorers[0].vectors)
        return with_stacking_weights(members, held_out, device)  # type: ignore[arg-type]

    monkeypatch.setattr(fit, "with_stacking_weights", spoilt)
    model.fit(spelled_out())
    assert model.trained is not None
    one, other = model.trained.members
    assert one.weight > 0 and other.weight < 0.2 * one.weight


def test_members_of_weight_zero_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, other = spelled_out(), f'base = "{tmp_path / "other.toml"}"'
    model = XMC.from_recipe(recipe_file(tmp_path, other, f"{other}\nencoder = {{dim = 8}}"), device="cpu")

    def second_out(members: list[Member], held_out: Dataset, device: torch.device) -> list[Member]:
        one, two, three = with_stacking_weights(members, held_out, device)
        return [one, replace(two, weight=0.0, offset=0.25), replace(three, weight=0.5)]

    monkeypatch.setattr(fit, "with_stacking_weights", second_out)
    assert data.test.texts is not None
    found = model.fit(data).predict(data.test.texts, k=3)
    assert model.trained is not None and len(model.trained.scorers) == 3
    model.save(tmp_path / "model")
    again = XMC.load(tmp_path / "model", device="cpu")
    for one in (model, again):
        assert one.trained is not None and [scorer.network.dim for scorer in one.trained.scorers] == [32, 8]
        assert len(one.trained.members) == 2 and one.trained.about["networks"] == 2
        after = one.predict(data.test.texts, k=3)
        assert after.ids.tolist() == found.ids.tolist()
        np.testing.assert_allclose(after.scores, found.scores, atol=1e-6)
        assert one.explain(data.test.texts[0]).parts
    assert data.label_texts is not None
    new = data.label_texts[3][:4] + " " + data.label_texts[7]
    assert model.add_labels([new]) == [data.n_labels]
    assert XMC.load(tmp_path / "model", device="cpu").predict([new], 3).ids.tolist() == model.predict([new], 3).ids.tolist()


@pytest.mark.parametrize("kind", ["siamesexml", "astec", "eclare", "default"])
def test_any_recipe_may_be_a_member_of_another(kind: str) -> None:
    """With two towers, fused with centroids, by clusters, of all labels: all have a weight, and the sum is right."""
    data = spelled_out()
    model = with_member("dpr", kind).fit(data)
    assert model.trained is not None and data.test.texts is not None
    assert max(member.weight for member in model.trained.members) > 0
    assert share_found(model.predict(data.test.texts, k=2), data) > 0.9


def test_the_sum_is_the_weighted_evidence_of_all_towers() -> None:
    """Against products written out: two towers of one member, one of the other."""
    data = spelled_out()
    model = with_member("siamesexml", "dpr").fit(data)
    assert model.trained is not None and data.test.texts is not None
    odds = torch.zeros(len(data.test), data.n_labels)
    for member in model.trained.members:
        tokens = member.tokenizer(data.test.texts)
        for scorer in member.scorers:
            text = scorer.encode(tokens)
            odds += member.weight * (text.float() @ scorer.vectors.float().T)
        odds += member.offset
    found = model.predict(data.test.texts, k=3)
    assert found.ids.tolist() == torch.topk(odds, 3, dim=1).indices.tolist()
    assert found.scores.tolist() == pytest.approx(torch.sigmoid(torch.topk(odds, 3, dim=1).values).numpy(), abs=1e-4)


def test_what_was_removed_is_named_by_no_member_and_what_was_added_by_all() -> None:
    data = spelled_out()
    model = with_member("siamesexml", "default-all").fit(data)
    assert data.test.texts is not None and data.label_texts is not None
    model.remove_labels([3, 5])
    (added,) = model.add_labels([data.label_texts[3][:4] + " " + data.label_texts[7]])
    found = model.predict(data.test.texts, k=data.n_labels + 1)
    assert not np.isin(found.ids, [3, 5]).any()
    assert (np.sort(found.ids, axis=1)[:, 2:] == [label for label in range(data.n_labels + 1) if label not in (3, 5)]).all()
    assert added == data.n_labels


def test_a_recipe_is_trained_alone_where_validation_rows_are_too_few_to_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = spelled_out()
    model = XMC.from_recipe(recipe_file(tmp_path, 'labels = {parts = ["free"]}'), ["validation=0.1"], device="cpu").fit(data)
    written = capsys.readouterr().err
    few = "fewer than 32 validation rows are too few for stacking weights of its other members"
    assert f"own was trained alone: {few}; validation= holds out more." in written
    assert model.trained is not None and len(model.trained.members) == 1
    assert model.trained.about["rows trained on"] == len(data.train)  # none was held out
    model.save(tmp_path / "model")
    assert data.test.texts is not None
    assert XMC.load(tmp_path / "model", device="cpu").predict(data.test.texts).ids.tolist() == model.predict(data.test.texts).ids.tolist()


def test_what_hardly_counts_is_left_out() -> None:
    """The second of three scorers knows nothing, and is given a little all the same."""
    rng = np.random.default_rng(1)
    right = rng.random((200, 10)) < 0.2
    first, third = right + rng.normal(size=right.shape), right + rng.normal(size=right.shape)
    scores = np.stack([first, rng.normal(size=right.shape), third], axis=2)
    assert fit_stacking_weights(scores, right, np.ones_like(right), np.ones(right.shape))[1] > 0
    weights = stacking._without_idle(scores, right, np.ones_like(right), np.ones(right.shape))
    assert weights[1] == 0 and weights[0] > 0 and weights[2] > 0
    assert weights[[0, 2]] == pytest.approx(fit_stacking_weights(scores[..., [0, 2]], right, np.ones_like(right), np.ones(right.shape)))


def test_the_three_members_of_default() -> None:
    settings = [word for word in SMALL["default"] if not word.startswith(("members", "validation"))]
    data, model = spelled_out(), XMC.from_recipe("default", [*settings, "validation=0.2"], device="cpu").fit(spelled_out())
    assert model.trained is not None and data.test.texts is not None
    members, recipes = model.trained.members, model.recipe.all_members
    assert [one.stages[0].objective.losses for one in recipes] == [("bce",), ("softmax",), ("bce",)]
    assert [one.label_vectors["labels"].parts for one in members] == [("text", "free"), ("text", "free"), ("free",)]
    assert members[0].tokenizer is members[1].tokenizer is not members[2].tokenizer
    for member in members:  # each learns by itself what a label is
        alone = predict([replace(member, weight=1.0, offset=0.0)], data.test.texts, 2, torch.device("cpu"))
        assert share_found(alone, data) > 0.6
    assert share_found(model.predict(data.test.texts, k=2), data) > 0.9


def test_networks_that_scan_side_by_side_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for scans in threads; were these the threads that they run in themselves, none would ever be free."""
    monkeypatch.setattr(search_labels, "VALUES_A_THREAD", 1)
    data = spelled_out()
    model = XMC.from_recipe("default", [*SMALL["default"], f"ensemble={2 * search_labels.CORES + 1}"], device="cpu").fit(data)
    assert data.test.texts is not None
    texts = data.test.texts
    askers = [threading.Thread(target=lambda row=row: model.predict(texts[row : row + 1], k=2), daemon=True) for row in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(timeout=30)
    assert not any(asker.is_alive() for asker in askers)


def test_scores_of_two_towers_become_probabilities() -> None:
    """Twenty times a cosine plus log-odds is no log-odds: without calibration labels share the probability 1, and have no order."""
    data, model = spelled_out(), small_model("unidec", "predict.unit=false", "validation=0.2").fit(spelled_out())
    assert model.trained is not None and data.test.texts is not None
    (scorer,) = model.trained.members[0].scorers
    assert not scorer.gives_cosines and [tower.name for tower in scorer.towers] == ["labels", "classifiers"] and scorer.slope != 1.0
    found = model.predict(data.test.texts, k=3).scores
    assert found.max() < 1 and (found[:, 0] > found[:, 1]).all()
    plain = replace(scorer, slope=1.0, offset=0.0)
    rows = model.trained.members[0].tokenizer(data.test.texts)
    assert plain.top_k(rows, 3)[0].tolist() == scorer.top_k(rows, 3)[0].tolist()  # the order is the same


@pytest.mark.gpu
def test_members_on_a_gpu(tmp_path: Path) -> None:
    """Predictions of one network stay there, those of two networks are averaged on the host: both get stacking weights."""
    (tmp_path / "pair.toml").write_text("ensemble = 2\n" + OWN)
    data = spelled_out()
    model = XMC.from_recipe(recipe_file(tmp_path, 'base = "pair.toml"'), device="cuda").fit(data)
    assert data.test.texts is not None and share_found(model.predict(data.test.texts, k=2), data) > 0.9

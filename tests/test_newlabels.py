"""Labels added by text and removed: found at once, nothing else changes, and every state of a killed process leaves a folder that opens."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from longtail import XMC, Dataset, Split, Texts
from longtail.core.errors import DataError, SettingError
from longtail.inference.label_parts import tower_parts_of
from longtail.inference.new_labels import Blend, NewLabelMaker, with_labels
from longtail.inference.retrieval import NearestLabels, majority_cluster, with_members
from longtail.inference.search.clusters import ClusterIndex
from longtail.storage.label_log import FOLDER, append, entries
from longtail.storage.model_folder import GRAPH, PARTS
from tests.spelled import N_LABELS, label_names, small_model, spelled_out, trained
from tests.tensors import same_numbers as same_numbers

KINDS = ("default", "astec", "eclare", "decaf", "siamesexml", "renee")
WORDS = [name.split() for name in label_names(N_LABELS)]
NEW = [f"{WORDS[0][0]} {WORDS[12][1]}", f"{WORDS[3][0]} {WORDS[15][1]}"]  # known words, in company they were never in
ADDED = [N_LABELS, N_LABELS + 1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for recipe in KINDS:
        replace_folder(trained(recipe), place / recipe)
    return place


def replace_folder(model: XMC, folder: Path) -> None:
    """Save without making the folder the home of a model that tests share."""
    shared = XMC(model.recipe, device="cpu")
    shared.trained = model.trained
    shared.save(folder)


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved / "default", tmp_path / "model"))


# ---- what is found


def test_labels_that_were_hidden_in_training_are_found_by_their_texts() -> None:
    """Their words stand in training rows, but no label has them. Neighbours of made-up words mean nothing and may come before them.

    Which of a few labels come first depends on the last digits of products, and so on the machine; hence three networks. By chance one in
    twelve would be among the first two.
    """
    data = spelled_out()
    hidden = [3, 8, 17, 22]
    known = np.setdiff1d(np.arange(N_LABELS), hidden)
    names, labels = np.array(label_names(N_LABELS)), csr_matrix(data.train.labels[:, known])
    rows = np.flatnonzero(np.diff(labels.indptr))
    assert data.train.texts is not None
    split = Split(data.train.texts.take(rows), labels[rows])
    new = names[hidden].tolist()
    places = []
    for seed in range(3):
        model = small_model("default", seed=seed).fit(Dataset("some", split, split.rows(np.arange(0)), Texts.of(names[known].tolist())))
        assert model.add_labels(new) == [20, 21, 22, 23]
        found = model.predict(new, N_LABELS)
        places += [row.index(name) for name, row in zip(new, found.texts, strict=True)]
    assert sum(place < 2 for place in places) >= 9 and sum(place == 0 for place in places) >= 3


@pytest.mark.parametrize("recipe", KINDS)
def test_a_new_label_is_among_the_first_and_a_reload_says_the_same(recipe: str, saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved / recipe, tmp_path / recipe))
    model = XMC.load(folder, device="cpu")
    assert model.add_labels(NEW) == ADDED
    found = model.predict(NEW, 3)
    assert all(label in row for label, row in zip(ADDED, found.ids.tolist(), strict=True)), found.texts
    again = XMC.load(folder, device="cpu")
    reloaded = again.predict(NEW, 3)
    assert reloaded.ids.tolist() == found.ids.tolist() and np.allclose(reloaded.scores, found.scores, atol=1e-5)
    assert reloaded.label_texts == [*label_names(N_LABELS), *NEW]
    assert again.trained is not None and again.trained.label_counts[N_LABELS:].tolist() == [0, 0]
    assert "26 labels" in repr(again)


@pytest.mark.parametrize("recipe", ("default", "eclare", "decaf", "siamesexml"))
def test_other_labels_are_scored_as_before(recipe: str, saved: Path, tmp_path: Path) -> None:
    data = spelled_out()
    assert data.test.texts is not None
    model = XMC.load(Path(shutil.copytree(saved / recipe, tmp_path / recipe)), device="cpu")
    before = model.predict(data.test.texts, N_LABELS)
    model.add_labels(NEW)
    after = model.predict(data.test.texts, N_LABELS + 2)
    for one, other, scores, wanted in zip(before.ids, after.ids, after.scores, before.scores, strict=True):
        kept = ~np.isin(other, ADDED) & (other >= 0)
        one, wanted = one[one >= 0], wanted[one >= 0]
        # what shares a batch of other size with them may differ in the last bit, and ties with it
        assert sorted(other[kept].tolist()) == sorted(one.tolist())
        assert np.allclose(np.sort(scores[kept]), np.sort(wanted), atol=1e-6)


@pytest.mark.parametrize("recipe", KINDS)
def test_parts_add_up_to_the_vectors_in_memory_and_from_the_folder(recipe: str, saved: Path) -> None:
    loaded = XMC.load(saved / recipe, device="cpu").trained
    for stored in (trained(recipe).trained, loaded):
        assert stored is not None
        labels = torch.tensor([0, 5, 23])
        for tower in tower_parts_of(stored, 0):
            mixed = tower.mixed(tower.parts_of_labels(labels))
            assert torch.allclose(mixed, tower.vectors[labels], atol=1e-4)
    wanted = {"eclare": ("text", "graph", "free"), "default": ("text", "free"), "siamesexml": ("encoded",), "astec": ("free",)}
    if recipe in wanted and loaded is not None:
        assert tower_parts_of(loaded, 0)[0].part_names == wanted[recipe]


def test_without_their_parts_vectors_are_blended_whole(saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved / "eclare", tmp_path / "model"))
    model = XMC.load(folder, device="cpu")
    model.add_labels(NEW)
    for name in (PARTS, GRAPH):  # neither is needed to predict
        (folder / name).unlink()
        again = XMC.load(folder, device="cpu")
        assert again.trained is not None and tower_parts_of(again.trained, 0)[0].part_names == ("free",)
        assert again.predict(NEW, 3).ids.shape == (2, 3)


def test_the_vector_of_a_new_label_by_hand() -> None:
    """default: token vectors added up, own and those of the three nearest, and what these learnt besides, by the square of the cosine."""
    stored = trained("default").trained
    assert stored is not None and stored.label_texts is not None
    scorer = stored.scorers[0]

    def sums(texts: list[str]) -> np.ndarray:
        matrix = stored.tokenizer(texts).to_csr()
        return np.asarray(matrix @ scorer.network.table.weight.detach().numpy())

    known, new = sums(list(stored.label_texts)), sums(NEW[:1])[0]
    cosines = known @ new / np.linalg.norm(known, axis=1) / np.linalg.norm(new)
    near = np.argsort(-cosines)[:3]
    weights = cosines[near] ** 2 / (cosines[near] ** 2).sum()
    assert scorer.bias is not None
    wanted = 0.7 * new + 0.3 * weights @ known[near] + 0.5 * weights @ (scorer.vectors.numpy()[near] - known[near])
    made = NewLabelMaker(stored, Blend(own=0.7, others=0.5, shrink=1.0)).make(Texts.of(NEW[:1]))[0]
    assert np.allclose(made.vectors[0].numpy(), wanted, atol=1e-4)
    assert made.bias is not None and float(made.bias[0]) == pytest.approx(float(weights @ scorer.bias.numpy()[near]) - 1.0, abs=1e-4)


def test_a_text_that_one_of_several_tokenizers_cannot_read_is_nothing_there() -> None:
    stored = trained("default").trained
    assert stored is not None
    made = NewLabelMaker(stored).make(Texts.of([NEW[0], "日本"]))[0]
    assert made.vectors[1].abs().max() == 0 and made.bias is not None
    assert stored.scorers[0].bias is not None and made.bias[1] == stored.scorers[0].bias.min()


def test_clusters_by_majority_and_a_table_that_grows() -> None:
    members = torch.tensor([[0, 1], [2, -1]])
    index = ClusterIndex(torch.zeros(2, 3), None, members, None, 1)
    near, weights = torch.tensor([[0, 2, 1], [0, 2, 1]]), torch.tensor([[0.3, 0.4, 0.3], [0.2, 0.6, 0.2]])
    assert majority_cluster(index, NearestLabels(near, weights)).tolist() == [0, 1]
    grown = with_members(members, torch.tensor([3, 4]), torch.tensor([0, 1]))
    assert grown.tolist() == [[0, 1, 3], [2, 4, -1]]
    assert members.tolist() == [[0, 1], [2, -1]]  # others may be searching it


# ---- removing


@pytest.mark.parametrize("recipe", KINDS)
def test_a_removed_label_is_never_named_and_all_others_keep_their_ids(recipe: str, saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved / recipe, tmp_path / recipe))
    model = XMC.load(folder, device="cpu")
    texts = label_names(N_LABELS)
    before = model.predict(texts, N_LABELS)
    gone = [int(before.ids[0, 0]), 7]
    model.remove_labels(gone)
    again = XMC.load(folder, device="cpu")
    for one in (model, again):
        after = one.predict(texts, N_LABELS)
        assert not np.isin(after.ids, gone).any()
        if recipe != "astec":  # whose scores are parts of the largest
            for row, wanted in zip(after.ids.tolist(), before.ids.tolist(), strict=True):
                assert sorted(set(row) - {-1}) == sorted(set(wanted) - {-1, *gone})
    assert again.trained is not None and again.trained.removed.tolist() == sorted(gone)


def test_what_was_removed_may_come_back_under_a_new_id(folder: Path) -> None:
    model = XMC.load(folder)
    name = label_names(N_LABELS)[5]
    model.remove_labels([5])
    assert model.add_labels([name]) == [N_LABELS]
    model.remove_labels([N_LABELS])
    assert model.add_labels([name]) == [N_LABELS + 1]
    found = XMC.load(folder).predict([name], 5).ids[0].tolist()
    assert N_LABELS + 1 in found and 5 not in found and N_LABELS not in found


def test_all_labels_removed(folder: Path) -> None:
    model = XMC.load(folder)
    model.remove_labels(range(N_LABELS))
    assert (model.predict(NEW, 3).ids == -1).all()


# ---- saved as a whole


@pytest.mark.parametrize("recipe", ("default", "eclare", "astec"))
def test_a_full_save_makes_them_part_of_the_weights(recipe: str, saved: Path, tmp_path: Path) -> None:
    model = XMC.load(Path(shutil.copytree(saved / recipe, tmp_path / "first")), device="cpu")
    model.add_labels(NEW)
    model.remove_labels([2, N_LABELS])
    found = model.predict(label_names(N_LABELS), 6)
    model.save(tmp_path / "second")
    assert not (tmp_path / "second" / FOLDER).exists()
    again = XMC.load(tmp_path / "second", device="cpu")
    other = again.predict(label_names(N_LABELS), 6)
    assert other.ids.tolist() == found.ids.tolist() and np.allclose(other.scores, found.scores, atol=1e-6)
    assert again.trained is not None and again.trained.removed.tolist() == [2, N_LABELS]
    # and goes on from there, in the second folder alone
    assert again.add_labels(["nalk ment"]) == [N_LABELS + 2]
    assert len(entries(tmp_path / "second")) == 1 and len(entries(tmp_path / "first")) == 2


def test_a_model_that_was_just_trained_keeps_them_when_it_is_saved(tmp_path: Path) -> None:
    model = small_model("default", "epochs=1").fit(spelled_out())
    model.add_labels(NEW)
    model.save(tmp_path / "model")
    model.add_labels(["pash dorv"])  # from here on the folder is its home
    again = XMC.load(tmp_path / "model")
    assert again.trained is not None and again.trained.label_texts == [*label_names(N_LABELS), *NEW, "pash dorv"]
    assert again.predict(NEW).ids.tolist() == model.predict(NEW).ids.tolist()


# ---- the log


def test_the_log_holds_texts_and_ids(folder: Path) -> None:
    model = XMC.load(folder)
    model.add_labels(["Ünï côdé morv"])
    model.remove_labels([3, 1])
    assert sorted(path.name for path in (folder / FOLDER).iterdir()) == ["000001.json", "000002.json"]
    assert json.loads((folder / FOLDER / "000001.json").read_text("utf-8")) == {"add": ["Ünï côdé morv"]}
    assert entries(folder) == [{"add": ["Ünï côdé morv"]}, {"remove": [3, 1]}]


class Killed(BaseException):
    """As kill -9: nothing behind it runs that could tidy up."""


@pytest.mark.parametrize("moment", ["before writing", "while writing", "before it is on disk", "before the rename", "after the rename"])
def test_killed_at_any_moment_the_folder_opens_with_all_that_was_acknowledged(
    moment: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = XMC.load(folder)
    model.add_labels(NEW[:1])

    def killed(*_: object, **__: object) -> None:
        raise Killed

    def killed_in_writing(entry: object, file: object, **_: object) -> None:
        file.write('{"add": ["ha')  # type: ignore[attr-defined]
        raise Killed

    rename: Callable[..., Path] = Path.rename

    def renamed_and_killed(self: Path, target: Path) -> None:
        rename(self, target)
        raise Killed

    with monkeypatch.context() as patched:
        if moment == "before writing":
            patched.setattr("longtail.storage.label_log._sync", killed)
        elif moment == "while writing":
            patched.setattr("longtail.storage.label_log.json.dump", killed_in_writing)
        elif moment == "before it is on disk":
            patched.setattr(
                "longtail.storage.label_log.os.fsync", lambda handle: None if os.path.isdir(f"/proc/self/fd/{handle}") else killed()
            )
        else:
            patched.setattr(Path, "rename", killed if moment == "before the rename" else renamed_and_killed)
        with pytest.raises(Killed):
            model.add_labels(NEW[1:])
    again = XMC.load(folder)
    assert again.trained is not None and again.trained.label_texts is not None
    there = NEW if moment == "after the rename" else NEW[:1]  # written whole, though it was never acknowledged
    assert list(again.trained.label_texts[N_LABELS:]) == there
    assert again.add_labels(["pash dorv"]) == [N_LABELS + len(there)]  # what lies about does not disturb
    last = XMC.load(folder).trained
    assert last is not None and last.label_texts is not None and list(last.label_texts[N_LABELS:]) == [*there, "pash dorv"]


def test_nothing_is_acknowledged_that_is_not_on_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, its name and the new folder's name: each is synced, the file before it gets its name."""
    done: list[str] = []
    sync, rename = os.fsync, Path.rename

    def noted(handle: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        sync(handle)

    def noted_rename(self: Path, target: Path) -> Path:
        done.append(f"-> {target.name}")
        return rename(self, target)

    monkeypatch.setattr("longtail.storage.label_log.os.fsync", noted)
    monkeypatch.setattr(Path, "rename", noted_rename)
    append(folder, 1, {"remove": [1]})
    assert done == ["model", ".000001.json.unfinished", "-> 000001.json", FOLDER]


def test_two_who_change_the_labels_of_one_folder(folder: Path) -> None:
    one, other = XMC.load(folder), XMC.load(folder)
    one.add_labels(NEW[:1])
    with pytest.raises(SettingError, match="labels of .*model were changed since they were read; load the model again"):
        other.add_labels(NEW[1:])
    assert other.trained is not None and len(other.trained.label_counts) == N_LABELS
    assert XMC.load(folder).add_labels(NEW[1:]) == [N_LABELS + 1]


def test_threads_that_add_labels_at_once(folder: Path) -> None:
    model = XMC.load(folder)
    ids: list[int] = []
    words = [f"{WORDS[place][0]} {WORDS[place + 1][1]}" for place in range(8)]
    threads = [Thread(target=lambda word=word: ids.extend(model.add_labels([word]))) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == list(range(N_LABELS, N_LABELS + 8))
    again = XMC.load(folder).trained
    assert again is not None and again.label_texts is not None and sorted(again.label_texts[N_LABELS:]) == sorted(words)


@pytest.mark.parametrize("content", ["", '{"add": ["ha', "[]", "{}", '{"add": [1]}', '{"remove": ["x"]}', '{"else": []}', "null", "\x00"])
def test_damaged_logs(content: str, folder: Path) -> None:
    (folder / FOLDER).mkdir()
    (folder / FOLDER / "000001.json").write_text(content)
    with pytest.raises(DataError, match="000001.json is damaged"):
        XMC.load(folder)


def test_logs_with_holes_and_of_other_models(folder: Path) -> None:
    append(folder, 2, {"remove": [1]})
    with pytest.raises(DataError, match="labels is not whole: 000001.json is missing"):
        XMC.load(folder)
    append(folder, 1, {"remove": [99]})
    with pytest.raises(DataError, match="Labels were removed that the model does not have"):
        XMC.load(folder)


# ---- what may not come


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "No label texts came"),
        (["x", " \t"], "Label text 2 of 2 is empty"),
        ([NEW[0], NEW[0]], "came twice"),
        ([label_names(N_LABELS)[4]], "already, with id 4"),
        (["日本"], "knows none of the words of '日本'"),
        ("morv nalk", "One text came where a list of label texts was wanted"),
    ],
)
def test_texts_that_cannot_be_new_labels(texts: list[str], message: str, folder: Path) -> None:
    model = XMC.load(folder)
    with pytest.raises(SettingError, match=message):
        model.add_labels(texts)
    assert not entries(folder) and model.trained is not None and len(model.trained.label_counts) == N_LABELS


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "No label ids came"),
        ([24], "Label 24 came to be removed; wanted an id from 0 to 23"),
        ([-1], "Label -1 came"),
        (["3"], "Label '3' came"),
        ([True], "Label True came"),
        ([3, 3], "removed already, or came twice"),
    ],
)
def test_ids_that_cannot_be_removed(ids: list[int], message: str, folder: Path) -> None:
    model = XMC.load(folder)
    with pytest.raises(SettingError, match=message):
        model.remove_labels(ids)
    model.remove_labels([4])
    with pytest.raises(SettingError, match="Label 4 is removed already"):
        model.remove_labels([4])


def test_a_model_whose_labels_have_no_texts() -> None:
    model = small_model("astec", "epochs=1").fit(replace(spelled_out(), label_texts=None))
    with pytest.raises(SettingError, match="labels of this model have no texts"):
        model.add_labels(NEW)
    model.remove_labels([0])
    assert 0 not in model.predict(label_names(N_LABELS), 5).ids


def test_a_blend_between_text_and_neighbours() -> None:
    """Half and half is the mean of a label that is its text, and one that is its neighbours."""
    stored = trained("default").trained
    assert stored is not None
    texts = Texts.of(NEW)
    own, others, both = (NewLabelMaker(stored, Blend(own=share)).make(texts)[0].vectors for share in (1.0, 0.0, 0.5))
    assert torch.allclose((own + others) / 2, both, atol=1e-5) and not torch.allclose(own, others, atol=0.1)
    assert len(with_labels(stored, texts, NewLabelMaker(stored).make(texts)).label_counts) == N_LABELS + 2

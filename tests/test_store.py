"""Model folders: what was saved answers the same to the last bit, and what is not a whole model folder is answered with one line."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import longtail
from longtail import XMC
from longtail.core import registry
from longtail.core.errors import DataError, LongtailError
from longtail.storage.model_folder import CARD, FORMAT, GRAPH, HISTORY, LABELS, MODEL, PARTS, TOKENIZER, WEIGHTS
from tests.spelled import N_LABELS, Command, small_model, spelled_out, trained
from tests.spelled import command as command
from tests.tensors import same_numbers as same_numbers

TEXTS = ["morv nalk bush ment", "", "unknownword", "日本 🍐"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of all recipes."""
    place = tmp_path_factory.mktemp("models")
    for recipe in registry.recipes():
        trained(recipe).save(place / recipe)
    return place


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of a model to be damaged."""
    return Path(shutil.copytree(saved / "eclare", tmp_path / "model"))


@pytest.mark.parametrize("recipe", registry.recipes())
def test_what_was_saved_answers_the_same(recipe: str, saved: Path) -> None:
    data = spelled_out()
    assert data.test.texts is not None
    texts = [*data.test.texts, *TEXTS]
    before, after = trained(recipe), longtail.load(saved / recipe, device="cpu")
    for k in (1, 5, N_LABELS):
        one, other = before.predict(texts, k), after.predict(texts, k)
        assert one.ids.tolist() == other.ids.tolist()
        assert one.scores.tobytes() == other.scores.tobytes()
        assert one.label_texts == other.label_texts
    assert after.recipe == before.recipe and after.history == before.history and after.seed == before.seed
    assert after.megabytes == before.megabytes and repr(after) == repr(before)


def test_saved_again_it_is_the_same_folder(saved: Path, tmp_path: Path) -> None:
    """What was loaded can be saved; only what is not needed to predict is gone."""
    for recipe in registry.recipes():
        longtail.load(saved / recipe).save(tmp_path / recipe)
        left = {path.name for path in (saved / recipe).iterdir()}
        assert {path.name for path in (tmp_path / recipe).iterdir()} == left - {PARTS}
        for name in left - {PARTS, LABELS, GRAPH}:  # a zip holds the time at which it was written
            assert (tmp_path / recipe / name).read_bytes() == (saved / recipe / name).read_bytes(), name


def test_an_ensemble_is_saved_whole(tmp_path: Path) -> None:
    model = small_model("astec", "epochs=1", "batch_size=96", "ensemble=2").fit(spelled_out())
    model.save(tmp_path / "model")
    again = XMC.load(tmp_path / "model")
    assert model.trained is not None and again.trained is not None and len(again.trained.scorers) == 2
    assert again.predict(TEXTS).scores.tobytes() == model.predict(TEXTS).scores.tobytes()


def test_no_file_holds_a_pickle(saved: Path) -> None:
    for path in saved.rglob("*"):
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                assert all(arrays[name].dtype != object for name in arrays)
        elif path.is_file():
            assert path.suffix in (".json", ".safetensors", ".md")


def test_files_of_a_folder(saved: Path) -> None:
    assert {path.name for path in (saved / "eclare").iterdir()} == {MODEL, WEIGHTS, PARTS, LABELS, GRAPH, TOKENIZER, HISTORY, CARD}
    assert not (saved / "default" / GRAPH).exists()
    model = json.loads((saved / "default" / MODEL).read_text())
    assert model["format"] == FORMAT and model["longtail"] == longtail.__version__
    (member,) = model["members"]
    assert member["name"] == "default" and member["tables"]["encoder"]["dim"] == 64
    assert member["encoder"]["kind"] == "bag" and member["encoder"]["dim"] == 64
    assert member["label_vectors"]["labels"]["parts"] == ["text", "free"]
    with np.load(saved / "default" / LABELS) as arrays:
        assert arrays["counts"].tolist() == spelled_out().label_counts().tolist()


def test_the_card_tells_data_recipe_and_metrics(tmp_path: Path) -> None:
    model = small_model("default", "epochs=1", augment="gandalf", seed=7).fit(spelled_out())
    model.save(tmp_path / "before")
    assert "| metric | test |" not in (tmp_path / "before" / CARD).read_text()
    model.note_metrics({"P@1": 12.345, "macro-F1": 1.0})
    model.save(tmp_path / "after")
    card = (tmp_path / "after" / CARD).read_text()
    assert card.startswith("# spelled: default\n")
    assert model.recipe.about in card
    for line in ("| augmentation | gandalf |", "| training rows | 221 |", "| rows trained on | 245 |", "| labels | 24 |", "| seed | 7 |"):
        assert line in card
    assert "| P@1 | 12.35 |" in card or "| P@1 | 12.34 |" in card
    assert "macro-F1" not in card and "longtail predict" in card
    again = XMC.load(tmp_path / "after")
    assert again.trained is not None and again.trained.about["metrics"] == {"P@1": 12.345}


def test_nothing_is_written_over(saved: Path) -> None:
    with pytest.raises(LongtailError, match="default already exists and is not an empty folder"):
        trained("default").save(saved / "default")


def test_a_model_without_label_texts(tmp_path: Path) -> None:

    model = small_model("astec", "epochs=1").fit(replace(spelled_out(), label_texts=None))
    model.save(tmp_path / "model")
    found = XMC.load(tmp_path / "model").predict(TEXTS)
    assert found.label_texts is None and found.ids.tolist() == model.predict(TEXTS).ids.tolist()


# ---- folders that are none


def fails(folder: Path, message: str, command: Command) -> None:
    """In Python and on the command line alike."""
    with pytest.raises(DataError, match=message):
        longtail.load(folder)
    (folder.parent / "texts.txt").write_text("x\n")
    assert re.search(message, command.fails("predict", folder, folder.parent / "texts.txt"))


def test_missing_files(folder: Path, tmp_path: Path, command: Command) -> None:
    fails(
        tmp_path / "nowhere",
        "nowhere is not a model folder: model.json is missing. `longtail train ... --out .*nowhere` makes one",
        command,
    )
    (tmp_path / "file").write_text("x")
    fails(tmp_path / "file", "file is not a model folder", command)
    for name in (WEIGHTS, LABELS, TOKENIZER, MODEL):
        (folder / name).rename(tmp_path / "away")
        fails(folder, f"{name} is missing", command)
        (tmp_path / "away").rename(folder / name)
    longtail.load(folder)


@pytest.mark.parametrize("name", [PARTS, GRAPH, HISTORY, CARD])
def test_what_is_not_needed_to_predict_may_be_missing(name: str, folder: Path) -> None:
    (folder / name).unlink()
    assert longtail.load(folder).predict(TEXTS).ids.tolist() == trained("eclare").predict(TEXTS).ids.tolist()


@pytest.mark.parametrize("name", [WEIGHTS, LABELS, TOKENIZER, MODEL, GRAPH, HISTORY])
@pytest.mark.parametrize("damage", ["empty", "nonsense", "cut short", "of another kind"])
def test_damaged_files(name: str, damage: str, folder: Path, command: Command) -> None:
    content = (folder / name).read_bytes()
    other = (folder / (WEIGHTS if name.endswith(".json") else MODEL)).read_bytes()
    changed = {"empty": b"", "nonsense": b"\x00nonsense\xff", "cut short": content[: len(content) // 2], "of another kind": other}[damage]
    (folder / name).write_bytes(changed)
    messages = {TOKENIZER: "cannot be read as JSON", MODEL: "is not of a model that longtail saved", GRAPH: "cannot be read as a graph"}
    fails(folder, f"model/{name}.* {messages.get(name, 'is damaged')} ", command)


def changed(folder: Path, change: dict[str, Any]) -> None:
    model = json.loads((folder / MODEL).read_text())
    (folder / MODEL).write_text(json.dumps({**model, **change}))


def test_other_formats(folder: Path, command: Command) -> None:
    changed(folder, {"format": 99, "members": "of the future"})
    version = re.escape(longtail.__version__)
    fails(
        folder,
        f"model is a model of format 99, written by longtail {version}; this longtail reads format {FORMAT}. "
        f"Train it again, or type pip install longtail=={version}[.]",
        command,
    )
    (folder / MODEL).write_text(json.dumps({"format": 3, "longtail": "0.3.0", "recipe": {"name": "eclare"}, "beyond": []}))
    fails(folder, "format 3, written by longtail 0.3.0; .* Train it again, or type pip install longtail==0.3.0[.]", command)


def test_foreign_models(folder: Path, command: Command) -> None:
    for content in ("[1, 2]", "3", "null", "{}", '{"architectures": ["BertModel"]}'):
        (folder / MODEL).write_text(content)
        fails(folder, "model.json is not of a model that longtail saved", command)


def test_settings_that_this_longtail_does_not_know(folder: Path, command: Command) -> None:
    (member,) = json.loads((folder / MODEL).read_text())["members"]
    changed(folder, {"members": [{**member, "encoder": {"kind": "recurrent"}}]})
    fails(folder, "model.json: No encoder called 'recurrent'", command)
    changed(folder, {"members": [{**member, "encoder": {**member["encoder"], "gates": 3}}]})
    fails(folder, "model.json: No setting of encoder called 'gates'", command)
    changed(folder, {"members": [{**member, "label_vectors": {"labels": {"parts": ["text", "air"]}}}]})
    fails(folder, "model.json: .*parts came as .*air", command)
    for wrong in ("eclare", [], [3], [{"name": "eclare"}]):
        changed(folder, {"members": wrong})
        fails(folder, "model.json is not of a model that longtail saved", command)


@pytest.mark.parametrize("name", [WEIGHTS, TOKENIZER, MODEL])
def test_files_of_another_model(name: str, folder: Path, saved: Path, command: Command) -> None:
    shutil.copy(saved / "inceptionxml" / name, folder / name)
    fails(folder, "model holds files of different models .*Copy it again, or train anew", command)


def test_labels_of_another_model(folder: Path, command: Command) -> None:
    with np.load(folder / LABELS) as arrays:
        held = dict(arrays)
    np.savez(folder / LABELS, **{**held, "counts": held["counts"][:7]})
    fails(folder, "model holds files of different models .there are 7 and 24 labels.", command)


def test_weights_of_another_device_are_moved(folder: Path) -> None:
    """What was trained anywhere is loaded where it is wanted."""
    model = XMC.load(folder, device="cpu")
    assert model.device == torch.device("cpu")
    assert model.trained is not None and all(scorer.vectors.device.type == "cpu" for scorer in model.trained.scorers)

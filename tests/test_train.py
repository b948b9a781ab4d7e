"""Training from end to end: every recipe and every part learns, a stopped run ends as if it had not been stopped, bad data is named."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from longtail import XMC, Dataset, LongtailError, Split, Texts
from longtail.core import registry
from longtail.core.errors import DataError, SettingError
from longtail.core.values import labels_from_rows
from longtail.data.augment.choose import validation_split
from longtail.data.augment.gandalf import Gandalf
from longtail.inference import stacking
from longtail.models.device import device_for
from longtail.models.label_rows import LabelRows
from longtail.models.network import Network
from longtail.recipes import fit
from longtail.recipes.data import DataSource, named_augmentation
from longtail.recipes.read import make_recipe, read_recipe
from longtail.recipes.recipe import Recipe
from longtail.storage.packing import pack_scorer
from longtail.tokens.tokenizer import Tokenizer
from longtail.training import checkpoint
from longtail.training.checkpoint import Checkpoints, Saved
from longtail.training.data import TrainingData
from longtail.training.loop import BEGINNING, Decision, EpochRows, Pace, Position, backward
from longtail.training.monitor import TrainingMonitor
from longtail.training.objectives.all_labels import AllLabelsLoss
from longtail.training.objectives.base import FEWEST_NUMBERS, Batch, Objective
from longtail.training.stage import Stage
from longtail.training.trainer import Trainer
from tests.conftest import dataset
from tests.spelled import N_LABELS, SMALL, share_found, small_model, spelled_out, trained
from tests.tensors import same_numbers as same_numbers

CPU = torch.device("cpu")
FEW_STEPS = ("batch_size=96", "epochs=2")  # three steps an epoch


@pytest.fixture(scope="module")
def data() -> Dataset:
    return spelled_out()


def training_data_of(model: XMC, data: Dataset) -> TrainingData:
    return DataSource(data, model.recipe, model.augment, model.seed).training_data(model.recipe)


def trainer_of(model: XMC, data: Dataset) -> Trainer:
    return Trainer(model.recipe.plan, training_data_of(model, data), CPU, seed=0)


# ---- every part learns


def test_there_are_small_settings_for_every_recipe() -> None:
    assert set(SMALL) == set(registry.recipes())


@pytest.mark.parametrize("recipe", registry.recipes())
def test_every_recipe_finds_the_labels_a_text_spells_out(recipe: str, data: Dataset) -> None:
    assert data.test.texts is not None
    assert share_found(trained(recipe).predict(data.test.texts, k=2), data) > 0.93


A_TRANSFORMER = {"model": "none", "hidden": 48, "layers": 1, "attention_heads": 2}
NO_FOLDER = {"words", "wordpiece", "words+pieces"}  # kinds of tokens that are learnt from the texts


@pytest.mark.parametrize("tokens", [kind for kind in registry.TOKENS if kind in NO_FOLDER])
@pytest.mark.parametrize("encoder", registry.ENCODERS)
def test_every_encoder_learns_from_every_kind_of_tokens(encoder: str, tokens: str, data: Dataset) -> None:
    tables = {
        "tokens": {"kind": tokens},
        "encoder": {"kind": encoder, "dropout": 0.0, **(A_TRANSFORMER if encoder == "transformer" else {"dim": 80})},
        "labels": {"parts": ["text", "free"], "dropout": 0.0},
        "stages": [{"epochs": 8, "batch_size": 16, "learning_rate": 0.01, "encoder_rate": 0.003 if encoder == "transformer" else 0.01}],
    }
    model = XMC(make_recipe(tables, "small", "small.toml"), device="cpu").fit(data)
    assert data.test.texts is not None
    assert share_found(model.predict(data.test.texts, k=2), data) > 0.93


@pytest.mark.parametrize("augment", [*registry.AUGMENTATIONS, "adaptive"])
def test_every_augmentation_that_makes_rows_can_be_trained_with(augment: str, data: Dataset, tmp_path: Path) -> None:
    typed = augment
    if augment == "synonyms":
        words = sorted({word for text in data.train.texts or () for word in text.split()})
        vectors = "".join(f"{word} {place % 7} {place % 5} 1\n" for place, word in enumerate(words))
        (tmp_path / "vectors.txt").write_text(vectors)
        typed = f"synonyms:probability=0.5,vectors={tmp_path / 'vectors.txt'}"
    model = small_model("default", "epochs=3", augment=typed)
    if augment == "manifold-mixup":
        with pytest.raises(SettingError, match="is a hook for loops of your own; wanted one that makes rows, such as mixup"):
            model.fit(data)
        return
    assert data.test.texts is not None
    assert share_found(model.fit(data).predict(data.test.texts, k=2), data) > 0.5


def test_an_augmentation_of_ones_own(data: Dataset) -> None:
    recipe = read_recipe("default", (*SMALL["default"], "epochs=1"))
    own = XMC(recipe, Gandalf(delta=0.3), device="cpu").fit(data)
    named = XMC(recipe, "gandalf:delta=0.3", device="cpu").fit(data)
    assert own.trained is not None and own.trained.about["rows trained on"] == len(data.train) + N_LABELS
    assert_same(own, named)


def test_augmentations_as_they_are_typed() -> None:
    assert named_augmentation("gandalf:delta=0.3,mark=x") == Gandalf(delta=0.3, mark="x")
    assert named_augmentation("none") is None and named_augmentation("adaptive") is None
    for typed, message in {
        "gandalff": "No augmentation called 'gandalff'. Did you mean 'gandalf'?",
        "gandalf:dleta=0.3": "No setting of gandalf called 'dleta'. Did you mean 'delta'?",
        "none:delta=0.3": "none takes no settings; delta=0.3 came.",
        "": "No augmentation called ''.",
    }.items():
        with pytest.raises(SettingError, match=f"^{message.replace('.', '[.]').replace('?', '[?]')}"):
            named_augmentation(typed)


def test_other_rows_in_each_epoch_the_same_for_the_same_seed(data: Dataset) -> None:
    def rows(epoch: int, seed: int = 0) -> list[int]:
        made = trainer_of(small_model("default", augment="labelmix", seed=seed), data)._epoch(epoch)
        assert len(made) == len(data.train)
        ids: list[int] = made.tokens.ids.tolist()
        return ids

    assert rows(epoch=0) == rows(epoch=0)
    assert rows(epoch=0) != rows(epoch=1) and rows(epoch=0) != rows(epoch=0, seed=1)


def test_the_right_shortlist_stays_with_a_row_that_moved(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """LabelMix puts rows that it leaves alone first; each must keep the shortlist of the row it was made from."""
    seen: list[tuple[LabelRows, Tensor]] = []

    def looked_at(rows: EpochRows, places: Tensor, epoch: int) -> Batch:
        batch = take(rows, places, epoch)
        shortlist = batch.hard_negatives()
        if shortlist is not None:
            seen.append((batch.targets["labels"], shortlist))
        return batch

    take = EpochRows.take
    monkeypatch.setattr(EpochRows, "take", looked_at)
    settings = ("beam=3", "stages.2.epochs=1", "batch_size=16")  # 3 of 8 clusters
    small_model("decaf", *settings, augment="labelmix:soft=false").fit(data)
    held = [
        len(set(shortlist[row].tolist()) & set(right.ids[right.offsets[row] : right.offsets[row + 1]].tolist())) / 2
        for right, shortlist in seen
        for row in range(len(shortlist))
    ]
    assert len(held) == len(data.train)
    assert np.mean(held) > 0.9  # of shortlists dealt out at random 3/8


# ---- seeds


def tensors_of(model: XMC) -> dict[str, Tensor]:
    """All that prediction works with."""
    assert model.trained is not None
    return {f"{place}/{name}": tensor for place, one in enumerate(model.trained.scorers) for name, tensor in pack_scorer(one)[0].items()}


def history_of(model: XMC) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in model.history]


def assert_same(one: XMC, other: XMC) -> None:
    """The same weights to the last bit, and the same history."""
    assert history_of(one) == history_of(other)
    first, second = tensors_of(one), tensors_of(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    assert one.trained is not None and other.trained is not None
    assert [scorer.beta for scorer in one.trained.scorers] == [scorer.beta for scorer in other.trained.scorers]


@pytest.mark.parametrize("recipe", ["default", "eclare", "inceptionxml"])
def test_same_seed_same_numbers(recipe: str, data: Dataset) -> None:
    first, again, other = (small_model(recipe, *FEW_STEPS, seed=seed).fit(data) for seed in (3, 3, 4))
    assert_same(first, again)
    assert history_of(first) != history_of(other)


def test_members_of_an_ensemble_are_different_networks(data: Dataset) -> None:
    model = small_model("default", *FEW_STEPS, "ensemble=2").fit(data)
    assert model.trained is not None
    one, other = model.trained.scorers
    assert not torch.equal(one.vectors, other.vectors)
    assert [entry["member"] for entry in model.history] == [0, 0, 1, 1]


# ---- what is trained on


def test_neither_validation_rows_nor_test_rows_are_trained_on(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenized: list[Texts] = []
    trainers: list[Trainer] = []
    real_fit, real_init = Tokenizer.fitted.__func__, Trainer.__init__  # type: ignore[attr-defined]

    def fitted(cls: Any, settings: Any, cutter: Any, texts: Texts) -> Tokenizer:
        tokenized.append(texts)
        found: Tokenizer = real_fit(cls, settings, cutter, texts)
        return found

    def init(trainer: Trainer, *arguments: Any) -> None:
        trainers.append(trainer)
        real_init(trainer, *arguments)

    monkeypatch.setattr(Tokenizer, "fitted", classmethod(fitted))
    monkeypatch.setattr(Trainer, "__init__", init)
    small_model("eclare", *FEW_STEPS, "validation=0.25").fit(data)
    parted = validation_split(data, 0.25, seed=0)
    assert parted.train.texts is not None and parted.test.texts is not None and data.test.texts is not None
    assert 0 < len(parted.test) < len(data.train) and not set(parted.train.texts) & set(parted.test.texts)
    (seen,) = tokenized
    assert sorted(seen) == sorted([*parted.train.texts, *(data.label_texts or ())])
    (trainer,) = trainers
    training_data = trainer.data
    for stage in training_data.stages:
        assert stage.train.texts == parted.train.texts and stage.augmented.split.texts == parted.train.texts
        assert (stage.augmented.split.labels != parted.train.labels).nnz == 0
    assert training_data.graph is not None
    assert training_data.graph.counts.tolist() == np.bincount(parted.train.labels.indices, minlength=N_LABELS).tolist()


def test_every_epoch_that_learns_labels_is_validated(data: Dataset) -> None:
    model = small_model("decaf", *FEW_STEPS, "validation=0.2").fit(data)
    assert [("P@1" in entry, entry["stage"], entry["epoch"]) for entry in model.history] == [
        (False, 0, 0),
        (False, 0, 1),
        (False, 1, 0),
        (False, 1, 1),
        (True, 2, 0),
        (True, 2, 1),
    ]


def test_patience_ends_a_stage_with_the_weights_of_its_best_epoch(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = iter([10.0, 30.0, 20.0, 25.0, 99.0])
    weights = []

    def validation(trainer: Trainer, recipe: Recipe, held_out: Dataset, device: torch.device) -> Any:
        def validate() -> dict[str, float]:
            weights.append(trainer.network.table.weight.detach().clone())
            return {"P@1": next(reached), "PSP@1": 0.0}

        return validate

    monkeypatch.setattr(fit, "_validation", validation)
    model = small_model("default", "epochs=5", "validation=0.1", "patience=2").fit(data)
    assert [entry["P@1"] for entry in model.history] == [10, 30, 20, 25]  # two epochs without a better one
    assert torch.equal(tensors_of(model)["0/network.table.weight"], weights[1])


def test_the_weight_of_the_fusion_is_the_best_of_the_validation_rows(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    real = stacking.evaluate
    asked: list[Any] = []

    def evaluate(found: Any, truth: Dataset, **how: Any) -> Any:
        result = real(found, truth, **how)
        if how["ks"] == (1, 5):  # one call for each weight from 0 to 1
            asked.append(truth.test)
            result = replace(result, metrics={"P@1": float(len(asked) == 4), "P@5": 0.0})
        return result

    monkeypatch.setattr(stacking, "evaluate", evaluate)
    model = small_model("astec", *FEW_STEPS).fit(data)
    assert model.trained is not None and model.trained.scorers[0].beta == 0.3
    assert len(asked) == 11 and all(len(test) == round(0.05 * len(data.train)) for test in asked)


# ---- callbacks


class Stopper:
    """Presses Ctrl-C, as the handler of the signal meets it, after so many steps of a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.reached: list[tuple[int, int, int]] = []  # stage, epoch, step
        self.rows: dict[tuple[int, int], int] = {}  # of each stage and epoch
        real = TrainingMonitor.on_step

        def on_step(monitor: TrainingMonitor, position: Position, loss: Tensor, n_rows: int) -> Decision:
            stage = monitor._current[0]
            self.reached.append((stage, position.epoch, position.step))
            self.rows[stage, position.epoch] = self.rows.get((stage, position.epoch), 0) + n_rows
            if self.left is not None:
                self.left -= 1
                if self.left == 0:
                    monitor._interrupt(2, None)
            return real(monitor, position, loss, n_rows)

        monkeypatch.setattr(TrainingMonitor, "on_step", on_step)


@pytest.fixture
def stopper(monkeypatch: pytest.MonkeyPatch) -> Stopper:
    return Stopper(monkeypatch)


class Recorder:
    """Callbacks that note what they are called with, and ask for something at some steps or epochs, if at all."""

    def __init__(self, asks: dict[tuple[int, ...], Decision] | None = None, at_end: Decision = Decision.GO_ON) -> None:
        self.asks, self.at_end = asks or {}, at_end
        self.calls: list[tuple[str | int, ...]] = []
        self.messages: list[str] = []
        self.number = -1

    @property
    def steps(self) -> list[tuple[str | int, ...]]:
        """Stage, epoch and step of every step."""
        return [call[1:] for call in self.calls if call[0] == "step"]

    def on_stage_begin(self, number: int, stage: Stage, pace: Pace) -> None:
        self.number = number
        self.calls.append(("stage", number, pace.epochs))

    def on_epoch_begin(self, epoch: int, n_steps: int) -> None:
        self.calls.append(("epoch", self.number, epoch, n_steps))

    def on_step(self, position: Position, loss: Tensor, n_rows: int) -> Decision:
        assert torch.isfinite(loss) and n_rows <= 96
        place = (self.number, position.epoch, position.step)
        self.calls.append(("step", *place))
        return self.asks.get(place, Decision.GO_ON)

    def on_epoch_end(self, epoch: int) -> Decision:
        self.calls.append(("end of epoch", self.number, epoch))
        return self.asks.get((self.number, epoch), Decision.GO_ON)

    def on_run_end(self) -> Decision:
        self.calls.append(("end",))
        return self.at_end

    def best_weights(self) -> dict[str, Tensor] | None:
        return None

    def log(self, message: str) -> None:
        self.messages.append(message)

    def state(self, position: Position) -> Saved:
        return Saved({"recorder/calls": torch.tensor(len(self.calls))}, {"by": "the recorder"})

    def load(self, saved: Saved) -> None:
        assert saved.notes["by"] == "the recorder" and list(saved.group("recorder")) == ["calls"]


def state_of(trainer: Trainer) -> dict[str, Tensor]:
    return {**trainer.network.state_dict(), "random": torch.get_rng_state()}


def assert_same_state(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def run_of(model: XMC, data: Dataset, callbacks: Recorder | TrainingMonitor, place: Path | None = None) -> Trainer:
    """The trainer of a model after its run, or after what is left of it."""
    trainer = trainer_of(model, data)
    trainer.run(callbacks, None if place is None else Checkpoints(place, "this run"))
    return trainer


def test_callbacks_meet_every_stage_epoch_and_step_in_order(data: Dataset) -> None:
    recorder = Recorder()
    trainer = run_of(small_model("decaf", *FEW_STEPS), data, recorder)
    n_steps = -(-len(data.train) // 96)
    wanted: list[tuple[str | int, ...]] = []
    for stage in range(3):
        wanted.append(("stage", stage, 2))
        for epoch in range(2):
            wanted += [("epoch", stage, epoch, n_steps), *(("step", stage, epoch, step + 1) for step in range(n_steps))]
            wanted.append(("end of epoch", stage, epoch))
    assert recorder.calls == [*wanted, ("end",)]
    assert trainer.number == 3 and trainer.stage is trainer.plan.stages[2] and not trainer.network.training


@pytest.mark.parametrize("recipe", ["decaf", "unidec"])
def test_callbacks_change_nothing(recipe: str, data: Dataset, tmp_path: Path) -> None:
    """Neither what is noted, nor how often a checkpoint is asked for, nor that one was written."""
    model = small_model(recipe, *FEW_STEPS)
    recorder = Recorder()
    wanted = state_of(run_of(model, data, recorder))
    at_every_step = {step: Decision.SAVE for step in recorder.steps}
    saving = Recorder(at_every_step, at_end=Decision.SAVE)  # type: ignore[arg-type]
    assert_same_state(state_of(run_of(model, data, saving, tmp_path / "checkpoint")), wanted)
    assert saving.calls == recorder.calls and checkpoint.load_checkpoint(tmp_path / "checkpoint") is not None
    without_place = Recorder(at_every_step, at_end=Decision.SAVE)  # type: ignore[arg-type]
    assert_same_state(state_of(run_of(model, data, without_place)), wanted)  # nowhere to write to
    trainer = trainer_of(model, data)
    with TrainingMonitor("run", trainer.network, n_stages=len(trainer.plan.stages)) as monitor:
        trainer.run(monitor)
    assert_same_state(state_of(trainer), wanted)


def test_a_callback_ends_a_stage(data: Dataset) -> None:
    recorder = Recorder({(1, 0): Decision.END_STAGE})
    run_of(small_model("decaf", *FEW_STEPS), data, recorder)
    assert [call[1:] for call in recorder.calls if call[0] == "end of epoch"] == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]


@pytest.mark.parametrize("recipe", ["decaf", "unidec", "ngame"])
def test_begin_and_resume_are_one_path(recipe: str, data: Dataset, tmp_path: Path) -> None:
    """A run that a callback interrupts at any step of any stage, or behind the last one, ends with the same bits, resumed by itself."""
    model = small_model(recipe, *FEW_STEPS, "refresh=1") if recipe != "decaf" else small_model(recipe, *FEW_STEPS)
    whole = Recorder()
    wanted = state_of(run_of(model, data, whole))
    steps = whole.steps
    assert len({stage for stage, *_ in steps}) == len(model.recipe.stages)
    for number, step in enumerate(steps):
        place, stopped = tmp_path / str(number), Recorder({step: Decision.SAVE | Decision.INTERRUPT})  # type: ignore[dict-item]
        with pytest.raises(KeyboardInterrupt):
            run_of(model, data, stopped, place)
        again = Recorder()
        assert_same_state(state_of(run_of(model, data, again, place)), wanted)
        assert stopped.steps + again.steps == steps
    behind = Recorder(at_end=Decision.SAVE | Decision.INTERRUPT)
    with pytest.raises(KeyboardInterrupt):
        run_of(model, data, behind, tmp_path / "behind")
    again = Recorder()
    trainer = run_of(model, data, again, tmp_path / "behind")
    assert_same_state(state_of(trainer), wanted)
    assert again.calls == [("end",)] and not trainer.network.training


# ---- augmentations of stages and members


def test_each_stage_is_trained_on_the_rows_of_its_own_augmentation(data: Dataset, stopper: Stopper) -> None:
    """As Renee with Gandalf: the encoder learns from training rows alone, classifiers from label rows too."""
    n = len(data.train)
    for settings, augment, wanted in (
        (("stages.0.augment=none",), "gandalf", (n, n + N_LABELS)),
        (("stages.1.augment=gandalf",), None, (n, n + N_LABELS)),
        (("augment=gandalf", "stages.0.augment=none"), None, (n, n + N_LABELS)),
        (("augment=gandalf", "stages.1.augment=labelmix"), None, (n + N_LABELS, n)),
        (("augment=gandalf",), None, (n + N_LABELS, n + N_LABELS)),
        (("augment=gandalf",), "none", (n, n)),
        ((), None, (n, n)),
    ):
        stopper.rows = {}
        model = small_model("renee", *settings, "epochs=1", augment=augment).fit(data)
        assert (stopper.rows[0, 0], stopper.rows[1, 0]) == wanted, settings
        assert model.trained is not None and model.trained.about["rows trained on"] == max(wanted)


def test_stages_with_the_same_augmentation_share_its_rows(data: Dataset) -> None:
    model = small_model("decaf", "stages.1.augment=gandalf", "stages.2.augment=none")
    first, second, third = training_data_of(model, data).stages
    assert first is third and first is not second
    assert (len(first.augmented), len(second.augmented)) == (len(data.train), len(data.train) + N_LABELS)


def test_the_rows_of_a_stage_are_those_it_would_have_alone(data: Dataset) -> None:
    """The first stage of a run whose second is augmented ends with the bits of a run without augmentation."""
    weights = []
    for augment in (None, "gandalf"):
        recorder = Recorder()
        trainer = trainer_of(small_model("renee", *FEW_STEPS, "stages.0.augment=none", augment=augment), data)
        begin = trainer._begin

        def noted(saved: Saved | None, trainer: Trainer = trainer, begin: Any = begin) -> Position:
            if trainer.number == 1:
                weights.append({name: tensor.clone() for name, tensor in trainer.network.state_dict().items()})
            position: Position = begin(saved)
            return position

        trainer._begin = noted  # type: ignore[method-assign]
        trainer.run(recorder)
    assert_same_state(*weights)


def test_members_have_augmentations_of_their_own(data: Dataset, stopper: Stopper, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, int] = {}
    real = TrainingMonitor.on_epoch_end

    def on_epoch_end(monitor: TrainingMonitor, epoch: int) -> Decision:
        assert monitor._epoch is not None
        found[monitor.title] = monitor._epoch.rows
        return real(monitor, epoch)

    monkeypatch.setattr(TrainingMonitor, "on_epoch_end", on_epoch_end)
    others = ('name="plain", augment="none"', 'name="mixed", augment="labelmix"', 'name="same"', 'name="stage", stages=[{augment="none"}]')
    members = f"members=[{', '.join(f'{{{other}}}' for other in others)}]"
    settings = (*SMALL["default"][:-2], members, "validation=0.2", "epochs=1")
    n = len(validation_split(data, 0.2, seed=0).train)
    for own, augment in (((), "gandalf"), (("augment=gandalf",), None)):
        found.clear()
        model = XMC.from_recipe("default", [*settings, *own], augment=augment, device="cpu").fit(data)
        assert found == {"default": n + N_LABELS, "plain": n, "mixed": n, "same": n + N_LABELS, "stage": n}
        assert model.trained is not None and [member.name for member in model.trained.members] == list(found)


@pytest.mark.parametrize(
    "settings", [("augment=gandalff",), ("stages.0.augment=gandalff",), ('members=[{augment="gandalff"}]', "validation=0.2")]
)
def test_an_augmentation_that_is_not_there_is_named_before_anything_is_trained(
    settings: tuple[str, ...], data: Dataset, stopper: Stopper
) -> None:
    with pytest.raises(SettingError, match="^No augmentation called 'gandalff'. Did you mean 'gandalf'[?]"):
        small_model("default", *settings).fit(data)
    assert not stopper.reached


# ---- a run that is stopped and goes on


def run_in_pieces(model: XMC, data: Dataset, place: Path, stopper: Stopper, steps: int) -> int:
    """Stop after every so many steps, and go on; returns how often."""
    for stops in range(1000):
        stopper.left = steps
        again = XMC(model.recipe, model.augment, seed=model.seed, device="cpu")
        try:
            again.fit(data, checkpoint=place)
        except KeyboardInterrupt:
            assert (place / "0" / checkpoint.NOTES).is_file()
            continue
        model.trained = again.trained
        assert place.exists()  # until the model is written
        again.save(place.with_name("model"))
        return stops
    raise AssertionError("the run does not end")


RUNS = {
    "a pool of labels": ("default", (), None),
    "all labels": ("default", ("objective=all-labels",), None),
    "dropout": ("default", ("encoder.dropout=0.3", "labels.dropout=0.3", "word_dropout=0.2"), None),
    "nearest centroids, fused": ("astec", ("top_k=5",), None),
    "a fresh encoder": ("decaf", ("beam=2",), None),
    "three stages with a graph": ("eclare", ("beam=2",), None),
    "clusters that stay": ("decaf", ("epochs=1", "stages.1.cluster_by=none"), None),
    "clusters and labels together": ("inceptionxml", ("encoder.dropout=0.2",), None),
    "clustered twice": ("inceptionxml-lf", ("epochs=1",), None),
    "other rows in each epoch": ("default", (), "labelmix"),
    "other rows with shortlists": ("decaf", ("epochs=1", "stages.2.epochs=2"), "labelmix"),
    "mixed token weights": ("default", (), "mixup"),
    "two networks": ("default", ("ensemble=2",), None),
    "hard negatives and batches, mined anew": ("unidec", ("epochs=4", "refresh=2"), "gandalf"),
    "a frozen encoder": ("ngame", ("epochs=2", "refresh=1", "stages.1.momentum=0.9"), "labelmix"),
    "all labels encoded": ("dexml", ("epochs=1", "texts_at_once=8"), None),
    "the best epoch": ("default", ("epochs=4", "validation=0.2", "patience=1"), None),
    "an augmentation of one stage": ("renee", ("epochs=2", "refresh=1", "stages.0.augment=none"), "gandalf"),
    "other rows in the epochs of one stage": ("decaf", ("epochs=1", "stages.2.epochs=2", "stages.2.augment=labelmix"), None),
}


@pytest.mark.parametrize("run", RUNS)
def test_stopped_after_every_step_a_run_ends_with_the_same_weights(run: str, data: Dataset, tmp_path: Path, stopper: Stopper) -> None:
    """So it is stopped within, at the end of, and between epochs, stages and networks."""
    recipe, settings, augment = RUNS[run]
    whole = small_model(recipe, *FEW_STEPS, *settings, augment=augment, seed=1).fit(data)
    all_steps, stopper.reached = stopper.reached, []
    pieces = small_model(recipe, *FEW_STEPS, *settings, augment=augment, seed=1)
    n_stops = run_in_pieces(pieces, data, tmp_path / "run" / "checkpoint", stopper, steps=1)
    assert stopper.reached == all_steps  # no step twice, none left out
    assert n_stops == len(all_steps)
    assert_same(pieces, whole)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        (("ensemble=2",), "longtail.estimator.TrainedModel"),
        (('members=[{ensemble=1, stages=[{loss="softmax"}]}]', "validation=0.2"), "longtail.recipes.fit.with_stacking_weights"),
    ],
)
def test_stopped_behind_the_last_step_no_training_is_lost(
    settings: tuple[str, ...], where: str, data: Dataset, tmp_path: Path, stopper: Stopper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While stacking weights are learned, or the model is put together."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(where, stop)
        small_model("default", *FEW_STEPS, *settings).fit(data, checkpoint=tmp_path / "checkpoint", minutes=0)
    steps, stopper.reached = stopper.reached, []
    again = small_model("default", *FEW_STEPS, *settings).fit(data, checkpoint=tmp_path / "checkpoint")
    assert steps and not stopper.reached
    assert_same(again, small_model("default", *FEW_STEPS, *settings).fit(data))


def test_seconds_of_a_run_that_was_stopped_count(data: Dataset, tmp_path: Path, stopper: Stopper, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that every step turns by a hundred seconds."""
    clock = [0.0]
    monkeypatch.setattr("longtail.training.monitor.time.monotonic", lambda: clock[0] + 0.001 * next(ticks))
    ticks = itertools.count()
    real = TrainingMonitor.on_step

    def on_step(monitor: TrainingMonitor, *arguments: Any) -> Decision:
        clock[0] += 100
        return real(monitor, *arguments)

    monkeypatch.setattr(TrainingMonitor, "on_step", on_step)
    settings = ("ensemble=2", "epochs=2")
    whole = small_model("default", *FEW_STEPS, *settings).fit(data)
    pieces = small_model("default", *FEW_STEPS, *settings)
    n_steps = len(stopper.reached)
    run_in_pieces(pieces, data, tmp_path / "checkpoint", stopper, steps=2)
    for model in (whole, pieces):
        assert model.seconds == pytest.approx(100 * n_steps, abs=50)
        assert sum(entry["seconds"] for entry in model.history) == pytest.approx(100 * n_steps, abs=50)


def test_checkpoints_while_it_runs_change_nothing(data: Dataset, tmp_path: Path) -> None:
    whole = small_model("eclare", *FEW_STEPS).fit(data)
    with_checkpoints = small_model("eclare", *FEW_STEPS).fit(data, checkpoint=tmp_path / "checkpoint", minutes=0)
    assert_same(with_checkpoints, whole)


def test_a_second_ctrl_c_ends_a_run_at_once(data: Dataset) -> None:
    trainer = trainer_of(small_model("default"), data)
    with TrainingMonitor("run", trainer.network, n_stages=1) as monitor:
        with pytest.raises(KeyboardInterrupt):
            monitor._interrupt(2, None)  # nothing was learnt that could be kept
        monitor.on_stage_begin(0, trainer.stage, trainer.pace)
        monitor.on_epoch_begin(0, 1)
        monitor._interrupt(2, None)
        with pytest.raises(KeyboardInterrupt):
            monitor._interrupt(2, None)


def test_ctrl_c_behind_the_last_step_of_a_network_ends_the_run(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TrainingMonitor.on_epoch_end

    def on_epoch_end(monitor: TrainingMonitor, epoch: int) -> Decision:
        monitor._interrupt(2, None)
        return real(monitor, epoch)

    settings = ("batch_size=96", "epochs=1", "ensemble=2")
    model = small_model("default", *settings)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingMonitor, "on_epoch_end", on_epoch_end)
        with pytest.raises(KeyboardInterrupt):
            model.fit(data, checkpoint=tmp_path / "checkpoint")
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["0"]  # the first is kept, the second was not begun
    assert_same(model.fit(data, checkpoint=tmp_path / "checkpoint"), small_model("default", *settings).fit(data))


@pytest.fixture
def stopped(data: Dataset, tmp_path: Path, stopper: Stopper) -> Path:
    """The checkpoint of a run of the recipe default that was stopped after its second step."""
    stopper.left = 2
    with pytest.raises(KeyboardInterrupt):
        small_model("default", *FEW_STEPS).fit(data, checkpoint=tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_checkpoint_of_another_run_is_refused(data: Dataset, stopped: Path) -> None:
    assert data.train.texts is not None
    other_texts = replace(data, train=replace(data.train, texts=Texts.of([f"{text} x" for text in data.train.texts])))
    half = data.train.labels.copy()
    half.data[:] = 0.5
    for model, other in (
        (small_model("default", *FEW_STEPS, seed=1), data),
        (small_model("default", *FEW_STEPS, "dim=32"), data),
        (small_model("decaf", *FEW_STEPS), data),
        (small_model("default", *FEW_STEPS, augment="gandalf"), data),
        (small_model("default", *FEW_STEPS), other_texts),
        (small_model("default", *FEW_STEPS), replace(data, train=replace(data.train, labels=half))),
    ):
        with pytest.raises(SettingError, match="^The checkpoint .*checkpoint/0 is of another recipe, data set or seed. Delete it"):
            model.fit(other, checkpoint=stopped)


def test_a_damaged_checkpoint_is_named(data: Dataset, stopped: Path) -> None:
    (stopped / "0" / checkpoint.TENSORS).write_bytes(b"nonsense")
    with pytest.raises(DataError, match="checkpoint/0 is not a whole checkpoint .* Delete it to begin anew"):
        small_model("default", *FEW_STEPS).fit(data, checkpoint=stopped)


@pytest.mark.parametrize("number", [None, 1, checkpoint.FORMAT + 1])
def test_a_checkpoint_of_another_format_is_named(number: int | None, data: Dataset, stopped: Path) -> None:
    """Those of the first format have no number."""
    notes = json.loads((stopped / "0" / checkpoint.NOTES).read_text())
    assert notes.pop("format") == checkpoint.FORMAT
    (stopped / "0" / checkpoint.NOTES).write_text(json.dumps(notes if number is None else {**notes, "format": number}))
    with pytest.raises(DataError, match="^.*checkpoint/0 is a checkpoint of another version of longtail, .* Delete it to begin anew[.]$"):
        small_model("default", *FEW_STEPS).fit(data, checkpoint=stopped)


def test_a_full_disk_keeps_the_checkpoint_before_it(data: Dataset, stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted((path, path.read_bytes()) for path in stopped.rglob("*") if path.is_file())
    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", full)
        with pytest.raises(SettingError, match="^The checkpoint .* could not be written .*No space left.*before it, if any, is kept"):
            small_model("default", *FEW_STEPS).fit(data, checkpoint=stopped, minutes=0)
    assert sorted((path, path.read_bytes()) for path in stopped.rglob("*") if path.is_file()) == before
    assert_same(small_model("default", *FEW_STEPS).fit(data, checkpoint=stopped), small_model("default", *FEW_STEPS).fit(data))


# ---- what goes wrong on the way


class Greedy(Objective):
    """An objective that runs out of memory while more than so many scores may exist."""

    def __init__(self, enough: int) -> None:
        self.enough, self.chunk_numbers = enough, FEWEST_NUMBERS * 8
        self.tried: list[int] = []

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        self.tried.append(self.chunk_numbers)
        if self.chunk_numbers > self.enough:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return AllLabelsLoss("labels", self.chunk_numbers)(network, batch)


@pytest.fixture
def first_step(data: Dataset) -> tuple[Trainer, Batch]:
    trainer = trainer_of(small_model("default", "batch_size=96"), data)
    assert trainer._begin(None) == BEGINNING
    return trainer, trainer.rows.static(trainer.stage_data, ("labels",), None).take(torch.arange(96), 0)


def test_out_of_memory_once_is_tried_again_with_half_the_scores(first_step: tuple[Trainer, Batch]) -> None:
    trainer, batch = first_step
    assert trainer.optimizer is not None
    greedy, recorder = Greedy(enough=FEWEST_NUMBERS * 4), Recorder()
    loss = backward(trainer.network, greedy, trainer.optimizer, batch, recorder)
    assert torch.isfinite(loss)
    assert greedy.tried == [FEWEST_NUMBERS * 8, FEWEST_NUMBERS * 4]
    assert recorder.messages == [f"The GPU ran out of memory; going on with {FEWEST_NUMBERS * 4:,} scores at a time."]


def test_out_of_memory_for_good_names_the_batch_size(first_step: tuple[Trainer, Batch]) -> None:
    trainer, batch = first_step
    assert trainer.optimizer is not None
    recorder = Recorder()
    with pytest.raises(SettingError, match="out of memory at a batch of 96 rows.*Type a smaller batch, such as batch_size=48[.]"):
        backward(trainer.network, Greedy(enough=0), trainer.optimizer, batch, recorder)
    assert len(recorder.messages) == 3


def test_a_loss_that_is_no_number_names_the_rate(data: Dataset) -> None:
    with pytest.raises(SettingError, match="default: labels, stage 1 of 1: the loss is (nan|inf) .* learning_rate="):
        small_model("default", "learning_rate=1e38").fit(data)


def test_devices() -> None:
    assert device_for("cpu").type == "cpu"
    with pytest.raises(SettingError, match="^'gpu' came as the device; wanted cpu or cuda[.]"):
        device_for("gpu")
    with pytest.raises(SettingError, match="^'meta' came as the device"):
        device_for("meta")
    with pytest.raises(SettingError, match="There is no GPU for the device 'cuda:99'"):
        device_for("cuda:99")


# ---- unusual data


def test_data_that_cannot_be_trained_on_is_named(data: Dataset) -> None:
    without_label_texts = replace(data, label_texts=None)
    for recipe, other, message in (
        ("default", replace(data, train=replace(data.train, texts=None)), "spelled has no texts of training rows"),
        ("default", replace(data, train=data.train.rows(np.arange(0))), "spelled has no training rows; wanted at least one"),
        ("astec", replace(data, train=data.train.rows(np.arange(0))), "spelled has no training rows; wanted at least one"),
        ("default", replace(data, label_texts=Texts.of(["one", "two"])), "There are 2 label texts for 24 labels; wanted one each"),
        ("default", without_label_texts, "spelled has no label texts, which the recipe default is made for; astec and inceptionxml need"),
        ("decaf", without_label_texts, "no label texts, which the recipe decaf is made for"),
        ("eclare", without_label_texts, "no label texts, which the recipe eclare is made for"),
        ("inceptionxml-lf", without_label_texts, "no label texts, which the recipe inceptionxml-lf is made for"),
        ("astec", replace(data, train=data.train.rows(np.arange(8))), "8 training rows, of which validation=0.05 leaves 0 .*=0.2, or"),
    ):
        with pytest.raises(DataError, match=message):
            small_model(recipe, *FEW_STEPS).fit(other)


def test_clusters_by_texts_need_texts(data: Dataset) -> None:
    model = small_model("inceptionxml", *FEW_STEPS, "cluster_by=texts")
    model.fit(data)
    with pytest.raises(DataError, match="no label texts, which the recipe inceptionxml is made for"):
        model.fit(replace(data, label_texts=None))


@pytest.mark.parametrize(("recipe", "settings"), [("astec", ()), ("inceptionxml", ()), ("default", ("labels.parts=free",))])
def test_some_recipes_need_no_label_texts(recipe: str, settings: tuple[str, ...], data: Dataset) -> None:
    model = small_model(recipe, *FEW_STEPS, *settings).fit(replace(data, label_texts=None))
    found = model.predict(["morv nalk"], k=3)
    assert found.ids.shape == (1, 3) and found.label_texts is None
    with pytest.raises(DataError, match="came without label texts"):
        found.texts  # noqa: B018


def test_a_split_and_its_label_texts_are_as_good_as_a_data_set(data: Dataset) -> None:
    assert data.label_texts is not None
    whole = small_model("default", *FEW_STEPS).fit(data)
    assert_same(small_model("default", *FEW_STEPS).fit(data.train, list(data.label_texts)), whole)


def test_few_labels_and_clusters(data: Dataset) -> None:
    three = spelled_out(n_labels=3, test_share=0.0)
    for recipe in ("astec", "decaf", "eclare", "inceptionxml", "inceptionxml-lf"):
        each = 2 if recipe in ("decaf", "eclare") else 4
        with pytest.raises(SettingError, match=f"^3 labels are too few for clusters of {each}; type clusters.labels_each=1, or use the"):
            small_model(recipe, *FEW_STEPS, "validation=0").fit(three)
        found = small_model(recipe, *FEW_STEPS, "validation=0", "labels_each=1").fit(three).predict(["x"], k=9)
        assert sorted(found.ids[0].tolist()) == [0, 1, 2]  # k is cut to the number of labels


def test_one_label() -> None:
    one = dataset([("red apple", [0]), ("pear", [])], [], ["apple"])
    found = small_model("default", *FEW_STEPS).fit(one).predict(["green apple", ""], k=5)
    assert found.ids.tolist() == [[0], [0]] and found.texts == [["apple"], ["apple"]]
    with pytest.raises(SettingError, match="^1 labels are too few for clusters of 1; use the recipe default[.]"):
        small_model("decaf", *FEW_STEPS, "labels_each=1").fit(one)


@pytest.mark.parametrize("recipe", registry.recipes())
def test_rows_without_labels_and_texts_without_words(recipe: str, data: Dataset) -> None:
    """They may stand among the others: nothing breaks, and every text has an answer."""
    assert data.train.texts is not None
    texts = [*list(data.train.texts)[:100], "", "  ", "morv", "!?"]
    labels = [data.train.labels[row].indices.tolist() for row in range(100)]
    split = Split(Texts.of(texts), labels_from_rows([*labels, [0, 1], [], [], [2]], N_LABELS))
    model = small_model(recipe, *FEW_STEPS).fit(replace(data, train=split))
    found = model.predict(["", "unknownword", "日本 🍐", "morv nalk"], k=4)
    assert found.ids.shape == found.scores.shape == (4, 4)
    assert ((found.ids >= 0) & (found.ids < N_LABELS)).all() and np.isfinite(found.scores).all()
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert found.ids[0].tolist() == found.ids[1].tolist() == found.ids[2].tolist()  # no known word in any of them


def test_a_model_without_rows_of_some_labels(data: Dataset) -> None:
    """Labels that no training row has are there to be found all the same."""
    rows = np.flatnonzero(np.asarray(data.train.labels[:, :3].sum(axis=1)).ravel() == 0)
    fewer = replace(data, train=data.train.rows(rows))
    for recipe in registry.recipes():
        found = small_model(recipe, *FEW_STEPS).fit(fewer).predict(["morv nalk"], k=N_LABELS)
        assert sorted(found.ids[0].tolist()) == list(range(N_LABELS))


def test_graphs_of_every_kind(data: Dataset) -> None:
    for kind in registry.GRAPHS:
        model = small_model("eclare", "batch_size=96", "epochs=1", f"graph.kind={kind}").fit(data)
        assert model.trained is not None and model.trained.graph is not None
        assert model.trained.graph.kind == {"ppr": "pagerank"}.get(kind, kind)


def test_pretrained_vectors_are_where_training_starts(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("morv 1 0 0\nnalk 0 1 0\n")
    model = small_model("default", "tokens.kind=words", "ngrams=1", f"vectors={tmp_path / 'vectors.txt'}")
    trainer = trainer_of(model, data)
    places = [trainer.data.tokenizer.names().index(word) for word in ("morv", "nalk")]
    start = trainer.network.table.weight[places, :3].detach()
    assert start[0, 0] > 0 and start[0, 0] == start[1, 1] and start[0, 1] == start[0, 2] == start[1, 0] == 0
    with pytest.raises(LongtailError, match="nowhere.txt is no file"):
        small_model("default", "vectors=nowhere.txt").fit(data)
    (tmp_path / "vectors.txt").write_text("foreign 1 0 0\n")
    with pytest.raises(DataError, match="vectors.txt has a vector for none of the 48 tokens"):
        small_model("default", "tokens.kind=words", "ngrams=1", f"vectors={tmp_path / 'vectors.txt'}").fit(data)


def test_token_rows_of_a_batch_are_those_of_its_texts(data: Dataset) -> None:
    """What the loop takes for a batch is what the tokenizer gives for its texts."""
    model = small_model("default")
    trainer = trainer_of(model, data)
    assert data.train.texts is not None
    taken = trainer.rows.static(trainer.stage_data, ("labels",), None).take(torch.tensor([5, 2]), 0)
    again = trainer.data.tokenizer([data.train.texts[5], data.train.texts[2]])
    assert taken.tokens.ids.tolist() == again.ids.tolist() and taken.tokens.weights.tolist() == again.weights.tolist()
    assert taken.targets["labels"].ids.tolist() == [*data.train.labels[5].indices, *data.train.labels[2].indices]

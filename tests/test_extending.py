"""New parts, in a class or function each and one line of registration: an encoder that looks at the neighbours of a row, a loss, an
objective of a stage, a source of hard negatives. Each is trained, saved and loaded by its name in a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

import longtail
from longtail import XMC, Dataset
from longtail.core import registry
from longtail.core.checks import Positive
from longtail.core.errors import DataError, SettingError
from longtail.data.convert import write
from longtail.models.encoders.base import Encoder, EncoderSettings
from longtail.models.encoders.context import NO_ROW, NeighbourIndex, RowContext
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.models.losses.candidates import with_targets
from longtail.models.network import Network
from longtail.models.table import Table, weighted_sum
from longtail.recipes.data import DataSource
from longtail.recipes.read import read_recipe
from longtail.tokens.rows import TokenRows
from longtail.tokens.words import Words
from longtail.training import loop
from longtail.training.negatives.base import Negatives, NegativeSettings, StageView
from longtail.training.negatives.shortlists import Shortlists
from longtail.training.objectives.base import Batch, Objective, ObjectiveInputs, ObjectiveSettings
from longtail.training.objectives.shortlist import bce_of_candidates
from longtail.training.trainer import Trainer
from tests.spelled import N_LABELS, Command, label_names, share_found, spelled_out
from tests.spelled import command as command
from tests.tensors import Row, ragged
from tests.tensors import same_numbers as same_numbers

CPU = torch.device("cpu")
TEXTS = ["red apple", "red apple pie", "green tea", "green tea cup", "red pear", "nothing else"]


# ---- an encoder


@dataclass(frozen=True)
class NeighbourMean(EncoderSettings):
    """Settings of an encoder that adds to the token vectors of a row those of its neighbours, as GraphSAGE does by their mean."""

    reads_order: ClassVar[bool] = False

    dim: Positive = 8

    @property
    def output_dim(self) -> int:
        return self.dim

    def build(self) -> NeighbourMeanEncoder:
        return NeighbourMeanEncoder(self)


class NeighbourMeanEncoder(Encoder):
    needs_context: ClassVar[int] = 2

    def __init__(self, settings: NeighbourMean) -> None:
        super().__init__()
        self.settings = settings

    @property
    def hidden_dim(self) -> int:
        return self.settings.dim

    def forward(self, batch: TokenRows, table: Tensor, context: RowContext | None = None) -> Tensor:
        own = weighted_sum(batch, table)  # (b, dim)
        assert context is not None
        around = torch.zeros_like(own).index_add(0, context.row_of_each(), weighted_sum(context.neighbours, table))
        return own + around / context.lengths.clamp(min=1)[:, None]


# ---- a loss


def squared_hinge(scores: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """(b,): squares of how far right labels are below 1 and wrong ones above -1, as in the one-versus-all machines of DiSMEC."""
    sign = torch.where(targets > 0, 1.0, -1.0)
    short = (1 - sign * scores).clamp(min=0).square() * torch.where(targets > 0, targets, 1.0)
    return (short if counted is None else short.masked_fill(~counted, 0.0)).sum(dim=1)


# ---- an objective of a stage


@dataclass(frozen=True)
class Sampled(ObjectiveSettings):
    """Score each row against its right labels and some that are drawn for it alone.

    Args:
        tower: the label vectors that are trained.
        drawn: labels that are drawn for a row.
    """

    tower: Literal["labels", "classifiers"] = "labels"
    drawn: Positive = 4

    @property
    def towers(self) -> tuple[str, ...]:
        return (self.tower,)

    def build(self, inputs: ObjectiveInputs) -> Objective:
        return SampledLoss(inputs.n_labels, self.tower, self.drawn)


@dataclass
class SampledLoss(Objective):
    n_labels: int
    tower: str
    drawn: int

    def __call__(self, network: Network, batch: Batch) -> Tensor:
        right = batch.right(self.tower)
        drawn = torch.randint(self.n_labels, (len(batch.weights), self.drawn), device=batch.weights.device)
        candidates = with_targets(drawn, right, self.n_labels)
        hidden, towers = network(batch.tokens, {self.tower: candidates.labels}, batch.context)
        vectors, bias = towers[self.tower]
        return bce_of_candidates(network.text(hidden, self.tower), vectors, bias, candidates, batch.weights)


# ---- a source of hard negatives


@dataclass(frozen=True)
class Fixed(NegativeSettings):
    """Labels drawn at random for each row, once, when the stage begins.

    Args:
        each: labels of a row.
    """

    gives_shortlists: ClassVar[bool] = True

    each: Positive = 5

    def build(self) -> Negatives:
        return FixedNegatives(self.each)


class FixedNegatives(Shortlists):
    def __init__(self, each: int) -> None:
        super().__init__()
        self.each = each

    def find(self, view: StageView) -> Tensor:
        generator = torch.Generator().manual_seed(view.seed)
        device = view.rows.weights.device
        return torch.randint(view.n_labels, (len(view.rows), self.each), generator=generator).to(device)


# ---- one line of registration each


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    here = "tests.test_extending"
    monkeypatch.setitem(registry.ENCODERS, "neighbour-mean", (f"{here}:NeighbourMean", "the mean of a row and its neighbours"))
    monkeypatch.setitem(registry.LOSSES, "squared-hinge", (f"{here}:squared_hinge", "every label a yes or no of its own, by a margin"))
    monkeypatch.setitem(registry.OBJECTIVES, "sampled", (f"{here}:Sampled", "right labels and some drawn for each row"))
    monkeypatch.setitem(registry.NEGATIVES, "fixed", (f"{here}:Fixed", "labels drawn for each row, once"))


# ---- each in a recipe, from fit to load

SMALL = ("tokens.kind=words", "ngrams=1", "labels.dropout=0", "batch_size=16", "learning_rate=0.01", "epochs=8")
BAG = ("encoder.dropout=0", "word_dropout=0", "dim=64")
NEIGHBOURS = ("encoder.kind=neighbour-mean", "encoder.dim=64")
TWO_TOWERS = ("labels.parts=encoded", "labels.unit=true", "labels.bias=false", "objective=contrastive", "loss=sup-con")
SHORTLIST = ("objective=shortlist", "random_negatives=1")
RUNS = {
    "encoder": ("quick", (*SMALL, *NEIGHBOURS)),
    "encoder of texts and labels": ("quick", (*SMALL, *NEIGHBOURS, *TWO_TOWERS, "negatives.kind=mined", "hard=2", "refresh=2")),
    "encoder with clusters": ("decaf", (*SMALL[2:], "tokens.kind=words", *NEIGHBOURS)),
    "encoder with centroids": (
        "astec",
        (*SMALL[3:], "tokens.kind=words", *NEIGHBOURS, "stages.1.epochs=20", "stages.1.learning_rate=0.03"),
    ),
    "encoder, two networks": ("quick", (*SMALL, *NEIGHBOURS, "ensemble=2", "epochs=6")),
    "loss": ("quick", (*SMALL, *BAG, "objective=all-labels", "loss=squared-hinge")),
    "loss, contrastive": ("quick", (*SMALL, *BAG, "objective=contrastive", "loss=squared-hinge", "contrast.symmetric=false", "epochs=12")),
    "objective": ("quick", (*SMALL, *BAG, "objective=sampled", "drawn=8")),
    "hard negatives": ("quick", (*SMALL, *BAG, *SHORTLIST, "negatives.kind=fixed", "each=6")),
    "hard negatives, contrastive": ("quick", (*SMALL, *BAG, *TWO_TOWERS, "negatives.kind=fixed", "negatives.each=3")),
    "all of them": (
        "quick",
        (*SMALL, *NEIGHBOURS, *TWO_TOWERS[:-1], "loss=squared-hinge", "contrast.symmetric=false", "negatives.kind=fixed"),
    ),
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return spelled_out()


@pytest.mark.parametrize("run", RUNS)
def test_what_is_registered_is_trained_and_answers(run: str, data: Dataset, registered: None, tmp_path: Path) -> None:
    recipe, words = RUNS[run]
    model = XMC.from_recipe(recipe, words, device="cpu").fit(data)
    assert data.test.texts is not None
    found = model.predict(data.test.texts, k=5)
    assert share_found(found, data) > 0.85
    model.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model", device="cpu")
    loaded = again.predict(data.test.texts, k=5)
    assert loaded.ids.tobytes() == found.ids.tobytes() and loaded.scores.tobytes() == found.scores.tobytes()
    assert again.recipe == model.recipe


@pytest.mark.parametrize("run", [run for run in RUNS if run != "all of them"])
def test_what_is_registered_is_resumed(run: str, data: Dataset, registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, words = RUNS[run]
    words = (*words, "batch_size=48", "epochs=2")
    whole = XMC.from_recipe(recipe, words, device="cpu").fit(data)
    calls, step = [0], loop.backward

    def stopped(*arguments, **more):  # type: ignore[no-untyped-def]
        calls[0] += 1
        if calls[0] % 5 == 0:
            raise KeyboardInterrupt
        return step(*arguments, **more)

    monkeypatch.setattr(loop, "backward", stopped)
    parted, stops = XMC.from_recipe(recipe, words, device="cpu"), 0
    while parted.trained is None:
        try:
            parted.fit(data, checkpoint=tmp_path / "checkpoint", minutes=0)
        except KeyboardInterrupt:
            stops += 1
    assert stops > 1 and parted.trained is not None and whole.trained is not None
    for one, other in zip(parted.trained.scorers, whole.trained.scorers, strict=True):
        assert torch.equal(one.vectors, other.vectors) and torch.equal(one.network.table.weight, other.network.table.weight)


def test_a_registered_encoder_is_explained_and_meets_new_labels(data: Dataset, registered: None, tmp_path: Path) -> None:
    """After the model is loaded, with the training rows that came along."""
    recipe, words = RUNS["encoder of texts and labels"]
    XMC.from_recipe(recipe, words, device="cpu").fit(data).save(tmp_path / "model")
    model = longtail.load(tmp_path / "model", device="cpu")
    assert model.trained is not None and data.train.texts is not None
    neighbours = model.trained.scorers[0].network.neighbours
    assert neighbours is not None and neighbours.n == 2
    rows = model.trained.tokenizer(data.train.texts)
    assert torch.equal(neighbours.training.ids, rows.ids) and torch.equal(neighbours.training.weights, rows.weights)
    first, second = label_names(N_LABELS)[:2]
    assert [part.name for part in model.explain(f"{first} {second}").parts] == ["encoded"]
    new = f"{first.split()[0]} {second.split()[1]}"
    assert model.add_labels([new]) == [N_LABELS]
    assert model.predict([new], k=1).ids.tolist() == [[N_LABELS]]
    assert longtail.load(tmp_path / "model", device="cpu").predict([new], k=1).ids.tolist() == [[N_LABELS]]


def test_rows_meet_their_neighbours_in_training_and_never_themselves(data: Dataset, registered: None) -> None:
    """Rows of labels, which an augmentation adds, have neighbours among the training rows too."""
    recipe = read_recipe("quick", RUNS["encoder"][1])
    trainer = Trainer(recipe.plan, DataSource(data, recipe, "gandalf", 0).training_data(recipe), CPU, seed=0)
    rows, n = trainer.rows.static(trainer.stage_data, ("labels",), None), len(data.train)
    assert len(rows) == n + N_LABELS and rows.neighbours is not None
    places = torch.arange(len(rows))
    own = torch.where(places < n, places, torch.tensor(NO_ROW))
    assert torch.equal(rows.neighbours.rows, own) and not (rows.neighbours.ids[:n] == own[:n, None]).any()
    assert (rows.neighbours.ids < n).all() and (rows.neighbours.ids[:, 0] != NO_ROW).all()
    near = rows.context(torch.tensor([n + 3]))
    assert near is not None and near.rows.tolist() == [NO_ROW]
    assert all(3 in data.train.labels[row].indices for row in near.ids.tolist())  # texts that name the label


def test_settings_of_what_is_registered_are_typed_and_checked(registered: None) -> None:
    words = ("labels.dropout=0", "objective=sampled", "drawn=7", "negatives.kind=fixed", "each=3", "encoder.kind=neighbour-mean", "dim=6")
    found = read_recipe("quick", words)
    assert (found.stages[0].objective, found.negatives, found.encoder) == (Sampled(drawn=7), Fixed(each=3), NeighbourMean(dim=6))
    assert found.stages[0].batch_size == read_recipe("quick").stages[0].batch_size
    for more, message in (
        (("drawn=0",), "quick.toml: drawn came as 0; wanted 1 or more."),
        (("stages.drwan=3",), "quick.toml: No setting of stages.0 called 'drwan'. Did you mean 'drawn'?"),
        (("negatives.eahc=3",), "quick.toml: No setting of negatives called 'eahc'. Did you mean 'each'? Known: each."),
        (("encoder.dim=0",), "quick.toml: dim came as 0; wanted 1 or more."),
        (("objective=sampeld",), "No objective called 'sampeld'. Did you mean 'sampled'?"),
    ):
        with pytest.raises(SettingError) as error_info:
            read_recipe("quick", (*words, *more))
        assert str(error_info.value).startswith(message)
    with pytest.raises(SettingError, match="^quick.toml: loss came as 'squared-hing'; wanted one of .* Did you mean 'squared-hinge'[?]$"):
        read_recipe("quick", ("objective=all-labels", "loss=squared-hing"))
    assert ("fixed", "labels drawn for each row, once") in registry.describe_names("negatives")


def test_a_place_serves_as_well_as_a_registered_name() -> None:
    here = "tests.test_extending"
    words = (
        f"objective={here}:Sampled",
        "drawn=7",
        f"negatives.kind={here}:Fixed",
        "each=3",
        f"encoder.kind={here}:NeighbourMean",
        "dim=6",
    )
    found = read_recipe("quick", words)
    assert (found.stages[0].objective, found.negatives, found.encoder) == (Sampled(drawn=7), Fixed(each=3), NeighbourMean(dim=6))
    assert read_recipe("quick", ("objective=all-labels", f"loss={here}:squared_hinge")).stages[0].objective.losses == (
        f"{here}:squared_hinge",
    )


def test_an_objective_on_the_command_line(data: Dataset, registered: None, tmp_path: Path, command: Command) -> None:
    write(data, tmp_path / "spelled", "xc")
    words = (*SMALL, *BAG, "objective=sampled", "drawn=8", "--device", "cpu")
    out, _ = command.run("train", "quick", tmp_path / "spelled", *words, "--out", tmp_path / "model")
    assert "55 test rows" in out
    tables = (tmp_path / "model" / "model.json").read_text()
    assert '"objective": "sampled"' in tables and '"drawn": 8' in tables
    assert "sampled" in command.run("list", "objectives")[0] and "fixed" in command.run("list", "negatives")[0]
    assert "drawn came as -1; wanted 1 or more." in command.fails("train", "quick", tmp_path / "spelled", *words, "drawn=-1")


# ---- the loss, the objective and the negatives by hand


def test_the_loss_by_hand() -> None:
    scores, targets = torch.tensor([[2.0, 0.5, -3.0, 0.0]]), torch.tensor([[1.0, 0.5, 0.0, 0.0]])
    assert squared_hinge(scores, targets).tolist() == [0.5 * 0.25 + 1.0]
    assert squared_hinge(scores, targets, torch.tensor([[True, True, True, False]])).tolist() == [0.5 * 0.25]


def test_negatives_stay_with_their_rows(data: Dataset, registered: None) -> None:
    recipe = read_recipe("quick", (*SMALL, *BAG, *SHORTLIST, "negatives.kind=fixed", "each=6"))
    trainer = Trainer(recipe.plan, DataSource(data, recipe, None, 0).training_data(recipe), CPU, seed=0)
    trainer._begin(None)
    rows = trainer._epoch(0)
    place = torch.tensor([7, 3])
    first = rows.take(place, 0).hard_negatives()
    assert first is not None and first.shape == (2, 6) and ((first >= 0) & (first < N_LABELS)).all()
    again = trainer._epoch(1).take(place.flip(0), 1).hard_negatives()
    assert again is not None and torch.equal(again, first.flip(0))


# ---- the encoder by hand


@pytest.fixture
def network(registered: None) -> Network:
    """The encoder by its registered name, labels by their encoded texts, and the training rows to find neighbours in."""
    torch.manual_seed(0)
    tokenizer = Words().fit(TEXTS)
    kind = registry.load("encoders", "neighbour-mean")
    assert kind.__name__ == "NeighbourMean"
    encoder = kind(dim=4).build()
    made = Network(Table(tokenizer.n_tokens, 4, scale=1.0), encoder, 4, 4)
    made.neighbours = NeighbourIndex(tokenizer(TEXTS), encoder.needs_context)
    label_texts = tokenizer(["red", "tea", "unknown"])
    made.towers["labels"] = LabelVectors(("encoded",), bias=False).build(3, 4, [], CPU, label_texts)
    return made


def by_hand(network: Network, text: TokenRows, near: list[list[int]]) -> Tensor:
    training, table = network.neighbours.training.batch(), network.table.weight  # type: ignore[union-attr]
    sums = weighted_sum(training, table)
    around = torch.stack([sums[rows].mean(dim=0) if rows else torch.zeros(4) for rows in near])
    return weighted_sum(text.batch(), table) + around


def test_training_rows_are_encoded_with_their_neighbours_and_never_themselves(network: Network) -> None:
    tokens = Words().fit(TEXTS)(TEXTS)
    assert network.neighbours is not None
    neighbours = network.neighbours.of(tokens, np.arange(len(TEXTS)))
    assert neighbours.ids.tolist() == [[1, 4], [0, 4], [3, NO_ROW], [2, NO_ROW], [0, 1], [NO_ROW, NO_ROW]]
    places = torch.tensor([4, 5, 2])
    context = neighbours.take(places)
    assert (context.rows.tolist(), context.ids.tolist(), context.offsets.tolist()) == ([4, 5, 2], [0, 1, 3], [0, 2, 2, 3])
    assert context.neighbours.n_tokens == tokens.n_tokens and len(context.neighbours) == 3
    hidden, towers = network(tokens.take(places), {"labels": torch.tensor([1, 2])}, context)
    assert torch.allclose(hidden, by_hand(network, tokens.take(places), [[0, 1], [], [3]]))
    # label texts have neighbours among the training rows, too; one that nobody can read has none
    labels = Words().fit(TEXTS)(["tea", "unknown"])
    assert torch.allclose(towers["labels"][0], by_hand(network, labels, [[2, 3], []]))
    assert torch.equal(network.all_label_vectors("labels")[0][1:], network.label_vectors("labels", torch.tensor([1, 2]))[0])
    assert torch.allclose(network.all_label_vectors("labels")[0][1:], towers["labels"][0])
    everything = network(tokens.take(places), {"labels": None}, context)[1]["labels"][0]
    assert torch.allclose(everything[1:], towers["labels"][0])


def test_neighbours_get_gradients(network: Network) -> None:
    tokens = Words().fit(TEXTS)(TEXTS)
    assert network.neighbours is not None
    context = network.neighbours.of(tokens, np.arange(len(TEXTS))).take(torch.tensor([2]))
    hidden, _ = network(tokens.take(torch.tensor([2])), {}, context)
    hidden.sum().backward()
    assert network.table.weight.grad is not None
    touched = network.table.weight.grad.coalesce().indices()[0].tolist()
    assert touched == sorted(set(tokens.take(torch.tensor([2, 3])).ids.tolist()))


def test_a_text_to_predict_for_finds_its_neighbours_by_itself(network: Network) -> None:
    text = Words().fit(TEXTS)(["green apple"])
    found = network.eval().encode(text.batch())
    assert torch.allclose(found, by_hand(network, text, [[0, 2]]))  # red apple, green tea: as near as each other
    network.neighbours = None
    with pytest.raises(DataError, match="NeighbourMeanEncoder looks at neighbours of a text, and no training rows came along"):
        network.encode(text.batch())


# ---- where its neighbours come from

TOKEN = st.tuples(st.integers(1, 5), st.sampled_from([0.25, 0.5, 1.0]))
ROWS = st.lists(st.lists(TOKEN, max_size=4), min_size=1, max_size=6)


def naive_neighbours(rows: list[Row], others: list[Row], own: list[int], n: int) -> list[list[int]]:
    """The training rows with the largest products, one pair after the other; of equal ones the earlier."""
    found = []
    for row, itself in zip(rows, own, strict=True):
        products = [sum(one * other for token, one in row for same, other in text if token == same) for text in others]
        order = sorted(range(len(others)), key=lambda place: (-products[place], place))
        near = [place for place in order if place != itself and products[place] > 0][:n]
        found.append(near + [NO_ROW] * (n - len(near)))
    return found


@given(ROWS, ROWS, st.integers(1, 3), st.data())
@settings(max_examples=30)
def test_neighbours_against_a_loop(training: list[Row], rows: list[Row], n: int, data: st.DataObject) -> None:
    own = data.draw(st.lists(st.integers(NO_ROW, len(training) - 1), min_size=len(rows), max_size=len(rows)))
    places: NDArray[np.int64] = np.array(own, np.int64)
    found = NeighbourIndex(ragged(*training), n).of(ragged(*rows), places)
    assert found.ids.tolist() == naive_neighbours(rows, training, own, n)
    assert found.rows.tolist() == own and ((found.weights > 0) == (found.ids != NO_ROW)).all()

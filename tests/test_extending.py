"""New parts in a file each and one line of registration: an encoder that looks at the neighbours of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from longtail.core import registry
from longtail.core.checks import Positive
from longtail.core.errors import DataError
from longtail.models.encoders.base import Encoder, EncoderSettings
from longtail.models.encoders.context import NO_ROW, NeighbourIndex, RowContext
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.models.network import Network
from longtail.models.table import Table, weighted_sum
from longtail.tokens.rows import TokenRows
from longtail.tokens.words import Words
from tests.tensors import Row, ragged

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


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    """The encoder by its registered name, labels by their encoded texts, and the training rows to find neighbours in."""
    monkeypatch.setitem(registry.ENCODERS, "neighbour-mean", ("tests.test_extending:NeighbourMean", "the mean of a row and its neighbours"))
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

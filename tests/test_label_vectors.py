"""Label vectors from texts, neighbours and free parts, and their mixtures: by hand and against dense products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from longtail.core.errors import DataError, SettingError
from longtail.models import network
from longtail.models.label_vectors import vectors
from longtail.models.label_vectors.mixtures import Attention, Gated, Only, Sum, mixture
from longtail.models.label_vectors.vectors import FIRST_BIAS, LabelTower, LabelVectors, graph_penalty
from longtail.models.network import Network
from longtail.models.table import Table, weighted_sum
from tests.tensors import same_numbers as same_numbers

CPU = torch.device("cpu")
N_LABELS, N_TOKENS, DIM = 5, 7, 4

TEXTS = csr_matrix([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 3.0]])  # label 1 has an empty text
GRAPH = csr_matrix([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
TABLE = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]])
SUMS = [[1.0, 2.0], [0.0, 0.0], [-3.0, 4.0]]  # Z E
AROUND = [[0.5, 1.0], [-1.5, 2.0], [-3.0, 4.0]]  # G Z E


def sparse(n_rows: int, n_columns: int, seed: int) -> csr_matrix:
    random = np.random.default_rng(seed)
    return csr_matrix(random.random((n_rows, n_columns), np.float32) * (random.random((n_rows, n_columns)) < 0.5))


def side_of(settings: LabelVectors, texts: csr_matrix = TEXTS, graph: csr_matrix = GRAPH, dim: int = 2) -> LabelTower:
    return settings.build(texts.shape[0], dim, settings.text_rows(texts, graph), CPU).eval()


def called(tower: LabelTower, labels: list[int] | None, table: Tensor) -> tuple[Tensor, Tensor | None]:
    wanted = None if labels is None else torch.tensor(labels)
    return tower.vectors(wanted, [weighted_sum(tokens, table) for tokens in tower.tokens(wanted)], table)


def same(found: Tensor, wanted: Sequence[Sequence[float]]) -> bool:
    return found.shape == (len(wanted), len(wanted[0])) and torch.allclose(found, torch.tensor(wanted), atol=1e-5)


# ---- parts


def test_text_by_hand() -> None:
    tower = side_of(LabelVectors(("text",)))
    # at the start the block adds ReLU(x) to x
    assert same(called(tower, None, TABLE)[0], [[2.0, 4.0], [0.0, 0.0], [-3.0, 8.0]])
    assert same(called(tower, [2, 0], TABLE)[0], [[-3.0, 8.0], [2.0, 4.0]])
    gated = side_of(LabelVectors(("text",), block="gated"))
    assert same(called(gated, None, TABLE)[0], [[1.0, 2.0], [0.0, 0.0], [-1.5, 4.0]])
    assert same(called(side_of(LabelVectors(("text",), block="none")), None, TABLE)[0], SUMS)


def test_graph_by_hand() -> None:
    assert same(called(side_of(LabelVectors(("graph",), convolution="lightgcn")), None, TABLE)[0], AROUND)
    assert same(called(side_of(LabelVectors(("graph",))), None, TABLE)[0], [[1.0, 2.0], [-1.5, 4.0], [-3.0, 8.0]])
    second = [[-0.5, 1.5], [-2.25, 3.0], [-3.0, 4.0]]  # G G Z E
    both = side_of(LabelVectors(("graph",), convolution="lightgcn", order=2))
    assert same(called(both, None, TABLE)[0], (np.array(AROUND) + second).tolist())


def test_gcn_by_hand() -> None:
    tower = side_of(LabelVectors(("graph",), convolution="gcn"))
    linear = tower.blocks[0].get_submodule("0")
    assert isinstance(linear, nn.Linear)
    linear.weight.data.copy_(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    linear.bias.data.copy_(torch.tensor([0.0, 1.0]))
    assert same(called(tower, None, TABLE)[0], [[1.0, 0.5], [2.0, 2.5], [4.0, 4.0]])
    own = side_of(LabelVectors(("text", "graph"), convolution="gcn"))
    assert [type(block).__name__ for block in own.blocks] == ["ScaledBlock", "Sequential"]  # texts have the block always


def test_free_and_bias() -> None:
    tower = side_of(LabelVectors())
    assert tower.tokens(None) == [] and tower.free is not None
    found, bias = called(tower, None, TABLE)
    assert found is tower.free.weight and bias is not None and bias.tolist() == [FIRST_BIAS] * 3
    found, bias = called(tower, [0, 2], TABLE)
    assert torch.equal(found, tower.free.weight[[0, 2]]) and bias is not None and bias.shape == (2,)
    (found.sum() + (bias * torch.tensor([1.0, 5.0])).sum()).backward()
    assert tower.bias is not None and tower.bias.weight.grad is not None and tower.free.weight.grad is not None
    assert tower.bias.weight.grad.is_sparse and tower.bias.weight.grad.to_dense().tolist() == [[1.0], [0.0], [5.0]]
    assert tower.free.weight.grad.is_sparse and tower.free.weight.grad.to_dense().tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    assert called(side_of(LabelVectors(bias=False)), None, TABLE)[1] is None


def test_all_parts_added_up() -> None:
    tower = side_of(LabelVectors(("text", "graph", "free"), convolution="lightgcn"))
    assert tower.free is not None
    wanted = torch.tensor(SUMS) + torch.tensor(SUMS).relu() + torch.tensor(AROUND) + tower.free.weight
    assert torch.allclose(called(tower, None, TABLE)[0], wanted, atol=1e-5)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_convolved_tokens_are_convolved_vectors(order: int) -> None:
    texts, graph = sparse(N_LABELS, N_TOKENS, 1), sparse(N_LABELS, N_LABELS, 2)
    table = torch.randn(N_TOKENS, DIM)
    rows = LabelVectors(("text", "graph"), order=order).text_rows(texts, graph)
    assert len(rows) == 1 + order
    around = texts.toarray() @ table.numpy()
    for part in rows:
        assert np.allclose(part @ table.numpy(), around, atol=1e-5)  # (G Z) E = G (Z E)
        around = graph.toarray() @ around
    assert LabelVectors(("graph",), order=order).text_rows(texts, graph)[0].toarray() == pytest.approx((graph @ texts).toarray())
    assert LabelVectors().text_rows(texts, graph) == LabelVectors().text_rows(None, None) == []


SHAPES = [
    LabelVectors(("text",)),
    LabelVectors(("text", "graph"), "gated", order=2, block="gated"),
    LabelVectors(("free", "text", "graph"), "attention", bias=False),
    LabelVectors(("graph", "free"), convolution="gcn"),
    LabelVectors(("free",)),
]


def in_pieces(tower: LabelTower, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As a network makes them for prediction."""
    made = Network(Table(*table.shape, scale=0.0), torch.nn.Identity(), DIM, DIM)
    made.table.weight = torch.nn.Parameter(table)
    made.towers["labels"] = tower
    return made.all_label_vectors("labels")


def random_side(settings: LabelVectors) -> tuple[LabelTower, Tensor]:
    tower = side_of(settings, sparse(N_LABELS, N_TOKENS, 1), sparse(N_LABELS, N_LABELS, 2), DIM)
    with torch.no_grad():
        for parameter in tower.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return tower, torch.randn(N_TOKENS, DIM)


@pytest.mark.parametrize("at_once", [2, 100])
@pytest.mark.parametrize("settings", SHAPES)
def test_some_labels_all_labels_and_pieces_agree(settings: LabelVectors, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "AT_ONCE", at_once)
    monkeypatch.setattr(network, "AT_ONCE", at_once)
    tower, table = random_side(settings)
    # where there are many labels, three of five are summed with all of them
    assert len(tower.tokens(torch.tensor([4, 1, 2]))) == (0 if at_once == 2 else len(tower.texts))
    found, bias = called(tower, None, table)
    pieces, of_pieces = in_pieces(tower, table)
    assert found.shape == (N_LABELS, DIM) and not pieces.requires_grad
    assert torch.allclose(found, pieces, atol=1e-6)
    some, of_some = called(tower, [4, 1, 2], table)
    assert torch.allclose(found[[4, 1, 2]], some, atol=1e-6)
    assert (bias is None) == (of_pieces is None) == (of_some is None) == (not settings.bias)
    if bias is not None and of_pieces is not None and of_some is not None:
        assert torch.equal(bias, of_pieces) and torch.equal(bias[[4, 1, 2]], of_some)


def test_gradients_are_the_same_whichever_way_texts_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients, above = [], torch.randn(3, DIM)
    for at_once in (2, 100):
        torch.manual_seed(1)
        monkeypatch.setattr(vectors, "AT_ONCE", at_once)
        tower, table = random_side(LabelVectors(("text", "graph"), order=2))
        table.requires_grad_()
        (called(tower, [4, 1, 2], table)[0] * above).sum().backward()
        gradients.append(table.grad)
    table.grad = None
    (called(tower, None, table)[0] * torch.zeros(N_LABELS, DIM).index_copy(0, torch.tensor([4, 1, 2]), above)).sum().backward()
    gradients.append(table.grad)
    assert all(gradient is not None and torch.allclose(gradient, gradients[0], atol=1e-5) for gradient in gradients)


@pytest.mark.parametrize("settings", SHAPES)
def test_summed_once_gives_the_same(settings: LabelVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "AT_ONCE", 2)
    tower, table = random_side(settings)
    before, some = called(tower, None, table)[0], called(tower, [0, 3], table)[0]
    tower.sum_once(table)
    assert tower.tokens(None) == [] == tower.tokens(torch.tensor([1]))
    other = torch.full_like(table, torch.nan)  # is not looked at any more
    assert torch.allclose(called(tower, None, other)[0], before, atol=1e-6)
    assert torch.allclose(called(tower, [0, 3], other)[0], some, atol=1e-6)
    assert torch.allclose(in_pieces(tower, other)[0], before, atol=1e-6)


def test_free_vectors_start_at_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "AT_ONCE", 2)
    tower = side_of(LabelVectors(start="text"))
    tower.start_free_at(TEXTS, TABLE)
    assert tower.free is not None and same(tower.free.weight, SUMS)
    assert isinstance(tower.free.weight, nn.Parameter) and tower.free.weight.requires_grad


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        (LabelVectors(), (False, False)),
        (LabelVectors(("text",)), (True, False)),
        (LabelVectors(("graph",)), (True, True)),
        (LabelVectors(start="text"), (True, False)),
        (LabelVectors(start="graph"), (True, True)),
    ],
)
def test_what_is_needed(settings: LabelVectors, needs: tuple[bool, bool]) -> None:
    assert (settings.needs_text, settings.needs_graph) == needs


# ---- mixtures


PARTS = [torch.tensor([[1.0, -2.0], [0.0, 3.0]]), torch.tensor([[4.0, 5.0], [-6.0, 0.0]])]


def test_mixtures_by_hand() -> None:
    assert mixture("sum", 2, 2, 0.0)(PARTS).tolist() == [[5.0, 3.0], [-6.0, 3.0]]
    gated = mixture("gated", 2, 2, 0.0)
    assert isinstance(gated, Gated) and gated(PARTS).tolist() == [[2.5, 1.5], [-3.0, 1.5]]
    gated.gates.data.copy_(torch.tensor([[0.25, 0.5], [0.75, 0.1]]).logit())
    assert same(gated(PARTS), [[3.25, -0.5], [-4.5, 1.5]])
    for name in ("sum", "gated", "attention"):
        only = mixture(name, 1, 2, 0.5)
        assert isinstance(only, Only) and only(PARTS[:1]) is PARTS[0]
    assert isinstance(mixture("sum", 2, 2, 0.5), Sum) and isinstance(mixture("attention", 2, 2, 0.5), Attention)


def test_attention_by_hand() -> None:
    attention = Attention(2, 2, 0.0).eval()
    with torch.no_grad():
        attention.transform.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))  # of norm 2: T = (1 0; 0 0.5)
        attention.transform.u.copy_(torch.tensor([1.0, 0.0]))
        attention.attention.weight.copy_(torch.tensor([[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 0.0]]))  # of norm sqrt(5)
        attention.attention.u.copy_(torch.tensor([1.0, 0.0]))
    seen = lambda x: 1 / (1 + np.exp(-x)) - 0.5  # noqa: E731
    # label 0: ReLU (1, 0) and (4, 5) become seen(1, 0) and seen(4, 2.5)
    first = np.array([seen(1) + 2 * seen(2.5), 0])
    # label 1: ReLU (0, 3) and (0, 0) become seen(0, 1.5) and seen(0, 0)
    second = np.array([0, seen(1.5)])
    wanted = [np.exp(one) / np.exp(one).sum() for one in (first / 5**0.5, second / 5**0.5)]
    assert same(attention.weights(PARTS), np.array(wanted).tolist())
    mixed = [wanted[row][0] * PARTS[0][row].numpy() + wanted[row][1] * PARTS[1][row].numpy() for row in range(2)]
    assert same(attention(PARTS), np.array(mixed).tolist())


def test_attention_rows_sum_to_one_and_differ() -> None:
    attention, parts = Attention(3, 4, 0.2), [torch.randn(6, 4) for _ in range(3)]
    for module in (attention, attention.eval()):
        weights = module.weights(parts)
        assert weights.shape == (6, 3) and torch.allclose(weights.sum(dim=1), torch.ones(6)) and (weights > 0).all()
    assert not torch.allclose(weights[0], weights[1], atol=1e-3)  # labels have weights of their own
    alike = [parts[0]] * 3
    assert torch.allclose(attention(alike), parts[0], atol=1e-6)  # a mean of the same is the same


def test_no_part_is_left_alone_however_long_it_is_preferred() -> None:
    """Adam moves all 900 numbers of a row of A alike, and what they are multiplied with has a half in common for all labels."""
    torch.manual_seed(0)
    attention, parts = Attention(3, 300, 0.0), [9 * torch.nn.functional.normalize(torch.randn(20, 300), dim=1) for _ in range(3)]
    adam = torch.optim.Adam(attention.parameters(), lr=0.01)
    for _ in range(100):
        adam.zero_grad()
        (-attention.weights(parts)[:, 2].log().mean()).backward()
        adam.step()
    assert 0.6 < attention.weights(parts)[:, 2].mean() < 0.9


# ---- bad settings and missing data


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mix": "mean"}, "mix came as 'mean'; wanted one of sum, gated, attention."),
        ({"convolution": "gat"}, "convolution came as 'gat'; wanted one of gale, lightgcn, gcn."),
        ({"start": "zero"}, "start came as 'zero'; wanted one of random, text, graph, encoded."),
        ({"block": "plain"}, "block came as 'plain'; wanted one of scaled, gated, none."),
        ({"parts": ()}, "parts came as []; wanted some of text, graph, free, encoded, each once."),
        ({"parts": ("text", "title")}, "parts came as ('text', 'title'); wanted one of text, graph, free, encoded."),
        ({"parts": ("free", "free")}, "parts came as ['free', 'free']; wanted some of text, graph, free, encoded, each once."),
        ({"order": 0}, "order came as 0; wanted 1 or more."),
        ({"dropout": 1.5}, "dropout came as 1.5; wanted a number from 0 to below 1."),
    ],
)
def test_settings_that_cannot_work_are_named(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError) as error:
        LabelVectors(**wrong)  # type: ignore[arg-type]
    assert str(error.value) == said


def test_labels_without_texts_or_graph() -> None:
    for parts in (("text",), ("graph",), ("free", "graph")):
        with pytest.raises(DataError, match=r"The labels have no texts, .*; type labels\.parts=free\."):
            LabelVectors(parts).text_rows(None, GRAPH)
    with pytest.raises(DataError, match=r"There is no label graph, .*; leave graph out of labels\.parts\."):
        LabelVectors(("text", "graph")).text_rows(TEXTS, None)


# ---- the penalty of GLaS


def test_graph_penalty_by_hand() -> None:
    similarity = csr_matrix([[1.0, 0.5, 0.0, 0.0], [0.5, 1.0, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0], [0.0, 0.25, 0.0, 1.0]])
    found = torch.tensor([[1.0, 0.0], [1.0, 2.0]], requires_grad=True)  # of labels 3 and 1
    # products (1 1; 1 5) against (1 0.25; 0.25 1): squares 0, 0.5625 twice and 16
    penalty = graph_penalty(found, torch.tensor([3, 1]), similarity)
    assert penalty.item() == pytest.approx((2 * 0.5625 + 16) / 4)
    penalty.backward()
    # 4 / 4 times (W W' - S) W
    assert found.grad is not None and same(found.grad, [[0.75, 1.5], [4.75, 8.0]])

"""Contrastive learning: the labels of a batch by hand, the loss over them, batches of rows that lie together, and rates."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from longtail.core.errors import SettingError
from longtail.models.encoders.bag import Bag
from longtail.models.label_rows import LabelRows
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.models.network import Network
from longtail.models.table import Table
from longtail.training import trainer
from longtail.training.loop import EpochRows, order_of
from longtail.training.negatives.mined import Mined, MinedNegatives, mine_hard_negatives
from longtail.training.objectives.all_labels import AllLabelsLoss
from longtail.training.objectives.base import Batch, ObjectiveInputs
from longtail.training.objectives.contrastive import Contrastive, ContrastiveLoss, Joint
from longtail.training.optimizer import Adam
from longtail.training.settings import ClusterSettings, Contrast
from longtail.training.stage import Stage
from tests.tensors import ragged, right_labels
from tests.tensors import same_numbers as same_numbers

CPU = torch.device("cpu")
N_LABELS = 8
RIGHT = right_labels([(1, 1.0), (4, 0.5), (6, 1.0)], [(4, 1.0)], [])  # the third row has none


def contrastive(losses: dict[str, tuple[str, ...]] | None = None, every_label: bool = False, **settings: Any) -> ContrastiveLoss:
    losses = losses or {"labels": ("sup-con",)}
    return ContrastiveLoss(N_LABELS, Contrast(**settings), losses, dict.fromkeys(losses, 1.0), every_label)


def batch_of(right: LabelRows = RIGHT, hard: Tensor | None = None, weights: tuple[float, ...] = (1.0, 2.0, 1.0)) -> Batch:
    tokens = ragged([(1, 1.0)], [(2, 1.0), (3, 1.0)], [(4, 1.0)])
    return Batch(tokens, {"labels": right}, torch.tensor(weights), 0, lambda: hard)


def mined(candidates: Tensor, hard: int) -> MinedNegatives:
    """Hard negatives as if they had been mined."""
    found = MinedNegatives(Mined(hard=hard))
    found.candidates = candidates.int()
    return found


def test_every_right_label_that_the_batch_holds_is_right_for_whichever_row_it_was_drawn() -> None:
    pool = contrastive(positives=0).pool(batch_of())
    assert pool.labels is not None and pool.labels.tolist() == [1, 4, 6]
    assert pool.targets.tolist() == [[1.0, 0.5, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert pool.counted is None


@pytest.mark.parametrize("seed", range(8))
def test_so_many_are_drawn_of_a_row_and_others_count_where_they_are_met(seed: int) -> None:
    torch.manual_seed(seed)
    pool = contrastive(positives=1).pool(batch_of())
    assert pool.labels is not None
    labels = pool.labels.tolist()
    assert 4 in labels and len(labels) <= 2  # label 4 is the only one of the second row, and one more at most comes with the first
    assert pool.targets[0].tolist() == [{1: 1.0, 4: 0.5, 6: 1.0}[label] for label in labels]  # 4 counts half, drawn for it or not


def test_the_more_relevant_are_drawn_more_often() -> None:
    rows = right_labels(*[[(0, 1.0), (1, 0.25)]] * 4000)
    drawn = contrastive(positives=1)._drawn(rows)
    assert drawn.view(-1, 2).sum(dim=1).tolist() == [1] * 4000
    assert drawn[::2].float().mean().item() == pytest.approx(0.8, abs=0.03)  # 1 : 0.25
    assert contrastive(positives=2)._drawn(rows).all() and contrastive(positives=0)._drawn(rows).all()


@pytest.mark.parametrize("seed", range(5))
def test_of_one_the_others_of_a_row_take_no_part(seed: int) -> None:
    torch.manual_seed(seed)
    pool = contrastive(reduction="one", every_label=True).pool(batch_of())
    assert pool.labels is None and pool.counted is not None
    assert (pool.targets > 0).sum(dim=1).tolist() == [1, 1, 0]
    chosen = int(pool.targets[0].argmax())
    assert pool.counted[0].tolist() == [label == chosen or label not in (1, 4, 6) for label in range(N_LABELS)]
    assert pool.counted[1:].all()


def test_hard_negatives_come_with_right_ones_and_empty_places_do_not() -> None:
    hard = mined(torch.tensor([[0, 0], [7, 7], [-1, -1]]), hard=1).for_batch(torch.arange(3))
    assert hard is not None and hard.tolist() == [[0], [7], [-1]]
    pool = contrastive(positives=0).pool(batch_of(hard=hard))
    assert pool.labels is not None and pool.labels.tolist() == [0, 1, 4, 6, 7]
    assert pool.targets[:, [0, 4]].sum() == 0
    # a hard negative of one row that is right for another is right for that one
    pool = contrastive(positives=1).pool(batch_of(right_labels([(1, 1.0)], [(2, 1.0)]), torch.tensor([[2], [1]])))
    assert pool.targets.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("seed", range(5))
def test_so_many_hard_negatives_are_drawn_of_those_that_were_mined(seed: int) -> None:
    """Other ones in every step, of the training rows that the batch holds."""
    torch.manual_seed(seed)
    candidates = torch.arange(40).view(5, 8)
    source, rows = mined(candidates, hard=3), torch.tensor([4, 0, 2])
    draws = [source.for_batch(rows) for _ in range(6)]
    for hard in draws:
        assert hard is not None and hard.shape == (3, 3) and hard.dtype == torch.int64
        assert all(len({*row.tolist()} & {*candidates[place].tolist()}) == 3 for row, place in zip(hard, rows, strict=True))
    assert len({tuple(hard.flatten().tolist()) for hard in draws if hard is not None}) > 1
    assert MinedNegatives(Mined(hard=3)).for_batch(rows) is None  # nothing was mined yet


def test_a_full_pool_keeps_right_labels_and_what_was_drawn_most() -> None:
    hard = torch.tensor([[0], [7], [7]])
    labels = contrastive(positives=0, max_labels=4)._labels(RIGHT.ids, hard)
    assert labels.tolist() == [1, 4, 6, 7]
    labels = contrastive(positives=0, max_labels=1)._labels(RIGHT.ids, hard)
    assert labels.tolist() == [4]  # right for two rows


def test_hard_negatives_by_hand() -> None:
    texts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    found = mine_hard_negatives(texts, labels, right_labels([(0, 1.0)], [(0, 1.0), (1, 1.0), (2, 1.0)]), 2)
    assert found.tolist() == [[1, 2], [-1, -1]]


# ---- the loss


def network(unit: bool = True) -> Network:
    """Five tokens; labels 0 to 7 are texts of one token or two, encoded by the bag that encodes inputs."""
    encoder = Bag(dim=4, dropout=0.0, block="plain")
    made = Network(Table(5, 4, scale=1.0), encoder.build(), 4, 4)
    texts = ragged(*[[(1 + label % 4, 1.0)] + [(1 + label // 4, 0.5)] * (label > 3) for label in range(N_LABELS)])
    made.towers["labels"] = LabelVectors(("encoded",), unit=unit, bias=False).build(N_LABELS, 4, [], CPU, texts)
    made.towers["classifiers"] = LabelVectors(("free",), bias=True).build(N_LABELS, 4, [], CPU)
    return made


def cosines(net: Network) -> Tensor:
    hidden, towers = net(batch_of().tokens, {"labels": torch.tensor([1, 4, 6])})
    return (net.text(hidden, "labels") @ towers["labels"][0].T).float()


def test_the_loss_is_the_mean_over_rows_that_have_an_answer() -> None:
    net = network()
    logs = (cosines(net) / 0.5).log_softmax(dim=1)
    of_rows = [-(0.4 * logs[0, 0] + 0.2 * logs[0, 1] + 0.4 * logs[0, 2]), -logs[1, 1]]  # relevance 1, 0.5, 1 shared out
    found = contrastive(positives=0, temperature=0.5, symmetric=False)(net, batch_of())
    assert found.item() == pytest.approx(
        (of_rows[0] * 1 + of_rows[1] * 2).item() / 2, rel=2e-2
    )  # products in bfloat16, where there are units


def test_both_ways_count_half_each() -> None:
    net = network()
    logs = (cosines(net) / 0.5).T.log_softmax(dim=1)
    # labels 1 and 6 are right for the first row alone; 4 for the first by half and for the second, which counts twice
    back = -(logs[0, 0] + (0.5 * logs[1, 0] + 2.0 * logs[1, 1]) / 2.5 + logs[2, 0]) / 3
    forth = contrastive(positives=0, temperature=0.5, symmetric=False)(net, batch_of())
    both = contrastive(positives=0, temperature=0.5, symmetric=True)(net, batch_of())
    assert both.item() == pytest.approx(((forth + back) / 2).item(), rel=2e-2)


def test_both_towers_are_learnt_in_one_pass_by_their_shares() -> None:
    net = network()
    alone = [contrastive({tower: ("decoupled",)}, positives=0)(net, batch_of()) for tower in ("labels", "classifiers")]
    both = ContrastiveLoss(
        N_LABELS, Contrast(positives=0), {"labels": ("decoupled",), "classifiers": ("decoupled",)}, {"labels": 0.25, "classifiers": 0.75}
    )
    together = both(net, batch_of())
    assert together.item() == pytest.approx(0.25 * alone[0].item() + 0.75 * alone[1].item(), rel=1e-5)
    together.backward()
    free = net.tower("classifiers").free
    assert free is not None and free.weight.grad is not None and free.weight.grad.is_sparse
    assert free.weight.grad.coalesce().indices()[0].tolist() == [1, 4, 6]
    assert net.table.weight.grad is not None


def test_losses_of_a_tower_are_added_up() -> None:
    net = network()
    one, other = (contrastive({"classifiers": (name,)}, positives=0)(net, batch_of()).item() for name in ("decoupled", "bce"))
    assert contrastive({"classifiers": ("decoupled", "bce")}, positives=0)(net, batch_of()).item() == pytest.approx(one + other, rel=1e-5)


def test_pairs_by_themselves_are_a_mean_over_the_pool() -> None:
    """Classifiers that say 0 cost log 2 a pair, however many there are: three rows, two of which have an answer, count 1 + 2 + 1."""
    net = network()
    tower = net.tower("classifiers")
    assert tower.free is not None and tower.bias is not None
    for table in (tower.free, tower.bias):
        torch.nn.init.zeros_(table.weight)
    found = contrastive({"classifiers": ("bce",)}, positives=0)(net, batch_of())
    assert found.item() == pytest.approx(math.log(2) * (1 + 2 + 1) / 2, rel=1e-5)


def test_all_labels_are_scored_whichever_were_drawn() -> None:
    """And by classifiers as the objective all-labels does, which averages over rows, and adds up labels."""
    net = network()
    inputs = ObjectiveInputs(net, csr_matrix((3, N_LABELS)), Contrast(positives=0, share=0.25), ClusterSettings(), None, CPU)
    both = Joint(loss="decoupled", classifier_losses=("bce",), scored="all").build(inputs)(net, batch_of())
    of_labels = contrastive({"labels": ("decoupled",)}, every_label=True, positives=0)(net, batch_of())
    of_classifiers = AllLabelsLoss("classifiers")(net, batch_of()) * 3 / 2 / N_LABELS  # of three rows two have an answer
    assert both.item() == pytest.approx((0.25 * of_labels + 0.75 * of_classifiers).item(), rel=1e-5)
    assert not Joint(scored="all").uses_negatives and Joint().uses_negatives  # none is mined where all are scored


def test_rows_without_any_right_label_cost_nothing() -> None:
    found = contrastive(positives=0)(network(), batch_of(right_labels([], [], [])))
    assert found.item() == 0.0
    found.backward()


# ---- rows together, rates


def rows(groups: list[int]) -> EpochRows:
    return EpochRows(ragged(*[[] for _ in groups]), {}, torch.ones(len(groups)), groups=torch.tensor(groups))


def test_rows_of_a_group_come_one_after_the_other_and_all_come() -> None:
    groups = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    orders = [order_of(rows(groups), seed=3, epoch=epoch).tolist() for epoch in range(6)]
    for order in orders:
        assert sorted(order) == list(range(9))
        assert all(len({groups[row] for row in order[start : start + 3]}) == 1 for start in (0, 3, 6))
    assert len({tuple(groups[order[start]] for start in (0, 3, 6)) for order in orders}) > 1  # groups change places
    assert len({tuple(order) for order in orders}) == 6


def test_rates_differ_by_name_and_momentum_runs_on() -> None:
    slow, fast = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    rolling = nn.Parameter(torch.zeros(1))
    optimizer = Adam({"slow": slow, "fast": fast, "rolling": rolling}.items(), factors={"slow": 0.1}, momenta={"rolling": 0.5})
    for _ in range(2):
        for parameter in (slow, fast, rolling):
            parameter.grad = torch.ones_like(parameter)
        optimizer.step(0.01)
    assert torch.allclose(slow, fast / 10) and fast[0].item() == pytest.approx(-0.02, rel=1e-4)
    assert rolling.item() == pytest.approx(-0.01 * (1 + 1.5))
    again = Adam({"slow": slow, "fast": fast, "rolling": rolling}.items(), factors={"slow": 0.1}, momenta={"rolling": 0.5})
    again.load(optimizer.state())
    rolling.grad = torch.ones(1)
    again.step(0.01)
    assert rolling.item() == pytest.approx(-0.01 * (1 + 1.5 + 1.75))


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (Mined, {"batches": "sorted"}, "batches came as 'sorted'; wanted one of random, clustered, growing."),
        (Mined, {"hard": -1}, "hard came as -1; wanted 0 or more."),
        (Mined, {"refresh": 0}, "refresh came as 0; wanted 1 or more."),
        (Contrast, {"reduction": "all"}, "reduction came as 'all'; wanted one of one, some."),
        (Contrast, {"positives": -1}, "positives came as -1; wanted 0 or more."),
        (Contrast, {"max_labels": 0}, "max_labels came as 0; wanted 1 or more."),
        (Contrast, {"temperature": 0.0}, "temperature came as 0.0; wanted more than 0, such as 0.05."),
        (Contrast, {"share": 1.5}, "share came as 1.5; wanted a number from 0 to 1."),
    ],
)
def test_settings_that_cannot_work_are_named(kind: type[Contrast] | type[Mined], wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        kind(**wrong)
    assert str(error.value) == message


def test_stages_name_losses_and_rates_that_cannot_be() -> None:
    for given, settings, message in (
        (Contrastive(), {"loss": "hinge"}, "loss came as 'hinge'; wanted one of bce, softmax, info-nce"),
        (Joint(), {"loss": "hinge"}, "loss came as 'hinge'; wanted one of bce, softmax, info-nce"),
        (Joint(), {"classifier_losses": ("bce", "hinge")}, "classifier_losses came as .*'hinge'.*; wanted one of bce, softmax, info-nce"),
        (Joint(), {"scored": "none"}, "scored came as 'none'; wanted one of batch, all"),
        (Stage(), {"encoder_rate": 0.0}, "encoder_rate came as 0.0; wanted more than 0"),
        (Stage(), {"momentum": 1.0}, "momentum came as 1.0; wanted a number from 0 to below 1"),
    ):
        with pytest.raises(SettingError, match=message):
            replace(given, **settings)  # type: ignore[type-var]


# ---- texts that became all the same


@pytest.mark.parametrize("spread", [0.01, 1.0])
def test_an_encoder_that_gives_all_texts_one_vector_is_warned_of(spread: float) -> None:
    vectors = torch.tensor([1.0, 2.0, 3.0]) + spread * torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    network = SimpleNamespace(
        towers={"labels": None},
        tower=lambda task: SimpleNamespace(sequences=True),
        label_vectors=lambda task, labels: (vectors[labels], None),
        table=SimpleNamespace(weight=vectors),
    )
    messages: list[str] = []
    trainer._warn_if_alike(network, 5, 0, SimpleNamespace(log=messages.append))  # type: ignore[arg-type]
    assert len(messages) == (spread < 1)
    assert all(line.startswith("After stage 1 ") and "nothing was learnt. Try loss=semi-hard" in line for line in messages)

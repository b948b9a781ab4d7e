"""Losses: answers worked out by hand, plain loops as a second opinion, gradients against finite differences, and the odd rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from longtail.core.errors import SettingError
from longtail.core.registry import LOSSES, load
from longtail.models.losses.rowwise import (
    bce,
    decoupled_softmax,
    info_nce,
    pick_one,
    probabilistic_contrastive,
    semi_hard,
    soft_top_k,
    softmax,
    sup_con,
    triplet,
)
from tests.tensors import same_numbers as same_numbers

CONTRASTIVE = [name for name in LOSSES if name != "bce"]


def seeded_info_nce(scores: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    return info_nce(scores, targets, counted, generator=torch.Generator().manual_seed(3))


def one(loss: Callable[..., Tensor], scores: list[float], targets: list[float], **settings_: object) -> float:
    return float(loss(torch.tensor([scores], dtype=torch.float64), torch.tensor([targets], dtype=torch.float64), **settings_))


# ---- by hand


LOGS = [math.log(1), math.log(2), math.log(5)]


def test_all_positives_against_everything() -> None:
    assert one(sup_con, LOGS, [0, 1, 1]) == pytest.approx(-(math.log(2 / 8) + math.log(5 / 8)) / 2)
    assert one(sup_con, LOGS, [0, 1, 0.25]) == pytest.approx(-(0.8 * math.log(2 / 8) + 0.2 * math.log(5 / 8)))


def test_all_positives_added_up() -> None:
    assert one(softmax, LOGS, [0, 1, 1]) == pytest.approx(-(math.log(2 / 8) + math.log(5 / 8)))
    assert one(softmax, LOGS, [0, 1, 0.25]) == pytest.approx(-(math.log(2 / 8) + 0.25 * math.log(5 / 8)))


def test_all_positives_against_negatives_alone() -> None:
    assert one(decoupled_softmax, LOGS, [0, 1, 1]) == pytest.approx(-(math.log(2 / 3) + math.log(5 / 6)) / 2)
    assert one(decoupled_softmax, LOGS, [0, 0.1, 0.4]) == pytest.approx(-(0.2 * math.log(2 / 3) + 0.8 * math.log(5 / 6)))


def test_one_positive_against_everything() -> None:
    assert one(info_nce, LOGS, [0, 0.3, 0]) == pytest.approx(-math.log(2 / 8))
    found = {round(one(info_nce, LOGS, [0, 1, 1]), 9) for _ in range(50)}
    assert found == {round(-math.log(2 / 8), 9), round(-math.log(5 / 8), 9)}


def test_a_margin_to_the_hardest_negatives() -> None:
    scores, targets = [0.1, 0.5, -0.9, 0.4], [0, 1, 0, 0]  # behind by 0.2 and by -0.1; the third negative is not looked at
    assert one(triplet, scores, targets, negatives=2, temperature=None) == pytest.approx(0.2 / 2)
    assert one(triplet, scores, targets, negatives=2) == pytest.approx(0.2 * math.exp(4) / (math.exp(4) + math.exp(1)))
    assert one(triplet, scores, targets, negatives=1, margin=1.0) == pytest.approx(0.9)
    assert one(triplet, scores, targets, margin=2.0, temperature=None) == pytest.approx((1.6 + 1.9 + 0.6) / 3)  # fewer than asked for
    assert one(triplet, [-3.0, -5.0, -4.0], [0, 1, 0], negatives=2, temperature=None) == pytest.approx((2.3 + 1.3) / 2)
    both = one(triplet, [0.4, 0.5, 0.2], [0, 1, 0.25])
    assert both == pytest.approx(0.8 * 0.2 + 0.2 * 0.5)


def test_negatives_that_lead_the_first_positive_are_left_out() -> None:
    assert one(semi_hard, [0.9, 0.5, 0.4], [0, 1, 0]) == pytest.approx(0.2)  # triplet takes 0.9 and pays 0.7
    assert one(semi_hard, [0.9, 0.5, 0.6], [0, 1, 0]) == 0
    assert one(semi_hard, [0.4, 0.5, 0.2], [0, 1, 0.25]) == one(triplet, [0.4, 0.5, 0.2], [0, 1, 0.25])


def test_chances_that_fall_with_the_cosine() -> None:
    wrong = -math.log(1 - 0.9 * math.exp(-1.2))
    assert one(probabilistic_contrastive, [0.5, 0.2, -0.3], [1, 0, 0]) == pytest.approx(0.75 - math.log(0.9) + wrong)
    assert one(probabilistic_contrastive, [0.5, 0.2, 0.7], [1, 0, 0.25]) == pytest.approx(0.8 * 0.75 + 0.2 * 0.45 - math.log(0.9) + wrong)
    assert one(probabilistic_contrastive, [0.5, 1.0], [1, 0], c=0.75, d=3.0) == pytest.approx(1.5 - math.log(0.75) - math.log(0.25))


def test_the_soft_edge_of_the_k_best() -> None:
    # equal scores share k among n; of two scores with k = 1, t is their middle
    assert one(soft_top_k, [3.0] * 8, [0, 0, 1, 0, 0, 0, 0.5, 0]) == pytest.approx(-math.log(5 / 8))
    assert one(soft_top_k, [3.0, 1.0], [1, 0], k=1) == pytest.approx(-math.log(1 / (1 + math.exp(-2))))
    assert one(soft_top_k, [3.0, 1.0], [1, 0.25], k=1, alpha=1.0) == pytest.approx(math.log(1 + math.exp(-1)) + 0.2 * 1)


def test_a_row_of_at_most_k_places_is_all_among_the_best() -> None:
    scores = torch.randn(4, 7, requires_grad=True)
    counted = torch.arange(7) < torch.tensor([[5], [6], [3], [1]])
    loss = soft_top_k(scores, torch.ones(4, 7), counted)
    assert loss[1] > 0 and loss[[0, 2, 3]].tolist() == [0, 0, 0]
    loss.sum().backward()
    assert scores.grad is not None and not scores.grad[[0, 2, 3]].any() and scores.grad[1, :6].all() and scores.grad[1, 6] == 0
    assert soft_top_k(torch.randn(2, 5), torch.ones(2, 5)).tolist() == [0, 0]


def test_with_one_positive_a_row_three_losses_are_the_cross_entropy() -> None:
    scores, right = torch.randn(6, 9), torch.randint(9, (6,))
    targets = 0.3 * functional.one_hot(right, 9).float()
    wanted = functional.cross_entropy(scores, right, reduction="none")
    for loss in (sup_con, decoupled_softmax, info_nce):
        assert torch.allclose(loss(scores, targets), wanted)


def test_bce_of_counted_places_is_torchs() -> None:
    scores, targets, counted = torch.randn(4, 7), torch.rand(4, 7), torch.rand(4, 7) < 0.6
    each = functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    assert torch.allclose(bce(scores, targets), each.sum(dim=1))
    assert torch.allclose(bce(scores, targets, counted), (each * counted).sum(dim=1))


# ---- loops


def positives_of(targets: list[float]) -> list[tuple[int, float]]:
    total = sum(targets)
    return [(place, target / total) for place, target in enumerate(targets) if target > 0]


def loop_sup_con(scores: list[float], targets: list[float]) -> float:
    loss = 0.0
    for p, share in positives_of(targets):
        loss -= share * math.log(math.exp(scores[p]) / sum(math.exp(score) for score in scores))
    return loss


def loop_decoupled(scores: list[float], targets: list[float]) -> float:
    loss = 0.0
    for p, share in positives_of(targets):
        rivals = sum(math.exp(score) for place, score in enumerate(scores) if place == p or targets[place] == 0)
        loss -= share * math.log(math.exp(scores[p]) / rivals)
    return loss


def loop_triplet(scores: list[float], targets: list[float], temperature: float | None = 0.1, negatives: int = 10) -> float:
    hardest = sorted((score for score, target in zip(scores, targets, strict=True) if target == 0), reverse=True)[:negatives]
    weights = [1.0 if temperature is None else math.exp(score / temperature) for score in hardest]
    loss = 0.0
    for p, share in positives_of(targets):
        for negative, weight in zip(hardest, weights, strict=True):
            loss += share * weight / sum(weights) * max(0.0, 0.3 + negative - scores[p])
    return loss


def loop_semi_hard(scores: list[float], targets: list[float]) -> float:
    first = max((scores[p] for p, _ in positives_of(targets)), default=-math.inf)
    kept = [place for place, target in enumerate(targets) if target > 0 or scores[place] < first]
    return loop_triplet([scores[place] for place in kept], [targets[place] for place in kept])


def loop_probabilistic(scores: list[float], targets: list[float]) -> float:
    right = [share * (1.5 * (1 - scores[p]) - math.log(0.9)) for p, share in positives_of(targets)]
    wrong = [-math.log(1 - 0.9 * math.exp(1.5 * (score - 1))) for score, target in zip(scores, targets, strict=True) if target == 0]
    return sum(right) + max(wrong, default=0.0) if right else 0.0


def loop_soft_top_k(scores: list[float], targets: list[float], k: int = 5) -> float:
    def sigmoid(score: float, threshold: float) -> float:
        return 1 / (1 + math.exp(2.0 * (threshold - score)))

    if len(scores) <= k:
        return 0.0
    low, high = min(scores) - 100, max(scores) + 100
    for _ in range(100):
        middle = (low + high) / 2
        if sum(sigmoid(score, middle) for score in scores) > k:
            low = middle
        else:
            high = middle
    return -sum(share * math.log(sigmoid(scores[p], low)) for p, share in positives_of(targets))


def loop_bce(scores: list[float], targets: list[float]) -> float:
    loss = 0.0
    for score, target in zip(scores, targets, strict=True):
        chance = 1 / (1 + math.exp(-score))
        loss -= target * math.log(chance) + (1 - target) * math.log(1 - chance)
    return loss


# name -> the loss, its loop, and how far its scores lie from 0
LOOPS: dict[str, tuple[Callable[..., Tensor], Callable[[list[float], list[float]], float], float]] = {
    "bce": (bce, loop_bce, 8),
    "sup-con": (sup_con, loop_sup_con, 8),
    "softmax": (softmax, lambda scores, targets: sum(targets) * loop_sup_con(scores, targets), 8),
    "decoupled": (decoupled_softmax, loop_decoupled, 8),
    "soft-top-k": (soft_top_k, loop_soft_top_k, 8),
    "soft-top-1": (lambda *given: soft_top_k(*given, k=1), lambda *row: loop_soft_top_k(*row, k=1), 8),
    "triplet": (triplet, loop_triplet, 1),
    "triplet, alike": (
        lambda *given: triplet(*given, temperature=None, negatives=2),
        lambda *row: loop_triplet(*row, temperature=None, negatives=2),
        1,
    ),
    "semi-hard": (semi_hard, loop_semi_hard, 1),
    "probabilistic": (probabilistic_contrastive, loop_probabilistic, 1),
}
Batch = tuple[Tensor, Tensor, Tensor | None]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Scores in [-1, 1] with ties, targets of which some are soft, and places that do not count."""
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 14))

    def grid(values: st.SearchStrategy[float]) -> Tensor:
        size = shape[0] * shape[1]
        return torch.tensor(draw(st.lists(values, min_size=size, max_size=size)), dtype=torch.float64).reshape(shape)

    scores = grid(st.one_of(st.floats(-1, 1, width=32), st.sampled_from([-0.5, 0.0, 0.5])))
    targets = grid(st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.5, 1.0]))
    return scores, targets, grid(st.sampled_from([0.0, 1.0, 1.0])) > 0 if draw(st.booleans()) else None


def rows_of(scores: Tensor, targets: Tensor, counted: Tensor | None) -> list[tuple[list[float], list[float]]]:
    """Scores and targets of each row, places that are not counted left out."""
    kept = torch.ones_like(scores, dtype=torch.bool) if counted is None else counted
    return [(scores[row, kept[row]].tolist(), targets[row, kept[row]].tolist()) for row in range(len(scores))]


@pytest.mark.parametrize("name", LOOPS)
@settings(max_examples=60, deadline=None)
@given(batch=batches())
def test_against_loops(name: str, batch: Batch) -> None:
    loss, loop, reach = LOOPS[name]
    scores, targets, counted = batch[0] * reach, *batch[1:]
    wanted = [loop(*row) for row in rows_of(scores, targets, counted)]
    assert loss(scores, targets, counted).tolist() == pytest.approx(wanted, rel=1e-7, abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(batch=batches())
def test_drawing_one_positive_against_loops(batch: Batch) -> None:
    scores, targets, counted = batch[0] * 8, *batch[1:]
    found = seeded_info_nce(scores, targets, counted).tolist()
    for value, (row, right) in zip(found, rows_of(scores, targets, counted), strict=True):
        possible = [loop_sup_con(row, [float(place == p) for place in range(len(row))]) for p, _ in positives_of(right)]
        assert any(value == pytest.approx(one_of_them, rel=1e-9, abs=1e-12) for one_of_them in possible or [0.0])


def test_pick_one_draws_in_proportion_to_relevance() -> None:
    targets = torch.tensor([0.6, 0.0, 0.3, 0.1]).expand(20_000, 4)
    picked = pick_one(targets, torch.Generator().manual_seed(1))
    assert (picked.sum(dim=1) == 1).all() and set(picked.unique().tolist()) == {0.0, 1.0}
    assert picked.mean(dim=0).tolist() == pytest.approx([0.6, 0.0, 0.3, 0.1], abs=0.012)  # 3.5 standard errors
    assert torch.equal(picked, pick_one(targets, torch.Generator().manual_seed(1)))
    assert not torch.equal(picked, pick_one(targets, torch.Generator().manual_seed(2)))


def test_pick_one_finds_the_only_positive_whatever_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, **kind: torch.zeros(shape, dtype=kind["dtype"]))  # the draw of longest wait
    targets = torch.tensor([[0.0, 0.0, 1e-6], [0.0, 0.0, 0.0]])
    assert pick_one(targets).tolist() == [[0, 0, 1], [0, 0, 0]]


# ---- gradients


TARGETS = torch.tensor([[1, 0, 0, 0.2, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 0], [0.5, 0.5, 0, 0, 0, 1, 0, 0], [0] * 8, [1] * 8]).double()
COUNTED = torch.tensor([[1] * 8, [1, 1, 1, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0, 0], [1] * 8, [1] * 8], dtype=torch.bool)

SMOOTH: dict[str, Callable[..., Tensor]] = {
    "bce": bce,
    "info-nce": seeded_info_nce,
    "sup-con": sup_con,
    "softmax": softmax,
    "decoupled": decoupled_softmax,
    "soft-top-k": lambda *given: soft_top_k(*given, steps=60),
    "soft-top-2": lambda *given: soft_top_k(*given, k=2, alpha=0.7, steps=60),
    "triplet, alike": lambda *given: triplet(*given, temperature=None),
    "probabilistic": probabilistic_contrastive,
}


@pytest.mark.parametrize("counted", [None, COUNTED], ids=["all", "some"])
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_against_finite_differences(name: str, counted: Tensor | None) -> None:
    scores = torch.rand(5, 8, dtype=torch.float64).mul(2).sub(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: SMOOTH[name](given, TARGETS, counted), [scores])
    (gradient,) = torch.autograd.grad(SMOOTH[name](scores, TARGETS, counted).sum(), scores)
    assert gradient[:3].any(dim=1).all()


def test_no_gradient_runs_through_the_weights_of_the_triplet_loss() -> None:
    scores = torch.tensor([[0.5, 0.4, 0.3, -0.9]], requires_grad=True)
    triplet(scores, torch.tensor([[1.0, 0, 0, 0]])).sum().backward()
    weights = torch.tensor([4.0, 3.0, -9.0]).softmax(dim=0)
    assert scores.grad is not None
    assert scores.grad[0].tolist() == pytest.approx([-float(weights[0] + weights[1]), float(weights[0]), float(weights[1]), 0.0])


@pytest.mark.parametrize("loss", [sup_con, decoupled_softmax, soft_top_k, seeded_info_nce])
def test_what_is_added_to_all_scores_changes_nothing(loss: Callable[..., Tensor]) -> None:
    scores = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    found = loss(scores, TARGETS, COUNTED)
    assert torch.allclose(loss(scores + 7, TARGETS, COUNTED), found, atol=1e-8)
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert gradient.sum(dim=1).tolist() == pytest.approx([0] * 5, abs=1e-12)


# ---- odd rows


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_a_row_without_a_positive_costs_nothing_and_moves_nothing(name: str) -> None:
    targets = torch.zeros(4, 8)
    targets[1, 2] = targets[3, 2] = 1  # where it is not counted, and where it is
    counted = torch.ones(4, 8, dtype=torch.bool)
    counted[1, 2] = counted[2] = False
    scores = torch.linspace(0.2, 0.0, 8).repeat(4, 1).masked_fill(~counted, math.nan).requires_grad_()
    loss = load("losses", name)(scores, targets, counted)
    assert loss[:3].tolist() == [0, 0, 0] and loss[3] > 0
    loss.sum().backward()
    assert scores.grad is not None and not scores.grad[:3].any() and scores.grad[3].any()
    assert load("losses", name)(torch.randn(4, 8), torch.zeros(4, 8)).tolist() == [0] * 4


def test_a_row_of_positives_alone() -> None:
    scores, targets = [0.3, 0.9, -0.2], [1.0, 1.0, 1.0]
    assert one(decoupled_softmax, scores, targets) == 0
    assert one(triplet, scores, targets) == 0
    assert one(probabilistic_contrastive, scores, targets) == pytest.approx(1.5 * (1 - 1 / 3) - math.log(0.9))
    assert one(sup_con, scores, targets) == pytest.approx(math.log(sum(map(math.exp, scores))) - 1 / 3)


@pytest.mark.parametrize("name", LOSSES)
def test_large_scores_stay_finite(name: str) -> None:
    scores = torch.tensor([-1e4, 1e4, -3e3, 0.0, 1e4, 9e3, -1e4, 20.0]).repeat(5, 1)
    scores[1] = 1e4
    scores[2] *= -1
    scores.requires_grad_()
    loss = load("losses", name)(scores, TARGETS.float(), COUNTED)
    loss.sum().backward()
    assert loss.isfinite().all() and (loss >= 0).all()
    assert scores.grad is not None and scores.grad.isfinite().all()


def test_large_scores_by_hand() -> None:
    far = torch.tensor([[1e4, -1e4, -1e4]])
    right = torch.tensor([[0.0, 1.0, 0.0]])
    assert sup_con(far, right).tolist() == [2e4]
    assert decoupled_softmax(far, right).tolist() == [2e4]
    assert triplet(far, right).tolist() == pytest.approx([20000.3])
    assert bce(far, right).tolist() == [2e4]
    assert probabilistic_contrastive(far, right).tolist() == pytest.approx([1.5 * 10001 - math.log(0.9) - math.log(0.1)])
    # e^(-2 (10000 - t)) = 2 e^(-2 (t + 10000)): t is the middle but for log(2) / 4, though the sum is 1 in all digits nearly everywhere
    assert soft_top_k(far, right, k=1).tolist() == pytest.approx([2e4 + math.log(2) / 2], abs=1e-2)


def test_the_edge_between_far_scores_is_the_same_in_half_the_digits() -> None:
    scores = torch.tensor([[30.0, 29.0, -30.0, -31.0, -32.0]], requires_grad=True)
    right = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]])
    doubled = scores.detach().double().requires_grad_()
    values = []
    for seen, targets in ((scores, right), (doubled, right.double())):
        loss = soft_top_k(seen, targets, k=2)
        loss.sum().backward()
        values.append(loss.item())
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    # what 30 and 29 lack of 1 is what the others have: e^(-2 (29 - t)) (1 + e^-2) = e^(-2 (t + 30)) (1 + e^-2 + e^-4)
    middle = (29 - 30) / 2 + math.log((1 + math.exp(-2) + math.exp(-4)) / (1 + math.exp(-2))) / 4
    assert values[1] == pytest.approx(2 * (middle + 30), rel=1e-6)
    assert scores.grad is not None and doubled.grad is not None
    assert scores.grad[0].tolist() == pytest.approx(doubled.grad[0].tolist(), abs=1e-5)
    assert abs(scores.grad[0, 1]) > 0.5  # what stands above the edge is pushed down


# ---- places


@pytest.mark.parametrize("name", CONTRASTIVE + ["bce"])
@settings(max_examples=25, deadline=None)
@given(batch=batches(), seed=st.integers(0, 99))
def test_the_order_of_places_does_not_matter(name: str, batch: Batch, seed: int) -> None:
    scores, targets, counted = batch
    if name == "info-nce":  # which positive is drawn does depend on the order
        targets = pick_one(targets, torch.Generator().manual_seed(seed))
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))
    loss = load("losses", name)
    found = loss(scores[:, order], targets[:, order], None if counted is None else counted[:, order])
    assert torch.allclose(found, loss(scores, targets, counted), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf, 1e4])
@pytest.mark.parametrize("name", LOSSES)
def test_a_place_that_is_not_counted_is_as_if_it_were_not_there(name: str, nonsense: float) -> None:
    loss = load("losses", name)
    scores, targets = torch.rand(3, 9), torch.tensor([[1, 0, 0, 0.5, 0, 0, 0, 0, 0], [0] * 8 + [1], [0, 0, 1, 0, 0, 0, 0, 1, 1]])
    if name == "info-nce":
        targets = pick_one(targets)
    wide, wide_targets = torch.full((3, 13), nonsense), torch.ones(3, 13)
    kept = torch.tensor([0, 2, 3, 4, 6, 7, 8, 10, 12])
    wide[:, kept], wide_targets[:, kept] = scores, targets.float()
    counted = torch.zeros(3, 13, dtype=torch.bool)
    counted[:, kept] = True
    scores.requires_grad_()
    wide.requires_grad_()
    found, wanted = loss(wide, wide_targets, counted), loss(scores, targets)
    assert torch.allclose(found, wanted)
    (wide_gradient,) = torch.autograd.grad(found.sum(), wide)
    (gradient,) = torch.autograd.grad(wanted.sum(), scores)
    assert torch.allclose(wide_gradient[:, kept], gradient, atol=1e-6) and gradient.any()
    assert not wide_gradient[~counted].any()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (3, 1)])
@pytest.mark.parametrize("name", LOSSES)
def test_nothing_to_learn_from(name: str, shape: tuple[int, int]) -> None:
    for counted in (None, torch.zeros(shape, dtype=torch.bool)):
        loss = load("losses", name)(torch.full(shape, -math.inf if counted is not None else -1e4), torch.zeros(shape), counted)
        assert loss.tolist() == [0] * shape[0]


@pytest.mark.parametrize(
    ("loss", "wrong", "message"),
    [
        (triplet, {"negatives": 0}, "negatives=0"),
        (probabilistic_contrastive, {"c": 1.0}, r"c=1\.0.*c=0\.9"),
        (probabilistic_contrastive, {"c": 0.0}, r"c=0\.0"),
        (soft_top_k, {"k": 0}, "k=0"),
    ],
)
def test_settings_that_cannot_work(loss: Callable[..., Tensor], wrong: dict[str, float], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        loss(torch.zeros(1, 3), torch.zeros(1, 3), **wrong)

"""Scores, targets and losses of labels: all of them in chunks against plain autograd, shortlists against loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from longtail.core.kernels import machine
from longtail.models.label_rows import LabelRows
from longtail.models.losses import all_labels, candidates
from longtail.models.losses import rowwise as losses
from longtail.models.losses.all_labels import ALL_LABELS, all_labels_bce, all_labels_softmax, matrix_type
from longtail.models.losses.candidates import (
    NOTHING,
    padded,
    pairs_are_quicker,
    scores_of,
    shortlist_bce,
    with_targets,
    with_targets_anywhere,
)
from longtail.models.top_k import best_places
from tests.tensors import right_labels
from tests.tensors import same_numbers as same_numbers

N_ROWS, N_LABELS, DIM = 6, 23, 4
# soft and hard targets, the first and the last label, and two rows without any
TARGETS = right_labels([(0, 1.0), (22, 0.3)], [], [(5, 1.0)], [(4, 0.9), (5, 0.1), (9, 1.0), (22, 1.0)], [], [(0, 0.5)])
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 1.0, 0.0, 3.0])


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in float32 on every machine."""
    for module in (all_labels, candidates):
        monkeypatch.setattr(module, "matrix_type", lambda device: torch.float32)


def parts(with_bias: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    text, vectors = torch.randn(N_ROWS, DIM), torch.randn(N_LABELS, DIM)
    return text.requires_grad_(), vectors.requires_grad_(), torch.randn(N_LABELS).requires_grad_() if with_bias else None


def naive(text: Tensor, vectors: Tensor, bias: Tensor | None, targets: LabelRows, weights: Tensor, loss: str = "bce") -> Tensor:
    """All scores at once, the rest by autograd."""
    scores = functional.linear(text, vectors, bias)
    wanted = torch.zeros_like(scores)
    for row in range(len(text)):
        for place in range(int(targets.offsets[row]), int(targets.offsets[row + 1])):
            wanted[row, targets.ids[place]] = targets.relevance[place].to(scores.dtype)
    if loss == "softmax":
        return (-(functional.log_softmax(scores, dim=1) * wanted).sum(dim=1) * weights).mean()
    losses = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none").sum(dim=1)
    return (losses * weights).mean()


def against_naive(loss: Callable[..., Tensor], with_bias: bool, targets: LabelRows, tolerance: float, name: str = "bce") -> None:
    """Loss and gradients, with a factor of 2.5 upstream."""
    found = parts(with_bias)
    wanted = [None if part is None else part.detach().double().requires_grad_() for part in found]
    one, other = loss(*found, targets, WEIGHTS), naive(*wanted, targets, WEIGHTS.double(), name)  # type: ignore[arg-type]
    assert one.item() == pytest.approx(other.item(), rel=tolerance)
    (2.5 * one).backward()
    (2.5 * other).backward()
    for part, same in zip(found, wanted, strict=True):
        if part is not None and same is not None:
            assert part.grad is not None and same.grad is not None and part.grad.dtype == torch.float32
            assert (part.grad - same.grad).abs().max() <= tolerance * same.grad.abs().max()


# ---- all labels in chunks


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("labels_at_once", [1, 5, 22, 23, 24, 1000])
@pytest.mark.parametrize("name", ALL_LABELS)
def test_all_labels_against_autograd(name: str, with_bias: bool, labels_at_once: int) -> None:
    def loss(*arguments: object) -> Tensor:
        return ALL_LABELS[name](*arguments, max_scores=labels_at_once * N_ROWS)

    against_naive(loss, with_bias, TARGETS, 2e-6, name)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("numbers", [0, 1, 1 << 20])
@pytest.mark.parametrize("name", ALL_LABELS)
def test_rows_without_any_target(name: str, numbers: int) -> None:
    against_naive(lambda *arguments: ALL_LABELS[name](*arguments, max_scores=numbers), True, right_labels(*[[]] * N_ROWS), 2e-6, name)


@pytest.mark.parametrize("numbers", [5 * N_ROWS, 1 << 20])
@pytest.mark.parametrize("name", ALL_LABELS)
def test_all_labels_in_bfloat16(name: str, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_labels, "matrix_type", lambda device: torch.bfloat16)
    against_naive(lambda *arguments: ALL_LABELS[name](*arguments, max_scores=numbers), True, TARGETS, 2e-2, name)


@pytest.mark.gpu
@pytest.mark.parametrize("numbers", [5 * N_ROWS, 1 << 20])
@pytest.mark.parametrize("name", ALL_LABELS)
def test_all_labels_on_a_gpu(name: str, numbers: int) -> None:
    device = torch.device("cuda")
    found = [None if part is None else part.detach().to(device).requires_grad_() for part in parts(True)]
    wanted = [None if part is None else part.detach().double().cpu().requires_grad_() for part in found]
    targets = LabelRows(*(part.to(device) for part in (TARGETS.ids, TARGETS.relevance, TARGETS.offsets)))
    loss, other = ALL_LABELS[name](*found, targets, WEIGHTS.to(device), numbers), naive(*wanted, TARGETS, WEIGHTS.double(), name)
    assert loss.item() == pytest.approx(other.item(), rel=2e-2)
    loss.backward()
    other.backward()
    for part, same in zip(found, wanted, strict=True):
        assert part is not None and part.grad is not None and same is not None and same.grad is not None
        assert (part.grad.cpu() - same.grad).abs().max() < 3e-2 * same.grad.abs().max()


@pytest.mark.usefixtures("exact")
def test_all_labels_by_hand() -> None:
    text, vectors = torch.tensor([[1.0], [2.0]]), torch.tensor([[math.log(3.0)], [0.0]])
    # scores log 3 and 0, log 9 and 0: chances 3/4 and 1/2, 9/10 and 1/2
    loss = all_labels_bce(text, vectors, None, right_labels([(0, 1.0)], [(1, 1.0)]), torch.tensor([1.0, 10.0]))
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(2) + 10 * (math.log(10) + math.log(2))) / 2)


@pytest.mark.usefixtures("exact")
def test_scores_beyond_reason_stay_finite() -> None:
    text = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    loss = all_labels_bce(text, torch.ones(3, 1, requires_grad=True), None, right_labels([(0, 1.0)], [(0, 1.0)]), torch.ones(2))
    assert loss.item() == pytest.approx((2e4 + 1e4) / 2)
    loss.backward()
    assert text.grad is not None and text.grad.tolist() == [[1.0], [-0.5]]


@pytest.mark.usefixtures("exact")
def test_shares_of_all_labels_by_hand() -> None:
    text, vectors = torch.tensor([[1.0], [2.0]], requires_grad=True), torch.tensor([[math.log(3.0)], [0.0]])
    # shares 3/4 and 1/4, 9/10 and 1/10; the second row has both labels, one of them by half
    targets = right_labels([(0, 1.0)], [(0, 0.5), (1, 1.0)])
    loss = all_labels_softmax(text, vectors, None, targets, torch.tensor([1.0, 10.0]))
    assert loss.item() == pytest.approx((math.log(4 / 3) + 10 * (0.5 * math.log(10 / 9) + math.log(10))) / 2)
    loss.backward()
    errors = (3 / 4 - 1, 10 * (1.5 * 9 / 10 - 0.5))  # of the first label; the second has no vector to pull at
    assert text.grad is not None and text.grad.flatten().tolist() == pytest.approx([error * math.log(3) / 2 for error in errors])


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("numbers", [1, 1 << 20])
def test_shares_of_scores_beyond_reason(numbers: int) -> None:
    text, vectors = torch.tensor([[1e4], [-1e4]], requires_grad=True), torch.tensor([[1.0], [0.0], [-1.0]])
    loss = all_labels_softmax(text, vectors, None, right_labels([(0, 1.0)], [(0, 1.0)]), torch.ones(2), numbers)
    assert loss.item() == pytest.approx((0 + 2e4) / 2)
    loss.backward()
    assert text.grad is not None and text.grad.flatten().tolist() == pytest.approx([0.0, -1.0])


@pytest.mark.usefixtures("exact")
def test_a_second_backward_pass_is_refused() -> None:
    text, vectors, bias = parts(True)
    loss = all_labels_bce(text, vectors, bias, TARGETS, WEIGHTS)
    (2 * loss).backward(retain_graph=True)
    with pytest.raises(RuntimeError):  # the first one has used up its gradients; wrong numbers would be worse
        loss.backward()


def test_matrix_type(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for units, kind in ((lambda: True, torch.bfloat16), (lambda: False, torch.float32)):
        monkeypatch.setattr(all_labels, "has_bfloat16_units", units)
        assert matrix_type(cpu) == kind
    assert matrix_type(torch.device("cuda")) == torch.bfloat16


def test_units_for_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> dict[str, bool]:
        raise RuntimeError("LLVM cannot tell")

    for features, wanted in ((lambda: {"avx512bf16": True}, True), (lambda: {"avx512bf16": False}, False), (dict, False), (unknown, False)):
        monkeypatch.setattr(machine, "get_host_cpu_features", features)
        assert machine.has_bfloat16_units.__wrapped__() is wanted


# ---- shortlists


def counted_labels(found: candidates.Candidates) -> list[dict[int, float]]:
    """Label -> relevance of each row, from the places that count; each of these is a label of its own."""
    rows = []
    for places, targets, counted in zip(found.places, found.targets, found.counted, strict=True):
        labels = found.labels[places[counted]].tolist()
        assert len(set(labels)) == len(labels) and not targets[~counted].any()
        rows.append(dict(zip(labels, targets[counted].tolist(), strict=True)))
    return rows


def test_with_targets_by_hand() -> None:
    shortlist = torch.tensor([[4, 2, 4], [7, NOTHING, NOTHING], [NOTHING] * 3, [5, 1, 1]])
    targets = right_labels([(2, 0.5), (9, 1.0)], [(7, 0.25)], [(3, 1.0)], [])
    found = with_targets(shortlist, targets, 10)
    assert counted_labels(found) == [{2: 0.5, 4: 0.0, 9: 1.0}, {7: 0.25}, {3: 1.0}, {1: 0.0, 5: 0.0}]
    assert found.labels.tolist() == [1, 2, 3, 4, 5, 7, 9]  # no 0: empty places name no label
    assert shortlist.tolist()[0] == [4, 2, 4]


def test_with_targets_of_nothing() -> None:
    empty = torch.zeros((2, 0), dtype=torch.int64)
    assert counted_labels(with_targets(empty, right_labels([], []), 5)) == [{}, {}]
    assert counted_labels(with_targets(empty, right_labels([(4, 1.0)], []), 5)) == [{4: 1.0}, {}]
    nowhere = with_targets(torch.full((2, 3), NOTHING), right_labels([], []), 5)
    assert counted_labels(nowhere) == [{}, {}] and nowhere.labels.tolist() == [0] and not nowhere.places.any()


RELEVANCE = st.dictionaries(st.integers(0, 8), st.sampled_from([0.25, 0.5, 1.0]), max_size=4)


@given(st.lists(st.tuples(st.lists(st.integers(NOTHING, 8), min_size=3, max_size=3), RELEVANCE), min_size=1, max_size=5))
@settings(max_examples=40)
def test_with_targets_against_a_loop(rows: list[tuple[list[int], dict[int, float]]]) -> None:
    shortlist = torch.tensor([labels for labels, _ in rows])
    targets = right_labels(*(sorted(right.items()) for _, right in rows))
    wanted = [{label: right.get(label, 0.0) for label in {*labels, *right} - {NOTHING}} for labels, right in rows]
    for found in (with_targets(shortlist, targets, 9), with_targets_anywhere(shortlist, targets, 9)):
        assert counted_labels(found) == wanted
        assert found.labels.tolist() == (sorted(set().union(*wanted)) or [0])  # with nothing named at all, places still need a label


def test_with_targets_of_labels_by_the_thousand() -> None:
    shortlist = torch.randint(-1, 1000, (30, 200))
    targets = right_labels(*([(label, 1.0) for label in sorted({7 * row % 1000, 999})] for row in range(30)))
    one, other = with_targets(shortlist, targets, 1000), with_targets_anywhere(shortlist, targets, 1000)
    assert torch.equal(one.labels, other.labels) and counted_labels(one) == counted_labels(other)


def test_padded() -> None:
    assert padded(right_labels([(3, 1.0)], [], [(1, 1.0), (2, 1.0)])).tolist() == [[3, -1], [-1, -1], [1, 2]]
    assert padded(right_labels()).shape == (0, 0)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("with_bias", [True, False])
def test_scores_of_against_a_loop(with_bias: bool) -> None:
    text, vectors, bias = parts(with_bias)
    places = torch.randint(N_LABELS, (N_ROWS, 7))
    found = scores_of(text, vectors, bias, places)
    wanted = torch.stack(
        [torch.stack([text[row] @ vectors[place] + (0 if bias is None else bias[place]) for place in places[row]]) for row in range(N_ROWS)]
    )
    assert torch.allclose(found, wanted, atol=1e-5)
    above = torch.randn(N_ROWS, 7)
    inputs = [part for part in (text, vectors, bias) if part is not None]
    for one, other in zip(torch.autograd.grad(found, inputs, above), torch.autograd.grad(wanted, inputs, above), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(("with_bias", "dim"), [(True, 4), (False, 70), (True, 64)])
def test_shortlist_bce_against_autograd(with_bias: bool, dim: int) -> None:
    n = 40
    text, vectors = torch.randn(N_ROWS, dim).requires_grad_(), torch.randn(n, dim).requires_grad_()
    bias = torch.randn(n).requires_grad_() if with_bias else None
    found = with_targets(torch.randint(NOTHING, n, (N_ROWS, 9)), TARGETS, n)
    own, own_bias = vectors[found.labels], None if bias is None else bias[found.labels]
    one = shortlist_bce(text, own, own_bias, found, WEIGHTS)
    other = (losses.bce(scores_of(text, own, own_bias, found.places), found.targets, found.counted) * WEIGHTS).mean()
    assert one.item() == pytest.approx(other.item(), rel=1e-5)
    inputs = [part for part in (text, vectors, bias) if part is not None]
    for mine, theirs in zip(
        torch.autograd.grad(2.5 * one, inputs, retain_graph=True), torch.autograd.grad(2.5 * other, inputs), strict=True
    ):
        assert theirs.abs().max() > 0 and torch.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_reach_the_loss(bad: float) -> None:
    """Also from a label that is right nowhere: training stops where the loss is no number, and must not go on with such vectors."""
    text, vectors = torch.rand(N_ROWS, 64), torch.rand(40, 64)
    wrong = next(label for label in range(40) if label not in TARGETS.ids)
    vectors[wrong] = bad
    found = with_targets(torch.full((N_ROWS, 1), wrong), TARGETS, 40)
    assert not shortlist_bce(text, vectors[found.labels], None, found, WEIGHTS).isfinite()
    assert not any(loss(text, vectors, None, TARGETS, WEIGHTS).isfinite() for loss in ALL_LABELS.values())


def test_shortlist_bce_of_many_candidates_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than one product of factors holds, with scores beyond reason among them."""
    monkeypatch.setattr(candidates, "matrix_type", lambda device: torch.bfloat16)
    text, vectors = torch.randn(3, 64).bfloat16().float().requires_grad_(), torch.randn(1300, 64).bfloat16().float()
    vectors[7], vectors[8] = 1e4 * text.detach()[0], -1e4 * text.detach()[0]
    found = with_targets(torch.arange(1300).expand(3, -1), right_labels([(8, 1.0)], [(3, 0.5)], []), 1300)
    loss = shortlist_bce(text, vectors, None, found, torch.ones(3))
    wanted = losses.bce(text @ vectors.bfloat16().float().T, found.targets, found.counted).mean()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-3)
    (mine,), (theirs,) = torch.autograd.grad(loss, text), torch.autograd.grad(wanted, text)
    assert torch.allclose(mine, theirs, rtol=1e-2, atol=1e-2)
    assert torch.equal(mine, torch.autograd.grad(shortlist_bce(text, vectors, None, found, torch.ones(3)), text)[0])  # to the last bit


def test_pairs_are_quicker_where_labels_are_many() -> None:
    few = with_targets(torch.arange(50).expand(4, -1), right_labels([], [], [], []), 50)
    many = with_targets(torch.arange(50).view(10, 5), right_labels(*[[]] * 10), 50)
    assert not pairs_are_quicker(few, torch.device("cpu")) and not pairs_are_quicker(many, torch.device("cuda"))
    assert pairs_are_quicker(many, torch.device("cpu"))


# ---- the highest scores


@given(st.integers(1, 4), st.integers(1, 300), st.integers(1, 40), st.integers(0, 9), st.booleans())
@settings(max_examples=40, deadline=None)
def test_best_places_against_sorting(n_rows: int, n: int, keep: int, spread: int, small: bool) -> None:
    scores = torch.randint(-spread, spread + 1, (n_rows, n)).to(torch.bfloat16 if small else torch.float32)  # with ties
    places, values = best_places(scores, keep)
    assert torch.equal(values, torch.sort(scores.float(), dim=1, descending=True).values[:, :keep])
    assert torch.equal(torch.gather(scores.float(), 1, places), values)
    assert all(len(set(row)) == len(row) for row in places.tolist())


def test_best_places_of_what_is_no_number() -> None:
    scores = torch.tensor([[math.nan, 1.0, -math.inf, 2.0], [math.nan] * 4])
    places, _ = best_places(scores, 3)
    assert places[0, :2].tolist() == [3, 1] and all(len(set(row)) == 3 for row in places.tolist())
    assert best_places(torch.zeros(2, 0), 3)[0].shape == (2, 0)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("with_bias", [True, False])
def test_all_labels_bce_tells_the_best_with_right_ones_first(with_bias: bool) -> None:
    text, vectors, bias = parts(with_bias)
    best = torch.empty(N_ROWS, 6, dtype=torch.int64)
    loss = all_labels_bce(text, vectors, bias, TARGETS, WEIGHTS, max_scores=1, best=best)
    assert loss.item() == pytest.approx(naive(text, vectors, bias, TARGETS, WEIGHTS).item(), rel=1e-5)
    scores = functional.linear(text, vectors, bias).detach()
    for row in range(N_ROWS):
        right = set(TARGETS.ids[TARGETS.offsets[row] : TARGETS.offsets[row + 1]].tolist())
        others = [label for label in scores[row].argsort(descending=True).tolist() if label not in right]
        assert set(best[row].tolist()) == right | set(others[: 6 - len(right)])


# ---- losses


def test_bce_by_hand() -> None:
    scores = torch.tensor([[0.0, math.log(3.0), 5.0], [0.0, 0.0, 0.0]])
    targets, counted = torch.tensor([[1.0, 0.5, 1.0], [0.0, 0.0, 0.0]]), torch.tensor([[True, True, False], [False] * 3])
    wanted = math.log(2) - (math.log(3 / 4) + math.log(1 / 4)) / 2
    assert losses.bce(scores, targets, counted).tolist() == pytest.approx([wanted, 0.0])


@pytest.mark.usefixtures("exact")
def test_shortlists_of_all_labels_cost_what_all_labels_cost() -> None:
    text, vectors, bias = parts(True)
    everything = torch.stack([torch.randperm(N_LABELS) for _ in range(N_ROWS)])
    found = with_targets(everything, TARGETS, N_LABELS)
    scores = scores_of(text, vectors[found.labels], None if bias is None else bias[found.labels], found.places)
    loss = (losses.bce(scores, found.targets, found.counted) * WEIGHTS).mean()
    assert loss.item() == pytest.approx(all_labels_bce(text, vectors, bias, TARGETS, WEIGHTS).item(), rel=1e-6)

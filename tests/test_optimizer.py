"""Adam against torch's own and against a plain reference by rows; its state; schedules by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.core.kernels.adam import adam_rows
from longtail.training.optimizer import BETAS, EPSILON, Adam, adam_rows_anywhere, touched
from longtail.training.schedules import SCHEDULES, WARM_UP, halved, linear, one_cycle
from tests.tensors import same_numbers as same_numbers

N, DIM = 7, 5


class Reference:
    """Adam of one table, row by row, in float64 as the paper writes it; rows without a gradient keep value and moments."""

    def __init__(self, start: Tensor) -> None:
        self.value = start.detach().double().numpy().copy()
        self.first, self.second = np.zeros_like(self.value), np.zeros_like(self.value)
        self.steps = 0

    def step(self, gradients: dict[int, NDArray[np.float64]], rate: float) -> None:
        self.steps += 1
        for row, gradient in gradients.items():
            self.first[row] = BETAS[0] * self.first[row] + (1 - BETAS[0]) * gradient
            self.second[row] = BETAS[1] * self.second[row] + (1 - BETAS[1]) * gradient**2
            mean, square = self.first[row] / (1 - BETAS[0] ** self.steps), self.second[row] / (1 - BETAS[1] ** self.steps)
            self.value[row] -= rate * mean / (np.sqrt(square) + EPSILON)


def sparse(rows: list[int], values: Tensor, coalesced: bool = False) -> Tensor:
    return torch.sparse_coo_tensor(torch.tensor([rows]), values, (N, DIM), check_invariants=True, is_coalesced=coalesced or None)


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.randn(N, DIM))


# ---- dense parameters


@pytest.mark.parametrize("size", [1.0, 1e-8])  # the second makes epsilon count
def test_dense_against_torch(size: float) -> None:
    ours, theirs = nn.Linear(4, 3), nn.Linear(4, 3)
    theirs.load_state_dict(ours.state_dict())
    optimizer = Adam(ours.named_parameters())
    other = torch.optim.Adam(theirs.parameters(), betas=BETAS, eps=EPSILON)
    for number in range(8):
        x, rate = torch.randn(6, 4), 0.01 * (1 + number % 3)
        for group in other.param_groups:
            group["lr"] = rate
        for module, zero in ((ours, optimizer.zero_grad), (theirs, other.zero_grad)):
            zero()
            (size * module(x).square().mean()).backward()
        optimizer.step(rate)
        other.step()
        for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(one, two, atol=1e-6)


def test_gradients_of_a_transposed_use() -> None:
    weight = parameter()
    reference = Reference(weight)
    optimizer = Adam([("weight", weight)])
    above = torch.randn(N, DIM)
    (weight.T * above.T).sum().backward()
    optimizer.step(0.1)
    reference.step(dict(enumerate(above.double().numpy())), 0.1)
    assert np.allclose(weight.detach().numpy(), reference.value, atol=1e-6)


def test_parameters_without_gradient_are_left_alone() -> None:
    one, other = parameter(), parameter()
    before = other.detach().clone()
    optimizer = Adam([("one", one), ("other", other)])
    one.grad = torch.ones_like(one)
    optimizer.step(0.1)
    assert torch.equal(other, before) and set(optimizer.moments) == {"one"}
    optimizer.zero_grad()
    assert one.grad is None


# ---- tables of which some rows are touched


ROWS = st.lists(st.lists(st.integers(0, N - 1), min_size=0, max_size=5), min_size=1, max_size=6)


@given(ROWS)
@settings(max_examples=30)
def test_lazy_against_rows(steps: list[list[int]]) -> None:
    torch.manual_seed(len(steps))
    weight = parameter()
    optimizer, reference = Adam([("weight", weight)]), Reference(weight)
    for number, rows in enumerate(steps):  # unsorted and with repeats, whose gradients add up
        values = torch.randn(len(rows), DIM)
        summed: dict[int, NDArray[np.float64]] = {}
        for row, value in zip(rows, values.double().numpy(), strict=True):
            summed[row] = summed.get(row, 0) + value
        before = [tensor.clone() for tensor in (weight.detach(), *optimizer.moments.get("weight", (torch.zeros(N, DIM),) * 2))]
        weight.grad = sparse(rows, values)
        optimizer.step(0.01 * (1 + number))
        reference.step(summed, 0.01 * (1 + number))
        assert np.allclose(weight.detach().numpy(), reference.value, atol=2e-6)
        untouched = [row for row in range(N) if row not in summed]
        for tensor, was in zip((weight.detach(), *optimizer.moments["weight"]), before, strict=True):
            assert torch.equal(tensor[untouched], was[untouched])  # bit for bit


@pytest.mark.parametrize("size", [1.0, 1e-8])
def test_lazy_with_all_rows_is_dense(size: float) -> None:
    lazy = parameter()
    dense = nn.Parameter(lazy.detach().clone())
    optimizers = Adam([("weight", lazy)]), Adam([("weight", dense)])
    for _ in range(5):
        gradient = size * torch.randn(N, DIM)
        lazy.grad, dense.grad = sparse([*range(N)], gradient.clone()), gradient
        for optimizer in optimizers:
            optimizer.step(0.01)
    assert torch.allclose(lazy, dense, atol=1e-6)


@pytest.mark.parametrize("order", ["sparse dense sparse", "dense sparse dense"])
def test_sparse_in_one_step_and_dense_in_another(order: str) -> None:
    weight = parameter()
    optimizer, reference = Adam([("weight", weight)]), Reference(weight)
    for kind in order.split():
        rows = [1, 4] if kind == "sparse" else [*range(N)]
        gradient = torch.randn(len(rows), DIM)
        weight.grad = sparse(rows, gradient) if kind == "sparse" else gradient
        optimizer.step(0.02)
        reference.step(dict(zip(rows, gradient.double().numpy(), strict=True)), 0.02)
    assert np.allclose(weight.detach().numpy(), reference.value, atol=1e-6)


def test_the_kernel_against_torch() -> None:
    ours = [torch.randn(N, DIM), torch.randn(N, DIM), torch.rand(N, DIM)]
    theirs = [tensor.clone() for tensor in ours]
    rows, gradient = torch.tensor([0, 2, 5]), torch.randn(3, DIM)
    adam_rows(*(tensor.numpy() for tensor in (*ours, rows, gradient)), 0.02, *BETAS, EPSILON)
    adam_rows_anywhere(*theirs, rows, gradient, 0.02, *BETAS, EPSILON)  # type: ignore[call-arg, misc]
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_touched_rows() -> None:
    values = torch.arange(15.0).view(3, DIM)
    rows, found = touched(sparse([1, 3, 6], values))
    assert rows.tolist() == [1, 3, 6] and found.data_ptr() == values.data_ptr()  # sorted already: as they are
    rows, found = touched(sparse([3, 1, 3], values))
    assert rows.tolist() == [1, 3] and torch.equal(found, torch.stack([values[1], values[0] + values[2]]))
    rows, found = touched(sparse([2, 2, 2], torch.ones(1).expand(3, DIM)))
    assert rows.tolist() == [2] and found.tolist() == [[3.0] * DIM]
    rows, found = touched(sparse([2, 4, 5], torch.ones(1).expand(3, DIM)))
    assert found.is_contiguous() and found.tolist() == [[1.0] * DIM] * 3
    assert touched(sparse([], torch.zeros(0, DIM)))[0].tolist() == []


# ---- state


def take_steps(optimizer: Adam, n: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        optimizer.parameters["table"].grad = sparse([0, 3, 4], torch.randn(3, DIM, generator=generator))
        optimizer.parameters["dense"].grad = torch.randn(N, DIM, generator=generator)
        optimizer.step(0.01)


def test_goes_on_from_its_state_bit_for_bit() -> None:
    optimizer = Adam([("table", parameter()), ("dense", parameter()), ("unused", parameter())])
    take_steps(optimizer, 3, seed=1)
    state = optimizer.state()
    assert set(state) == {"first.table", "second.table", "first.dense", "second.dense", "steps"}
    again = Adam([(name, nn.Parameter(value.detach().clone())) for name, value in optimizer.parameters.items()])
    take_steps(again, 1, seed=9)  # what it did before is forgotten
    for name, value in optimizer.parameters.items():
        again.parameters[name].data.copy_(value.data)
    again.load(state)
    take_steps(optimizer, 4, seed=2)  # and what the other one does later is not taken along
    take_steps(again, 4, seed=2)
    assert again.steps == optimizer.steps == 7
    for name, value in optimizer.parameters.items():
        assert torch.equal(again.parameters[name], value), name
    for name, tensor in optimizer.state().items():
        assert torch.equal(again.state()[name], tensor), name


def test_state_of_a_fresh_optimizer() -> None:
    fresh = Adam([("weight", parameter())])
    assert fresh.state()["steps"].item() == 0 and list(fresh.state()) == ["steps"]
    used = Adam([("weight", parameter())])
    used.parameters["weight"].grad = torch.ones(N, DIM)
    used.step(0.1)
    used.load(fresh.state())
    assert used.steps == 0 and used.moments == {}


# ---- schedules


def test_one_cycle_by_hand() -> None:
    shares = [0.0, WARM_UP / 2, WARM_UP, WARM_UP + (1 - WARM_UP) / 2, 1.0]
    assert [one_cycle(share) for share in shares] == pytest.approx([0.04, 0.52, 1.0, 0.500005, 1e-5])


def test_linear_and_halved_by_hand() -> None:
    assert [linear(share) for share in (0.0, 0.05, 0.1, 0.55, 1.0)] == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])
    assert [halved(share) for share in (0.0, 0.499, 0.5, 1.0)] == [1.0, 1.0, 0.5, 0.5]


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_rise_and_fall_once(name: str) -> None:
    rates = [SCHEDULES[name](step / 1000) for step in range(1001)]
    top = rates.index(max(rates))
    assert max(rates) == 1.0 and min(rates) >= 0 and top <= 100
    assert rates[: top + 1] == sorted(rates[: top + 1]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert name == "halved" or max(abs(one - other) for one, other in zip(rates, rates[1:], strict=False)) < 0.02

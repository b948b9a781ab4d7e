"""Ragged rows, weighted sums of table rows, sparse gradients and dropout: each kernel against what torch or a loop makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config, set_num_threads
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.errors import SettingError
from longtail.core.kernels.adam import adam_rows
from longtail.core.kernels.bags import weighted_sums, weighted_sums_gradient
from longtail.core.kernels.dropout import BLOCK, LEVELS, RUN, drop
from longtail.core.kernels.splitmix import STEP, mix
from longtail.models.bits import numbers_of
from longtail.models.encoders.dropout import Dropout
from longtail.models.label_rows import LabelRows
from longtail.models.table import EveryRow, Table, weighted_sum
from longtail.tokens.ragged import distinct_ids
from longtail.tokens.rows import TokenRows
from tests.tensors import ragged
from tests.tensors import same_numbers as same_numbers

CPU = torch.device("cpu")
N_TOKENS = 9


@pytest.fixture
def thread_counts() -> tuple[int, int]:
    return 1, config.NUMBA_NUM_THREADS


# empty rows, equal tokens in a row, no rows at all; a number is drawn faster than the token and the weight it stands for
TOKEN = st.integers(0, 9 * N_TOKENS - 1).map(lambda number: (number % N_TOKENS, number // N_TOKENS / 4 - 1))
ROWS = st.lists(st.lists(TOKEN, max_size=5), max_size=6)


def lists(tokens: TokenRows) -> list[tuple[list[int], list[float]]]:
    ends = tokens.offsets.tolist()
    spans = [slice(start, stop) for start, stop in zip(ends, ends[1:], strict=False)]
    return [(tokens.ids[span].tolist(), tokens.weights[span].tolist()) for span in spans]


# ---- ragged rows


@settings(max_examples=25)
@given(ROWS, st.data())
def test_rows_taken(rows: list[list[tuple[int, float]]], data: st.DataObject) -> None:
    whole = ragged(*rows)
    held = TokenRows.from_arrays(whole.ids.int().numpy(), whole.weights.numpy(), whole.offsets.numpy(), whole.n_tokens)
    assert len(held) == len(rows) and held.to(CPU) is held
    assert lists(held.batch()) == lists(whole) and held.batch().ids.dtype == torch.int64
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10)) if rows else []
    taken = held.take(torch.tensor(places, dtype=torch.int64))
    assert lists(taken) == lists(ragged(*(rows[place] for place in places)))
    assert (taken.ids.dtype, taken.weights.dtype, taken.offsets.dtype) == (torch.int64, torch.float32, torch.int64)
    assert taken.row_of_each().tolist() == [row for row, place in enumerate(places) for _ in rows[place]]


def test_rows_of_a_matrix_come_out_sorted() -> None:
    matrix = csr_matrix((np.array([0.5, 1.0, 2.0]), np.array([4, 1, 0]), np.array([0, 2, 2, 3])), shape=(3, 5))
    found = LabelRows.of(matrix, CPU)
    assert (found.ids.tolist(), found.relevance.tolist(), found.offsets.tolist()) == ([1, 4, 0], [1.0, 0.5, 2.0], [0, 2, 2, 3])
    taken = found.take(torch.tensor([2, 0]))
    assert (taken.ids.tolist(), taken.relevance.tolist(), taken.offsets.tolist()) == ([0, 1, 4], [2.0, 1.0, 0.5], [0, 1, 3])
    assert taken.ids.dtype == torch.int64 and taken.row_of_each().tolist() == [0, 1, 1] and len(taken) == 2
    assert matrix.indices.tolist() == [4, 1, 0]  # the caller's matrix stays as it was


def test_rows_of_arrays_that_may_not_be_written_to() -> None:
    arrays: list[NDArray[Any]] = [np.array([3, 1], np.int32), np.ones(2, np.float32), np.array([0, 2])]
    for array in arrays:
        array.flags.writeable = False
    assert lists(TokenRows.from_arrays(*arrays, 9).batch()) == [([3, 1], [1.0, 1.0])]


@given(st.lists(st.integers(0, 20), max_size=30))
def test_distinct_ids(ids: list[int]) -> None:
    named, places = distinct_ids(torch.tensor(ids, dtype=torch.int64), 21)
    assert named.tolist() == sorted(set(ids))
    assert named[places].tolist() == ids


def test_distinct_ids_keep_their_shape() -> None:
    named, places = distinct_ids(torch.tensor([[5, 2], [2, 9]]), 10)
    assert (named.tolist(), places.tolist()) == ([2, 5, 9], [[1, 0], [0, 2]])


# ---- weighted sums


def test_weighted_sum_by_hand() -> None:
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    tokens = ragged([(0, 1.0), (2, 0.5)], [], [(1, 2.0), (1, 1.0)])
    sums = weighted_sum(tokens, table)
    assert sums.tolist() == [[3.5, 5.0], [0.0, 0.0], [9.0, 12.0]]
    (sums * torch.tensor([[1.0, 10.0], [7.0, 7.0], [100.0, 0.0]])).sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == [[1.0, 10.0], [300.0, 0.0], [0.5, 5.0]]


@settings(max_examples=25)
@given(ROWS, st.sampled_from([1, 3, 16, 33]))
def test_weighted_sum_against_torch(rows: list[list[tuple[int, float]]], dim: int) -> None:
    tokens = ragged(*rows)
    table = torch.randn(N_TOKENS, dim, requires_grad=True)
    other = table.detach().double().requires_grad_()
    found = weighted_sum(tokens, table)
    wanted = functional.embedding_bag(
        tokens.ids, other, tokens.offsets, mode="sum", per_sample_weights=tokens.weights.double(), include_last_offset=True
    )
    assert found.dtype == torch.float32 and torch.allclose(found.double(), wanted, atol=1e-5)
    above = torch.randn(len(rows), dim)
    found.backward(above)
    wanted.backward(above.double())
    assert table.grad is not None and other.grad is not None
    assert torch.allclose(table.grad.double(), other.grad, atol=1e-5)


def test_sums_of_every_row() -> None:
    random = np.random.default_rng(0)
    dense = (random.random((6, N_TOKENS)) * (random.random((6, N_TOKENS)) < 0.4)).astype(np.float32)
    dense[2], dense[:, 5] = 0, 0  # an empty row, and a token that nobody names
    rows, table = EveryRow(csr_matrix(dense), CPU), torch.randn(N_TOKENS, 20, requires_grad=True)
    for _ in range(2):  # over and over
        table.grad = None
        sums, above = rows.sums(table), torch.randn(20, 6).T
        sums.backward(above)
        assert torch.allclose(sums, torch.from_numpy(dense) @ table, atol=1e-5)
        assert table.grad is not None and torch.allclose(table.grad, torch.from_numpy(dense).T @ above, atol=1e-5)


def test_weighted_sum_of_other_types() -> None:
    tokens, table = ragged([(0, 1.0), (2, 0.5)], []), torch.randn(3, 4, dtype=torch.float64)
    assert torch.allclose(weighted_sum(tokens, table)[0], table[0] + 0.5 * table[2])


@pytest.mark.parametrize("dim", [1, 15, 40, 300])
def test_weighted_sums_do_not_depend_on_threads(dim: int, thread_counts: tuple[int, int]) -> None:
    random = np.random.default_rng(dim)
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, 9, 50))])
    ids, weights = random.integers(0, 30, offsets[-1]), random.normal(size=offsets[-1]).astype(np.float32)
    table, above = random.normal(size=(30, dim)).astype(np.float32), random.normal(size=(50, dim)).astype(np.float32)
    found = []
    for threads in thread_counts:
        set_num_threads(threads)
        found.append((weighted_sums(ids, weights, offsets, table), weighted_sums_gradient(ids, weights, offsets, above, 30, threads)))
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))
    dense = csr_matrix((weights, ids, offsets), shape=(50, 30)).toarray().astype(np.float64)
    assert np.allclose(found[0][0], dense @ table, atol=1e-4) and np.allclose(found[0][1], dense.T @ above, atol=1e-4)


# ---- tables


def dense_gradient(table: Table) -> Tensor:
    assert table.weight.grad is not None and table.weight.grad.is_sparse
    return table.weight.grad.to_dense()


@settings(max_examples=25)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_gathered_rows_are_those_of_the_table(groups: list[list[list[tuple[int, float]]]]) -> None:
    table = Table(N_TOKENS, 3, scale=1.0)
    batches = [ragged(*rows) for rows in groups]
    rows, placed = table.gather(batches)
    named = sorted({int(token) for one in batches for token in one.ids})
    assert torch.equal(rows, table.weight[named])
    whole = table.weight.detach().clone().requires_grad_()
    loss, wanted = torch.zeros(()), torch.zeros(())
    for one, other in zip(batches, placed, strict=True):
        assert (other.weights is one.weights) and (other.offsets is one.offsets)
        above = torch.randn(len(one.offsets) - 1, 3)
        loss = loss + (weighted_sum(other, rows) * above).sum()
        wanted = wanted + (weighted_sum(one, whole) * above).sum()
    loss.backward()
    wanted.backward()
    assert whole.grad is not None and table.weight.grad is not None
    assert torch.allclose(dense_gradient(table), whole.grad, atol=1e-5)
    assert table.weight.grad._indices()[0].tolist() == named  # the rows that are named, once each, and no others


@pytest.mark.parametrize("backwards", ["one", "two"])
def test_two_looks_at_a_table_add_up(backwards: str) -> None:
    table = Table(6, 2, scale=1.0)
    first, second = table.rows(torch.tensor([1, 3, 5])), table.rows(torch.tensor([0, 3]))
    losses = (first * torch.tensor([[1.0], [2.0], [3.0]])).sum(), (second * 10).sum()
    if backwards == "one":
        (losses[0] + losses[1]).backward()
    else:
        losses[0].backward()
        losses[1].backward()
    assert table.weight.grad is not None
    gradient = table.weight.grad.coalesce()
    assert gradient.indices()[0].tolist() == [0, 1, 3, 5]
    assert gradient.values()[:, 0].tolist() == [10.0, 1.0, 12.0, 3.0]


def test_a_look_at_some_rows_and_one_at_all() -> None:
    table = Table(4, 2, scale=1.0)
    ((table.rows(torch.tensor([1, 2])) * 3).sum() + table.weight.sum()).backward()
    assert table.weight.grad is not None
    assert table.weight.grad.tolist() == [[1.0, 1.0], [4.0, 4.0], [4.0, 4.0], [1.0, 1.0]]


def test_a_frozen_table_has_no_gradient() -> None:
    table = Table(4, 2, scale=1.0).requires_grad_(False)
    rows = table.rows(torch.tensor([1, 2]))
    assert torch.equal(rows, table.weight[1:3]) and not rows.requires_grad


# ---- one step of Adam


def test_adam_rows_by_hand() -> None:
    table, first, second = (np.full((3, 2), value, np.float32) for value in (10.0, 1.0, 4.0))
    adam_rows(table, first, second, np.array([2]), np.array([[5.0, -5.0]], np.float32), 0.1, 0.5, 0.75, 0.5)
    # mean 0.5 * 1 + 0.5 * 5 and 0.5 * 1 - 0.5 * 5; square 0.75 * 4 + 0.25 * 25 = 9.25
    length = 9.25**0.5 + 0.5
    assert first.tolist() == [[1.0, 1.0], [1.0, 1.0], [3.0, -2.0]]
    assert second.tolist() == [[4.0, 4.0], [4.0, 4.0], [9.25, 9.25]]
    assert table[:2].tolist() == [[10.0, 10.0], [10.0, 10.0]]
    assert table[2] == pytest.approx([10 - 0.3 / length, 10 + 0.2 / length], rel=1e-6)


def test_adam_rows_do_not_depend_on_threads(thread_counts: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    start = [random.random((40, 37)).astype(np.float32) for _ in range(3)]
    rows, gradient = np.sort(random.permutation(40)[:25]), random.normal(size=(25, 37)).astype(np.float32)
    found = []
    for threads in thread_counts:
        set_num_threads(threads)
        found.append([array.copy() for array in start])
        adam_rows(*found[-1], rows, gradient, 0.01, 0.9, 0.999, 1e-8)
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))
    assert not np.array_equal(found[0][0], start[0])


# ---- dropout


def naive_kept(n: int, seed: int, level: int) -> NDArray[np.bool_]:
    """Which numbers stay, one by one: a block of 4 runs shares the hashes of its first run, 16 bits for each."""
    kept = np.empty(n, bool)
    for place in range(n):
        block, within = divmod(place, BLOCK)
        part, at = divmod(within, RUN)
        if (block + 1) * BLOCK > n:  # the last one, where it is not whole
            part, at = 0, within
        bits = int(mix(np.uint64((seed + (block * BLOCK + at) * int(STEP)) % 2**64)))
        kept[place] = (bits >> (16 * part)) % LEVELS >= level
    return kept


@pytest.mark.parametrize("n", [0, 1, RUN, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
def test_drop_against_a_loop(n: int) -> None:
    values, found = np.arange(1, n + 1, dtype=np.float32), np.full(n, np.nan, np.float32)
    drop(values, np.uint64(2**64 - 7), np.uint64(LEVELS // 4), np.float32(1.5), found)
    assert np.array_equal(found, np.where(naive_kept(n, 2**64 - 7, LEVELS // 4), values * 1.5, 0))


@pytest.mark.parametrize("n", [3, BLOCK + 5])
def test_drop_of_bfloat16_against_a_loop(n: int) -> None:
    values = torch.randn(n).bfloat16()
    found = torch.full((n,), torch.nan, dtype=torch.bfloat16)
    drop(numbers_of(values), np.uint64(5), np.uint64(LEVELS // 4), np.float32(4 / 3), numbers_of(found))
    kept = torch.from_numpy(naive_kept(n, 5, LEVELS // 4))
    assert torch.equal(found, torch.where(kept, (values.float() * np.float32(4 / 3)).bfloat16(), 0))  # rounded as torch rounds


def test_dropout_gradient_in_bfloat16() -> None:
    x = (torch.rand(40, 30) + 1).bfloat16().requires_grad_()
    dropped = Dropout(0.5)(x)
    dropped.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, 2 * (dropped != 0).bfloat16())
    assert abs((dropped == 0).float().mean() - 0.5) < 0.1


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.9])
def test_dropout_share_and_scale(share: float) -> None:
    dropped = Dropout(share)(torch.ones(500, 400))
    stays = dropped != 0
    # 200,000 draws: a standard deviation of 0.0011 at most
    assert abs(1 - stays.float().mean() - share) < 0.005
    assert torch.allclose(dropped[stays], torch.tensor(1 / (1 - share)), rtol=1e-3)
    assert dropped.mean() == pytest.approx(1, abs=0.02)
    # no row, column or part of a block falls more often than others
    for dim in (0, 1):
        assert (1 - stays.float().mean(dim=dim) - share).abs().max() < 0.12
    parts = stays.flatten()[: 200_000 // BLOCK * BLOCK].view(-1, 4, RUN).float()
    assert (1 - parts.mean(dim=(0, 2)) - share).abs().max() < 0.01
    # and those that share a hash fall apart from each other
    assert np.abs(np.corrcoef(parts.transpose(0, 1).flatten(1).numpy()) - np.eye(4)).max() < 0.02


@pytest.mark.parametrize("shape", [(), (3,), (7, 5), (40, 2, 30), (0, 4)])
def test_dropout_gradient_has_the_mask_of_the_forward_pass(shape: tuple[int, ...]) -> None:
    x = (torch.rand(shape) + 1).requires_grad_()
    dropped = Dropout(0.5)(x)
    assert dropped.shape == x.shape
    dropped.sum().backward()  # passes back a gradient that is one number, expanded
    assert x.grad is not None and torch.equal(x.grad, 2 * (dropped != 0))
    x.grad = None
    above = torch.randn(shape)
    again = Dropout(0.5)(x)
    again.backward(above)
    assert torch.equal(x.grad, 2 * above * (again != 0))


def test_dropout_of_a_transposed_tensor() -> None:
    x = (torch.rand(30, 20) + 1).requires_grad_()
    dropped = Dropout(0.5)(x.T)
    assert torch.equal(dropped, 2 * x.T * (dropped != 0)) and 0 < (dropped != 0).sum() < 600
    (dropped * torch.arange(20.0)[:, None]).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, 2 * (torch.arange(20.0)[:, None] * (dropped != 0)).T)


def test_dropout_goes_on_from_a_saved_generator() -> None:
    layer, x = Dropout(0.5), torch.ones(20, 30)
    layer(x)
    state = torch.get_rng_state()
    one, other = layer(x), layer(x)
    assert not torch.equal(one, other)
    torch.set_rng_state(state)
    assert torch.equal(layer(x), one) and torch.equal(layer(x), other)


def test_dropout_that_changes_nothing() -> None:
    x, state = torch.randn(5, 4), torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), state)  # and draws nothing


def test_dropout_of_other_types() -> None:
    for kind in (torch.float64, torch.bfloat16):
        dropped = Dropout(0.5)(torch.ones(50, 40, dtype=kind))
        assert dropped.dtype == kind and set(dropped.flatten().tolist()) == {0.0, 2.0}


def test_dropout_shares_at_the_edge() -> None:
    assert Dropout(1e-9)(torch.ones(9)).tolist() == [1.0] * 9
    assert Dropout(1 - 1e-9)(torch.ones(100, 100)).isfinite().all()
    for wrong in (-0.1, 1.0, 50):
        with pytest.raises(SettingError, match="wanted a number from 0 to below 1"):
            Dropout(wrong)
    assert str(nn.Sequential(Dropout(0.25))[0]) == "Dropout(0.25)"

"""The bag encoder: its blocks by hand on two dimensions, and what only happens in training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from longtail.core.errors import SettingError
from longtail.core.kernels.bags import few_bags
from longtail.models import table as module
from longtail.models.encoders import bag
from longtail.models.encoders.bag import RESIDUAL_BLOCKS, Bag, BagEncoder, ScaledBlock
from longtail.models.encoders.spectral import SpectralLinear
from longtail.models.table import weighted_sum
from longtail.tokens.rows import TokenRows
from tests.tensors import ragged
from tests.tensors import same_numbers as same_numbers

# text 0 is (3, -1), text 1 is empty, text 2 is (-2, 4)
TABLE = torch.tensor([[1.0, 1.0], [2.0, -2.0], [-1.0, 2.0]])
TOKENS = ragged([(0, 1.0), (1, 1.0)], [], [(2, 2.0)])


def fill(layer: SpectralLinear) -> None:
    """Weight (0 2; 1 0), whose largest singular value is 2: x becomes (x_1, x_0 / 2)."""
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 2.0], [1.0, 0.0]]))
        layer.u.copy_(torch.tensor([1.0, 0.0]))


def made(block: str, **settings: float) -> BagEncoder:
    encoder = Bag(2, block=block, **settings).build()  # type: ignore[arg-type]
    if encoder.residual is not None:
        fill(encoder.residual.linear)
    return encoder


def same(found: Tensor, wanted: list[list[float]]) -> bool:
    return found.shape == (len(wanted), 2) and torch.allclose(found, torch.tensor(wanted), atol=1e-6)


def test_scaled_by_hand() -> None:
    encoder = made("scaled").eval()
    # (3, -1): ReLU (3, 0), through R (0, 1.5), plus x (3, 0.5); (-2, 4): (0, 4), (4, 0), (2, 4)
    assert same(encoder(TOKENS, TABLE), [[3.0, 0.5], [0.0, 0.0], [2.0, 4.0]])
    assert encoder.residual is not None
    encoder.residual.weight.data.fill_(0.5)
    # (0, 0.75) + (3, -1) = (3, -0.25), whose ReLU is (3, 0); (2, 0) + (-2, 4)
    assert same(encoder(TOKENS, TABLE), [[3.0, 0.0], [0.0, 0.0], [0.0, 4.0]])


def test_gated_by_hand() -> None:
    encoder = made("gated").eval()
    # each gate is a half at the start: (0, 0.75) + (1.5, -0.5); (2, 0) + (-1, 2)
    assert same(encoder(TOKENS, TABLE), [[1.5, 0.25], [0.0, 0.0], [1.0, 2.0]])
    assert encoder.residual is not None
    encoder.residual.weight.data.copy_(torch.tensor([[0.8, 0.2], [0.5, 0.4]]).logit())
    # 0.8 and 0.2 of (0, 1.5), 0.5 and 0.4 of (3, -1); of (4, 0) and (-2, 4)
    assert same(encoder(TOKENS, TABLE), [[1.5, 0.0], [0.0, 0.0], [2.2, 1.6]])


def test_plain_by_hand() -> None:
    encoder = made("plain").eval()
    assert encoder.block is not None
    encoder.block.weight.data.copy_(torch.tensor([[0.0, 1.0], [-1.0, 1.0]]))
    encoder.block.bias.data.copy_(torch.tensor([0.5, 1.0]))
    # ReLU first: (3, 0) + ReLU(0.5, -2); (0, 0) + ReLU(0.5, 1); (0, 4) + ReLU(4.5, 5)
    assert same(encoder(TOKENS, TABLE), [[3.5, 0.0], [0.5, 1.0], [4.5, 9.0]])


@pytest.mark.parametrize("gate", ["scaled", "gated"])
def test_a_block_at_the_start(gate: str) -> None:
    block, x = RESIDUAL_BLOCKS[gate](4, 0.0), torch.randn(3, 4)
    wanted = x + x.relu() if gate == "scaled" else (x + x.relu()) / 2
    assert torch.allclose(block(x), wanted, atol=1e-6)


def test_dropout_only_in_training() -> None:
    tokens, table = ragged(*[[(0, 1.0)]] * 200), torch.full((1, 50), 3.0)
    for block, found in (("scaled", {0.0, 6.0}), ("gated", {0.0, 3.0}), ("plain", {0.0, 12.0})):
        encoder = Bag(50, dropout=0.5, block=block).build()
        # nothing comes through the matrix: of what is left, "plain" drops twice, the others once, and "gated" keeps half
        if encoder.residual is not None:
            encoder.residual.linear.weight.data.zero_()
        else:
            assert encoder.block is not None
            encoder.block.weight.data.zero_()
            encoder.block.bias.data.zero_()
        vectors = encoder(tokens, table)
        assert set(vectors.unique().tolist()) == found
        share = 0.75 if block == "plain" else 0.5
        assert (vectors == 0).float().mean() == pytest.approx(share, abs=0.03)
        assert len(encoder.eval()(tokens, table).unique()) == 1


def test_dropout_within_the_block() -> None:
    block, x = ScaledBlock(50, 0.5), torch.ones(200, 50)
    found = block(x)  # x + dropout(x)
    assert (found - 1).abs().min() < 1e-5 and ((found - 3).abs() < 1e-4).float().mean() == pytest.approx(0.5, abs=0.03)


def test_word_dropout_only_in_training() -> None:
    tokens, table = ragged([(0, 1.0)] * 3000, [(0, 1.0)] * 3000), torch.ones(1, 2)
    encoder = Bag(2, dropout=0.0, block="plain", word_dropout=0.3).build()
    assert encoder.block is not None
    encoder.block.weight.data.zero_()
    encoder.block.bias.data.zero_()
    state = torch.get_rng_state()
    found = encoder(tokens, table)
    assert torch.equal(found[:, 0], found[:, 1])  # whole words are left out, and what stays keeps its weight
    assert found[0, 0] != found[1, 0] and all(abs(value - 2100) < 130 for value in found[:, 0].tolist())
    assert not torch.equal(encoder(tokens, table), found)
    torch.set_rng_state(state)
    assert torch.equal(encoder(tokens, table), found)
    assert encoder.eval()(tokens, table).tolist() == [[3000.0, 3000.0]] * 2
    assert tokens.weights.tolist() == [1.0] * 6000


@pytest.mark.parametrize("block", ["scaled", "gated", "plain"])
def test_order_and_company_do_not_matter(block: str) -> None:
    encoder, table = Bag(8, block=block).build().eval(), torch.randint(-4, 5, (10, 8)).float()
    text = [(1, 1.0), (5, 0.5), (7, 2.0), (1, 0.25)]
    one, other, wrong = encoder(ragged(text, text[::-1], [*text[:3], (2, 0.25)]), table)
    assert torch.equal(one, other) and not torch.equal(one, wrong)
    assert torch.allclose(encoder(ragged(text), table)[0], one, atol=1e-6)


@pytest.mark.parametrize("block", ["scaled", "gated", "plain"])
def test_gradients_reach_what_was_read(block: str) -> None:
    encoder, table = Bag(8, dropout=0.0, block=block).build(), torch.randn(6, 8, requires_grad=True)
    encoder(ragged([(1, 1.0), (4, 1.0)], [(2, 0.0)]), table).square().sum().backward()
    assert table.grad is not None
    assert table.grad.abs().sum(dim=1).nonzero().flatten().tolist() == [1, 4]  # 2 has weight 0
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_one_vector_serves_all_tasks() -> None:
    hidden = torch.randn(2, 2)
    assert Bag(2).output_dim == 2
    assert made("scaled").project(hidden, "labels") is hidden and made("scaled").project(hidden, "clusters") is hidden


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"block": "scale"}, "block came as 'scale'; wanted one of scaled, gated, plain. Did you mean 'scaled'?"),
        ({"dim": 0}, "dim came as 0; wanted 1 or more."),
        ({"dropout": 1.0}, "dropout came as 1.0; wanted a number from 0 to below 1."),
        ({"word_dropout": -0.5}, "word_dropout came as -0.5; wanted a number from 0 to below 1."),
    ],
)
def test_settings_that_cannot_work_are_named(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError) as error:
        Bag(**wrong)  # type: ignore[arg-type]
    assert str(error.value) == said


def test_few_sums_by_one_thread_are_those_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(0, 9, 40)
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
    ids, weights = random.integers(0, 30, lengths.sum()), random.standard_normal(lengths.sum()).astype(np.float32)
    values = random.standard_normal((30, 17)).astype(np.float32)
    expected = np.array([weights[a:b] @ values[ids[a:b]] for a, b in zip(offsets, offsets[1:], strict=False)])
    tokens, table = TokenRows(torch.from_numpy(ids), torch.from_numpy(weights), offsets, 30), torch.from_numpy(values)
    found = []
    for few in (0, 1 << 19):
        monkeypatch.setattr(module, "FEW_PRODUCTS", few)
        with torch.no_grad():
            found.append(weighted_sum(tokens, table))
        assert np.allclose(found[-1].numpy(), expected, atol=1e-5)
    assert torch.equal(*found)  # a text's vector does not depend on how many are in the batch


def test_a_few_texts_are_what_they_are_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few texts go through one kernel, many through torch; with a gradient, and in training, all do."""
    random = torch.Generator().manual_seed(0)
    encoder, table = Bag(40, block="plain").build().eval(), torch.randn(30, 40, generator=random)
    few = []

    def counted(*arrays: object) -> object:
        few.append(len(arrays[2]) - 1)  # type: ignore[arg-type]
        return few_bags(*arrays)

    monkeypatch.setattr(bag, "few_bags", counted)
    ids, weights = torch.randint(30, (60,), generator=random), torch.rand(60, generator=random)
    offsets = torch.tensor([0, 0, *range(2, 61, 2)])  # the first text is empty
    many = TokenRows(ids[: offsets[-1]], weights[: offsets[-1]], offsets, 30)
    with torch.no_grad():
        whole = encoder(many, table)
        assert few == [] and len(whole) > bag.FEW_TEXTS
        for start, stop in ((0, 1), (0, 8), (3, 7), (20, 20)):
            first, last = offsets[start], offsets[stop]
            part = TokenRows(ids[first:last], weights[first:last], offsets[start : stop + 1] - first, 30)
            assert torch.allclose(encoder(part, table), whole[start:stop], atol=1e-5)
        assert few == [1, 8, 4, 0]
        encoder.train()(part, table)
        encoder.eval()
    encoder(part, table)
    assert few == [1, 8, 4, 0]

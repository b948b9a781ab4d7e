"""The transformer encoder: against the Hugging Face model called by itself, with and without what makes it cheap."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from longtail.core.errors import MissingExtra, SettingError
from longtail.models.encoders import layers, layers_cpu, packed
from longtail.models.encoders import transformer as module
from longtail.models.encoders.bag import Bag
from longtail.models.encoders.lengths import runs_of_like_length
from longtail.models.encoders.transformer import Transformer, TransformerEncoder
from longtail.models.losses import all_labels
from longtail.models.network import Network
from longtail.models.table import Table
from longtail.tokens.pretrained import Pretrained
from longtail.tokens.rows import TokenRows
from tests.pretrained import CONFIGS, save_model, save_rules
from tests.tensors import ragged
from tests.tensors import same_numbers as same_numbers

transformers = pytest.importorskip("transformers")

# lengths 4, 1, 0, 7, 4, 14, 1; ids of the table, so those of the model and one; not the padding of RoBERTa, which it does not count
ROWS = [[3, 5, 6, 4], [9], [], [3, 5, 5, 7, 6, 11, 4], [3, 12, 1, 4], [3, *range(3, 13), 1, 1, 4], [8]]
TOKENS = ragged(*[[(token, 1.0) for token in row] for row in ROWS])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    save_model(place)
    return place


def start_table(encoder: TransformerEncoder) -> Tensor:
    """As a network begins: row i + 1 is word vector i, and the row of padding is one that would be noticed."""
    assert encoder.word_vectors is not None
    return torch.cat([torch.full((1, encoder.word_vectors.shape[1]), 1e4), encoder.word_vectors])


def by_itself(model: Any, pooling: str, depths: tuple[int, ...] = (-1,)) -> Tensor:
    """Each text alone through the library's model, by its own ids; what there is after so many layers, concatenated."""
    found = []
    for row in ROWS:
        if not row:
            found.append(torch.zeros(len(depths) * model.config.hidden_size))
            continue
        states_of_all = model(input_ids=torch.tensor([row]) - 1, output_hidden_states=True).hidden_states
        states = torch.cat([states_of_all[depth][0] for depth in depths], dim=1)
        found.append(states.mean(dim=0) if pooling == "mean" else states[0])
    return torch.stack(found).detach()


# --- the same as the model


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_equals_the_model_by_itself(tmp_path: Path, kind: str, pooling: str) -> None:
    model = save_model(tmp_path, kind)
    settings = Transformer(str(tmp_path), pooling)
    encoder = settings.build().eval()
    assert (settings.dim, settings.output_dim) == (8 if kind in ("albert", "mobilebert") else 16, 16)
    assert encoder.word_vectors is not None and encoder.word_vectors.shape == (12, settings.dim)
    wanted = by_itself(model, pooling)
    assert wanted.std() > 0.1
    assert torch.allclose(encoder(TOKENS, start_table(encoder)), wanted, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("kind", [*sorted(CONFIGS), "bert with wide heads"])
def test_depths_side_by_side(tmp_path: Path, kind: str, pooling: str) -> None:
    wide = {"hidden_size": 32, "num_attention_heads": 2} if "wide" in kind else {}  # which is read end to end
    model = save_model(tmp_path, kind.split()[0], **wide)
    for depths, wanted in ((2, (0, 2)), (3, (0, 1, 2))):
        encoder = Transformer(str(tmp_path), pooling, adapter=4, depths=depths).build().eval()
        found = encoder(TOKENS, start_table(encoder))
        assert found.shape == (len(ROWS), encoder.hidden_dim) and encoder.hidden_dim == depths * model.config.hidden_size
        assert torch.allclose(found, by_itself(model, pooling, wanted), atol=1e-5)
        assert encoder.project(found, "labels").shape == (len(ROWS), model.config.hidden_size)


def test_depths_that_cannot_be(folder: Path) -> None:
    with pytest.raises(SettingError, match="depths came as 3 without an adapter to join them"):
        Transformer(str(folder), depths=3)
    with pytest.raises(SettingError, match="depths came as 0; wanted 1 or more"):
        Transformer(str(folder), adapter=4, depths=0)
    with pytest.raises(SettingError, match=r"depths came as 4, and .*model has 2 layers; wanted 3 or less"):
        Transformer(str(folder), adapter=4, depths=4).build()


@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.parametrize("start", [0, 6, 10**9])
def test_runs_do_not_change_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, start: int) -> None:
    model = save_model(tmp_path, kind)
    encoder = Transformer(str(tmp_path)).build().eval()
    monkeypatch.setattr(module, "CPU_START", start)
    n_runs = len(encoder._runs(np.array([1, 1, 4, 4, 7, 14]), torch.device("cpu")))
    assert n_runs == {0: 4, 6: 3}.get(start, 1)
    assert torch.allclose(encoder(TOKENS, start_table(encoder)), by_itself(model, "mean"), atol=1e-5)


def test_from_texts_through_a_table(folder: Path) -> None:
    """Tokens of the model, table of the network: a text is what the model makes of it; and training touches the rows of its tokens."""
    save_rules(folder)
    tokenizer = Pretrained(str(folder), max_tokens=8).fit(["red tea"])
    encoder = Transformer(str(folder)).build().eval()
    table = Table(tokenizer.n_tokens, 16, 1.0)
    with torch.no_grad():
        vectors = encoder.take_token_vectors(tokenizer.n_tokens)
        assert vectors is not None and encoder.take_token_vectors(tokenizer.n_tokens) is None  # they are the table's now
        table.weight[1:] = vectors
    batch = tokenizer(["green teas", "a cup"]).batch()
    model = transformers.AutoModel.from_pretrained(folder).eval()
    each = [model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(dim=0) for ids in ([2, 7, 5, 6, 3], [2, 11, 8, 3])]
    wanted = torch.stack(each)
    assert torch.allclose(encoder(batch, table.weight), wanted, atol=1e-5)
    gathered, [placed] = table.gather([batch])
    hidden = encoder(placed, gathered)
    assert torch.allclose(hidden, wanted, atol=1e-5)
    hidden.square().sum().backward()
    gradient = table.weight.grad
    assert gradient is not None and gradient.is_sparse
    assert gradient.coalesce().indices()[0].tolist() == [3, 4, 6, 7, 8, 9, 12]


def test_empty_texts(folder: Path) -> None:
    encoder = Transformer(str(folder)).build()
    table = start_table(encoder).requires_grad_()
    empty = torch.empty(0, dtype=torch.int64)
    nothing = encoder(TokenRows(empty, torch.empty(0), torch.zeros(4, dtype=torch.int64), 9), table)
    assert torch.equal(nothing, torch.zeros(3, 16))
    assert encoder(TokenRows(empty, torch.empty(0), torch.zeros(1, dtype=torch.int64), 9), table).shape == (0, 16)
    hidden = encoder(ragged([], [(3, 1.0), (4, 1.0)], []), table)
    hidden.square().sum().backward()
    assert table.grad is not None and table.grad.isfinite().all()
    assert hidden[[0, 2]].abs().sum() == 0 and hidden[1].abs().sum() > 0


def test_gradients_stay_with_a_text(folder: Path) -> None:
    """What pads a short text next to a long one gets none."""
    encoder = Transformer(str(folder)).build().eval()
    table = start_table(encoder).requires_grad_()
    hidden = encoder(ragged([(3, 1.0)], [(5, 1.0), (6, 1.0)]), table)
    hidden[0].square().sum().backward()
    assert table.grad is not None and table.grad.abs().sum(dim=1).nonzero().flatten().tolist() == [3]
    assert all(parameter.grad is not None for parameter in encoder.parameters())


# --- runs of like length


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 30), st.integers(5, 40), st.integers(1, 9))
def test_runs_are_the_cheapest(found: list[int], start: int, max_tokens: int, max_texts: int) -> None:
    lengths = np.sort(np.array(found, np.int64))

    def cost(runs: list[tuple[int, int]]) -> int:
        return sum((stop - first) * int(lengths[stop - 1]) + start for first, stop in runs)

    free = runs_of_like_length(lengths, start, 10**9, 10**9)
    cuts = range(2 ** (len(lengths) - 1))
    edges = [[0, *(place for place in range(1, len(lengths)) if cut >> (place - 1) & 1), len(lengths)] for cut in cuts]
    assert cost(free) == min(cost(list(pairwise(some))) for some in edges)
    bound = runs_of_like_length(lengths, start, max_tokens, max_texts)
    for runs in (free, bound):
        assert runs[0][0] == 0 and runs[-1][1] == len(lengths) and all(one[1] == other[0] for one, other in pairwise(runs))
    assert all(stop - first <= max_texts for first, stop in bound)
    assert all(stop - first == 1 or (stop - first) * lengths[stop - 1] <= max_tokens for first, stop in bound)


# --- memory for time


def gradients(encoder: TransformerEncoder, seed: int = 3) -> tuple[Tensor, dict[str, Tensor]]:
    encoder.zero_grad()
    table = start_table(encoder).requires_grad_()
    torch.manual_seed(seed)
    hidden = encoder(TOKENS, table)
    hidden.square().sum().backward()
    assert table.grad is not None
    named = {name: parameter.grad.clone() for name, parameter in encoder.named_parameters() if parameter.grad is not None}
    return hidden.detach(), {"table": table.grad, **named}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.allclose(one[name], other[name], rtol=1e-4, atol=1e-5) for name in one)


@pytest.mark.parametrize("texts_at_once", [1, 2, 100])
def test_gradients_are_the_same_when_texts_are_encoded_twice(folder: Path, monkeypatch: pytest.MonkeyPatch, texts_at_once: int) -> None:
    encoder = replace(Transformer(str(folder)), texts_at_once=texts_at_once).build()
    calls = []
    encoder.model.register_forward_pre_hook(lambda part, handed, named: calls.append(len(named["inputs_embeds"])), with_kwargs=True)
    hidden, found = gradients(encoder)
    n_twice = len(calls)
    assert max(calls) <= texts_at_once
    monkeypatch.setattr(module, "checkpoint", lambda function, *handed, use_reentrant: function(*handed))
    once, wanted = gradients(encoder)
    assert 2 * (len(calls) - n_twice) == n_twice  # it was twice
    assert torch.equal(hidden, once) and same(found, wanted)
    assert not same(gradients(encoder, seed=4)[1], wanted)  # dropout was on


def test_gradients_do_not_depend_on_how_many_at_once(folder: Path) -> None:
    kinds = [Transformer(str(folder), texts_at_once=at_once).build().eval() for at_once in (0, 1, 3)]
    (hidden, wanted), *others = map(gradients, kinds)
    assert all(torch.allclose(other, hidden, atol=1e-5) and same(found, wanted) for other, found in others)


def test_insides_are_held_for_a_few_texts_at_a_time(folder: Path) -> None:
    """Numbers that autograd keeps between the way there and the way back."""

    def held(encoder: TransformerEncoder) -> int:
        sizes: dict[int, int] = {}
        table = start_table(encoder).requires_grad_()
        own = {part.data_ptr() for part in (*encoder.parameters(), table)}

        def pack(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in own:
                sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            hidden = encoder(ragged(*[[(3, 1.0), (5, 1.0), (4, 1.0)]] * 64), table)
        assert hidden.requires_grad
        return sum(sizes.values())

    assert held(Transformer(str(folder), texts_at_once=4).build()) < held(Transformer(str(folder)).build()) / 20


# --- modes


def test_modes(folder: Path) -> None:
    encoder = Transformer(str(folder), projection=6, dropout=0.5).build()
    assert encoder.training and all(part.training for part in encoder.modules())
    table = start_table(encoder)
    assert not torch.equal(encoder(TOKENS, table), encoder(TOKENS, table))
    encoder.eval()
    assert torch.equal(encoder(TOKENS, table), encoder(TOKENS, table))
    with torch.no_grad():
        assert not encoder(TOKENS, table).requires_grad
    other = deepcopy(encoder)
    next(encoder.parameters()).data.zero_()
    assert not torch.equal(other(TOKENS, table), encoder(TOKENS, table))


@pytest.mark.parametrize("texts_at_once", [0, 2])
def test_half_the_bits(folder: Path, texts_at_once: int) -> None:
    encoder = Transformer(str(folder), projection=6, texts_at_once=texts_at_once).build().eval()
    table = start_table(encoder).requires_grad_()
    wanted = encoder(TOKENS, table)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = encoder(TOKENS, table)
        vectors = encoder.project(hidden, "labels")
    assert hidden.dtype == torch.float32 and not torch.equal(hidden, wanted)
    assert torch.allclose(hidden, wanted, atol=0.1)
    vectors.float().square().sum().backward()
    assert table.grad is not None and table.grad.isfinite().all()


# --- texts end to end

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def wide_heads(folder: Path, **settings: Any) -> TransformerEncoder:
    """One whose attention heads are as wide as the layers over texts end to end want them."""
    save_model(folder, hidden_size=32, num_attention_heads=2)
    return Transformer(str(folder), **settings).build()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("texts_at_once", [0, 2])
def test_texts_end_to_end(tmp_path: Path, pooling: str, texts_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = wide_heads(tmp_path, pooling=pooling, texts_at_once=texts_at_once).eval()
    table = start_table(encoder).requires_grad_()
    weights = [table, *encoder.parameters()]
    above = torch.randn(len(ROWS), encoder.hidden_dim)
    calls = []
    encoder.model.register_forward_pre_hook(lambda *_: calls.append(1))
    with monkeypatch.context() as patch:
        patch.setattr(module, "can_pack", lambda *_: False)
        padded = encoder(TOKENS, table)
        wanted = torch.autograd.grad(padded, weights, above)
    n_padded = len(calls)
    monkeypatch.setattr(module, "CPU_TOKENS", 8)  # tokens: the text of 14 is a run by itself
    found = encoder(TOKENS, table)
    assert torch.allclose(found, padded, atol=1e-5)
    for gradient, other in zip(torch.autograd.grad(found, weights, above), wanted, strict=True):
        assert torch.allclose(gradient, other, atol=1e-4)
    assert n_padded == len(calls) > 0  # the library's layers were not asked again


def test_prediction_rounds_as_training_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_labels, "matrix_type", lambda device: torch.bfloat16)
    encoder = Transformer(str(folder)).build().eval()
    table = Table(len(start_table(encoder)), encoder.hidden_dim, scale=1.0)
    with torch.no_grad():
        exact = encoder(TOKENS, table.weight)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = encoder(TOKENS, table.weight)
    found = Network(table, encoder, encoder.hidden_dim, encoder.hidden_dim).hidden(TOKENS)
    assert found.dtype == torch.float32 and torch.equal(found, rounded) and not torch.equal(found, exact)
    bag = Bag(dim=encoder.hidden_dim).build().eval()  # whose work is to add up vectors
    with torch.no_grad():
        assert torch.equal(Network(table, bag, encoder.hidden_dim, encoder.hidden_dim).hidden(TOKENS), bag(TOKENS, table.weight))


def test_end_to_end_with_dropout_and_half_the_bits(tmp_path: Path) -> None:
    encoder = wide_heads(tmp_path)
    table = start_table(encoder)
    assert not torch.equal(encoder(TOKENS, table), encoder(TOKENS, table))
    torch.manual_seed(1)
    once = encoder(TOKENS, table)
    torch.manual_seed(1)
    assert torch.equal(encoder(TOKENS, table), once)
    wanted = encoder.eval()(TOKENS, table)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = encoder(TOKENS, table)
    assert found.dtype == torch.float32 and not torch.equal(found, wanted) and torch.allclose(found, wanted, atol=0.1)


@pytest.mark.parametrize("runs", [True, False])
def test_what_lies_end_to_end(runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bert, cpu, gpu = Transformer("none", hidden=32, layers=1, attention_heads=2).build().model, torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(packed, "_kernel_runs", lambda _: runs)
    assert packed.can_pack(bert, packed.LONGEST, gpu) == runs and packed.can_pack(bert, packed.LONGEST, cpu)
    assert not packed.can_pack(bert, packed.LONGEST + 1, gpu) and not packed.can_pack(bert, packed.LONGEST + 1, cpu)
    for setting, other in (("model_type", "roberta"), ("hidden_act", "relu"), ("num_attention_heads", 4), ("is_decoder", True)):
        with monkeypatch.context() as patch:
            patch.setitem(bert.config.__dict__, setting, other)
            assert getattr(bert.config, setting) == other and not packed.can_pack(bert, 10, gpu) and not packed.can_pack(bert, 10, cpu)
    assert not packed.can_pack(bert.double(), 10, cpu)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_runs_no_kernel() -> None:
    assert not packed._kernel_runs(torch.device("cuda"))


def naive_attend(qkv: Tensor, offsets: list[int], heads: int) -> Tensor:
    """One text after the other, by torch."""
    n, dim = len(qkv), qkv.shape[1] // 3 // heads
    q, k, v = qkv.view(n, 3, heads, dim).permute(1, 2, 0, 3)  # (heads, n, dim) each
    mixed = []
    for start, stop in pairwise(offsets):
        scores = q[:, start:stop] @ k[:, start:stop].transpose(1, 2) / dim**0.5
        mixed.append(scores.softmax(2) @ v[:, start:stop])
    return torch.cat(mixed, dim=1).transpose(0, 1).reshape(n, heads * dim)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("longest", "dim"), [(9, 16), (32, 32), (60, 64), (128, 32)])
def test_attention(longest: int, dim: int, kind: torch.dtype, device: str) -> None:
    heads, share = 3, 0.3
    lengths = [longest, 0, 1, longest // 2, 7, 16]
    ends = [0, *np.cumsum(lengths).tolist()]
    offsets = torch.tensor(ends, device=device)
    torch.manual_seed(0)
    qkv = (2 * torch.randn(sum(lengths), 3 * heads * dim, device=device)).to(kind).requires_grad_()
    above = torch.randn(sum(lengths), heads * dim, device=device).to(kind)
    found = layers.attend(qkv, offsets, longest, heads, 0.0)
    precise = qkv.detach().double().requires_grad_()
    wanted = naive_attend(precise, ends, heads)
    (gradient,) = torch.autograd.grad(found, qkv, above)
    (other,) = torch.autograd.grad(wanted, precise, above.double())
    assert found.dtype == gradient.dtype == kind
    for one, two in ((found, wanted), (gradient, other)):
        assert (one.double() - two).norm() <= (1e-5 if kind == torch.float32 else 0.01) * two.norm()
    if kind == torch.bfloat16:
        return

    # dropout: the gradient is that of the same draw
    def mixed(values: Tensor) -> Tensor:
        torch.manual_seed(1)
        return (layers.attend(values, offsets, longest, heads, share).double() * above).sum()

    (gradient,) = torch.autograd.grad(mixed(qkv), qkv)
    assert not torch.allclose(gradient, other.float(), atol=0.1)
    way = torch.randn_like(qkv)
    with torch.no_grad():
        slope = (mixed(qkv + 1e-2 * way) - mixed(qkv - 1e-2 * way)) / 2e-2
    assert torch.isclose(slope, (gradient * way).double().sum(), rtol=1e-2, atol=1e-2)
    alike = torch.ones(sum(lengths), 3 * heads * dim, device=device)
    assert torch.isclose(layers.attend(alike, offsets, longest, heads, share).mean(), torch.ones((), device=device), atol=0.15)


def test_few_texts_are_attended_to_alike() -> None:
    """One thread for a few tokens, all threads for many."""
    torch.manual_seed(0)
    n, heads, dim = layers_cpu.FEW_TOKENS // 8 + 1, 2, 16
    qkv = torch.randn(8 * n, 3 * heads * dim)
    many = layers.attend(qkv, torch.arange(n + 1) * 8, 8, heads, 0.0)
    few = layers.attend(qkv[:-8], torch.arange(n) * 8, 8, heads, 0.0)
    assert len(few) <= layers_cpu.FEW_TOKENS < len(many) and torch.equal(few, many[:-8])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n", "hidden", "inner"), [(1, 16, 64), (7, 48, 96), (3000, 384, 1536), (250, 32, 700)])
def test_between_products(n: int, hidden: int, inner: int, kind: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    wide, narrow, norm = nn.Linear(hidden, inner), nn.Linear(inner, hidden), nn.LayerNorm(hidden)
    nn.init.normal_(norm.weight, 1.0, 0.3)
    nn.init.normal_(norm.bias)
    parts = nn.ModuleList([wide, narrow, norm])
    states, before, above = (torch.randn(n, hidden).to(kind) for _ in range(3))

    def naive(inputs: list[Tensor]) -> Tensor:
        total: Tensor = norm(inputs[1] + narrow(nn.functional.gelu(wide(inputs[0]))))
        return total

    def slopes(find: Callable[[list[Tensor]], Tensor], at: str, of: torch.dtype) -> tuple[Tensor, ...]:
        parts.to(at)
        inputs = [tensor.to(at, of).requires_grad_() for tensor in (states, before)]
        found = find(inputs)
        return found.cpu(), *(one.cpu() for one in torch.autograd.grad(found, [*inputs, *parts.parameters()], above.to(at, of)))

    def ours(share: float) -> Callable[[list[Tensor]], Tensor]:
        return lambda inputs: layers.dense_add_norm(narrow, norm, layers.dense_gelu(wide, inputs[0]), inputs[1], share)

    close = 1e-3 if kind == torch.float32 else 0.03
    for wanted, found in zip(slopes(naive, "cpu", torch.float32), slopes(ours(0.0), device, kind), strict=True):
        assert (found.float() - wanted).norm() <= close * wanted.norm()
    if kind == torch.bfloat16:
        return

    # dropout: the gradient is that of the same draw, and some of what is added is left out
    def total(change: float) -> Tensor:
        torch.manual_seed(1)
        found = ours(0.4)([(states + change * way).to(device), before.to(device)])
        return (found.double() * above.to(device)).sum()

    way = torch.randn(n, hidden)
    torch.manual_seed(1)
    dropped = slopes(ours(0.4), device, kind)
    assert not torch.equal(dropped[0], slopes(ours(0.4), device, kind)[0])
    with torch.no_grad():
        slope = (total(1e-2) - total(-1e-2)) / 2e-2
    assert torch.isclose(slope.cpu(), (dropped[1] * way).double().sum(), rtol=2e-2, atol=2e-2 * n**0.5)


@pytest.mark.parametrize("device", DEVICES)
def test_what_dropout_takes(device: str) -> None:
    share, n, hidden = 0.1, 1000, 64
    ones, norm = nn.Linear(hidden, hidden).to(device), nn.LayerNorm(hidden).to(device)
    nn.init.zeros_(ones.weight)
    nn.init.ones_(ones.bias)  # of a row of ones, what dropout takes is what lies below the row's mean
    nothing = torch.zeros(n, hidden, device=device)
    torch.manual_seed(0)
    taken, others = (layers.dense_add_norm(ones, norm, nothing, nothing, share) < 0 for _ in range(2))
    for way in (0, 1):  # neither a row nor a column is preferred: five standard deviations of a draw
        shares = taken.float().mean(way)
        assert ((shares - share).abs() < 5 * (share * (1 - share) / taken.shape[way]) ** 0.5).all()
    assert abs(float((taken & others).float().mean()) - share**2) < 0.002
    assert not (layers.dense_add_norm(ones, norm, nothing, nothing, 0.0) < 0).any()


@pytest.mark.gpu
@pytest.mark.parametrize("texts_at_once", [0, 2])
def test_on_a_gpu(folder: Path, texts_at_once: int) -> None:
    encoder = Transformer(str(folder), texts_at_once=texts_at_once).build().eval()
    table = start_table(encoder)
    wanted = encoder(TOKENS, table)
    table = table.cuda().requires_grad_()
    tokens = TOKENS.to(torch.device("cuda"))
    above = torch.randn_like(wanted)
    slopes = torch.autograd.grad(wanted, [*encoder.parameters()], above)
    encoder.cuda()
    found = encoder(tokens, table)
    assert torch.allclose(found.cpu(), wanted, atol=1e-4)
    for slope, other in zip(torch.autograd.grad(found, [*encoder.parameters()], above.cuda()), slopes, strict=True):
        assert torch.allclose(slope.cpu(), other, atol=1e-3)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        hidden = encoder(tokens, table)
    assert torch.allclose(hidden.cpu(), wanted, atol=0.1)
    hidden.square().sum().backward()
    assert table.grad is not None and table.grad.isfinite().all()


def test_heads_by_hand(folder: Path) -> None:
    encoder = Transformer(str(folder), projection=2, dropout=0.5).build()
    for name, head in encoder.projections.items():
        linear = head[0]  # type: ignore[index]
        assert isinstance(linear, nn.Linear)
        linear.weight.data.zero_()
        linear.weight.data[0, 0] = linear.weight.data[1, 1] = 1.0
        linear.bias.data.fill_(0.5 if name == "labels" else -0.5)
    hidden = torch.tensor([[1.0, -2.0, *[0.0] * 14]])
    encoder.eval()
    assert torch.allclose(encoder.project(hidden, "labels"), torch.tensor([[1.5, -1.5]]).tanh())
    assert torch.equal(encoder.project(hidden, "clusters"), encoder.project(hidden, "labels"))
    assert torch.allclose(encoder.project(hidden, "classifiers"), torch.tensor([[0.5, -2.5]]))
    encoder.train()
    for task in ("labels", "classifiers"):
        dropped = torch.stack([encoder.project(hidden, task) for _ in range(100)])
        assert 0.3 < (dropped == 0).float().mean() < 0.7
    assert Transformer(str(folder), projection=2).output_dim == 2
    plain = Transformer(str(folder)).build()
    assert plain.project(hidden, "labels") is hidden and plain.project(hidden, "classifiers") is hidden


# --- what is saved


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_round_trip_without_the_folder(tmp_path: Path, kind: str) -> None:
    from safetensors.torch import load_file, save_file

    save_model(tmp_path / "model", kind)
    settings = Transformer(str(tmp_path / "model"), projection=6)
    encoder = settings.build().eval()
    table = start_table(encoder)
    written = json.dumps(encoder.architecture(), allow_nan=False)
    assert str(tmp_path) not in written
    state = encoder.state_dict()
    assert all(len(tensor) != 12 for tensor in state.values()) and not any("pooler" in name for name in state)  # no word vectors
    save_file(state, tmp_path / "weights.safetensors")
    other = replace(settings, model="/not/here").rebuild(json.loads(written)).eval()
    assert other.word_vectors is None
    other.load_state_dict(load_file(tmp_path / "weights.safetensors"), assign=True)
    hidden = other(TOKENS, table)
    assert torch.equal(hidden, encoder(TOKENS, table))
    assert torch.equal(other.project(hidden, "classifiers"), encoder.project(hidden, "classifiers"))
    assert other.architecture() == encoder.architecture() == json.loads(written) and other.max_tokens == encoder.max_tokens


def test_random_weights_for_any_tokens() -> None:
    settings = Transformer("none", hidden=24, layers=2, attention_heads=3)
    assert (settings.dim, settings.output_dim) == (24, 24)
    torch.manual_seed(1)
    encoder = settings.build().eval()
    torch.manual_seed(1)
    again = settings.build().eval()
    assert encoder.word_vectors is None and len(encoder.model.encoder.layer) == 2
    assert encoder.take_token_vectors(1000) is None  # there are no vectors that tokens would have to fit
    table = torch.randn(1000, 24)
    tokens = ragged([(999, 1.0), (3, 1.0)], [(3, 1.0), (999, 1.0)])
    hidden = encoder(tokens, table)
    assert torch.equal(hidden, again(tokens, table)) and hidden.isfinite().all()
    assert not torch.allclose(hidden[0], hidden[1], atol=1e-3)  # order matters
    other = settings.rebuild(json.loads(json.dumps(encoder.architecture())))
    other.load_state_dict(encoder.state_dict(), assign=True)
    assert torch.equal(other.eval()(tokens, table), hidden)


def test_the_library_stays_silent(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    Transformer(str(folder)).build()
    Transformer("none", hidden=8, layers=1, attention_heads=1).build()
    said = capfd.readouterr()
    assert said.out == said.err == ""
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_weights_in_half_the_bits_are_widened(tmp_path: Path) -> None:
    save_model(tmp_path).bfloat16().save_pretrained(tmp_path)
    encoder = Transformer(str(tmp_path)).build()
    assert encoder.word_vectors is not None and encoder.word_vectors.dtype == torch.float32
    assert all(parameter.dtype == torch.float32 for parameter in encoder.parameters())
    other = Transformer().rebuild(encoder.architecture())
    assert all(parameter.dtype == torch.float32 for parameter in other.parameters())


# --- what cannot work


def test_tokens_that_do_not_fit(folder: Path) -> None:
    encoder = Transformer(str(folder)).build()
    with pytest.raises(SettingError, match="tokenizer does not fit the encoder: it has 13 tokens, and .* has 12 word vectors"):
        encoder.take_token_vectors(14)
    vectors = encoder.take_token_vectors(13)
    assert vectors is not None and len(vectors) == 12


@pytest.mark.parametrize(("kind", "most"), [("bert", 16), ("roberta", 14)])  # RoBERTa's positions begin at 2
def test_texts_that_are_too_long(tmp_path: Path, kind: str, most: int) -> None:
    save_model(tmp_path, kind)
    encoder = Transformer(str(tmp_path)).build().eval()
    table = start_table(encoder)
    assert encoder(ragged([(3, 1.0)] * most), table).isfinite().all()
    with pytest.raises(SettingError, match=f"A text of {most + 1} tokens came.* wanted tokens.max_tokens={most} or less"):
        encoder(ragged([(3, 1.0)] * (most + 1)), table)


def said_by(settings: Transformer, kind: type[Exception] = SettingError) -> str:
    with pytest.raises(kind) as error:
        settings.build()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_foreign_folders_are_named(folder: Path, tmp_path: Path) -> None:
    settings = Transformer(str(folder))
    whole = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**whole, "num_hidden_layers": 3}))
    assert "is not whole: 16 weights are missing, the first is encoder.layer.2" in said_by(settings)
    (folder / "config.json").write_text(json.dumps({**whole, "intermediate_size": 64}))
    assert "cannot be loaded" in said_by(settings)
    (folder / "config.json").write_text(json.dumps({**whole, "model_type": "unheard-of"}))
    assert "cannot be loaded" in said_by(settings)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(SettingError, match="config.json has no hidden_size"):
        assert settings.dim
    (folder / "model.safetensors").unlink()
    assert said_by(settings) == f"{folder} holds no weights; wanted model.safetensors."
    (folder / "config.json").unlink()
    assert "holds no config.json" in said_by(settings)
    with pytest.raises(SettingError, match="A transformer of kind 'unheard-of' cannot be made"):
        settings.rebuild({"model_type": "unheard-of"})


def test_an_encoder_with_a_decoder(tmp_path: Path) -> None:
    config = transformers.BartConfig(
        vocab_size=12, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1, decoder_attention_heads=1
    )
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    assert "The model is a bart, an encoder with a decoder behind it" in said_by(Transformer(str(tmp_path)))


def test_a_missing_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.utils", None)
    wanted = "The transformer encoder needs an extra: pip install 'longtail[encoders]'"
    assert said_by(Transformer(str(folder)), MissingExtra) == wanted
    assert said_by(Transformer("none"), MissingExtra) == wanted
    assert Transformer(str(folder)).dim == 16  # config.json is enough


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"pooling": "max"}, "pooling came as 'max'; wanted one of mean, cls."),
        ({"projection": -1}, "projection came as -1; wanted 0 or more."),
        ({"texts_at_once": -1}, "texts_at_once came as -1; wanted 0 or more."),
        ({"layers": 0}, "layers came as 0; wanted 1 or more."),
        ({"dropout": 1.0}, "dropout came as 1.0; wanted a number from 0 to below 1."),
        ({"hidden": 10, "attention_heads": 4}, "hidden came as 10 with 4 attention heads; wanted a multiple of attention_heads."),
    ],
)
def test_settings_that_cannot_work_are_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as error:
        Transformer("none", **wrong)
    assert str(error.value) == said

"""The convolution encoders and the spectral linear layer: by hand, against naive second versions, and through a saved state."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.errors import SettingError, UnknownName
from longtail.models.encoders.experts import ExpertsEncoder, InceptionExperts, Router
from longtail.models.encoders.inception import DimAttention, Inception, InceptionEncoder, Wide, WordAttention, length_for, padded
from longtail.models.encoders.spectral import SpectralLinear
from longtail.tokens.rows import TokenRows

SMALL = {"dim": 80, "max_words": 6, "channels": 4}
BOTH = pytest.mark.parametrize("kind", [Inception, InceptionExperts])
Encoder = InceptionEncoder | ExpertsEncoder


@pytest.fixture(autouse=True)
def same_numbers() -> Iterator[None]:
    """One seed; and one thread, since on small matrices several mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def batch(*texts: list[int]) -> TokenRows:
    ids = torch.tensor([token for text in texts for token in text], dtype=torch.int64)
    offsets = torch.tensor(np.cumsum([0, *map(len, texts)]), dtype=torch.int64)
    return TokenRows(ids, torch.ones(len(ids)), offsets, 100)


def made(kind: type[Inception] | type[InceptionExperts], **changed: float) -> tuple[Encoder, Tensor]:
    """An encoder whose attentions, norms and router are no longer what they are at the start, and a table for it."""
    torch.manual_seed(3)
    encoder = kind(**(SMALL | changed)).build()  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "gamma" in name or "norm" in name or "router" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    table = torch.randn(50, encoder.words.across_dims.weigh.weight.shape[0]) * 0.4
    return encoder, table


def vectors(encoder: Encoder, tokens: TokenRows, table: Tensor, task: str = "labels") -> Tensor:
    return encoder.project(encoder(tokens, table), task)


def one_circular(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """torch's own circular convolution."""
    width = kernel.shape[2]
    convolution = nn.Conv1d(kernel.shape[1], kernel.shape[0], width, 4, padding=2 * (width // 4 - 1), padding_mode="circular")
    convolution.weight.data, convolution.bias.data = kernel.data, bias.data  # type: ignore[union-attr]
    return convolution(x)


@BOTH
@pytest.mark.parametrize(("dim", "features"), [(300, 480), (80, 64), (84, 64), (96, 96), (256, 416)])
def test_shapes(kind: type[Inception], dim: int, features: int) -> None:
    encoder = kind(dim=dim).build()
    tokens, table = batch([1, 2, 3], [4], [], [5] * 40), torch.randn(9, dim)
    hidden = encoder(tokens, table)
    for task in ("labels", "clusters"):
        assert encoder.project(hidden, task).shape == (4, features) == (4, kind(dim=dim).output_dim)


@BOTH
def test_settings_that_cannot_work_are_named(kind: type[Inception]) -> None:
    for wrong, said in (
        ({"dim": 302}, "multiple of 4"),
        ({"dim": 76}, "80 or more"),
        ({"max_words": 0}, "max_words"),
        ({"channels": 0}, "channels"),
        ({"widths": (4, 7)}, "even"),
        ({"widths": (2,)}, "from 4"),
        ({"widths": (4, 302)}, "to dim=300"),
        ({"widths": ()}, "even"),
        ({"dropout": 1.0}, "dropout"),
    ):
        with pytest.raises(SettingError, match=said):
            kind(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="Did you mean 'labels'"):
        encoder, table = made(kind)
        vectors(encoder, batch([1]), table, "label")


@BOTH
def test_one_text_can_be_trained(kind: type[Inception]) -> None:
    for dim in (80, 300):
        encoder, table = made(kind, dim=dim)
        assert vectors(encoder, batch([1, 2]), table).isfinite().all()


@given(st.lists(st.lists(st.integers(0, 9), max_size=7), min_size=1, max_size=5), st.integers(1, 8))
@settings(deadline=None, max_examples=50)
def test_padded_like_a_loop(texts: list[list[int]], length: int) -> None:
    tokens, table = batch(*texts), torch.arange(1.0, 21.0).view(10, 2)
    expected = torch.zeros(len(texts), length, 2)
    for row, text in enumerate(texts):
        for place, token in enumerate(text[:length]):
            expected[row, place] = table[token]
    assert torch.equal(padded(table[tokens.ids], tokens, length), expected)


def test_length_is_asked_for_on_the_cpu_only() -> None:
    assert length_for(batch([1, 2, 3], [4]), 32) == 3
    assert length_for(batch([1] * 40), 32) == 32
    assert length_for(batch([], []), 32) == 1
    tokens = batch([1, 2, 3])
    elsewhere = tokens.to(torch.device("meta"))
    assert length_for(elsewhere, 32) == 32


@BOTH
def test_texts_of_like_length_together_give_what_each_gives_alone(kind: type[Inception]) -> None:
    encoder, table = made(kind)
    encoder.eval()
    texts = [[(3 * row + place) % 50 for place in range(row * 7 % 41)] for row in range(45)]  # with empty ones, and ones that are cut
    for attention in (encoder.words.across_words, encoder.words.across_dims):
        attention.gamma.data.fill_(0.1)
    together = vectors(encoder, batch(*texts), table)
    alone = torch.cat([vectors(encoder, batch(text), table) for text in texts])
    assert torch.allclose(together, alone, atol=1e-4)
    table.requires_grad_()
    (own,) = torch.autograd.grad(vectors(encoder, batch(*texts), table).square().sum(), table)
    (each,) = torch.autograd.grad(sum(vectors(encoder, batch(text), table).square().sum() for text in texts), table)
    assert torch.allclose(own, each, rtol=1e-3, atol=1e-3)


def test_ring_by_hand() -> None:
    wide = Wide(1, (4, 8))
    x = torch.arange(8.0).view(1, 1, 8)
    with torch.no_grad():
        wide.kernels[0].fill_(1)  # 0+1+2+3 and 4+5+6+7
        wide.kernels[1].copy_(torch.tensor([[[100, 0, 0, 0, 0, 0, 0, 1]]]))  # windows are 6 7 0 1 2 3 4 5 and 2 3 4 5 6 7 0 1
    assert wide(x).tolist() == [[[6, 22], [605, 201]]]


@pytest.mark.parametrize("widths", [(4, 8, 16), (16, 4), (4,), (12, 12)])
def test_wide_like_torch_one_by_one(widths: tuple[int, ...]) -> None:
    wide, x = Wide(3, widths), torch.randn(2, 3, 40)
    nn.init.normal_(wide.bias)
    parts = [one_circular(x, kernel, bias) for kernel, bias in zip(wide.kernels, wide.bias.split(3), strict=True)]
    assert torch.allclose(wide(x), torch.cat(parts, dim=1), atol=1e-5)


def test_attentions_like_the_products_in_order() -> None:
    x = torch.randn(3, 5, 7)
    words, dims = WordAttention(5).eval(), DimAttention(7).eval()
    with torch.no_grad():
        words.gamma.fill_(0.5)
        dims.gamma.fill_(0.5)
    for one in range(3):
        text = x[one]
        expected = text + 0.5 * text @ text.T @ words.weigh.normed_weight() @ text
        assert torch.allclose(words(x)[one], expected, atol=1e-5)
        across = text.T  # dimensions are rows now
        expected = across + 0.5 * across @ across.T @ dims.weigh.normed_weight() @ across
        assert torch.allclose(dims(x)[one], expected.T, atol=1e-5)


def test_word_attention_of_fewer_words() -> None:
    attention = WordAttention(6).eval()
    attention.gamma.data.fill_(0.5)
    short = torch.randn(2, 4, 8)
    assert torch.allclose(attention(short), attention(functional.pad(short, (0, 0, 0, 2)))[:, :4], atol=1e-6)


@BOTH
def test_attention_is_off_at_the_start(kind: type[Inception]) -> None:
    encoder, table = kind(**SMALL).build().eval(), torch.randn(50, 80)  # type: ignore[arg-type]
    tokens = batch([1, 2, 3], [4, 5])
    before = vectors(encoder, tokens, table)
    words = padded(table[tokens.ids], tokens, 3)
    assert torch.equal(encoder.words.across_dims(encoder.words.across_words(words)), words)
    for attention in (encoder.words.across_words, encoder.words.across_dims):
        attention.weigh.weight.data.normal_()
        assert torch.equal(vectors(encoder, tokens, table), before)
        attention.gamma.data.fill_(0.1)
        assert not torch.allclose(vectors(encoder, tokens, table), before, atol=1e-3)
        attention.gamma.data.fill_(0.0)


def naive_words(encoder: Encoder, words: Tensor) -> Tensor:
    """One padded text (max_words, dim) to (1, channels, dim) in evaluation mode."""
    part = encoder.words
    words = part.across_dims(part.across_words(words[None]))
    return part.norm(functional.gelu(functional.conv1d(words, part.mix[:, :, None], part.bias[:, 0])))


def naive_vector(encoder: Encoder, words: Tensor, task: str) -> Tensor:
    """The whole way of one padded text in evaluation mode, layer by layer as the papers tell it."""
    wide = encoder.wide if isinstance(encoder, InceptionEncoder) else encoder.experts
    x = naive_words(encoder, words)
    maps = [one_circular(x, kernel, bias) for kernel, bias in zip(wide.kernels, wide.bias.split(4), strict=True)]
    if isinstance(encoder, InceptionEncoder):
        hidden = encoder.norm(functional.gelu(torch.cat(maps, dim=1)))
        narrow, head = encoder.narrow, encoder.projections[task]
    else:
        weights = encoder.router(x)[0]
        mixed = functional.gelu(sum(weight * one for weight, one in zip(weights, maps, strict=True)))
        hidden = encoder.norm(mixed + x.view(1, 4, -1, 4).mean(dim=3))
        narrow, head = encoder.projections[task]
    features = narrow.norm(functional.gelu(functional.conv1d(hidden, narrow.kernel, narrow.bias, stride=4))).flatten()
    return features + functional.gelu(head.linear.normed_weight() @ features + head.linear.bias)


@BOTH
@pytest.mark.parametrize("task", ["labels", "clusters"])
def test_a_text_alone_among_others_and_by_hand(kind: type[Inception], task: str) -> None:
    encoder, table = made(kind)
    vectors(encoder, batch([1, 2, 3], [4, 5, 6, 7]), table, task)  # moves the running means
    encoder.eval()
    texts = [[1, 2, 3], [4], [], [5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15, 16, 17, 18]]
    among = vectors(encoder, batch(*texts), table, task)
    other = vectors(encoder, batch(*texts), table, "clusters" if task == "labels" else "labels")
    assert not torch.allclose(among, other, atol=1e-2)
    for row, text in enumerate(texts):
        alone = vectors(encoder, batch(text), table, task)[0]
        assert torch.allclose(among[row], alone, atol=1e-5)
        words = functional.pad(table[text[:6]], (0, 0, 0, 6 - len(text[:6])))
        assert torch.allclose(alone, naive_vector(encoder, words, task), atol=1e-5)


@BOTH
def test_cut_at_max_words(kind: type[Inception]) -> None:
    encoder, table = made(kind)
    encoder.eval()
    long, cut, shorter, changed = vectors(encoder, batch([*range(9)], [*range(6)], [*range(5)], [0, 1, 2, 3, 4, 9]), table)
    assert torch.equal(long, cut)
    assert not torch.allclose(cut, shorter, atol=1e-3) and not torch.allclose(cut, changed, atol=1e-3)


@BOTH
def test_the_order_of_words_counts(kind: type[Inception]) -> None:
    encoder, table = made(kind)
    encoder.eval()
    one, other = vectors(encoder, batch([1, 2, 3], [3, 2, 1]), table)
    assert not torch.allclose(one, other, atol=1e-3)


@BOTH
def test_gradients_reach_what_was_read(kind: type[Inception]) -> None:
    encoder, table = made(kind)
    table.requires_grad_()
    hidden = encoder(batch([1, 2], [], [3, 4, 5, 6, 7, 8, 9]), table)
    encoder.project(hidden, "labels").square().sum().backward()
    assert table.grad is not None
    assert table.grad.abs().sum(dim=1).nonzero().flatten().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]  # 9 is cut off, 0 is not padding
    for name, parameter in encoder.named_parameters():
        assert (parameter.grad is None) == ("clusters" in name), name


def test_router() -> None:
    router, words = Router(4, 3), torch.randn(5, 4, 8)
    assert torch.allclose(router(words), torch.full((5, 3), 1 / 3))
    nn.init.normal_(router.linear.weight)
    routes = router(words)
    assert torch.allclose(routes.sum(dim=1), torch.ones(5)) and (routes > 0).all()
    assert not torch.allclose(routes[0], routes[1], atol=1e-3)
    router.linear.weight.data.zero_()
    router.linear.weight.data[1, 0] = np.log(2)  # with a mean of 1 in channel 0: 1, 2 and 1 parts
    words[:, 0] = torch.tensor([0.0, 2.0]).repeat(4)
    assert torch.allclose(router(words), torch.tensor([0.25, 0.5, 0.25]))


def trained(encoder: Encoder, table: Tensor, steps: int) -> Tensor:
    optimizer = torch.optim.SGD([*encoder.parameters(), table], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        hidden = encoder(batch([1, 2, 3], [4, 5]), table)
        (encoder.project(hidden, "labels").square().mean() + encoder.project(hidden, "clusters").abs().mean()).backward()
        optimizer.step()
    return encoder.project(hidden, "labels").detach()


@BOTH
def test_resumed_to_the_last_bit(kind: type[Inception]) -> None:
    encoder, table = made(kind)
    trained(encoder, table.requires_grad_(), 3)
    state, generator = copy.deepcopy(encoder.state_dict()), torch.get_rng_state()
    assert all(type(value) is Tensor for value in state.values())
    saved = table.detach().clone().requires_grad_()
    went_on = trained(encoder, table, 2)
    again = kind(**SMALL).build()  # type: ignore[arg-type]
    again.load_state_dict(state)
    torch.set_rng_state(generator)
    assert torch.equal(trained(again, saved, 2), went_on) and torch.equal(saved, table)
    assert torch.equal(vectors(again.eval(), batch([7, 8]), saved), vectors(encoder.eval(), batch([7, 8]), table))
    # evaluation leaves the state alone
    before = copy.deepcopy(again.state_dict())
    vectors(again, batch([7, 8]), saved)
    assert all(torch.equal(before[name], value) for name, value in again.state_dict().items())


@BOTH
def test_same_seed_same_weights(kind: type[Inception]) -> None:
    one, other = made(kind)[0].state_dict(), made(kind)[0].state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


@BOTH
def test_bfloat16_comes_near(kind: type[Inception]) -> None:
    encoder, table = made(kind, dropout=0.0, classifier_dropout=0.0)
    exact = vectors(encoder, batch([1, 2, 3], [4, 5]), table)
    encoder, table = made(kind, dropout=0.0, classifier_dropout=0.0)
    table.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = vectors(encoder, batch([1, 2, 3], [4, 5]), table)
    near.float().square().sum().backward()
    assert table.grad is not None and table.grad.isfinite().all()
    assert (near - exact).abs().mean() < 0.03 * exact.abs().mean()


@pytest.mark.parametrize(("inputs", "outputs"), [(30, 30), (20, 40), (40, 20), (1, 5)])
def test_spectral_norm_against_svd(inputs: int, outputs: int) -> None:
    layer = SpectralLinear(inputs, outputs)
    largest = np.linalg.svd(layer.weight.detach().numpy(), compute_uv=False)[0]
    first = np.linalg.svd(layer.normed_weight().detach().numpy(), compute_uv=False)[0]
    assert 1 - 1e-6 < first < 1.2  # a power iteration finds s or less, so the norm comes down to 1
    for _ in range(300):
        layer(torch.zeros(inputs))
    assert np.allclose(layer.normed_weight().detach().numpy(), layer.weight.detach().numpy() / largest, atol=1e-5)
    assert np.linalg.svd(layer.normed_weight().detach().numpy(), compute_uv=False)[0] == pytest.approx(1, abs=1e-5)


def test_spectral_by_hand() -> None:
    layer = SpectralLinear(2, 2, bias=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
        layer.bias.copy_(torch.tensor([0.0, 1.0]))  # type: ignore[union-attr]
        layer.u.copy_(torch.tensor([0.6, 0.8]))
    # v ~ (2.4, 0.8) = 2.53 (0.949, 0.316); W v = (3.795, 0.316), of length sqrt(14.5) = 3.808
    layer.eval()
    assert torch.allclose(layer(torch.tensor([1.0, 1.0])), torch.tensor([4.0, 1.0]) / 14.5**0.5 + torch.tensor([0.0, 1.0]))
    assert layer.u.tolist() == pytest.approx([0.6, 0.8])
    layer.train()
    layer(torch.tensor([1.0, 1.0]))
    assert layer.u.tolist() == pytest.approx([12 / 145**0.5, 1 / 145**0.5])


def test_spectral_gradient_is_that_of_the_quotient() -> None:
    layer, x, wanted = SpectralLinear(6, 4).eval(), torch.randn(5, 6), torch.randn(5, 4)
    (layer(x) * wanted).sum().backward()
    weight = layer.weight.detach().clone().requires_grad_()
    v = functional.normalize(weight.detach().T @ layer.u, dim=0)
    u = functional.normalize(weight.detach() @ v, dim=0)
    (x @ (weight / (u @ weight @ v)).T * wanted).sum().backward()
    assert torch.allclose(layer.weight.grad, weight.grad, atol=1e-5)  # type: ignore[arg-type]


def test_spectral_identity_zeros_and_half_precision() -> None:
    layer, x = SpectralLinear(5, 5, identity=True), torch.randn(3, 5)
    assert torch.allclose(layer(x), x, atol=1e-6)
    other = SpectralLinear(40, 40)
    exact = copy.deepcopy(other)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert other(torch.randn(3, 40)).dtype == torch.bfloat16
    exact(torch.randn(3, 40))
    assert torch.equal(other.u, exact.u)
    other.bfloat16()(torch.randn(3, 40, dtype=torch.bfloat16)).sum().backward()
    assert other.weight.grad is not None and other.weight.grad.isfinite().all()
    layer.weight.data.zero_()
    assert layer(x).tolist() == torch.zeros(3, 5).tolist()


@pytest.mark.gpu
@BOTH
def test_no_host_sync(kind: type[Inception]) -> None:
    encoder, table = made(kind)
    tokens = batch([1, 2, 3], [], [4] * 9)
    there = tokens.to(torch.device("cuda"))
    expected = vectors(encoder.eval(), tokens, table)
    encoder.cuda()
    found = vectors(encoder, there, table.cuda())
    assert torch.allclose(found.cpu(), expected, atol=1e-3)
    encoder.train()
    table = table.cuda().requires_grad_()
    vectors(encoder, there, table).sum().backward()  # libraries may wait when they are first called
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        vectors(encoder, there, table).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_power_iteration_stays_in_float32() -> None:
    layer = SpectralLinear(40, 40).cuda()
    exact = copy.deepcopy(layer)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layer(torch.randn(3, 40, device="cuda")).dtype == torch.bfloat16
    exact(torch.randn(3, 40, device="cuda"))
    assert torch.equal(layer.u, exact.u)

"""InceptionXML: convolutions along the embedding axis, with the words of a text as channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.core.checks import Positive, ShareBelowOne
from longtail.core.errors import SettingError, UnknownName
from longtail.models.encoders.base import Encoder, EncoderSettings
from longtail.models.encoders.context import RowContext
from longtail.models.encoders.dropout import Dropout
from longtail.models.encoders.spectral import SpectralLinear
from longtail.tokens.rows import TokenRows

TASKS = ("labels", "clusters")
STRIDE = 4  # of both layers of convolutions
LAST_WIDTH = 16  # of the second layer
FEW_TEXTS = 32  # which are not worth sorting by length
LENGTHS_ALIKE = 4  # words by which texts that are encoded together may differ
ALIKE_UP_TO = 16  # words; longer texts are few, and go together


@dataclass(frozen=True)
class InceptionSettings(EncoderSettings):
    """Settings that both forms of the encoder have.

    Args:
        dim: of the token table; a multiple of 4, and 80 or more.
        max_words: words of a text at most; the rest is cut off.
        channels: of each convolution.
        widths: of the parallel convolutions, in dimensions; even numbers.
        dropout: of word vectors, of maps, and of features before a projection.
        classifier_dropout: of what a projection hands to the classifier.
    """

    dim: int = 300
    max_words: Positive = 32
    channels: Positive = 32
    widths: tuple[int, ...] = (4, 8, 16)
    dropout: ShareBelowOne = 0.25
    classifier_dropout: ShareBelowOne = 0.5

    def check(self) -> None:
        # the second layer must leave two places or more: the batch norm behind it cannot train on one text of one place
        if self.dim % STRIDE or self.dim < STRIDE * (LAST_WIDTH + STRIDE):
            least = STRIDE * (LAST_WIDTH + STRIDE)
            raise SettingError(f"dim came as {self.dim}; wanted a multiple of {STRIDE}, {least} or more, such as 128 or 300.")
        if not self.widths or any(width % 2 or not STRIDE <= width <= self.dim for width in self.widths):
            raise SettingError(f"widths came as {self.widths}; wanted even numbers from {STRIDE} to dim={self.dim}, such as (4, 8, 16).")

    @property
    def active_dropout(self) -> float:
        return self.dropout

    @property
    def output_dim(self) -> int:
        """Features of a text: channels x places that the second layer leaves."""
        return self.channels * ((self.dim // STRIDE - LAST_WIDTH) // STRIDE + 1)


@dataclass(frozen=True)
class Inception(InceptionSettings):
    """The encoder of InceptionXML+: maps of all widths concatenated, a projection for labels and one for clusters of labels.

    >>> Inception().output_dim
    480
    """

    def build(self) -> InceptionEncoder:
        """The module, with weights drawn from torch's generator."""
        return InceptionEncoder(self)


class InceptionEncoder(Encoder):
    """Token places -> features of each text, which the projection of a task turns into its vector."""

    def __init__(self, settings: Inception) -> None:
        super().__init__()
        self.settings = settings
        n_maps = settings.channels * len(settings.widths)
        self.words = Words(settings)
        self.wide = Wide(settings.channels, settings.widths)
        self.norm = nn.BatchNorm1d(n_maps)
        self.dropout = Dropout(settings.dropout)
        self.narrow = Narrow(n_maps, settings.channels)
        self.projections = nn.ModuleDict({task: Projection(settings) for task in TASKS})

    @property
    def hidden_dim(self) -> int:
        return self.settings.output_dim

    def forward(self, batch: TokenRows, table: Tensor, context: RowContext | None = None) -> Tensor:
        """Features that all tasks share: (b, output_dim)."""
        batch, back = by_length(batch)
        maps = self.wide(self.words(batch, table))  # (b, widths * channels, dim / 4)
        features: Tensor = self.narrow(self.dropout(self.norm(functional.gelu(maps))))
        return features if back is None else features[back]

    def project(self, hidden: Tensor, task: str) -> Tensor:
        """The texts' vectors for "labels" or "clusters": (b, output_dim)."""
        vectors: Tensor = part_of(self.projections, task)(hidden)
        return vectors


class Words(nn.Module):
    """Word vectors, attended, then mixed into `channels` rows of the embedding axis: (b, channels, dim)."""

    def __init__(self, settings: InceptionSettings) -> None:
        super().__init__()
        self.max_words = settings.max_words
        self.across_words = WordAttention(settings.max_words)
        self.across_dims = DimAttention(settings.dim)
        self.mix = nn.Parameter(nn.init.xavier_uniform_(torch.empty(settings.channels, settings.max_words)))
        self.bias = nn.Parameter(torch.zeros(settings.channels, 1))
        self.norm = nn.BatchNorm1d(settings.channels)
        self.dropout = Dropout(settings.dropout)

    def forward(self, tokens: TokenRows, table: Tensor) -> Tensor:
        # dropout comes before padding: there is nothing to drop from zeros
        vectors = self.dropout(functional.embedding(tokens.ids, table))  # (n, dim)
        weights = self.across_words.weigh.normed_weight(), self.across_dims.weigh.normed_weight()
        mixed = [self._mixed(*part, *weights) for part in self._parts(vectors, tokens)]
        channels: Tensor = self.dropout(self.norm(functional.gelu(mixed[0] if len(mixed) == 1 else torch.cat(mixed))))
        return channels

    def _parts(self, vectors: Tensor, tokens: TokenRows) -> Iterator[tuple[Tensor, TokenRows]]:
        """Texts of like length together, which `by_length` has put next to each other: shorter ones then have fewer zeros to carry."""
        if tokens.offsets.device.type != "cpu" or len(tokens.offsets) <= FEW_TEXTS:
            yield vectors, tokens
            return
        lengths = tokens.offsets.diff().clamp_(max=self.max_words)
        lines = torch.div(lengths + LENGTHS_ALIKE - 1, LENGTHS_ALIKE, rounding_mode="floor").clamp_(1, ALIKE_UP_TO // LENGTHS_ALIKE + 1)
        texts = [*(torch.nonzero(lines.diff()).flatten() + 1).tolist(), len(lines)]
        ends = [int(tokens.offsets[text]) for text in texts]
        # split, not sliced: the gradient of a slice is as long as the whole, and filled with zeros each time
        parts = vectors.split([end - start for start, end in zip([0, *ends], ends, strict=False)])
        for part, (start, end) in zip(parts, zip([0, *texts], texts, strict=False), strict=True):
            offsets = tokens.offsets[start : end + 1]
            own = slice(int(offsets[0]), int(offsets[-1]))
            yield part, TokenRows(tokens.ids[own], tokens.weights[own], offsets - offsets[0], tokens.n_tokens)

    def _mixed(self, vectors: Tensor, tokens: TokenRows, by_words: Tensor, by_dims: Tensor) -> Tensor:
        """(b, channels, dim)."""
        words = padded(vectors, tokens, length_for(tokens, self.max_words))  # (b, length, dim)
        words = self.across_dims(self.across_words(words, by_words), by_dims)
        mix = self.mix[:, : words.shape[1]].expand(len(words), -1, -1)
        return torch.baddbmm(self.bias, mix, words)  # a convolution of width 1, in less time


def by_length(tokens: TokenRows) -> tuple[TokenRows, Tensor | None]:
    """On a CPU the shortest texts first, and the place of each text among them; a few, or those elsewhere, as they are."""
    if tokens.offsets.device.type != "cpu" or len(tokens.offsets) <= FEW_TEXTS:
        return tokens, None
    order = torch.argsort(tokens.offsets.diff(), stable=True)
    return tokens.take(order), torch.argsort(order)


def length_for(tokens: TokenRows, max_words: int) -> int:
    """Words to make room for. On the CPU those of the longest text: zeros cost as much as words, and titles have few words.

    Elsewhere always max_words, since to ask for the longest would stop the host until the device has caught up.
    """
    if tokens.offsets.device.type != "cpu":
        return max_words
    longest = functional.pad(tokens.offsets.diff(), (0, 1), value=1).max()  # 1 where all texts are empty
    return min(max_words, int(longest))


def padded(vectors: Tensor, tokens: TokenRows, length: int) -> Tensor:
    """Vectors of the token places, (n, dim), as (b, length, dim): long texts are cut, short ones end in zeros. No host sync."""
    n_texts, dim = len(tokens.offsets) - 1, vectors.shape[1]
    text = tokens.row_of_each()  # (n,)
    place = torch.arange(len(text), device=text.device) - tokens.offsets[text]
    # what is cut goes into one row behind the last: to leave it out, the host would have to know how much it is
    slot = torch.where(place < length, text * length + place, n_texts * length)
    rows = vectors.new_zeros(n_texts * length + 1, dim).index_copy_(0, slot, vectors)
    return rows[:-1].view(n_texts, length, dim)


class WordAttention(nn.Module):
    """x + gamma (x x' W) x: words attend to words, without a softmax. Gamma is 0 at the start, so that x passes unchanged."""

    def __init__(self, max_words: int) -> None:
        super().__init__()
        self.weigh = SpectralLinear(max_words, max_words)
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """
        Args:
            weight: W, where it was normed already: a batch in parts has one.
        """
        weight = self.weigh.normed_weight() if weight is None else weight
        length = x.shape[1]  # places behind it hold zeros, which change no score of the others
        scores = x @ x.mT @ weight[:length, :length]  # (b, length, length)
        return torch.baddbmm(x, self.gamma * scores, x)


class DimAttention(nn.Module):
    """x' + gamma (x' x W) x': dimensions attend to dimensions. Multiplied as (x W' x') x it makes no matrix of dim x dim per text."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weigh = SpectralLinear(dim, dim)
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """
        Args:
            weight: W, where it was normed already.
        """
        weight = self.weigh.normed_weight() if weight is None else weight
        scores = functional.linear(x, weight) @ x.mT  # (b, length, length)
        return torch.baddbmm(x, self.gamma * scores, x)


class Wide(nn.Module):
    """Parallel convolutions of several widths on the embedding axis, which is taken as a ring: (b, widths * channels, dim / 4).

    Place i of each is centred on dimensions 4i to 4i + 3. That allows to run them as one convolution of the greatest width, the
    narrower kernels framed by zeros, in less time than one after the other.
    """

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.kernels = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(channels, channels, width)) for width in widths)
        self.bias = nn.Parameter(torch.zeros(len(widths) * channels))
        self.width = max(widths)

    def forward(self, x: Tensor) -> Tensor:
        beyond = (self.width - STRIDE) // 2  # dimensions that the first and the last place need from the other end
        ring = torch.cat([x[..., x.shape[-1] - beyond :], x, x[..., :beyond]], dim=-1)
        framed = [functional.pad(kernel, [(self.width - kernel.shape[-1]) // 2] * 2) for kernel in self.kernels]
        return functional.conv1d(ring, torch.cat(framed), self.bias, stride=STRIDE)


class Narrow(nn.Module):
    """The second layer: one convolution, its places then concatenated to features, (b, output_dim)."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(nn.init.xavier_uniform_(torch.empty(channels, inputs, LAST_WIDTH)))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, maps: Tensor) -> Tensor:
        places = functional.conv1d(maps, self.kernel, self.bias, stride=STRIDE)
        features: Tensor = self.norm(functional.gelu(places))
        return features.flatten(1)


class Projection(nn.Module):
    """The projection of the features for a task: x + gelu(W dropout(x) + b), with the dropout of the classifier behind it."""

    def __init__(self, settings: InceptionSettings) -> None:
        super().__init__()
        self.dropout, self.last = Dropout(settings.dropout), Dropout(settings.classifier_dropout)
        self.linear = SpectralLinear(settings.output_dim, settings.output_dim, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        vectors: Tensor = self.last(x + functional.gelu(self.linear(self.dropout(x))))
        return vectors


def part_of(parts: nn.ModuleDict, task: str) -> nn.Module:
    """The part that a task has to itself."""
    if task not in parts:
        raise UnknownName("task", task, TASKS)
    return parts[task]

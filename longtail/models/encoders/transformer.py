"""A transformer over the network's token table: pretrained, or of random weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from longtail.core.checks import NonNegative, Positive, ShareBelowOne
from longtail.core.errors import SettingError
from longtail.core.values import Offsets
from longtail.data.minilm import MINILM
from longtail.models.encoders.base import Architecture, Encoder, EncoderSettings, OnnxText, PooledTransformer
from longtail.models.encoders.context import RowContext
from longtail.models.encoders.dropout import Dropout
from longtail.models.encoders.lengths import runs_of_like_length
from longtail.models.encoders.packed import can_pack, packed
from longtail.models.encoders.weights import attend_by, bert_config, config_of, from_config, from_folder, max_positions, widths
from longtail.tokens.folder import model_folder
from longtail.tokens.rows import TokenRows

NONE = "none"
# what it takes to begin a run of texts, in tokens that could be computed meanwhile, and the most tokens of one: on a CPU layers run at
# full speed on a few hundred tokens, and a GPU waits for the host to launch the kernels of all layers
CPU_START, CPU_TOKENS = 32, 1 << 13
GPU_START, GPU_TOKENS = 1 << 14, 1 << 16
# tokens up to which plain products of matrices attend in half the time of fused kernels, whose tiles of 64 x 64 stay mostly empty. The
# backward pass of torch's memory-efficient kernel also fails on such texts now and then (illegal instruction, H200, torch 2.11)
SHORT = 64
MAX_TEXTS, MIN_TEXTS = 1024, 64  # that are encoded at a time, once memory has run out


@dataclass(frozen=True)
class Transformer(EncoderSettings):
    """Settings of the transformer encoder.

    Args:
        model: a folder, a name on the Hugging Face hub, "minilm", or "none": a BERT of random weights.
        pooling: "mean" of a text's tokens, or the first, "cls".
        projection: dimensions of the projections for labels and for classifiers; 0: there are none, one vector serves all tasks.
        dropout: of the projections and the adapter.
        frozen: the model stays as it is and encodes each text once, before training; what learns stands behind it.
        adapter: inner width of a residual layer behind the model, x + B gelu(A x), that begins as x; 0: none.
        depths: layers whose outputs the adapter is handed together, evenly spread from the embeddings to the last one, which is x; 1: that
            alone.
        hidden: width of a model "none".
        layers: of a model "none".
        attention_heads: of a model "none".
        texts_at_once: so many are encoded at a time, and once more on the way back, so that memory holds the activations of so many texts
            and no more (gradient caching); 0: all are held.
    """

    model: str = MINILM
    pooling: Literal["mean", "cls"] = "mean"
    projection: NonNegative = 0
    dropout: ShareBelowOne = 0.1
    frozen: bool = False
    adapter: NonNegative = 0
    depths: Positive = 1
    hidden: Positive = 384
    layers: Positive = 6
    attention_heads: Positive = 12
    texts_at_once: NonNegative = 0

    def check(self) -> None:
        if self.depths > 1 and not self.adapter:
            raise SettingError(f"depths came as {self.depths} without an adapter to join them; wanted adapter = 4096 or so, or depths = 1.")
        if self.hidden % self.attention_heads:
            raise SettingError(
                f"hidden came as {self.hidden} with {self.attention_heads} attention heads; wanted a multiple of attention_heads."
            )

    @property
    def pools_first(self) -> bool:
        """Whether a text's vector is that of its first token, and not the mean over its tokens."""
        return self.pooling == "cls"

    @property
    def dim(self) -> int:
        """Dimensions of the token table, which are those of the model's word embeddings."""
        return self._widths[0]

    @property
    def output_dim(self) -> int:
        return self.projection or self._widths[1]

    @property
    def active_dropout(self) -> float | None:
        return self.dropout if self.projection else None

    @property
    def learns(self) -> bool:
        return not self.frozen or bool(self.adapter or self.projection)

    @property
    def _widths(self) -> tuple[int, int]:
        return (self.hidden, self.hidden) if self.model == NONE else widths(model_folder(self.model))

    def build(self) -> TransformerEncoder:
        """The module with the weights of the model, and its `word_vectors` to begin the token table with."""
        if self.model == NONE:
            return self.rebuild(bert_config(self.hidden, self.layers, self.attention_heads))
        return TransformerEncoder(self, *from_folder(model_folder(self.model)))

    def rebuild(self, architecture: Architecture | None) -> TransformerEncoder:
        """The module whose `architecture` this was, for weights that come from elsewhere: the model's folder is not looked at."""
        return self.build() if architecture is None else TransformerEncoder(self, from_config(architecture))


class TransformerEncoder(Encoder):
    """Token places -> one vector a text. Word embeddings are the table handed along; all else is the model's own."""

    is_mostly_products: ClassVar[bool] = True

    def __init__(self, settings: Transformer, model: Any, word_vectors: Tensor | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.model = model
        self.word_vectors = word_vectors  # (n, dim) for rows 1 to n of the table; no part of what is saved
        self.texts_at_once = settings.texts_at_once  # made smaller when memory runs out
        width = int(model.config.hidden_size)
        self.depths = _spread(settings, model.config.num_hidden_layers) if settings.depths > 1 else ()
        self.width = width * settings.depths
        self.max_tokens = max_positions(model)
        self.adapter = Adapter(width, settings.depths, settings.adapter, settings.dropout) if settings.adapter else None
        self.projections = nn.ModuleDict()
        if settings.projection:
            self.projections["labels"] = nn.Sequential(nn.Linear(width, settings.projection), nn.Tanh(), Dropout(settings.dropout))
            self.projections["classifiers"] = nn.Sequential(nn.Linear(width, settings.projection), Dropout(settings.dropout))
        self.requires_grad_()
        self.train()  # the library hands over a model in evaluation mode

    def train(self, mode: bool = True) -> TransformerEncoder:
        super().train(mode)
        self.model.train(mode and not self.settings.frozen)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> TransformerEncoder:
        super().requires_grad_(requires_grad)
        self.model.requires_grad_(requires_grad and not self.settings.frozen)
        return self

    @property
    def hidden_dim(self) -> int:
        return self.width

    @property
    def frozen(self) -> bool:
        return self.settings.frozen

    def architecture(self) -> Architecture:
        """The model's config, of which `Transformer.rebuild` makes the same module without its weights."""
        return config_of(self.model)

    def take_token_vectors(self, n_tokens: int) -> Tensor | None:
        vectors = self.word_vectors
        if vectors is not None and len(vectors) != n_tokens - 1:
            raise SettingError(
                f"The tokenizer does not fit the encoder: it has {n_tokens - 1:,} tokens, and {self.settings.model} has "
                f"{len(vectors):,} word vectors. Wanted tokens.kind=pretrained with tokens.model={self.settings.model}."
            )
        self.word_vectors = None
        return vectors

    def shrink(self) -> str | None:
        if 0 < self.texts_at_once <= MIN_TEXTS:
            return None
        self.texts_at_once = self.texts_at_once // 2 or MAX_TEXTS
        return f"{self.texts_at_once:,} texts encoded at a time"

    def forward(self, batch: TokenRows, table: Tensor, context: RowContext | None = None) -> Tensor:
        """(b, hidden), depth by depth; zeros for a text without tokens."""
        if batch.encoded is not None:
            return batch.encoded
        lengths = batch.lengths.cpu().numpy()
        if self.max_tokens is not None and len(lengths) and lengths.max() > self.max_tokens:
            raise SettingError(
                f"A text of {lengths.max()} tokens came, and {self.settings.model} takes {self.max_tokens}; "
                f"wanted tokens.max_tokens={self.max_tokens} or less."
            )
        if len(batch.ids) and can_pack(self.model, int(lengths.max()), table.device):
            return self._end_to_end(batch, table, lengths)
        order = np.argsort(lengths, kind="stable")
        ascending = lengths[order]
        n_empty = int(np.searchsorted(ascending, 1))
        rows = torch.from_numpy(order).to(table.device)
        starts, ends = batch.offsets[rows, None], batch.offsets[rows + 1, None]  # (b, 1)
        found = [torch.zeros(n_empty, self.width, device=table.device)]
        for first, stop in self._runs(ascending[n_empty:], table.device):
            run = slice(n_empty + first, n_empty + stop)
            width = int(ascending[run.stop - 1])
            places = starts[run] + torch.arange(width, device=table.device)  # (texts of the run, width)
            inside = places < ends[run] if ascending[run.start] < width else None
            ids = batch.ids[places.clamp_(max=len(batch.ids) - 1)]
            if self.texts_at_once and torch.is_grad_enabled():
                found.append(checkpoint(self.pooled, ids, inside, table, use_reentrant=False))
            else:
                found.append(self.pooled(ids, inside, table))
        return torch.cat(found)[torch.argsort(rows)]

    def _end_to_end(self, batch: TokenRows, table: Tensor, lengths: Offsets) -> Tensor:
        """`forward` without padding."""
        ends = np.concatenate([[0], np.cumsum(lengths)])
        at_once = CPU_TOKENS if table.device.type == "cpu" else GPU_TOKENS
        found, first = [], 0
        while first < len(lengths):
            stop = max(first + 1, int(np.searchsorted(ends, ends[first] + at_once, side="right")) - 1)
            stop = min(stop, first + (self.texts_at_once or len(lengths)))
            ids = batch.ids[ends[first] : ends[stop]]
            inputs = ids, batch.offsets[first : stop + 1] - batch.offsets[first], int(lengths[first:stop].max()), table
            if self.texts_at_once and torch.is_grad_enabled():
                found.append(checkpoint(self._pooled_end_to_end, *inputs, use_reentrant=False))
            else:
                found.append(self._pooled_end_to_end(*inputs))
            first = stop
        return torch.cat(found)

    def _pooled_end_to_end(self, ids: Tensor, offsets: Tensor, longest: int, table: Tensor) -> Tensor:
        """One vector a text, (b, hidden), of ids (n,)."""
        kind = torch.get_autocast_dtype(table.device.type) if torch.is_autocast_enabled(table.device.type) else table.dtype
        states = packed(self.model, functional.embedding(ids, table), offsets, longest, kind, self.depths).float()
        lengths = offsets.diff()[:, None]
        if self.settings.pools_first:
            return states[offsets[:-1].clamp(max=len(states) - 1)] * (lengths > 0)
        total: Tensor = torch.segment_reduce(states, "sum", offsets=offsets, axis=0, initial=0)
        return total / lengths.clamp(min=1)

    def _runs(self, lengths: Offsets, device: torch.device) -> list[tuple[int, int]]:
        cost, at_once = (CPU_START, CPU_TOKENS) if device.type == "cpu" else (GPU_START, GPU_TOKENS)
        return runs_of_like_length(lengths, cost, at_once, self.texts_at_once or len(lengths))

    def pooled(self, ids: Tensor, inside: Tensor | None, table: Tensor) -> Tensor:
        """One vector a text, (b, hidden), of ids (b, width), of which those `inside` are the text's own; None: all are."""
        vectors = functional.embedding(ids, table)  # (b, width, dim)
        if inside is not None:
            vectors = vectors * inside[..., None]
        mask = None if inside is None else inside.long()
        is_short = ids.is_cuda and ids.shape[1] <= SHORT
        attend_by(self.model, "eager" if is_short else "sdpa")
        with _attention(table.device):
            found = self.model(inputs_embeds=vectors, attention_mask=mask, return_dict=True, output_hidden_states=bool(self.depths))
        states = found.last_hidden_state.float()
        if self.depths:
            states = torch.cat([*(found.hidden_states[depth].float() for depth in self.depths[:-1]), states], dim=2)
        if self.settings.pools_first:
            first: Tensor = states[:, 0]
            return first
        if inside is None:
            mean: Tensor = states.mean(dim=1)
            return mean
        total: Tensor = (states * inside[..., None]).sum(dim=1)
        return total / inside.sum(dim=1, keepdim=True)

    def project(self, hidden: Tensor, task: str) -> Tensor:
        """The texts' vectors for "classifiers", or for "labels" and whatever else: (b, output_dim)."""
        if self.adapter is not None:
            hidden = self.adapter(hidden)
        if not self.projections:
            return hidden
        vectors: Tensor = self.projections[self._projection_of(task)](hidden)
        return vectors

    def _projection_of(self, task: str) -> str:
        return task if task in self.projections else "labels"

    def onnx(self, table: Tensor, project: nn.Module, sample: TokenRows) -> OnnxText:
        lengths = sample.lengths
        padded = torch.zeros(len(lengths), int(lengths.max()), dtype=torch.int64)
        padded[torch.arange(padded.shape[1]) < lengths[:, None]] = sample.ids
        return OnnxText(OnnxTransformer(self, table, project), {"ids": padded}, {"ids": {0: "texts", 1: "tokens"}})

    def pooled_transformer(self, task: str) -> PooledTransformer:
        if self.adapter is not None:
            raise SettingError("A sentence-transformers folder has no place for the adapter behind the transformer; wanted --to onnx.")
        dense, activation = None, ""
        if self.projections:
            projection = self.projections[self._projection_of(task)]
            assert isinstance(projection, nn.Sequential) and isinstance(projection[0], nn.Linear)
            dense = projection[0]
            has_tanh = isinstance(projection[1], nn.Tanh)
            activation = "torch.nn.modules.activation.Tanh" if has_tanh else "torch.nn.modules.linear.Identity"
        return PooledTransformer(self.architecture(), self.model.state_dict(), self.settings.pooling, self.width, dense, activation)


class OnnxTransformer(nn.Module):
    """The transformer on ids in a table; 0 behind the end of a text."""

    def __init__(self, encoder: TransformerEncoder, table: Tensor, project: nn.Module) -> None:
        super().__init__()
        self.table, self.ends, self.encoder = table, project, encoder

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.ends(self.encoder.pooled(ids, ids > 0, self.table))
        return found


class Adapter(nn.Module):
    """x + B gelu(A [..., x]), which begins as x, the last of the concatenated vectors that are handed to it."""

    def __init__(self, dim: int, depths: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.dim, self.scale = dim, dim**0.5
        self.widen, self.narrow, self.dropout = nn.Linear(depths * dim, inner), nn.Linear(inner, dim), Dropout(dropout)
        nn.init.zeros_(self.narrow.weight)
        nn.init.zeros_(self.narrow.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        parts = functional.normalize(hidden.unflatten(1, (-1, self.dim)), dim=2)  # (b, depths, dim)
        vectors = self.dropout(self.scale * parts.flatten(1))
        found: Tensor = vectors[:, -self.dim :] + self.narrow(self.dropout(functional.gelu(self.widen(vectors))))
        return found


def _spread(settings: Transformer, n_layers: int) -> tuple[int, ...]:
    """Depths from 0, the embeddings, to the last layer."""
    if settings.depths > n_layers + 1:
        raise SettingError(f"depths came as {settings.depths}, and {settings.model} has {n_layers} layers; wanted {n_layers + 1} or less.")
    return tuple(round(place * n_layers / (settings.depths - 1)) for place in range(settings.depths))


def _attention(device: torch.device) -> AbstractContextManager[object]:
    """Kernels that take any shape at once. That of cuDNN is compiled anew for every shape, and every run has one of its own."""
    if device.type != "cuda":
        return nullcontext()
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])

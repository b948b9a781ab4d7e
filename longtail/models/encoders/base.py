"""Encoder: what every encoder offers to training, prediction, explanations and exports. A new encoder is a file and a line of registry.py.

`EncoderSettings` is the dataclass that a recipe's [encoder] table becomes; its `build` makes the `Encoder`, a torch module. Only `forward`
and a few sizes must be written; all else has a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from longtail.core.checks import Settings
from longtail.models.encoders.context import RowContext
from longtail.tokens.rows import TokenRows

Architecture = Mapping[str, object]  # as JSON can hold it


class EncoderSettings(Settings, ABC):
    """Base of the settings of an encoder: a frozen dataclass, one field for each setting."""

    reads_order: ClassVar[bool] = True  # words are read in their order, where bigrams have no place

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimensions of the token vectors."""

    @property
    @abstractmethod
    def output_dim(self) -> int:
        """Dimensions of a text's vector, as `Encoder.project` gives it."""

    @abstractmethod
    def build(self) -> Encoder:
        """The module, with weights drawn from torch's generator or read from a pretrained model."""

    def rebuild(self, architecture: Architecture | None) -> Encoder:
        """The module that `Encoder.architecture` describes, for weights that come from a model folder."""
        return self.build()

    @property
    def active_dropout(self) -> float | None:
        """The setting `dropout`, where there is one and it changes something."""
        return None

    @property
    def learns(self) -> bool:
        """Whether training changes any of its weights."""
        return True


class Encoder(nn.Module, ABC):
    """Texts to vectors, over the network's table of token vectors."""

    needs_context: ClassVar[int] = 0  # nearest training rows of a text that `forward` is handed as its context; 0: none
    is_linear_in_tokens: ClassVar[bool] = False  # without dropout: a token's vector times its gradient is exactly what the token brings
    is_mostly_products: ClassVar[bool] = False  # on a CPU, too, prediction then takes the faster, coarser numbers of training

    @abstractmethod
    def forward(self, batch: TokenRows, table: Tensor, context: RowContext | None = None) -> Tensor:
        """(b, hidden_dim): what is the same for all tasks.

        Args:
            batch: tokens of the texts; ids are rows of `table`.
            table: (n, dim) token vectors.
            context: neighbours of the texts, where `needs_context` asks for some; its tokens are rows of `table`, too.
        """

    if TYPE_CHECKING:

        def __call__(self, batch: TokenRows, table: Tensor, context: RowContext | None = None) -> Tensor: ...

    @property
    @abstractmethod
    def hidden_dim(self) -> int:
        """Numbers that `forward` gives for a text."""

    def project(self, hidden: Tensor, task: str) -> Tensor:
        """(b, output_dim): the vectors of texts for a task, "labels", "clusters" or "classifiers". Here one vector serves all."""
        return hidden

    @property
    def frozen(self) -> bool:
        """Whether training leaves `forward` as it is, so that each text is encoded once, before training. What `project` does may learn."""
        return False

    def take_token_vectors(self, n_tokens: int) -> Tensor | None:
        """(n_tokens - 1, dim): pretrained vectors of all tokens but padding, which belong to the table from here on; None: there are none.

        Raises where the tokens of the tokenizer, `n_tokens` with padding, are not those that it has vectors for.
        """
        return None

    def shrink(self) -> str | None:
        """Memory ran out: encode fewer texts at a time from here on. Says how many, or None where fewer will not do."""
        return None

    def architecture(self) -> Architecture | None:
        """All that `EncoderSettings.rebuild` needs besides the settings to make the same module; None: the settings are enough."""
        return None

    def onnx(self, table: Tensor, project: nn.Module, sample: TokenRows) -> OnnxText | None:
        """The way from tokens to text vectors in operations that ONNX has; None: it cannot be written so.

        Args:
            project: from what `forward` gives to text vectors.
            sample: a batch to trace with.
        """
        return None

    def pooled_transformer(self, task: str) -> PooledTransformer | None:
        """Its parts for a sentence-transformers folder; None: it is no transformer."""
        return None


@dataclass(frozen=True)
class OnnxText:
    """A module to be written as ONNX, with inputs to trace it."""

    module: nn.Module
    inputs: dict[str, Tensor]  # of the sample, by name, in the order in which `module` takes them
    axes: dict[str, dict[int, str]]  # of each input, those that differ from call to call


@dataclass(frozen=True)
class PooledTransformer:
    """A transformer of the Hugging Face library, the pooling behind it, and a linear layer where there is one."""

    config: Architecture
    weights: Mapping[str, Tensor]  # without word embeddings
    pooling: str  # "mean" or "cls"
    dim: int
    dense: nn.Linear | None
    activation: str  # of the linear layer: a class of torch by its full name

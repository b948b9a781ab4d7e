"""InceptionXML-LF: convolutions as a mixture of experts, and a second layer for each task."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from longtail.models.encoders.base import Encoder
from longtail.models.encoders.context import RowContext
from longtail.models.encoders.dropout import Dropout
from longtail.models.encoders.inception import STRIDE, TASKS, InceptionSettings, Narrow, Projection, Wide, Words, by_length, part_of
from longtail.tokens.rows import TokenRows


@dataclass(frozen=True)
class InceptionExperts(InceptionSettings):
    """The encoder of InceptionXML-LF (Gandalf, appendix A.1).

    The maps of the convolutions are not concatenated but added up, with weights that a router finds for each text; so the second
    layer has a third of the work, and there is one for labels and one for clusters.
    """

    def build(self) -> ExpertsEncoder:
        """The module, with weights drawn from torch's generator."""
        return ExpertsEncoder(self)


class ExpertsEncoder(Encoder):
    """Token places -> maps of each text, from which the second layer and the projection of a task make its vector."""

    def __init__(self, settings: InceptionExperts) -> None:
        super().__init__()
        self.settings = settings
        channels = settings.channels
        self.words = Words(settings)
        self.experts = Wide(channels, settings.widths)
        self.router = Router(channels, len(settings.widths))
        self.norm = nn.BatchNorm1d(channels)
        self.dropout = Dropout(settings.dropout)
        self.projections = nn.ModuleDict({task: nn.Sequential(Narrow(channels, channels), Projection(settings)) for task in TASKS})

    @property
    def hidden_dim(self) -> int:
        return self.settings.channels * self.settings.dim // STRIDE

    def forward(self, batch: TokenRows, table: Tensor, context: RowContext | None = None) -> Tensor:
        """Maps that all tasks share: (b, channels, dim / 4)."""
        batch, back = by_length(batch)
        words = self.words(batch, table)  # (b, channels, dim)
        routes = self.router(words)  # (b, experts)
        maps = self.experts(words).unflatten(1, (routes.shape[1], -1))  # (b, experts, channels, dim / 4)
        chosen = torch.einsum("be,becd->bcd", routes, maps)
        # the plain mean of the dimensions goes past the experts, and gradients with it
        mixed: Tensor = self.dropout(self.norm(functional.gelu(chosen) + functional.avg_pool1d(words, STRIDE)))
        return mixed if back is None else mixed[back]

    def project(self, hidden: Tensor, task: str) -> Tensor:
        """The texts' vectors for "labels" or "clusters": (b, output_dim)."""
        vectors: Tensor = part_of(self.projections, task)(hidden)
        return vectors


class Router(nn.Module):
    """How much of each expert a text gets: softmax(W mean(x) + b), the mean over the embedding axis. Equal shares at the start."""

    def __init__(self, channels: int, n_experts: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, n_experts)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, words: Tensor) -> Tensor:
        return functional.softmax(self.linear(words.mean(dim=-1)), dim=-1)

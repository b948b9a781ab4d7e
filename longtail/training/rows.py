"""Training rows on the device: tokens, right labels and weights of an epoch."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from longtail.core.progress import progress
from longtail.data.augment.rows import Augmented
from longtail.models.encoders.context import NO_ROW, NeighbourIndex, RowNeighbours
from longtail.models.label_rows import LabelRows
from longtail.models.losses.all_labels import precision
from longtail.models.network import Network
from longtail.tokens.rows import TokenRows
from longtail.training.data import StageData, TrainingData
from longtail.training.loop import EpochRows
from longtail.training.negatives.clusters import Clusters

ENCODED_AT_ONCE = 512  # texts, by a frozen encoder


class RowSource:
    """Rows of a network's stages. What stays the same is moved to the device, and encoded by a frozen encoder, once."""

    def __init__(self, network: Network, data: TrainingData, device: torch.device) -> None:
        self.network, self.data, self.device = network, data, device
        self._tokens: dict[int, TokenRows] = {}  # by stage data
        n_neighbours = network.encoder.needs_context
        if n_neighbours:
            training = data.tokens_of(data.stages[0].train).to(device)
            network.neighbours = NeighbourIndex(training, n_neighbours)
        self._static: tuple[StageData, tuple[str, ...], Clusters | None, EpochRows] | None = None

    def static(self, stage: StageData, targets: tuple[str, ...], clusters: Clusters | None) -> EpochRows:
        """The rows of all epochs, in their order."""
        used = clusters if "clusters" in targets else None
        kept = self._static
        if kept is None or kept[0] is not stage or kept[1] != targets or kept[2] is not used:
            kept = self._static = stage, targets, used, self._rows(stage.augmented, self._all_tokens(stage), targets, used)
        return kept[3]

    def made(self, stage: StageData, number: int, epoch: int, targets: tuple[str, ...], clusters: Clusters | None) -> EpochRows:
        """The rows that the augmentation of stage `number` makes for one epoch."""
        assert stage.augmentation is not None
        seed = self.data.seed + number
        made = stage.augmentation.for_epoch(epoch, stage.train, self.data.label_texts, seed=seed)
        tokens = self._on_device(self.data.tokens_of(made.split), "training texts")
        source = torch.from_numpy(made.source.astype(np.int64)).to(self.device)
        return self._rows(made, tokens, targets, clusters, source)

    @cached_property
    def label_texts(self) -> TokenRows:
        """Tokens of label texts."""
        assert self.data.label_rows is not None
        return self._on_device(self.data.label_rows, "label texts")

    def _all_tokens(self, stage: StageData) -> TokenRows:
        if id(stage) not in self._tokens:
            self._tokens[id(stage)] = self._on_device(self.data.all_tokens(stage), "training texts")
        return self._tokens[id(stage)]

    def _rows(
        self,
        made: Augmented,
        tokens: TokenRows,
        targets: tuple[str, ...],
        clusters: Clusters | None,
        source: torch.Tensor | None = None,
    ) -> EpochRows:
        labels = made.split.labels
        right = {"labels": LabelRows.of(labels, self.device)} if "labels" in targets else {}
        if "clusters" in targets:
            assert clusters is not None
            right["clusters"] = LabelRows.of(clusters.meta_targets(labels), self.device)
        weights = torch.from_numpy(made.row_weights).to(self.device)
        return EpochRows(tokens, right, weights, source, neighbours=self._neighbours(made, tokens))

    def _neighbours(self, made: Augmented, tokens: TokenRows) -> RowNeighbours | None:
        """The training rows nearest to each row, for an encoder that needs context; a training row is no neighbour of itself."""
        if self.network.neighbours is None:
            return None
        own = np.full(len(made), NO_ROW, np.int64)
        own[: made.n_original] = made.source[: made.n_original]
        return self.network.neighbours.of(tokens, own)

    @torch.no_grad()
    def _on_device(self, tokens: TokenRows, what: str) -> TokenRows:
        """Token rows on the device; with a frozen encoder the embeddings of the texts, so that no step has to encode them."""
        rows = tokens.to(self.device)
        encoder = self.network.encoder
        if not encoder.frozen:
            return rows
        self.network.eval()
        found = torch.empty(len(rows), encoder.hidden_dim, dtype=torch.float16, device=self.device)  # as fine as what layers compute in
        by_length = torch.argsort(rows.offsets.diff(), stable=True)  # texts of like length together
        with progress(f"Encoding {what}", len(rows), "texts") as advance, precision(self.device):
            for part in by_length.split(ENCODED_AT_ONCE):
                found[part] = encoder(rows.take(part), self.network.table.weight).half()
                advance(len(part))
        return TokenRows.already_encoded(found, tokens.n_tokens)

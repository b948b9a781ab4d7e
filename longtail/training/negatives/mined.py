"""Mined hard negatives: wrong labels that the encoder of some epochs ago puts near a row, and batches of rows that lie together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from longtail.core.checks import NonNegative, Positive
from longtail.models.label_rows import LabelRows
from longtail.models.losses.all_labels import matrix_type
from longtail.models.top_k import best_places
from longtail.training.negatives.base import Negatives, NegativeSettings, StageView
from longtail.training.negatives.clusters import cluster_labels

SCORES_AT_ONCE = 1 << 26
NOTHING = -1  # an empty place


@dataclass(frozen=True)
class Mined(NegativeSettings):
    """Mine hard negatives with the network as it is every few epochs (ANCE, NGAME).

    Args:
        hard: hard negatives that are drawn for a batch, of the `hard` x `refresh` nearest wrong labels of each row.
        batches: "random"; "clustered": rows near each other come in a batch, so that their labels are hard negatives of each other; or
            "growing": in clusters of ever more rows (NGAME).
        refresh: epochs after which hard negatives and batches are found anew.
    """

    hard: NonNegative = 0
    batches: Literal["random", "clustered", "growing"] = "random"
    refresh: Positive = 5

    def rows_together(self, epoch: int, epochs: int, batch_size: int) -> int:
        """Rows of a cluster in this epoch: those of a cluster stay in one batch.

        >>> growing = Mined(batches="growing", refresh=1)
        >>> [growing.rows_together(epoch, 10, 256) for epoch in (0, 1, 2, 4, 9)]
        [1, 4, 16, 256, 256]
        """
        size = CLUSTERED_BATCHES.get(self.batches)
        return 1 if size is None else size(epoch, epochs, batch_size, self.refresh)

    def build(self) -> Negatives:
        return MinedNegatives(self)


def _growing(epoch: int, epochs: int, batch_size: int, refresh: int) -> int:
    """Doubled step by step in the first half of the epochs."""
    done = min(1.0, epoch // refresh * refresh / max(1, epochs // 2 - 1))
    return 1 << int(log2(batch_size) * done)


def _whole_batches(epoch: int, epochs: int, batch_size: int, refresh: int) -> int:
    """A batch from the second look on; at first the encoder knows nothing to cluster by."""
    return batch_size if epoch >= refresh else 1


CLUSTERED_BATCHES: dict[str, Callable[[int, int, int, int], int]] = {"clustered": _whole_batches, "growing": _growing}


class MinedNegatives(Negatives):
    def __init__(self, settings: Mined) -> None:
        self.settings = settings
        self.candidates: Tensor | None = None  # (n_rows, hard x refresh) int32
        self.mined_at: int | None = None  # the epoch of the stage

    @property
    def is_needed(self) -> bool:
        return self.settings.hard > 0 or self.settings.batches in CLUSTERED_BATCHES

    @torch.no_grad()
    def refresh(self, view: StageView, epoch: int) -> None:
        if not self.is_needed or epoch % self.settings.refresh or self.mined_at == epoch:
            return
        view.network.eval()
        blocks = view.blocks()
        texts = torch.cat([view.encoded(rows, unit=True).float() for rows in blocks])
        together = self.settings.rows_together(epoch, view.pace.epochs, view.pace.batch_size)
        if together > 1 and len(texts) > together:
            n_clusters = 1 << max(1, round(log2(len(texts) / together)))
            found = cluster_labels(texts.cpu().numpy(), n_clusters, seed=view.seed + epoch).of_label
            self.groups = torch.from_numpy(found.astype(np.int64)).to(texts.device)
        if self.settings.hard:
            labels, _ = view.network.all_label_vectors("labels")
            wanted = min(self.settings.hard * self.settings.refresh, view.n_labels)
            right = view.rows.targets["labels"]
            self.candidates = torch.cat([mine_hard_negatives(texts[rows], labels, right.take(rows), wanted) for rows in blocks])
        self.mined_at = epoch

    def for_batch(self, rows: Tensor) -> Tensor | None:
        if self.candidates is None:
            return None
        mined = self.candidates[rows].long()
        columns = torch.randperm(mined.shape[1], device=mined.device)[: self.settings.hard]
        return mined[:, columns]

    def state(self) -> dict[str, Tensor]:
        at = None if self.mined_at is None else torch.tensor(self.mined_at)
        found = {"candidates": self.candidates, "groups": self.groups, "mined_at": at}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def load(self, state: dict[str, Tensor], device: torch.device) -> None:
        self.candidates, self.groups = (state[name].to(device) if name in state else None for name in ("candidates", "groups"))
        self.mined_at = int(state["mined_at"]) if "mined_at" in state else None


def mine_hard_negatives(texts: Tensor, labels: Tensor, right: LabelRows, top_k: int) -> Tensor:
    """(b, top_k) int32: the labels with the highest scores of those that are not right; -1 where there are no more.

    Args:
        texts: (b, dim).
        labels: (n_labels, dim).
        right: the right labels of each text.
    """
    kind = matrix_type(texts.device)
    rows_of_right, vectors = right.row_of_each(), labels.to(kind)
    found = []
    for start in range(0, len(texts), max(1, SCORES_AT_ONCE // len(labels))):
        stop = min(len(texts), start + max(1, SCORES_AT_ONCE // len(labels)))
        scores = (texts[start:stop].to(kind) @ vectors.T).float()
        own = slice(int(right.offsets[start]), int(right.offsets[stop]))
        scores[rows_of_right[own] - start, right.ids[own]] = -torch.inf
        places, highest = best_places(scores, top_k)
        found.append(torch.where(highest > -torch.inf, places, NOTHING).int())
    return torch.cat(found)

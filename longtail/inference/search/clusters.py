"""From cluster scores to a shortlist of labels, on the device: beam, GAME, and the labels of the chosen clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix, identity
from torch import Tensor
from torch.nn import functional

from longtail.core.values import Ints, Offsets
from longtail.models.losses.all_labels import matrix_type
from longtail.models.top_k import best_places

NOTHING = -1  # in empty places of tables of ids
GAME_NEIGHBOURS = 10  # of a cluster or label, that scores are passed to
SCORES_AT_ONCE = 1 << 26


def member_table(labels: Ints, offsets: Offsets, device: torch.device) -> Tensor:
    """(n_clusters, largest) label ids of each cluster, -1 in empty places."""
    sizes = np.diff(offsets)
    table = np.full((len(sizes), int(sizes.max(initial=1))), NOTHING, np.int64)
    row = np.repeat(np.arange(len(sizes)), sizes)
    table[row, np.arange(len(labels)) - offsets[row]] = labels
    return torch.from_numpy(table).to(device)


@dataclass(frozen=True)
class Neighbours:
    """A graph of labels or clusters for GAME: the few strongest neighbours of each, padded to a table."""

    ids: Tensor  # (n, max_neighbours), -1 in empty places
    weights: Tensor  # (n, max_neighbours), 0 in empty places

    @classmethod
    def of(cls, graph: csr_matrix, max_neighbours: int, device: torch.device, share: float = 1.0) -> Neighbours:
        """From G, whose row l holds the weights with which label l receives the scores of other labels.

        Args:
            share: of received scores; the rest is a label's own score. 1 is G as it is.
        """
        if share < 1:
            graph = share * graph + (1 - share) * identity(graph.shape[0], dtype=np.float32, format="csr")
        graph = csr_matrix(graph.T)  # row m: what p_m is spread to, so that (G p)_l = sum_m G_lm p_m
        row = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
        order = np.lexsort((-graph.data, row))  # strongest first within a row
        rank = np.arange(len(row)) - graph.indptr[row]
        kept = rank < max_neighbours
        ids = np.full((graph.shape[0], max_neighbours), NOTHING, np.int64)
        weights = np.zeros((graph.shape[0], max_neighbours), np.float32)
        ids[row[kept], rank[kept]] = graph.indices[order][kept]
        weights[row[kept], rank[kept]] = graph.data[order][kept]
        return cls(torch.from_numpy(ids).to(device), torch.from_numpy(weights).to(device))

    def spread(self, ids: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """G p: (b, m) ids and scores -> (b, m * max_neighbours) ids, sorted, and scores, those of equal ids added up in the last of them.

        Places that are empty or repeats come back as -1 with score 0.
        """
        named = (ids >= 0)[..., None]
        found = torch.where(named, self.ids[ids.clamp(min=0)], NOTHING).flatten(1)
        value = (self.weights[ids.clamp(min=0)] * scores[..., None] * named).flatten(1)
        return added_up(found, value)


def added_up(ids: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores, 0 or more, of equal ids of a row added up in the last of them; the others become -1 with score 0."""
    ids, order = torch.sort(ids, dim=1, stable=True)
    sums = torch.cumsum(torch.gather(scores, 1, order).double() * (ids >= 0), dim=1)
    last = ids >= 0
    last[:, :-1] &= ids[:, :-1] != ids[:, 1:]
    # the sum of a run is what the running sum gained since the run before it ended; running sums never fall
    ended = torch.cummax(torch.where(last, sums, 0.0), dim=1).values
    before = torch.cat([torch.zeros_like(ended[:, :1]), ended[:, :-1]], dim=1)
    return torch.where(last, ids, NOTHING), torch.where(last, sums - before, 0.0).float()


def best(ids: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of each row, by scores of 0 or more; empty places (-1) come last, with score 0."""
    ranked = torch.topk(torch.where(ids >= 0, scores, -1.0), min(k, ids.shape[1]), dim=1)
    found = torch.gather(ids, 1, ranked.indices)
    return found, ranked.values.clamp(min=0.0)


def beam(scores: Tensor, width: int, graph: Neighbours | None) -> tuple[Tensor, Tensor]:
    """The `width` best clusters of each row and their probabilities; with a graph, after GAME (ECLARE, section 3.4).

    Args:
        scores: (b, n_clusters) logits.
    """
    top = torch.topk(scores, min(width, scores.shape[1]), dim=1)
    ids, probabilities = top.indices, torch.sigmoid(top.values.float())
    if graph is None:
        return ids, probabilities
    return best(*graph.spread(ids, probabilities), width)


def labels_of(clusters: Tensor, probabilities: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """Labels of the clusters, (b, m * largest), and the probability of each one's cluster."""
    found = torch.where(clusters[..., None] >= 0, members[clusters.clamp(min=0)], NOTHING)
    return found.flatten(1), probabilities[..., None].expand_as(found).flatten(1)


def nearest_labels(text: Tensor, centroids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k labels whose centroids are nearest to each text by cosine, and the cosines (Astec's shortlist, searched exactly).

    Args:
        text: (b, dim).
        centroids: (n_labels, dim) of unit length.
    """
    kind = matrix_type(text.device)
    centroids = centroids.to(kind)
    ids, values = [], []
    at_once = max(1, SCORES_AT_ONCE // len(centroids))
    for part in functional.normalize(text, dim=1).to(kind).split(at_once):
        found, cosines = best_places(part @ centroids.T, k)
        ids.append(found)
        values.append(cosines)
    return torch.cat(ids), torch.cat(values)


@dataclass(frozen=True)
class ClusterIndex:
    """Clusters of labels, searched for the shortlist of a text."""

    vectors: Tensor  # (n_clusters, dim)
    bias: Tensor | None  # (n_clusters,)
    members: Tensor  # (n_clusters, largest) label ids, -1 in empty places
    graph: Neighbours | None  # of clusters, for GAME
    beam: int

    def search(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """(b, beam * largest) labels of the best clusters, -1 in empty places, and the probability of each one's cluster."""
        scores = functional.linear(text, self.vectors, self.bias)
        return labels_of(*beam(scores, self.beam, self.graph), self.members)

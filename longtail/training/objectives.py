"""What a step minimises: which labels are scored for a batch, and the loss over them.

Every objective is called with the network and a `Step` and returns the loss, averaged over rows. All of them see right labels
with their soft relevance, and rows with their weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from longtail.models.label_rows import LabelRows
from longtail.models.label_vectors.vectors import graph_penalty
from longtail.models.losses import rowwise as losses
from longtail.models.losses.all_labels import ALL_LABELS, CHUNK_NUMBERS, all_labels_bce, matrix_type
from longtail.models.losses.candidates import Candidates, pairs_are_quicker, scores_of, shortlist_bce, with_targets
from longtail.models.network import Network
from longtail.tokens.ragged import distinct_ids
from longtail.tokens.rows import TokenRows

HARD_AMONG = 1 << 16  # labels among which the hardest are looked for in a step
FEWEST_NUMBERS = 1 << 18  # scores at a time; where these do not fit, no smaller chunk will help
PENALISED = 1024  # labels whose pairs the GLaS regulariser looks at in a step


@dataclass(frozen=True)
class Step:
    """A batch."""

    tokens: TokenRows
    targets: Mapping[str, LabelRows]  # task -> right labels, sorted within a row, and their relevance
    weights: Tensor  # (b,): how much a row counts
    shortlist: Tensor | None  # (b, n) label ids, where the stage has shortlists
    epoch: int

    def right(self, task: str) -> LabelRows:
        """The right answers of a task; classifiers are of labels, too."""
        return self.targets["clusters" if task == "clusters" else "labels"]


class Objective(ABC):
    """Called with a batch; returns its loss."""

    chunk_numbers: int = CHUNK_NUMBERS  # scores that may exist at a time; halved when memory runs out

    @abstractmethod
    def __call__(self, network: Network, step: Step) -> Tensor: ...

    def shrink(self, network: Network) -> str | None:
        """Memory ran out: do with less at a time from here on. Returns how, or None where no less will do."""
        if self.chunk_numbers <= FEWEST_NUMBERS:
            return None
        self.chunk_numbers //= 2
        return f"{self.chunk_numbers:,} scores at a time"

    advice: ClassVar[str] = "a smaller batch"  # where no less will do

    def state(self) -> dict[str, Tensor]:
        """What a resumed run needs to know of the steps before."""
        return {}

    def load(self, state: dict[str, Tensor]) -> None:  # noqa: B027  most objectives keep nothing
        """Go on from there."""


@dataclass
class EveryLabel(Objective):
    """All labels of a side are scored: the most exact choice, and on a GPU the fastest up to millions."""

    task: str
    chunk_numbers: int = CHUNK_NUMBERS
    loss: str = "bce"  # or "softmax"

    def __call__(self, network: Network, step: Step) -> Tensor:
        hidden, towers = network(step.tokens, {self.task: None})
        vectors, bias = towers[self.task]
        right, loss = step.right(self.task), ALL_LABELS[self.loss]
        return loss(network.text(hidden, self.task), vectors, bias, right, step.weights, self.chunk_numbers)


@dataclass
class SharedPool(Objective):
    """A pool of labels is scored for every row of the batch: the right ones of all rows, the hardest wrong ones, and some at random.

    One matrix product over a few thousand labels: many negatives a row at the price of few. Rows of the label table outside the
    pool are neither read nor updated. Which labels are hard is told by label vectors of up to `refresh` steps ago: of the labels that
    no row carries, those that score highest for any of them.
    """

    n_labels: int
    n_hard: int
    n_random: int
    task: str = "labels"
    refresh: int = 50
    chunk_numbers: int = CHUNK_NUMBERS
    loss: str = "bce"  # or "softmax"

    def __post_init__(self) -> None:
        self._known: tuple[Tensor, Tensor | None] | None = None
        self._age = 0

    def __call__(self, network: Network, step: Step) -> Tensor:
        targets = step.targets["labels"]
        named = [targets.ids, torch.randint(self.n_labels, (self.n_random,), device=targets.ids.device)]
        if self.n_hard:
            named.append(self._hardest(network, step))
        pool, places = distinct_ids(torch.cat(named), self.n_labels)
        hidden, towers = network(step.tokens, {self.task: pool})
        vectors, bias = towers[self.task]
        placed = LabelRows(places[: len(targets.ids)], targets.relevance, targets.offsets)
        return ALL_LABELS[self.loss](network.text(hidden, self.task), vectors, bias, placed, step.weights, self.chunk_numbers)

    @torch.no_grad()
    def _hardest(self, network: Network, step: Step) -> Tensor:
        """(n_hard,) labels that score highest for any row and are right for none."""
        network.eval()
        if self._known is None or self._age >= self.refresh:
            vectors, bias = network.all_label_vectors(self.task)
            self._known, self._age = (vectors.to(matrix_type(vectors.device)), bias), 0
        self._age += 1
        vectors, bias = self._known
        text = network.encode(step.tokens, self.task, network.tower(self.task).settings.unit).to(vectors.dtype)
        network.train()
        # Where labels are many, a part of them, another one in every step, so that a step costs the same for any number. It goes round,
        # past the last label to the first, so that every label is as likely in it as any other.
        first = int(torch.randint(self.n_labels, ())) if self.n_labels > HARD_AMONG else 0
        spans = [slice(first, first + HARD_AMONG), slice(0, max(0, first + HARD_AMONG - self.n_labels) if first else 0)]
        chunk = max(1, self.chunk_numbers // len(text))
        highest = torch.cat([(part @ text.T).amax(dim=1).float() for span in spans for part in vectors[span].split(chunk)])
        if bias is not None:
            highest += torch.cat([bias[span] for span in spans])
        right = (step.targets["labels"].ids - first) % self.n_labels
        highest[right[right < len(highest)]] = -torch.inf
        return (torch.topk(highest, min(self.n_hard, len(highest))).indices + first) % self.n_labels

    def state(self) -> dict[str, Tensor]:
        if self._known is None:
            return {}
        vectors, bias = self._known
        return {"vectors": vectors, "age": torch.tensor(self._age)} | ({} if bias is None else {"bias": bias})

    def load(self, state: dict[str, Tensor]) -> None:
        if state:
            self._known, self._age = (state["vectors"], state.get("bias")), int(state["age"])


@dataclass
class Shortlisted(Objective):
    """Each row's own shortlist is scored, made before the stage began; with `n_random` labels beside it that all rows share."""

    n_labels: int
    n_random: int = 0
    task: str = "labels"
    chunk_numbers: int = CHUNK_NUMBERS

    def __call__(self, network: Network, step: Step) -> Tensor:
        assert step.shortlist is not None
        shortlist = step.shortlist
        if self.n_random:
            drawn = torch.randint(self.n_labels, (self.n_random,), device=shortlist.device)
            shortlist = torch.cat([shortlist, drawn.expand(len(shortlist), -1)], dim=1)
        candidates = with_targets(shortlist, step.targets["labels"], self.n_labels)
        hidden, towers = network(step.tokens, {self.task: candidates.labels})
        vectors, bias = towers[self.task]
        return bce_of_candidates(network.text(hidden, self.task), vectors, bias, candidates, step.weights)


@dataclass
class Synchronised(Objective):
    """Clusters and labels are learnt together; each row's shortlist is what the cluster scores of the moment give (InceptionXML).

    Args:
        members: (n_clusters, largest) labels of each cluster, -1 for empty places.
        beam: clusters a row.
        detached_epochs: in which labels do not move the encoder, until clusters give shortlists worth learning from.
    """

    members: Tensor
    n_labels: int
    beam: int
    detached_epochs: int = 0
    chunk_numbers: int = CHUNK_NUMBERS

    def __call__(self, network: Network, step: Step) -> Tensor:
        right = step.targets["clusters"]
        hidden, towers = network(step.tokens, {"clusters": None})
        vectors, bias = towers["clusters"]
        text, beam = network.text(hidden, "clusters"), min(self.beam, len(vectors))
        if text.device.type == "cpu":
            best = torch.empty(len(text), beam, dtype=torch.int64)
            cluster_loss = all_labels_bce(text, vectors, bias, right, step.weights, best=best)
        else:
            scores = scores_of_all(text, vectors, bias)  # (b, n_clusters)
            wanted = torch.zeros_like(scores)
            wanted[right.row_of_each(), right.ids] = right.relevance
            cluster_loss = losses.bce(scores, wanted, torch.ones_like(wanted, dtype=torch.bool)).mul(step.weights).mean()
            with torch.no_grad():
                best = torch.topk(scores + wanted.gt(0) * 1e6, beam, dim=1).indices
        shortlist = self.members[best].flatten(1)  # right clusters come first, so that their labels are never missed
        candidates = with_targets(shortlist, step.targets["labels"], self.n_labels)
        if step.epoch < self.detached_epochs:
            hidden = hidden.detach()
        text = network.text(hidden, "labels")
        vectors, bias = network.label_vectors("labels", candidates.labels)
        label_loss = bce_of_candidates(text, vectors, bias, candidates, step.weights)
        # each is a mean over what it scored in InceptionXML; the sums are of like size here, as both have a few right answers a row
        return cluster_loss + label_loss


@dataclass
class GraphPenalised(Objective):
    """Another objective plus the GLaS regulariser over the right labels of the batch.

    Args:
        similarity: (n_labels, n_labels), 0.5 (P(i|j) + P(j|i)).
    """

    objective: Objective
    similarity: csr_matrix
    weight: float

    def __call__(self, network: Network, step: Step) -> Tensor:
        labels, _ = distinct_ids(step.targets["labels"].ids, self.similarity.shape[0])
        labels = labels[torch.sort(torch.randperm(len(labels), device=labels.device)[:PENALISED]).values]
        vectors, _ = network.label_vectors("labels", labels)
        return self.objective(network, step) + self.weight * graph_penalty(vectors.float(), labels, self.similarity)

    def shrink(self, network: Network) -> str | None:
        return self.objective.shrink(network)

    def state(self) -> dict[str, Tensor]:
        return self.objective.state()

    def load(self, state: dict[str, Tensor]) -> None:
        self.objective.load(state)


def scores_of_all(text: Tensor, vectors: Tensor, bias: Tensor | None) -> Tensor:
    """(b, m)."""
    return functional.linear(text, vectors, bias).float()


def bce_of_candidates(text: Tensor, vectors: Tensor, bias: Tensor | None, candidates: Candidates, weights: Tensor) -> Tensor:
    """Binary cross-entropy of each row's own candidates, averaged over rows by whichever way is the quicker."""
    if pairs_are_quicker(candidates, text.device):
        return shortlist_bce(text, vectors, bias, candidates, weights)
    scores = scores_of(text, vectors, bias, candidates.places)
    return losses.bce(scores, candidates.targets, candidates.counted).mul(weights).mean()

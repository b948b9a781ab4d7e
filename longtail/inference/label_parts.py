"""What label vectors are put together from: taken apart for reasons, put together for new labels.

Where parts are a text and a free vector, added up, the vector and the label's text tell both. Blocks, gates and attention are in memory
after training; of a model folder they are read from parts.safetensors, which prediction does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.core.values import Texts
from longtail.models.label_vectors.mixtures import Attention, Gated
from longtail.models.label_vectors.vectors import LabelSide, LabelVectors
from longtail.models.network import Network
from longtail.models.ragged import RaggedRows, TokenBatch
from longtail.models.table import weighted_sum
from longtail.recipes.recipe import Recipe
from longtail.storage.model_folder import PARTS, Stored
from longtail.tokens.tokenizer import Tokenizer

AT_ONCE = 1 << 12  # texts that are encoded in one go
CHECKED = 64  # labels whose vectors are made anew, to see whether parts are of this model
CLOSE = 1e-3
OWN = ("text", "encoded")  # parts that a text alone gives


def settings_of(recipe: Recipe, head: str) -> LabelVectors:
    """Of a head's label vectors, as the last stage that learnt them had them."""
    if head == "classifiers":
        return recipe.classifiers
    parts = [stage.parts for stage in recipe.stages if stage.task in ("labels", "both", "unified")][-1:]
    return recipe.labels if not parts or parts[0] is None else replace(recipe.labels, parts=parts[0])


def rows_of(tokenizer: Tokenizer, texts: Texts, device: torch.device) -> RaggedRows:
    rows = tokenizer(texts)
    return RaggedRows(rows.ids, rows.weights, rows.offsets, device)


def text_sums(network: Network, rows: RaggedRows) -> Tensor:
    """(n, dim of the token table): token vectors of each text, added up with their weights."""
    return torch.cat([weighted_sum(batch, network.table.weight) for batch in _pieces(rows)])


def encoded_texts(network: Network, rows: RaggedRows, head: str, unit: bool) -> Tensor:
    """(n, dim): what the encoder makes of each text."""
    return torch.cat([network.encode(batch, head, unit) for batch in _pieces(rows)])


def _pieces(rows: RaggedRows) -> list[TokenBatch]:
    places = torch.arange(len(rows), device=rows.offsets.device)
    return [rows.take(part) for part in places.split(AT_ONCE)]  # one empty piece where there are no rows


@dataclass(frozen=True)
class Head:
    """The label vectors of one head of a ranker, in parts.

    Parts of a kind stand in the order of `names`: "text", "graph" of each order, "free", "encoded". A single "free" may be all that is
    known of vectors whose parts are not there.
    """

    network: Network
    task: str  # "labels" or "classifiers"
    unit: bool  # vectors have length 1
    vectors: Tensor  # (n_labels, dim)
    tokenizer: Tokenizer
    texts: Texts | None  # of the labels
    names: tuple[str, ...]
    side: LabelSide | None  # None: parts are simply added up
    starts_encoded: bool = False  # "encoded" is what a free vector began as

    @property
    def n_known(self) -> int:
        """Labels whose parts can be told."""
        return len(self.vectors) if self.side is None else self.side.n_labels

    @property
    def own(self) -> tuple[str, ...]:
        """Parts that a text alone gives."""
        return tuple(name for name in self.names if name in OWN)

    @torch.no_grad()
    def of_text(self, name: str, rows: RaggedRows) -> Tensor:
        """(m, dim): one of the `own` parts, of any texts."""
        if name == "encoded":
            if self.starts_encoded:
                return encoded_texts(self.network, rows, "labels", unit=True)
            return encoded_texts(self.network, rows, self.task, self.unit and self.side is None)
        sums = text_sums(self.network, rows)
        return sums if self.side is None else self.side.blocks[0](sums)

    @torch.no_grad()
    def of_labels(self, labels: Tensor) -> list[Tensor]:
        """(m, dim) each: the parts of known labels."""
        rows = None
        if self.own:
            assert self.texts is not None
            rows = rows_of(self.tokenizer, self.texts.take(labels.cpu().numpy()), self.vectors.device)
        found = {name: self.of_text(name, rows) for name in self.own if rows is not None}
        if self.side is None:
            if "free" in self.names:
                found["free"] = self.vectors[labels] - sum(found.values())
            return [found[name] for name in self.names]
        parts = []
        graphs = iter(range(int("text" in self.names), len(self.side.texts)))
        for name in self.names:
            if name == "graph":
                place = next(graphs)
                parts.append(self.side.blocks[place](weighted_sum(self.side.texts[place].take(labels), self.network.table.weight)))
            elif name == "free":
                assert self.side.free is not None
                parts.append(self.side.free.weight[labels])
            else:
                parts.append(found[name])
        return parts

    @torch.no_grad()
    def shares(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """(m, dim) each: what parts bring into the vectors; they add up to them."""
        shared = list(parts)
        if self.side is not None and isinstance(self.side.mix, Gated):
            shared = [torch.sigmoid(gate) * part for gate, part in zip(self.side.mix.gates, parts, strict=True)]
        elif (weights := self.attention(parts)) is not None:
            shared = [weights[:, place, None] * part for place, part in enumerate(parts)]
        if self.unit:
            length = torch.stack(shared).sum(dim=0).norm(dim=1, keepdim=True).clamp(min=1e-12)
            shared = [part / length for part in shared]
        return shared

    @torch.no_grad()
    def attention(self, parts: Sequence[Tensor]) -> Tensor | None:
        """(m, n_parts), rows sum to 1: what each part counts for each label; None where that is not learnt per label."""
        if self.side is None or not isinstance(self.side.mix, Attention):
            return None
        return self.side.mix.weights(parts)

    def mixed(self, parts: Sequence[Tensor]) -> Tensor:
        """(m, dim): vectors of parts."""
        return torch.stack(self.shares(parts)).sum(dim=0)


def heads_of(stored: Stored, place: int) -> list[Head]:
    """Of the ranker at this place of the model."""
    ranker, voice = stored.rankers[place], 0
    counts = [len(one.rankers) for one in stored.voices]
    while place >= sum(counts[: voice + 1]):
        voice += 1
    recipe, tokenizer = (stored.recipe, *stored.recipe.beside)[voice], stored.voices[voice].tokenizer
    found, start = [], 0
    for task, scale in zip(ranker.heads, ranker.scales, strict=True):
        vectors = ranker.vectors[:, start : start + ranker.network.dim]
        start += ranker.network.dim
        head = Head(ranker.network, task, scale > 0, vectors, tokenizer, stored.label_texts, ("free",), None)
        found.append(_with_parts(head, settings_of(recipe, task), stored, place))
    return found


def _with_parts(head: Head, settings: LabelVectors, stored: Stored, place: int) -> Head:
    """With what can be told of its parts."""
    parts = settings.parts
    if head.texts is None:
        return head
    if parts == ("free",):
        if settings.start not in OWN:
            return head
        return replace(head, names=(settings.start, "free"), starts_encoded=settings.start == "encoded")
    is_sum = len(parts) == 1 or (settings.mix == "sum" and not head.unit)
    if is_sum and "graph" not in parts and ("text" not in parts or settings.block == "none"):
        return replace(head, names=tuple(name for name in ("text", "free", "encoded") if name in parts))
    side = _side_of(head, settings, stored, place)
    if side is None:
        return head
    names = ("text",) * ("text" in parts) + ("graph",) * (settings.order if "graph" in parts else 0)
    whole = replace(head, names=names + tuple(name for name in ("free", "encoded") if name in parts), side=side)
    looked = torch.arange(0, side.n_labels, max(1, side.n_labels // CHECKED), device=head.vectors.device)
    # the graph of a model of several recipes is that of the last, and files can be of another model
    return whole if torch.allclose(whole.mixed(whole.of_labels(looked)), head.vectors[looked].float(), atol=CLOSE) else head


def _side_of(head: Head, settings: LabelVectors, stored: Stored, place: int) -> LabelSide | None:
    if head.task in head.network.sides:
        return head.network.side(head.task)
    path = None if stored.folder is None else stored.folder / PARTS
    if path is None or not path.is_file() or head.texts is None:
        return None
    state = _state(path, f"{place}/{head.task}.", head.vectors.device)
    sizes = [len(state[name]) for name in ("free.weight", "bias.weight") if name in state]
    n_labels = sizes[0] if sizes else len(head.vectors)  # labels that were added are not among them
    rows = head.tokenizer(head.texts[:n_labels])
    graph = None if stored.graph is None else csr_matrix(stored.graph.weights[:n_labels, :n_labels])
    if "graph" in settings.parts and graph is None:
        return None
    sequences = RaggedRows(rows.ids, rows.weights, rows.offsets, head.vectors.device)
    with torch.random.fork_rng(devices=[]):  # what is drawn here is replaced at once
        side = settings.build(n_labels, head.network.dim, settings.text_rows(rows.to_csr(), graph), head.vectors.device, sequences)
    try:
        side.load_state_dict(state)
    except RuntimeError:  # of another model
        return None
    return side.to(head.vectors.device).eval().requires_grad_(False)


def _state(path: Path, prefix: str, device: torch.device) -> dict[str, Tensor]:
    from safetensors import safe_open

    with safe_open(path, "pt", device=str(device)) as file:
        return {name.removeprefix(prefix): file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}

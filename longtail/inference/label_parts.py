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
from longtail.models.label_vectors.vectors import LabelTower, LabelVectors
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


def settings_of(recipe: Recipe, tower: str) -> LabelVectors:
    """Of a head's label vectors, as the last stage that learnt them had them."""
    if tower == "classifiers":
        return recipe.classifiers
    parts = [stage.parts for stage in recipe.stages if stage.task in ("labels", "both", "unified")][-1:]
    return recipe.labels if not parts or parts[0] is None else replace(recipe.labels, parts=parts[0])


def rows_of(tokenizer: Tokenizer, texts: Texts, device: torch.device) -> RaggedRows:
    rows = tokenizer(texts)
    return RaggedRows(rows.ids, rows.weights, rows.offsets, device)


def text_sums(network: Network, rows: RaggedRows) -> Tensor:
    """(n, dim of the token table): token vectors of each text, added up with their weights."""
    return torch.cat([weighted_sum(batch, network.table.weight) for batch in _pieces(rows)])


def encoded_texts(network: Network, rows: RaggedRows, tower: str, unit: bool) -> Tensor:
    """(n, dim): what the encoder makes of each text."""
    return torch.cat([network.encode(batch, tower, unit) for batch in _pieces(rows)])


def _pieces(rows: RaggedRows) -> list[TokenBatch]:
    places = torch.arange(len(rows), device=rows.offsets.device)
    return [rows.take(part) for part in places.split(AT_ONCE)]  # one empty piece where there are no rows


@dataclass(frozen=True)
class TowerParts:
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
    tower: LabelTower | None  # None: parts are simply added up
    starts_encoded: bool = False  # "encoded" is what a free vector began as

    @property
    def n_known(self) -> int:
        """Labels whose parts can be told."""
        return len(self.vectors) if self.tower is None else self.tower.n_labels

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
            return encoded_texts(self.network, rows, self.task, self.unit and self.tower is None)
        sums = text_sums(self.network, rows)
        return sums if self.tower is None else self.tower.blocks[0](sums)

    @torch.no_grad()
    def of_labels(self, labels: Tensor) -> list[Tensor]:
        """(m, dim) each: the parts of known labels."""
        rows = None
        if self.own:
            assert self.texts is not None
            rows = rows_of(self.tokenizer, self.texts.take(labels.cpu().numpy()), self.vectors.device)
        found = {name: self.of_text(name, rows) for name in self.own if rows is not None}
        if self.tower is None:
            if "free" in self.names:
                found["free"] = self.vectors[labels] - sum(found.values())
            return [found[name] for name in self.names]
        parts = []
        graphs = iter(range(int("text" in self.names), len(self.tower.texts)))
        for name in self.names:
            if name == "graph":
                place = next(graphs)
                parts.append(self.tower.blocks[place](weighted_sum(self.tower.texts[place].take(labels), self.network.table.weight)))
            elif name == "free":
                assert self.tower.free is not None
                parts.append(self.tower.free.weight[labels])
            else:
                parts.append(found[name])
        return parts

    @torch.no_grad()
    def shares(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """(m, dim) each: what parts bring into the vectors; they add up to them."""
        shared = list(parts)
        if self.tower is not None and isinstance(self.tower.mix, Gated):
            shared = [torch.sigmoid(gate) * part for gate, part in zip(self.tower.mix.gates, parts, strict=True)]
        elif (weights := self.attention(parts)) is not None:
            shared = [weights[:, place, None] * part for place, part in enumerate(parts)]
        if self.unit:
            length = torch.stack(shared).sum(dim=0).norm(dim=1, keepdim=True).clamp(min=1e-12)
            shared = [part / length for part in shared]
        return shared

    @torch.no_grad()
    def attention(self, parts: Sequence[Tensor]) -> Tensor | None:
        """(m, n_parts), rows sum to 1: what each part counts for each label; None where that is not learnt per label."""
        if self.tower is None or not isinstance(self.tower.mix, Attention):
            return None
        return self.tower.mix.weights(parts)

    def mixed(self, parts: Sequence[Tensor]) -> Tensor:
        """(m, dim): vectors of parts."""
        return torch.stack(self.shares(parts)).sum(dim=0)


def tower_parts_of(stored: Stored, place: int) -> list[TowerParts]:
    """The label vectors of each tower of the scorer at this place of the model, in parts."""
    scorer, member = stored.scorers[place], 0
    counts = [len(one.scorers) for one in stored.members]
    while place >= sum(counts[: member + 1]):
        member += 1
    recipe, tokenizer = (stored.recipe, *stored.recipe.beside)[member], stored.members[member].tokenizer
    found, start = [], 0
    for task, scale in zip(scorer.towers, scorer.scales, strict=True):
        vectors = scorer.vectors[:, start : start + scorer.network.dim]
        start += scorer.network.dim
        whole = TowerParts(scorer.network, task, scale > 0, vectors, tokenizer, stored.label_texts, ("free",), None)
        found.append(_with_parts(whole, settings_of(recipe, task), stored, place))
    return found


def _with_parts(whole: TowerParts, settings: LabelVectors, stored: Stored, place: int) -> TowerParts:
    """The same with the parts that can be taken apart."""
    parts = settings.parts
    if whole.texts is None:
        return whole
    if parts == ("free",):
        if settings.start not in OWN:
            return whole
        return replace(whole, names=(settings.start, "free"), starts_encoded=settings.start == "encoded")
    is_sum = len(parts) == 1 or (settings.mix == "sum" and not whole.unit)
    if is_sum and "graph" not in parts and ("text" not in parts or settings.block == "none"):
        return replace(whole, names=tuple(name for name in ("text", "free", "encoded") if name in parts))
    tower = _tower_of(whole, settings, stored, place)
    if tower is None:
        return whole
    names = ("text",) * ("text" in parts) + ("graph",) * (settings.order if "graph" in parts else 0)
    apart = replace(whole, names=names + tuple(name for name in ("free", "encoded") if name in parts), tower=tower)
    sample = torch.arange(0, tower.n_labels, max(1, tower.n_labels // CHECKED), device=whole.vectors.device)
    # the graph of a model of several recipes is that of the last, and files can be of another model
    return apart if torch.allclose(apart.mixed(apart.of_labels(sample)), whole.vectors[sample].float(), atol=CLOSE) else whole


def _tower_of(whole: TowerParts, settings: LabelVectors, stored: Stored, place: int) -> LabelTower | None:
    if whole.task in whole.network.towers:
        return whole.network.tower(whole.task)
    path = None if stored.folder is None else stored.folder / PARTS
    if path is None or not path.is_file() or whole.texts is None:
        return None
    device = whole.vectors.device
    state = _state(path, f"{place}/{whole.task}.", device)
    sizes = [len(state[name]) for name in ("free.weight", "bias.weight") if name in state]
    n_labels = sizes[0] if sizes else len(whole.vectors)  # labels that were added are not among them
    rows = whole.tokenizer(whole.texts[:n_labels])
    graph = None if stored.graph is None else csr_matrix(stored.graph.weights[:n_labels, :n_labels])
    if "graph" in settings.parts and graph is None:
        return None
    sequences = RaggedRows(rows.ids, rows.weights, rows.offsets, device)
    with torch.random.fork_rng(devices=[]):  # what is drawn here is replaced at once
        tower = settings.build(n_labels, whole.network.dim, settings.text_rows(rows.to_csr(), graph), device, sequences)
    try:
        tower.load_state_dict(state)
    except RuntimeError:  # of another model
        return None
    return tower.to(device).eval().requires_grad_(False)


def _state(path: Path, prefix: str, device: torch.device) -> dict[str, Tensor]:
    from safetensors import safe_open

    with safe_open(path, "pt", device=str(device)) as file:
        return {name.removeprefix(prefix): file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}

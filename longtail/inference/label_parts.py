"""Label vectors, taken apart into the parts that they were made of: for explanations, and to put new labels together.

Where the parts are a text and a free vector that are added up, vector and text of the label tell both. Blocks, gates and attention are in
memory after training; of a model folder they are read from parts.safetensors, which predictions do not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from longtail.core.values import Texts
from longtail.inference.trained_model import TrainedModel
from longtail.models.label_vectors.mixtures import Attention, Gated
from longtail.models.label_vectors.vectors import LabelTower, LabelVectors
from longtail.models.network import Network
from longtail.models.table import weighted_sum
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer

TEXTS_AT_ONCE = 1 << 12
CHECKED_LABELS = 64  # whose vectors are made anew, to see whether the parts are of this model
TOLERANCE = 1e-3
FROM_TEXT = ("text", "encoded")  # parts that a text alone gives


def text_sums(network: Network, rows: TokenRows) -> Tensor:
    """(n, dim of the token table): token vectors of each text, added up with their weights."""
    return torch.cat([weighted_sum(batch, network.table.weight) for batch in _batches(rows)])


def encoded_texts(network: Network, rows: TokenRows, tower: str, unit: bool) -> Tensor:
    """(n, dim): encoded texts, projected for a tower."""
    return torch.cat([network.encode(batch, tower, unit) for batch in _batches(rows)])


def _batches(rows: TokenRows) -> list[TokenRows]:
    places = torch.arange(len(rows), device=rows.offsets.device)
    return [rows.take(part) for part in places.split(TEXTS_AT_ONCE)]  # one empty batch where there are no rows


@dataclass(frozen=True)
class TowerParts:
    """The label vectors of one tower, in parts.

    Args:
        name: of the tower, "labels" or "classifiers".
        unit: vectors have length 1.
        vectors: (n_labels, dim), as they are searched.
        texts: of the labels.
        part_names: "text", "graph" for each order, "free", "encoded", in the order in which all methods give the parts. A single "free"
            may be all that is known of vectors whose parts are not at hand.
        trained: the tower as it was trained; None where the parts are simply added up.
        starts_encoded: the part "encoded" is what a free vector began as.
    """

    network: Network
    name: str
    unit: bool
    vectors: Tensor
    tokenizer: Tokenizer
    texts: Texts | None
    part_names: tuple[str, ...]
    trained: LabelTower | None
    starts_encoded: bool = False

    @property
    def n_known(self) -> int:
        """Labels whose parts are known: not those that were added since."""
        return len(self.vectors) if self.trained is None else self.trained.n_labels

    @property
    def text_parts(self) -> tuple[str, ...]:
        """Names of the parts that a text alone gives."""
        return tuple(name for name in self.part_names if name in FROM_TEXT)

    @torch.no_grad()
    def part_of_texts(self, name: str, rows: TokenRows) -> Tensor:
        """(m, dim): one of the `text_parts`, of any texts."""
        if name == "encoded":
            if self.starts_encoded:
                return encoded_texts(self.network, rows, "labels", unit=True)
            return encoded_texts(self.network, rows, self.name, self.unit and self.trained is None)
        sums = text_sums(self.network, rows)
        return sums if self.trained is None else self.trained.blocks[0](sums)

    @torch.no_grad()
    def parts_of_labels(self, labels: Tensor) -> list[Tensor]:
        """(m, dim) each: the parts of known labels."""
        rows = None
        if self.text_parts:
            assert self.texts is not None
            rows = self.tokenizer(self.texts.take(labels.cpu().numpy())).to(self.vectors.device)
        found = {name: self.part_of_texts(name, rows) for name in self.text_parts if rows is not None}
        if self.trained is None:
            if "free" in self.part_names:
                found["free"] = self.vectors[labels] - sum(found.values())
            return [found[name] for name in self.part_names]
        parts = []
        orders = iter(range(int("text" in self.part_names), len(self.trained.texts)))
        for name in self.part_names:
            if name == "graph":
                place = next(orders)
                sums = weighted_sum(self.trained.texts[place].take(labels), self.network.table.weight)
                parts.append(self.trained.blocks[place](sums))
            elif name == "free":
                assert self.trained.free is not None
                parts.append(self.trained.free.weight[labels])
            else:
                parts.append(found[name])
        return parts

    @torch.no_grad()
    def contributions(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """(m, dim) each: the parts as they enter the vectors, weighted by gates or attention; they add up to the vectors."""
        entering = list(parts)
        if self.trained is not None and isinstance(self.trained.mix, Gated):
            entering = [torch.sigmoid(gate) * part for gate, part in zip(self.trained.mix.gates, parts, strict=True)]
        elif (weights := self.attention(parts)) is not None:
            entering = [weights[:, place, None] * part for place, part in enumerate(parts)]
        if self.unit:
            length = torch.stack(entering).sum(dim=0).norm(dim=1, keepdim=True).clamp(min=1e-12)
            entering = [part / length for part in entering]
        return entering

    @torch.no_grad()
    def attention(self, parts: Sequence[Tensor]) -> Tensor | None:
        """(m, n_parts), rows sum to 1: the attention of each label to its parts; None where none is learnt."""
        if self.trained is None or not isinstance(self.trained.mix, Attention):
            return None
        return self.trained.mix.weights(parts)

    def mixed(self, parts: Sequence[Tensor]) -> Tensor:
        """(m, dim): the vectors that these parts make."""
        return torch.stack(self.contributions(parts)).sum(dim=0)


def tower_parts_of(model: TrainedModel, place: int) -> list[TowerParts]:
    """The label vectors of each tower that the network at this place of the model searches, in parts."""
    scorer, number = model.scorers[place], 0
    counts = [len(member.scorers) for member in model.members]
    while place >= sum(counts[: number + 1]):
        number += 1
    member = model.members[number]
    found, start = [], 0
    for tower in scorer.towers:
        vectors = scorer.vectors[:, start : start + scorer.network.dim]
        start += scorer.network.dim
        whole = TowerParts(scorer.network, tower.name, tower.scale > 0, vectors, member.tokenizer, model.label_texts, ("free",), None)
        settings = member.label_vectors.get(tower.name)
        found.append(whole if settings is None else _apart(whole, settings, model, place))
    return found


def _apart(whole: TowerParts, settings: LabelVectors, model: TrainedModel, place: int) -> TowerParts:
    """The same label vectors in all parts that are known."""
    parts = settings.parts
    if whole.texts is None:
        return whole
    if settings.has_only_free_parts:
        if settings.start not in FROM_TEXT:
            return whole
        return replace(whole, part_names=(settings.start, "free"), starts_encoded=settings.start == "encoded")
    is_sum = len(parts) == 1 or (settings.mix == "sum" and not whole.unit)
    if is_sum and "graph" not in parts and ("text" not in parts or not settings.has_residual_block):
        return replace(whole, part_names=tuple(name for name in ("text", "free", "encoded") if name in parts))
    trained = _trained_tower(whole, settings, model, place)
    if trained is None:
        return whole
    names = ("text",) * ("text" in parts) + ("graph",) * (settings.order if "graph" in parts else 0)
    apart = replace(whole, part_names=names + tuple(name for name in ("free", "encoded") if name in parts), trained=trained)
    sample = torch.arange(0, trained.n_labels, max(1, trained.n_labels // CHECKED_LABELS), device=whole.vectors.device)
    # the graph of a model of several members is that of the last, and files can be of another model
    is_of_model = torch.allclose(apart.mixed(apart.parts_of_labels(sample)), whole.vectors[sample].float(), atol=TOLERANCE)
    return apart if is_of_model else whole


def _trained_tower(whole: TowerParts, settings: LabelVectors, model: TrainedModel, place: int) -> LabelTower | None:
    """The tower as it was trained: from memory, or from the model's folder; None where it is in neither."""
    if whole.name in whole.network.towers:
        return whole.network.tower(whole.name)
    weights = None if model.tower_weights is None else model.tower_weights(place, whole.name)
    if weights is None or whole.texts is None:
        return None
    sizes = [len(weights[name]) for name in ("free.weight", "bias.weight") if name in weights]
    n_labels = sizes[0] if sizes else len(whole.vectors)  # labels that were added are not among them
    rows = whole.tokenizer(whole.texts[:n_labels])
    graph = None if model.graph is None else csr_matrix(model.graph.weights[:n_labels, :n_labels])
    if "graph" in settings.parts and graph is None:
        return None
    device = whole.vectors.device
    with torch.random.fork_rng(devices=[]):  # what is drawn here is replaced at once
        tower = settings.build(n_labels, whole.network.dim, settings.text_rows(rows.to_csr(), graph), device, rows.to(device))
    try:
        tower.load_state_dict(weights)
    except RuntimeError:  # of another model
        return None
    return tower.to(device).eval().requires_grad_(False)

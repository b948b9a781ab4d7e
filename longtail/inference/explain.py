"""Explanations: contributions of label parts and of the text's tokens to the score, similar training rows, a path in the graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

from longtail.core.errors import SettingError
from longtail.core.values import Dataset, Predictions, Split, Texts
from longtail.data.files import shorten
from longtail.data.graph.inspect import find_label
from longtail.data.graph.search import strongest_path
from longtail.inference.ensemble import Member
from longtail.inference.label_parts import TowerParts
from longtail.inference.scorer import Scorer
from longtail.inference.towers import search_vectors
from longtail.inference.trained_model import TrainedModel
from longtail.tokens.rows import TokenRows

TrainingRows = tuple[Texts, csr_matrix]

MAX_PLACES = 1000  # predictions among which the label's place is looked for
MAX_COMPARED = 2000  # training rows of a label that are compared with the text
SHOWN_ROWS, SHOWN_TOKENS = 3, 8
SPEAKERS = 5  # labels predicted best, from which a path to the label is looked for


@dataclass(frozen=True)
class Part:
    """A part of the label's vector: "text", "graph", "free", "encoded"; "neighbours" where a label was added by text."""

    name: str
    share: float  # its attention where that is learnt; otherwise its share of all parts' contributions, signs aside
    brings: float  # contribution to the evidence


@dataclass(frozen=True)
class Token:
    """A token of the text."""

    name: str
    brings: float  # contribution to the evidence
    in_label: bool  # it stands in the label's text as well


@dataclass(frozen=True)
class Row:
    """A training row that carries the label."""

    text: str
    cosine: float  # to the text, as the encoder sees both


@dataclass(frozen=True)
class Step:
    """A label on the path to another; the weight is that of the edge that leads there, 1 for the first."""

    label: int
    text: str
    weight: float


@dataclass(frozen=True)
class Explanation:
    """Why a label was predicted for a text, or was not.

    The evidence is the score before calibration: the product of the text's and the label's vector and the label's bias, the mean over all
    networks. `parts` and `bias` add up to it, and so do `tokens` and `rest`.
    """

    text: str
    label: int
    label_text: str
    score: float  # as predicted; 0 where it is not among the first
    place: int | None  # in the predictions, from 1
    evidence: float
    bias: float
    parts: tuple[Part, ...]
    tokens: tuple[Token, ...]  # largest contribution first
    rest: float  # evidence that no token brings
    rows: tuple[Row, ...]  # nearest first
    path: tuple[Step, ...]  # in the label graph, from a predicted label to this one

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON can hold them."""
        return asdict(self)

    def __str__(self) -> str:
        named = self.label_text or f"label {self.label}"
        where = f"place {self.place}" if self.place is not None else f"not among the first {MAX_PLACES:,}"
        lines = [f"{shorten(self.text)}  ->  {shorten(named)} (id {self.label}): score {self.score:.3f}, {where}", ""]
        lines.append(f"evidence {self.evidence:+.3f}, of which")
        lines += [f"  {part.brings:+8.3f}  {part.name} ({part.share:.0%})" for part in self.parts]
        lines += [f"  {self.bias:+8.3f}  bias", "", "tokens of the text (* also in the label's)"]
        lines += [f"  {token.brings:+8.3f}  {token.name}{' *' if token.in_label else ''}" for token in self.tokens[:SHOWN_TOKENS]]
        others = self.rest + sum(token.brings for token in self.tokens[SHOWN_TOKENS:])
        lines.append(f"  {others:+8.3f}  all else, the bias among it")
        if self.rows:
            lines += ["", "training rows with the label", *(f"  {row.cosine:8.3f}  {shorten(row.text)}" for row in self.rows)]
        if self.path:
            steps = "".join(f" -({step.weight:.2f})-> {shorten(step.text or str(step.label))}" for step in self.path[1:])
            lines += ["", "by the label graph", f"  {shorten(self.path[0].text or str(self.path[0].label))}{steps}"]
        return "\n".join(lines)


def explain(
    model: TrainedModel,
    towers: Sequence[Sequence[TowerParts]],
    text: str,
    label: int | str | None,
    rows: TrainingRows | None,
    device: torch.device,
) -> Explanation:
    """Explain the score of one label for one text.

    Args:
        towers: for each network, the parts that `tower_parts_of` gives.
        label: its id or its text; None for the one that is predicted first.
        rows: training texts and their labels, where they are at hand.
    """
    if not isinstance(text, str):
        raise SettingError(f"{text!r} came as a text to explain a label of; wanted a str.")
    found = model.ensemble.predict(Texts.of([text]), min(MAX_PLACES, len(model.label_counts)), device)
    if label is None and found.ids[0, 0] < 0:
        raise SettingError("No label is predicted for this text; name one to be explained.")
    chosen = int(found.ids[0, 0]) if label is None else _checked(model, label)
    places = np.flatnonzero(found.ids[0] == chosen)
    sums = _contributions(model, towers, text, chosen, device)
    in_label = _tokens_of_label(model, chosen)
    tokens = [Token(name, value, name in in_label) for name, value in sums.tokens.items()]
    return Explanation(
        text=text,
        label=chosen,
        label_text="" if model.label_texts is None else model.label_texts[chosen],
        score=float(found.scores[0, places[0]]) if len(places) else 0.0,
        place=int(places[0]) + 1 if len(places) else None,
        evidence=sums.evidence,
        bias=sums.bias,
        parts=_with_shares(sums.parts, sums.attention),
        tokens=tuple(sorted(tokens, key=lambda token: -abs(token.brings))),
        rest=sums.evidence - sum(sums.tokens.values()),
        rows=() if rows is None else nearest_rows(model, text, chosen, rows, device),
        path=_path(model, found, chosen),
    )


def _checked(model: TrainedModel, label: int | str) -> int:
    """The id of a label, or why it cannot be explained."""
    none = Split(None, csr_matrix((0, len(model.label_counts)), dtype=np.float32))
    chosen = find_label(Dataset("the model", none, none, model.label_texts), label)
    if chosen in model.removed:
        raise SettingError(f"Label {chosen} is removed and never predicted; wanted one that is there.")
    return chosen


# ---- contributions


@dataclass
class _Sums:
    """Contributions, added up over the networks of a model."""

    evidence: float = 0.0
    bias: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    attention: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tokens: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def _contributions(model: TrainedModel, towers: Sequence[Sequence[TowerParts]], text: str, label: int, device: torch.device) -> _Sums:
    sums, of_network = _Sums(), iter(towers)
    n_trained = len(model.label_counts) - model.about.get("labels added", 0)
    for member in model.members:
        tokens = member.tokenizer(Texts.of([text])).to(device)
        sums.bias, sums.evidence = sums.bias + member.offset, sums.evidence + member.offset
        for scorer in member.scorers:
            weight = member.weight / len(member.scorers)
            bias = 0.0 if scorer.bias is None else float(scorer.bias[label]) * scorer.bias_share
            sums.bias += weight * bias
            sums.evidence += weight * (float(scorer.encode(tokens)[0] @ scorer.vectors[label].float()) + bias)
            for name, value, attention in _by_part(scorer, next(of_network), tokens, label, label >= n_trained):
                sums.parts[name] += weight * value
                if attention is not None:
                    sums.attention[name] += weight * attention
            for name, value in _by_token(member, scorer, tokens, label):
                sums.tokens[name] += weight * value
    return sums


def _by_part(
    scorer: Scorer, towers: Sequence[TowerParts], tokens: TokenRows, label: int, was_added: bool
) -> list[tuple[str, float, float | None]]:
    """The parts of a label's vector in one network: name, contribution, and attention where there is some."""
    text = scorer.encode(tokens)[0]
    found: list[tuple[str, float, float | None]] = []
    for tower, own in zip(towers, text.split(scorer.network.dim), strict=True):
        if label >= tower.n_known:
            tower = replace(tower, part_names=("free",), trained=None)
        parts = tower.parts_of_labels(torch.tensor([label], device=own.device))
        attention = tower.attention(parts)
        for number, (name, part) in enumerate(zip(tower.part_names, tower.contributions(parts), strict=True)):
            shown = "neighbours" if was_added and name == "free" else name
            found.append((shown, float(own @ part[0]), None if attention is None else float(attention[0, number])))
    return found


def _with_shares(parts: dict[str, float], attention: dict[str, float]) -> tuple[Part, ...]:
    shares = attention if attention else {name: abs(value) for name, value in parts.items()}
    total = sum(shares.values()) or 1.0
    return tuple(Part(name, shares[name] / total, value) for name, value in parts.items())


def _by_token(member: Member, scorer: Scorer, tokens: TokenRows, label: int) -> list[tuple[str, float]]:
    """The tokens of the text in one network: name and contribution to the product of the vectors."""
    names = member.tokenizer.cutter.names
    vector = scorer.vectors[label].float()
    ids = tokens.ids.tolist()
    if scorer.network.encoder.is_linear_in_tokens:
        values = _by_gradient(scorer, tokens.batch(), vector)
    else:
        # marks of the beginning and the end belong to every text
        ids = [token for token in ids if not (names[token].startswith("[") and names[token].endswith("]") and len(names[token]) > 2)]
        values = _by_leaving_out(scorer, tokens, set(ids), vector)
    return [(names[token], value) for token, value in zip(ids, values, strict=True)]


def _by_gradient(scorer: Scorer, batch: TokenRows, vector: Tensor) -> list[float]:
    """Contributions in an encoder that is linear in its tokens: each token's vector times the gradient, which add up exactly."""
    network = scorer.network
    with torch.enable_grad():
        vectors = network.table.weight[batch.ids].detach().requires_grad_()
        placed = batch.with_ids(torch.arange(len(batch.ids), device=vectors.device), len(batch.ids))
        hidden = network.encoder(placed, vectors)
        text = search_vectors(scorer.towers, lambda tower: network.fit(network.encoder.project(hidden, tower)))
        (gradient,) = torch.autograd.grad(text[0] @ vector, vectors)
    found: list[float] = (gradient * vectors.detach()).sum(dim=1).tolist()
    return found


def _by_leaving_out(scorer: Scorer, tokens: TokenRows, shown: set[int], vector: Tensor) -> list[float]:
    """Contributions in any encoder: what the product loses without the token, for each place of a token that is `shown`."""
    ids, weights = tokens.ids.cpu().numpy(), tokens.weights.cpu().numpy()
    places = [place for place, token in enumerate(ids.tolist()) if token in shown]
    kept = [np.arange(len(ids)), *(np.delete(np.arange(len(ids)), place) for place in places)]
    ends = np.cumsum([0, *map(len, kept)])
    flat = np.concatenate(kept).astype(np.int64)
    scores = scorer.encode(TokenRows.from_arrays(ids[flat], weights[flat], ends, tokens.n_tokens).to(vector.device)) @ vector
    found: list[float] = (scores[0] - scores[1:]).tolist()
    return found


def _tokens_of_label(model: TrainedModel, label: int) -> set[str]:
    if model.label_texts is None:
        return set()
    own = Texts.of([model.label_texts[label]])
    return {member.tokenizer.cutter.names[token] for member in model.members for token in member.tokenizer(own).ids.tolist()}


# ---- training rows and the graph


def nearest_rows(model: TrainedModel, text: str, label: int, rows: TrainingRows, device: torch.device) -> tuple[Row, ...]:
    """The training rows with the label whose texts are nearest, of at most MAX_COMPARED, evenly drawn."""
    texts, labels = rows
    entries = np.flatnonzero(labels.indices == label)
    carrying = np.searchsorted(labels.indptr, entries, side="right") - 1
    if not len(carrying):
        return ()
    carrying = carrying[:: -(-len(carrying) // MAX_COMPARED)]
    member = model.members[0]
    compared = Texts.join([Texts.of([text]), texts.take(carrying)])
    vectors = functional.normalize(member.scorers[0].encode(member.tokenizer(compared).to(device)), dim=1)
    cosines = (vectors[1:] @ vectors[0]).cpu().numpy()
    order = np.argsort(-cosines, kind="stable")[:SHOWN_ROWS]
    return tuple(Row(texts[int(carrying[place])], float(cosines[place])) for place in order)


def _path(model: TrainedModel, found: Predictions, label: int) -> tuple[Step, ...]:
    """The strongest path in the label graph from one of the labels predicted best."""
    if model.graph is None:
        return ()
    speakers = [int(one) for one in found.ids[0, : SPEAKERS + 1] if one >= 0 and one != label][:SPEAKERS]
    path, texts = strongest_path(model.graph.weights, speakers, label), model.label_texts
    return tuple(Step(one, "" if texts is None else texts[one], weight) for one, weight in path)

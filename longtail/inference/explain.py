"""Reasons for a prediction: what parts of the label and tokens of the text bring to the score, training rows like it, ways in the graph."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import log
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
from longtail.inference.ensemble import Member
from longtail.inference.label_parts import TowerParts, rows_of
from longtail.inference.scorer import Scorer
from longtail.models.encoders.bag import BagEncoder
from longtail.models.ragged import RaggedRows, TokenBatch
from longtail.storage.model_folder import Stored

TrainingRows = tuple[Texts, csr_matrix]

LOOKED_AT = 1000  # places among which a label is looked for
COMPARED = 2000  # training rows of a label that are compared with the text
SHOWN_ROWS, SHOWN_TOKENS = 3, 8
SPEAKERS = 5  # labels predicted best, from which a way to the label is looked for
MOST_SETTLED = 5000  # labels that the search for it may pass
LEAST_WEIGHT = 1e-9


@dataclass(frozen=True)
class Part:
    """A part of the label's vector: "text", "graph", "free", "encoded"; "neighbours" where a label was added by text."""

    name: str
    share: float  # the attention it has where that is learnt; otherwise its share of what all parts bring, signs aside
    brings: float  # to the evidence


@dataclass(frozen=True)
class Token:
    """A token of the text."""

    name: str
    brings: float  # to the evidence
    in_label: bool  # it stands in the label's text as well


@dataclass(frozen=True)
class Row:
    """A training row that carries the label."""

    text: str
    cosine: float  # to the text, as the encoder sees both


@dataclass(frozen=True)
class Step:
    """A label on the way to another; the weight is that of the edge that leads there, 1 for the first."""

    label: int
    text: str
    weight: float


@dataclass(frozen=True)
class Explanation:
    """Why a label was predicted for a text, or was not.

    The evidence is what the score is made of: the product of the text's and the label's vector and the label's bias, the mean of all
    networks. `parts` and `bias` add up to it, and so do `tokens` and `rest`.
    """

    text: str
    label: int
    label_text: str
    score: float  # as predicted; 0 where it is not among the first
    place: int | None  # among the predictions, from 1
    evidence: float
    bias: float
    parts: tuple[Part, ...]
    tokens: tuple[Token, ...]  # those that bring most first
    rest: float  # of the evidence, that no token brings
    rows: tuple[Row, ...]  # nearest first
    path: tuple[Step, ...]  # from a label that was predicted to this one

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    def __str__(self) -> str:
        named = self.label_text or f"label {self.label}"
        where = f"place {self.place}" if self.place is not None else f"not among the first {LOOKED_AT:,}"
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
            way = "".join(f" -({step.weight:.2f})-> {shorten(step.text or str(step.label))}" for step in self.path[1:])
            lines += ["", "by the label graph", f"  {shorten(self.path[0].text or str(self.path[0].label))}{way}"]
        return "\n".join(lines)


def explain(
    stored: Stored, towers: Sequence[Sequence[TowerParts]], text: str, label: int | str | None, rows: TrainingRows | None, device: torch.device
) -> Explanation:
    """Reasons for one label of one text.

    Args:
        heads: of each ranker, as `sides.heads_of` gives them.
        label: its id or its text; None for the one that is predicted first.
        rows: training texts and their labels, where they are at hand.
    """
    if not isinstance(text, str):
        raise SettingError(f"{text!r} came as a text to explain a label of; wanted a str.")
    found = stored.ensemble.predict(Texts.of([text]), min(LOOKED_AT, len(stored.label_counts)), device)
    if label is None and found.ids[0, 0] < 0:
        raise SettingError("No label is predicted for this text; name one to be explained.")
    chosen = int(found.ids[0, 0]) if label is None else _chosen(stored, label)
    places = np.flatnonzero(found.ids[0] == chosen)
    brought: dict[str, float] = defaultdict(float)
    attention: dict[str, float] = defaultdict(float)
    by_token: dict[str, float] = defaultdict(float)
    evidence = bias = 0.0
    at = 0
    n_trained = len(stored.label_counts) - stored.about.get("labels added", 0)
    for member in stored.members:
        tokens = rows_of(member.tokenizer, Texts.of([text]), device)
        bias, evidence = bias + member.offset, evidence + member.offset
        for scorer in member.scorers:
            weight = member.weight / len(member.scorers)
            own_bias = 0.0 if scorer.bias is None else float(scorer.bias[chosen]) * scorer.share_of_bias
            bias += weight * own_bias
            evidence += weight * (float(scorer.encode(tokens)[0] @ scorer.vectors[chosen].float()) + own_bias)
            for name, value, share in _of_parts(scorer, towers[at], tokens, chosen, chosen >= n_trained):
                brought[name] += weight * value
                if share is not None:
                    attention[name] += weight * share
            for name, value in _of_tokens(member, scorer, tokens, chosen):
                by_token[name] += weight * value
            at += 1
    in_label = _tokens_of_label(stored, chosen)
    told = [Token(name, value, name in in_label) for name, value in by_token.items()]
    return Explanation(
        text=text,
        label=chosen,
        label_text="" if stored.label_texts is None else stored.label_texts[chosen],
        score=float(found.scores[0, places[0]]) if len(places) else 0.0,
        place=int(places[0]) + 1 if len(places) else None,
        evidence=evidence,
        bias=bias,
        parts=_shared(brought, attention),
        tokens=tuple(sorted(told, key=lambda token: -abs(token.brings))),
        rest=evidence - sum(by_token.values()),
        rows=() if rows is None else nearest_rows(stored, text, chosen, rows, device),
        path=_path(stored, found, chosen),
    )


def _chosen(stored: Stored, label: int | str) -> int:
    none = Split(None, csr_matrix((0, len(stored.label_counts)), dtype=np.float32))
    chosen = find_label(Dataset("the model", none, none, stored.label_texts), label)
    if chosen in stored.removed:
        raise SettingError(f"Label {chosen} is removed and never predicted; wanted one that is there.")
    return chosen


# ---- parts


def _of_parts(
    scorer: Scorer, towers: Sequence[TowerParts], tokens: RaggedRows, label: int, was_added: bool
) -> list[tuple[str, float, float | None]]:
    """What each part brings in one ranker, and its attention."""
    text = scorer.encode(tokens)[0]
    found: list[tuple[str, float, float | None]] = []
    for tower, own in zip(towers, text.split(scorer.network.dim), strict=True):
        if label >= tower.n_known:
            tower = replace(tower, names=("free",), tower=None)
        parts = tower.of_labels(torch.tensor([label], device=own.device))
        weights = tower.attention(parts)
        for number, (name, part) in enumerate(zip(tower.names, tower.shares(parts), strict=True)):
            named = "neighbours" if was_added and name == "free" else name
            found.append((named, float(own @ part[0]), None if weights is None else float(weights[0, number])))
    return found


def _shared(brought: dict[str, float], attention: dict[str, float]) -> tuple[Part, ...]:
    counted = attention if attention else {name: abs(value) for name, value in brought.items()}
    total = sum(counted.values()) or 1.0
    return tuple(Part(name, counted[name] / total, value) for name, value in brought.items())


# ---- tokens


def _of_tokens(member: Member, scorer: Scorer, tokens: RaggedRows, label: int) -> list[tuple[str, float]]:
    """Each token of the text and what it brings to the product of the vectors."""
    names = member.tokenizer.cutter.names
    vector = scorer.vectors[label].float()
    ids = tokens.ids.tolist()
    if isinstance(scorer.network.encoder, BagEncoder):
        brings = _by_gradient(scorer, tokens.all(), vector)
    else:
        # marks of the beginning and the end belong to every text
        ids = [token for token in ids if not (names[token].startswith("[") and names[token].endswith("]") and len(names[token]) > 2)]
        brings = _left_out(scorer, tokens, set(ids), vector)
    return [(names[token], value) for token, value in zip(ids, brings, strict=True)]


def _by_gradient(scorer: Scorer, batch: TokenBatch, vector: Tensor) -> list[float]:
    """Of a bag: behind its sum stand ReLUs and products alone, so that each token's vector times the gradient is exactly its part."""
    network = scorer.network
    with torch.enable_grad():
        vectors = network.table.weight[batch.ids].detach().requires_grad_()
        placed = TokenBatch(torch.arange(len(batch.ids), device=vectors.device), batch.weights, batch.offsets)
        hidden = network.encoder(placed, vectors)
        made = []
        for task, scale, share in zip(scorer.towers, scorer.scales, scorer.shares, strict=True):
            own: Tensor = network.fit(network.encoder.project(hidden, task))  # type: ignore[operator]
            length = own.detach().norm(dim=1, keepdim=True).clamp(min=1e-12) if scale > 0 else 1.0  # what all tokens are divided by
            made.append(own / length * (share * (scale or 1.0)))
        score = torch.cat(made, dim=1)[0] @ vector
        (gradient,) = torch.autograd.grad(score, vectors)
    found: list[float] = (gradient * vectors.detach()).sum(dim=1).tolist()
    return found


def _left_out(scorer: Scorer, tokens: RaggedRows, counted: set[int], vector: Tensor) -> list[float]:
    """Of any encoder: what the product loses without the token."""
    ids, values = tokens.ids.cpu().numpy(), tokens.values.cpu().numpy()
    places = [place for place, token in enumerate(ids.tolist()) if token in counted]
    kept = [np.arange(len(ids)), *(np.delete(np.arange(len(ids)), place) for place in places)]
    ends = np.cumsum([0, *map(len, kept)])
    flat = np.concatenate(kept).astype(np.int64)
    scores = scorer.encode(RaggedRows(ids[flat], values[flat], ends, vector.device)) @ vector
    found: list[float] = (scores[0] - scores[1:]).tolist()
    return found


def _tokens_of_label(stored: Stored, label: int) -> set[str]:
    if stored.label_texts is None:
        return set()
    own = Texts.of([stored.label_texts[label]])
    return {member.tokenizer.cutter.names[token] for member in stored.members for token in member.tokenizer(own).ids.tolist()}


# ---- training rows and the graph


def nearest_rows(stored: Stored, text: str, label: int, rows: TrainingRows, device: torch.device) -> tuple[Row, ...]:
    """The training rows with the label whose texts are nearest, of at most COMPARED, evenly drawn."""
    texts, labels = rows
    entries = np.flatnonzero(labels.indices == label)
    carrying = np.searchsorted(labels.indptr, entries, side="right") - 1
    if not len(carrying):
        return ()
    carrying = carrying[:: -(-len(carrying) // COMPARED)]
    member = stored.members[0]
    taken = Texts.join([Texts.of([text]), texts.take(carrying)])
    vectors = functional.normalize(member.scorers[0].encode(rows_of(member.tokenizer, taken, device)), dim=1)
    cosines = (vectors[1:] @ vectors[0]).cpu().numpy()
    order = np.argsort(-cosines, kind="stable")[:SHOWN_ROWS]
    return tuple(Row(texts[int(carrying[place])], float(cosines[place])) for place in order)


def _path(stored: Stored, found: Predictions, label: int) -> tuple[Step, ...]:
    if stored.graph is None:
        return ()
    speakers = [int(one) for one in found.ids[0, : SPEAKERS + 1] if one >= 0 and one != label][:SPEAKERS]
    way = strongest_way(stored.graph.weights, speakers, label)
    texts = stored.label_texts
    return tuple(Step(one, "" if texts is None else texts[one], weight) for one, weight in way)


def strongest_way(weights: csr_matrix, sources: Sequence[int], target: int) -> list[tuple[int, float]]:
    """From one of the sources to the target, the product of whose weights is greatest: labels, and the weight of the edge to each.

    Row j of a graph holds what label j hears of, so an edge leads from a neighbour of j to j. Empty where there is no way.

    >>> strongest_way(csr_matrix([[0, 0.5, 0.1], [0, 0, 0.8], [0, 0, 0]]), [2], 0)
    [(2, 1.0), (1, 0.8), (0, 0.5)]
    """
    wanted = set(sources)
    reached = {target: 0.0}
    onward: dict[int, tuple[int, float]] = {}  # label -> the one it leads to, and how strongly
    settled: set[int] = set()
    waiting = [(0.0, target)]
    while waiting and len(settled) < MOST_SETTLED:
        cost, here = heapq.heappop(waiting)
        if here in settled:
            continue
        settled.add(here)
        if here in wanted:
            way = [(here, 1.0)]
            while way[-1][0] != target:
                way.append(onward[way[-1][0]])
            return way
        for place in range(weights.indptr[here], weights.indptr[here + 1]):
            other, weight = int(weights.indices[place]), float(weights.data[place])
            farther = cost - log(min(max(weight, LEAST_WEIGHT), 1.0))
            if other not in settled and farther < reached.get(other, np.inf):
                reached[other], onward[other] = farther, (here, round(weight, 6))
                heapq.heappush(waiting, (farther, other))
    return []

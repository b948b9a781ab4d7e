"""PREDICT: texts -> the best labels of each, in bounded memory, by one network or by several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from longtail.core.kernels.ensemble import best_named, best_sums, each_once
from longtail.core.progress import progress
from longtail.core.values import Predictions, Texts
from longtail.inference.concatenated import ConcatenatedEnsemble, WeightedScorer
from longtail.inference.scorer import TEXTS_AT_ONCE, Retrieved, Scorer
from longtail.inference.search.all_labels import FEW_TEXTS
from longtail.inference.search.labels import CORES, Index
from longtail.models.ragged import RaggedRows
from longtail.tokens.tokenizer import Tokenizer

NAMED = 50  # labels of a text that each ranker of several voices names, at least

Answer = tuple[Tensor, Tensor]  # (n, m) label ids and their scores, 0 or more
Found = TypeVar("Found")


@dataclass(frozen=True)
class Member:
    """What one recipe has trained, and what its answers count beside those of others."""

    tokenizer: Tokenizer
    scorers: list[Scorer]
    weight: float = 1.0  # of its evidence, which is the mean of its rankers'; the sum over voices is the log-odds of a label
    offset: float = 0.0  # added to that sum


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Voices that answer together."""

    members: Sequence[Member]
    index: Index | None = None  # of the vectors of all of them side by side, where they are joined

    def predict(self, texts: Texts, k: int, device: torch.device) -> Predictions:
        """The k best labels of each text: of several rankers by the mean of their evidence, or of their chances where they search clusters
        or centroids, as the papers' ensembles do; of several voices by the weighted sum of their evidence."""
        ids, scores = [np.zeros((0, k), np.int32)], [np.zeros((0, k), np.float32)]
        block = 8 * TEXTS_AT_ONCE
        # one block is done before a bar is drawn, and a server asks for nothing else
        with progress("Predicting", len(texts), "texts") if len(texts) > block else nullcontext(lambda amount: None) as advance:
            for start in range(0, len(texts), block):
                part = texts[start : start + block]
                found, value = self._answer(part, k, device)
                named = found.cpu().numpy()
                ids.append(named.astype(np.int32))
                # what a label hears of many others may add up to more than 1
                scores.append(np.where(named >= 0, np.minimum(value.cpu().numpy(), 1), -np.inf).astype(np.float32))
                advance(len(part))
        return Predictions(np.concatenate(ids), np.concatenate(scores))

    def _answer(self, texts: Texts, k: int, device: torch.device) -> Answer:
        if self.joined is not None:
            return self.joined.answer(texts, k, device)
        return _by_one(self.members[0], texts, k, device) if len(self.members) == 1 else _by_all(self.members, texts, k, device)

    @cached_property
    def joined(self) -> ConcatenatedEnsemble | None:
        """All networks as one, where each scores all labels; None for a single one, which is one already."""
        retrieved = _heard(self.members)
        scorers, alone = [scorer for member in retrieved for scorer in member.scorers], len(self.members) == 1
        if any(scorer.way != "all" for scorer in scorers) or (alone and len(scorers) == 1):
            return None
        if alone:
            members = [WeightedScorer(retrieved[0].tokenizer, scorer, scorer.level_of[0] / len(scorers)) for scorer in scorers]
            return ConcatenatedEnsemble(tuple(members), sum(scorer.level_of[1] for scorer in scorers) / len(scorers), scorers[0].told, self.index)
        members = [WeightedScorer(member.tokenizer, scorer, member.weight / len(member.scorers)) for member in retrieved for scorer in member.scorers]
        return ConcatenatedEnsemble(tuple(members), sum(member.offset for member in self.members), torch.sigmoid, self.index)


def predict(members: Sequence[Member], texts: Texts, k: int, device: torch.device) -> Predictions:
    """See `Choir.predict`."""
    return Ensemble(members).predict(texts, k, device)


def _heard(members: Sequence[Member]) -> Sequence[Member]:
    """Those that count."""
    return members if len(members) == 1 else [member for member in members if member.weight > 0] or members[:1]


# ---- by the networks of one recipe


def _by_one(member: Member, texts: Texts, k: int, device: torch.device) -> Answer:
    scorers, tokens = member.scorers, _tokens(member, texts, device)
    if len(scorers) == 1:
        return scorers[0].rank(tokens, k)
    wanted = 4 * k + 20  # what one ranker has low another may have high
    return mean_of(_each(scorers, tokens, lambda scorer, tokens: scorer.rank(tokens, wanted)), k)


def mean_of(found: Sequence[Answer], k: int) -> Answer:
    """The k best by the mean of their scores; what a ranker does not name has score 0 with it."""
    # a few labels of each text: quicker on the host than anywhere else
    ids = torch.cat([ids.cpu() for ids, _ in found], dim=1)
    scores = torch.cat([scores.cpu() / len(found) for _, scores in found], dim=1)
    together = best_sums(ids.numpy(), scores.numpy(), k)
    return torch.from_numpy(together[0]), torch.from_numpy(together[1])


# ---- by several recipes


def _by_all(members: Sequence[Member], texts: Texts, k: int, device: torch.device) -> Answer:
    """What any voice names is put to all of them, so that none is silent about what another has found."""
    counted = _heard(members)
    retrieved = [retrieve(member, texts, max(NAMED, 2 * k), device) for member in counted]
    ids = named_by(retrieved)
    odds = torch.full(ids.shape, sum(member.offset for member in members))
    for member, own in zip(counted, retrieved, strict=True):
        odds += member.weight * evidence(own, ids)
    found, best = best_named(ids.numpy(), odds.numpy(), k)
    return torch.from_numpy(found), torch.sigmoid(torch.from_numpy(best))


def retrieve(member: Member, texts: Texts, k: int, device: torch.device) -> list[Retrieved]:
    """What each of a voice's rankers finds."""
    return _each(member.scorers, _tokens(member, texts, device), lambda scorer, tokens: scorer.retrieve(tokens, k))


def named_by(retrieved: Sequence[Sequence[Retrieved]]) -> Tensor:
    """(n, m): all labels that were found for a text, each once, -1 in empty places; on the host."""
    found, most = each_once(torch.cat([one.ids.cpu() for own in retrieved for one in own], dim=1).numpy())
    return torch.from_numpy(found[:, : max(1, most)].copy())


def evidence(retrieved: Sequence[Retrieved], ids: Tensor) -> Tensor:
    """(n, m): of these labels, the mean over a voice's rankers."""
    total = torch.zeros(ids.shape)
    for one in retrieved:
        total += one.evidence(ids).cpu() / len(retrieved)
    return total


# ---- in threads


def _tokens(member: Member, texts: Texts, device: torch.device) -> RaggedRows:
    rows = member.tokenizer(texts)
    return RaggedRows(rows.ids, rows.weights, rows.offsets, device)


def _each(scorers: Sequence[Scorer], tokens: RaggedRows, ask: Callable[[Scorer, RaggedRows], Found]) -> list[Found]:
    """What each ranker answers. For a few texts on a CPU one thread each: the scan of one runs beside that of the others."""
    if len(scorers) == 1 or len(tokens) > FEW_TEXTS or tokens.ids.is_cuda:
        return [ask(scorer, tokens) for scorer in scorers]
    others = [_beside().submit(ask, scorer, tokens) for scorer in scorers[1:]]
    return [ask(scorers[0], tokens), *(other.result() for other in others)]


@cache
def _beside() -> ThreadPoolExecutor:
    """Threads of rankers. Scans have their own, for which these wait: in one pool they would wait for places that they hold themselves."""
    return ThreadPoolExecutor(CORES)

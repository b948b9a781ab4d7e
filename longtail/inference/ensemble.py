"""PREDICT: texts -> the best labels of each, in bounded memory, by one network or by an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from longtail.core.kernels.ensemble import best_named, best_sums, each_once
from longtail.core.progress import progress
from longtail.core.values import Predictions, Texts
from longtail.inference.concatenated import ConcatenatedEnsemble, WeightedScorer
from longtail.inference.retrieval import Answer, Retrieved
from longtail.inference.scorer import TEXTS_AT_ONCE, Scorer
from longtail.inference.search.all_labels import FEW_TEXTS
from longtail.inference.search.labels import CORES, Index
from longtail.models.encoders.base import EncoderSettings
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer

MIN_CANDIDATES = 50  # labels of a text that each network of several members finds, at least

Found = TypeVar("Found")


@dataclass(frozen=True)
class Member:
    """The networks that one recipe trained, their weight in the ensemble, and what a model folder keeps of the recipe.

    Args:
        scorers: one network each; the evidence of the member is the mean of theirs.
        weight: stacking weight: factor of the member's evidence in the log-odds of a label, which are the sum over members.
        offset: added to that sum.
        name, about: of the recipe, for the model card.
        encoder: settings that the encoder was built with.
        label_vectors: settings of each tower's label vectors, as the last stage that learnt them had them.
        tables: the recipe as it was read, for the record and to fit it again.
    """

    tokenizer: Tokenizer
    scorers: list[Scorer]
    weight: float = 1.0
    offset: float = 0.0
    name: str = ""
    about: str = ""
    encoder: EncoderSettings | None = None
    label_vectors: Mapping[str, LabelVectors] = field(default_factory=dict)
    tables: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members that answer together; one network is an ensemble of one."""

    members: Sequence[Member]
    index: Index | None = None  # of the concatenated vectors of all networks, where these are concatenated

    def predict(self, texts: Texts, k: int, device: torch.device) -> Predictions:
        """The k best labels of each text, with their probabilities.

        Networks of one member are combined by the mean of their evidence; where they search clusters or centroids, by the mean of their
        probabilities, as the papers' ensembles are. Several members are combined by the weighted sum of their evidence.
        """
        ids, scores = [np.zeros((0, k), np.int32)], [np.zeros((0, k), np.float32)]
        block = 8 * TEXTS_AT_ONCE
        # one block is done before a bar is drawn, and a server asks for nothing else
        with progress("Predicting", len(texts), "texts") if len(texts) > block else nullcontext(lambda amount: None) as advance:
            for start in range(0, len(texts), block):
                part = texts[start : start + block]
                found, probabilities = self._answer(part, k, device)
                labels = found.cpu().numpy()
                ids.append(labels.astype(np.int32))
                # what neighbours pass on to a label may add up to more than 1
                scores.append(np.where(labels >= 0, np.minimum(probabilities.cpu().numpy(), 1), -np.inf).astype(np.float32))
                advance(len(part))
        return Predictions(np.concatenate(ids), np.concatenate(scores))

    def _answer(self, texts: Texts, k: int, device: torch.device) -> Answer:
        if self.concatenated is not None:
            return self.concatenated.top_k(texts, k, device)
        if len(self.members) == 1:
            return _by_networks(self.members[0], texts, k, device)
        return _by_members(self.members, texts, k, device)

    @cached_property
    def concatenated(self) -> ConcatenatedEnsemble | None:
        """All networks as one, where each scores all labels; None for a single network, which is one already."""
        members, is_alone = with_weight(self.members), len(self.members) == 1
        scorers = [scorer for member in members for scorer in member.scorers]
        if not all(scorer.retrieval.scores_all_labels for scorer in scorers) or (is_alone and len(scorers) == 1):
            return None
        if is_alone:
            slopes, offsets = zip(*(scorer.calibration for scorer in scorers), strict=True)
            weighted = [
                WeightedScorer(members[0].tokenizer, scorer, slope / len(scorers)) for scorer, slope in zip(scorers, slopes, strict=True)
            ]
            return ConcatenatedEnsemble(tuple(weighted), sum(offsets) / len(scorers), scorers[0].probability, self.index)
        weighted = [
            WeightedScorer(member.tokenizer, scorer, member.weight / len(member.scorers)) for member in members for scorer in member.scorers
        ]
        return ConcatenatedEnsemble(tuple(weighted), sum(member.offset for member in self.members), torch.sigmoid, self.index)


def predict(members: Sequence[Member], texts: Texts, k: int, device: torch.device) -> Predictions:
    """See `Ensemble.predict`."""
    return Ensemble(members).predict(texts, k, device)


def with_weight(members: Sequence[Member]) -> Sequence[Member]:
    """The members whose weight is above 0; at least one."""
    return members if len(members) == 1 else [member for member in members if member.weight > 0] or members[:1]


# ---- networks of one member


def _by_networks(member: Member, texts: Texts, k: int, device: torch.device) -> Answer:
    scorers, tokens = member.scorers, member.tokenizer(texts).to(device)
    if len(scorers) == 1:
        return scorers[0].top_k(tokens, k)
    wanted = 4 * k + 20  # a label that is low with one network may be high with another
    return mean_of(_by_each(scorers, tokens, lambda scorer, tokens: scorer.top_k(tokens, wanted)), k)


def mean_of(answers: Sequence[Answer], k: int) -> Answer:
    """The k best labels by the mean of their probabilities; a label that a network does not find has 0 with it."""
    # a few labels of each text: quicker on the host than anywhere else
    ids = torch.cat([ids.cpu() for ids, _ in answers], dim=1)
    scores = torch.cat([scores.cpu() / len(answers) for _, scores in answers], dim=1)
    together = best_sums(ids.numpy(), scores.numpy(), k)
    return torch.from_numpy(together[0]), torch.from_numpy(together[1])


# ---- several members


def _by_members(members: Sequence[Member], texts: Texts, k: int, device: torch.device) -> Answer:
    """Labels that any member finds are scored by all of them."""
    weighted = with_weight(members)
    retrieved = [retrieve(member, texts, max(MIN_CANDIDATES, 2 * k), device) for member in weighted]
    ids = candidates_of(retrieved)
    log_odds = torch.full(ids.shape, sum(member.offset for member in members))
    for member, own in zip(weighted, retrieved, strict=True):
        log_odds += member.weight * evidence(own, ids)
    found, best = best_named(ids.numpy(), log_odds.numpy(), k)
    return torch.from_numpy(found), torch.sigmoid(torch.from_numpy(best))


def retrieve(member: Member, texts: Texts, k: int, device: torch.device) -> list[Retrieved]:
    """The k best labels of texts by each of a member's networks, with the evidence for any other."""
    return _by_each(member.scorers, member.tokenizer(texts).to(device), lambda scorer, tokens: scorer.retrieve(tokens, k))


def candidates_of(retrieved: Sequence[Sequence[Retrieved]]) -> Tensor:
    """(n, m): all labels that were found for a text by any network of any member, each once; -1 in empty places. On the host."""
    found, n_columns = each_once(torch.cat([one.ids.cpu() for own in retrieved for one in own], dim=1).numpy())
    return torch.from_numpy(found[:, : max(1, n_columns)].copy())


def evidence(retrieved: Sequence[Retrieved], ids: Tensor) -> Tensor:
    """(n, m): the evidence of one member for these labels, the mean over its networks."""
    total = torch.zeros(ids.shape)
    for one in retrieved:
        total += one.evidence(ids).cpu() / len(retrieved)
    return total


# ---- in threads


def _by_each(scorers: Sequence[Scorer], tokens: TokenRows, ask: Callable[[Scorer, TokenRows], Found]) -> list[Found]:
    """The answer of each network. For a few texts on a CPU in a thread each, so that label vectors are scanned at the same time."""
    if len(scorers) == 1 or len(tokens) > FEW_TEXTS or tokens.ids.is_cuda:
        return [ask(scorer, tokens) for scorer in scorers]
    others = [_threads().submit(ask, scorer, tokens) for scorer in scorers[1:]]
    return [ask(scorers[0], tokens), *(other.result() for other in others)]


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads of networks. Scans have their own, for which these wait: in one pool they would wait for places that they hold themselves."""
    return ThreadPoolExecutor(CORES)

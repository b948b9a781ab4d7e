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

from longtail.core.kernels.voices import best_named, best_sums, each_once
from longtail.core.progress import progress
from longtail.core.values import Predictions, Texts
from longtail.inference.concatenated import Joined, Member
from longtail.inference.scorer import TEXTS_AT_ONCE, Heard, Ranker
from longtail.inference.search.all_labels import FEW_TEXTS
from longtail.inference.search.labels import CORES, Index
from longtail.models.ragged import RaggedRows
from longtail.tokens.tokenizer import Tokenizer

NAMED = 50  # labels of a text that each ranker of several voices names, at least

Answer = tuple[Tensor, Tensor]  # (n, m) label ids and their scores, 0 or more
Found = TypeVar("Found")


@dataclass(frozen=True)
class Voice:
    """What one recipe has trained, and what its answers count beside those of others."""

    tokenizer: Tokenizer
    rankers: list[Ranker]
    weight: float = 1.0  # of its evidence, which is the mean of its rankers'; the sum over voices is the log-odds of a label
    offset: float = 0.0  # added to that sum


@dataclass(frozen=True, eq=False)
class Choir:
    """Voices that answer together."""

    voices: Sequence[Voice]
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
        return _by_one(self.voices[0], texts, k, device) if len(self.voices) == 1 else _by_all(self.voices, texts, k, device)

    @cached_property
    def joined(self) -> Joined | None:
        """All networks as one, where each scores all labels; None for a single one, which is one already."""
        heard = _heard(self.voices)
        rankers, alone = [ranker for voice in heard for ranker in voice.rankers], len(self.voices) == 1
        if any(ranker.way != "all" for ranker in rankers) or (alone and len(rankers) == 1):
            return None
        if alone:
            members = [Member(heard[0].tokenizer, ranker, ranker.level_of[0] / len(rankers)) for ranker in rankers]
            return Joined(tuple(members), sum(ranker.level_of[1] for ranker in rankers) / len(rankers), rankers[0].told, self.index)
        members = [Member(voice.tokenizer, ranker, voice.weight / len(voice.rankers)) for voice in heard for ranker in voice.rankers]
        return Joined(tuple(members), sum(voice.offset for voice in self.voices), torch.sigmoid, self.index)


def predict(voices: Sequence[Voice], texts: Texts, k: int, device: torch.device) -> Predictions:
    """See `Choir.predict`."""
    return Choir(voices).predict(texts, k, device)


def _heard(voices: Sequence[Voice]) -> Sequence[Voice]:
    """Those that count."""
    return voices if len(voices) == 1 else [voice for voice in voices if voice.weight > 0] or voices[:1]


# ---- by the networks of one recipe


def _by_one(voice: Voice, texts: Texts, k: int, device: torch.device) -> Answer:
    rankers, tokens = voice.rankers, _tokens(voice, texts, device)
    if len(rankers) == 1:
        return rankers[0].rank(tokens, k)
    wanted = 4 * k + 20  # what one ranker has low another may have high
    return mean_of(_each(rankers, tokens, lambda ranker, tokens: ranker.rank(tokens, wanted)), k)


def mean_of(found: Sequence[Answer], k: int) -> Answer:
    """The k best by the mean of their scores; what a ranker does not name has score 0 with it."""
    # a few labels of each text: quicker on the host than anywhere else
    ids = torch.cat([ids.cpu() for ids, _ in found], dim=1)
    scores = torch.cat([scores.cpu() / len(found) for _, scores in found], dim=1)
    together = best_sums(ids.numpy(), scores.numpy(), k)
    return torch.from_numpy(together[0]), torch.from_numpy(together[1])


# ---- by several recipes


def _by_all(voices: Sequence[Voice], texts: Texts, k: int, device: torch.device) -> Answer:
    """What any voice names is put to all of them, so that none is silent about what another has found."""
    counted = _heard(voices)
    heard = [hear(voice, texts, max(NAMED, 2 * k), device) for voice in counted]
    ids = named_by(heard)
    odds = torch.full(ids.shape, sum(voice.offset for voice in voices))
    for voice, own in zip(counted, heard, strict=True):
        odds += voice.weight * evidence(own, ids)
    found, best = best_named(ids.numpy(), odds.numpy(), k)
    return torch.from_numpy(found), torch.sigmoid(torch.from_numpy(best))


def hear(voice: Voice, texts: Texts, k: int, device: torch.device) -> list[Heard]:
    """What each of a voice's rankers finds."""
    return _each(voice.rankers, _tokens(voice, texts, device), lambda ranker, tokens: ranker.hear(tokens, k))


def named_by(heard: Sequence[Sequence[Heard]]) -> Tensor:
    """(n, m): all labels that were found for a text, each once, -1 in empty places; on the host."""
    found, most = each_once(torch.cat([one.ids.cpu() for own in heard for one in own], dim=1).numpy())
    return torch.from_numpy(found[:, : max(1, most)].copy())


def evidence(heard: Sequence[Heard], ids: Tensor) -> Tensor:
    """(n, m): of these labels, the mean over a voice's rankers."""
    total = torch.zeros(ids.shape)
    for one in heard:
        total += one.evidence(ids).cpu() / len(heard)
    return total


# ---- in threads


def _tokens(voice: Voice, texts: Texts, device: torch.device) -> RaggedRows:
    rows = voice.tokenizer(texts)
    return RaggedRows(rows.ids, rows.weights, rows.offsets, device)


def _each(rankers: Sequence[Ranker], tokens: RaggedRows, ask: Callable[[Ranker, RaggedRows], Found]) -> list[Found]:
    """What each ranker answers. For a few texts on a CPU one thread each: the scan of one runs beside that of the others."""
    if len(rankers) == 1 or len(tokens) > FEW_TEXTS or tokens.ids.is_cuda:
        return [ask(ranker, tokens) for ranker in rankers]
    others = [_beside().submit(ask, ranker, tokens) for ranker in rankers[1:]]
    return [ask(rankers[0], tokens), *(other.result() for other in others)]


@cache
def _beside() -> ThreadPoolExecutor:
    """Threads of rankers. Scans have their own, for which these wait: in one pool they would wait for places that they hold themselves."""
    return ThreadPoolExecutor(CORES)

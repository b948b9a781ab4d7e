"""Synonym replacement: some words of a text become words whose vectors are nearest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.core.checks import Described, Positive, Range, Settings, Share
from longtail.core.errors import DataError
from longtail.core.values import Ints, LabelGraph, Split, Texts
from longtail.data.augment.draws import uniforms
from longtail.data.augment.rows import Augmented, with_made_rows
from longtail.data.vectors import read_vectors

WORD = re.compile(r"\w+")
WORDS_AT_ONCE = 1024  # words whose neighbours are sought together ...
CANDIDATES_AT_ONCE = 1 << 16  # ... against so many: 256 MB of similarities
WHETHER, WHICH = 0, 1  # the two draws of a word


@dataclass(frozen=True, eq=False)
class Synonyms(Settings):
    """Each known word is replaced with some probability; labels stay.

    Args:
        probability: of a word to be replaced.
        vectors: the file of word vectors, the folder of a BERT, or "minilm", as `read_vectors` takes them; or word -> vector. Words are
            looked up as they stand, then in lower case.
        among: a replacement is drawn evenly among so many nearest words.
        floor: words below this cosine are never taken.

    >>> vectors = {"car": [1, 0], "auto": [1, 0.1], "pear": [0, 1]}
    >>> from longtail.core.values import labels_from_rows
    >>> train = Split(Texts.of(["red car!"]), labels_from_rows([[0]], 1))
    >>> list(Synonyms(1.0, vectors).augment(train, None).split.texts)
    ['red car!', 'red auto!']
    """

    changes: ClassVar[bool] = True

    probability: Share
    vectors: Annotated[str | Path | Mapping[str, ArrayLike], Described("a file of word vectors")]
    among: Positive = 1
    floor: Annotated[float, Range(least=-1, most=1)] = 0.5

    def check(self) -> None:
        _ = self.by_word  # read now, so that a missing file is answered at once

    @cached_property
    def by_word(self) -> Mapping[str, ArrayLike]:
        """Word -> vector."""
        return self.vectors if isinstance(self.vectors, Mapping) else read_vectors(self.vectors)

    def augment(self, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """All training rows, and behind them those that changed in epoch 0."""
        texts, changed = self.replaced(train, seed, 0)
        made = Split(texts.take(changed), train.labels[changed])
        return with_made_rows(train, np.arange(len(train), dtype=np.int32), made, changed, "synonyms")

    def for_epoch(self, epoch: int, train: Split, label_texts: Texts | None, graph: LabelGraph | None = None, seed: int = 0) -> Augmented:
        """Every row once: those that stayed, then those that changed."""
        texts, changed = self.replaced(train, seed, epoch)
        stayed = np.setdiff1d(np.arange(len(train), dtype=np.int32), changed)
        made = Split(texts.take(changed), train.labels[changed])
        return with_made_rows(train.rows(stayed), stayed, made, changed, "synonyms")

    def replaced(self, train: Split, seed: int, epoch: int) -> tuple[Texts, Ints]:
        """All texts with their words replaced, and the rows that changed."""
        if train.texts is None:
            raise DataError("Synonyms replaces words, and these rows have features only. Read the data set with its texts.")
        synonyms = self._synonyms(train.texts)
        texts: list[str] = []
        changed: list[int] = []
        for row, text in enumerate(train.texts):
            new = self._row(text, row, synonyms, seed, epoch)
            if new != text:
                changed.append(row)
            texts.append(new)
        return Texts.of(texts), np.array(changed, np.int32)

    def _row(self, text: str, row: int, synonyms: dict[str, list[str]], seed: int, epoch: int) -> str:
        found = [(word, synonyms[word.group()]) for word in WORD.finditer(text) if synonyms.get(word.group())]
        if not found:
            return text
        places = 2 * np.arange(len(found))
        rows = np.full(len(found), row)
        whether, which = (uniforms(seed, epoch, rows, places + draw) for draw in (WHETHER, WHICH))
        parts: list[str] = []
        end = 0
        for (word, nearest), chance, choice in zip(found, whether, which, strict=True):
            if chance < self.probability:
                parts += [text[end : word.start()], nearest[int(choice * len(nearest))]]
                end = word.end()
        return "".join([*parts, text[end:]])

    def _synonyms(self, texts: Texts) -> dict[str, list[str]]:
        """Each word of the texts that has synonyms -> those, nearest first."""
        known = list(self.by_word)
        place = {word: number for number, word in enumerate(known)}
        if not known:
            return {}
        vectors = _unit(np.stack([np.asarray(self.by_word[word], np.float32) for word in known]))
        asked = sorted({word for text in texts for word in WORD.findall(text)})
        wanted = {word: place.get(word, place.get(word.lower(), -1)) for word in asked}
        words = [word for word in asked if wanted[word] >= 0]
        queries = np.array([wanted[word] for word in words], np.int64)
        near, similar = nearest(vectors, queries, self.among)
        return {
            word: [known[other] for other, cosine in zip(row, cosines, strict=True) if other >= 0 and cosine >= self.floor]
            for word, row, cosines in zip(words, near.tolist(), similar.tolist(), strict=True)
        }


def nearest(vectors: NDArray[np.float32], queries: NDArray[np.int64], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The k nearest other rows of each query row by dot product, best first, equal ones by place; -1 where there are fewer.

    >>> nearest(np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32), np.array([0, 2]), 1)[0].tolist()
    [[1], [1]]
    """
    ids = np.full((len(queries), k), -1, np.int64)
    best = np.full((len(queries), k), -np.inf, np.float32)
    for start in range(0, len(queries), WORDS_AT_ONCE):
        asked = queries[start : start + WORDS_AT_ONCE]
        here = slice(start, start + len(asked))
        each = np.arange(len(asked))
        for first in range(0, len(vectors), CANDIDATES_AT_ONCE):
            block = vectors[asked] @ vectors[first : first + CANDIDATES_AT_ONCE].T
            inside = (asked >= first) & (asked < first + block.shape[1])
            block[np.flatnonzero(inside), asked[inside] - first] = -np.inf
            for _ in range(min(k, block.shape[1])):
                taken = block.argmax(axis=1)
                scores = np.column_stack([best[here], block[each, taken]])
                order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
                ids[here] = np.take_along_axis(np.column_stack([ids[here], taken + first]), order, axis=1)
                best[here] = np.take_along_axis(scores, order, axis=1)
                block[each, taken] = -np.inf
    return ids, best


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    return unit

"""Words as tokens, and bigrams: pairs of words that follow each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from longtail.core.checks import Positive, Range
from longtail.core.errors import DataError
from longtail.core.kernels.tokens import WORD_KINDS, key_hashes, pair_keys, token_rows
from longtail.core.progress import progress
from longtail.core.values import Bytes, Ints, Offsets, Texts
from longtail.data.files import in_order
from longtail.tokens.pairs import PairCounts
from longtail.tokens.table import WordTable, filled_slots
from longtail.tokens.tokenizer import PADDING_NAME, Cutter, Tokenizer, TokenSettings, blocks

WORD = re.compile(r"\w+|[^\w\s]")  # of the text in lower case
BETWEEN = " "  # the words of a bigram; no word holds a blank


@dataclass(frozen=True)
class Words(TokenSettings):
    """Words in lower case, each mark of punctuation a word by itself. Ids go by frequency; a word not met in `fit` is left out.

    Args:
        min_count: words that occur less often are not known.
        ngrams: 2 adds bigrams: two known words that follow each other are a token too. Those of a text stand behind its words.
        ngram_count: bigrams that occur less often are not known.
        size: tokens in the vocabulary at most, padding included: the most frequent ones; None: all.
        max_tokens: words of a text at most, from its start; its bigrams are those of these words.

    >>> tokenizer = Words(ngrams=2).fit(["Red apple!", "red apple juice"])
    >>> tokenizer.names()
    ['[PAD]', 'red', 'apple', '!', 'juice', 'red apple']
    >>> tokenizer(["juice, red apple"]).ids.tolist()
    [4, 1, 2, 5]
    """

    kind: ClassVar[str] = "words"

    min_count: Positive = 1
    ngrams: Literal[1, 2] = 1
    ngram_count: Positive = 2
    size: Annotated[int, Range(least=2)] | None = None
    max_tokens: Positive = 64

    @property
    def has_bigrams(self) -> bool:
        return self.ngrams > 1

    def fit(self, texts: Texts | Sequence[str]) -> Tokenizer:
        """The vocabulary and idf of these texts: training inputs and label texts, never test rows."""
        texts = Texts.of(texts)
        return Tokenizer.fitted(self, self.cutter(self.vocabulary(texts)), texts)

    def vocabulary(self, texts: Texts) -> list[str]:
        """Names of padding, the words and the bigrams."""
        words, counts = _frequent_words(texts, self.min_count)
        if not words:
            raise DataError(f"None of the {len(texts):,} texts holds a word that occurs {self.min_count} times; wanted texts with words.")
        pairs, pair_counts = np.empty(0, np.int64), np.empty(0, np.int64)
        if self.ngrams == 2:
            pairs, pair_counts = _frequent_pairs(texts, WordCutter([PADDING_NAME, *words]), self.ngram_count)
        n_words = len(words)
        # a bigram is never more frequent than its words, and words come first among equals: no bigram stays without its words
        kept = np.argsort(-np.concatenate([counts, pair_counts]), kind="stable")[: None if self.size is None else self.size - 1]
        left, right = np.divmod(pairs[: np.count_nonzero(kept >= n_words)], n_words)
        bigrams = [f"{words[one]}{BETWEEN}{words[other]}" for one, other in zip(left.tolist(), right.tolist(), strict=True)]
        return [PADDING_NAME, *words[: np.count_nonzero(kept < n_words)], *bigrams]

    def cutter(self, names: list[str], library: str = "") -> WordCutter:
        return WordCutter(names)


class WordCutter(Cutter):
    """Cuts texts into the words and bigrams of a vocabulary."""

    def __init__(self, names: list[str]) -> None:
        words = [name for name in names[1:] if BETWEEN not in name]
        self.names = names
        self.n_bigrams = len(names) - 1 - len(words)
        self.n_words = len(words)
        self.table = WordTable.of(words, WORD_KINDS)
        if names[1 : 1 + self.n_words] != words:
            raise DataError("The vocabulary holds a bigram before a word; wanted all words first.")
        number = {word: place for place, word in enumerate(words)} if self.n_bigrams else {}
        halves = (name.split(BETWEEN) for name in names[1 + self.n_words :])
        self._pairs = np.array([number[left] * self.n_words + number[right] for left, right in halves], np.int64)
        self._slots = filled_slots(key_hashes(self._pairs))

    def numbers(self, texts: Texts) -> tuple[Ints, Offsets]:
        """Numbers of all words from 0, UNKNOWN for others."""
        return self.table.find(*ready(texts))

    def cut(self, texts: Texts, max_tokens: int) -> tuple[Ints, Offsets]:
        ids, offsets = token_rows(*self.numbers(texts), max_tokens, self.n_words, self._pairs, self._slots)
        return ids, offsets

    def cut_blocks(self, blocks: Iterable[Texts], max_tokens: int) -> Iterator[tuple[Ints, Offsets]]:
        return in_order(blocks, lambda texts: self.cut(texts, max_tokens))


def ready(texts: Texts) -> tuple[Bytes, Offsets, Offsets]:
    """A buffer, starts and stops of the texts, for a kernel that knows ASCII and takes all other bytes for letters.

    A text with other bytes is cut by Python, which knows Unicode, and comes as its words with blanks between: the kernel then
    cuts at the same places, because a word is letters and bytes that it takes for letters, or a single mark.
    """
    starts, stops = texts.offsets[:-1], texts.offsets[1:]
    other = np.flatnonzero(texts.buffer > 127)
    if not len(other):
        return texts.buffer, starts, stops
    rows = np.unique(np.searchsorted(texts.offsets, other, side="right") - 1)
    words = Texts.of(BETWEEN.join(WORD.findall(texts[row].lower())) for row in rows)
    starts, stops = starts.copy(), stops.copy()
    starts[rows] = len(texts.buffer) + words.offsets[:-1]
    stops[rows] = len(texts.buffer) + words.offsets[1:]
    return np.concatenate([texts.buffer, words.buffer]), starts, stops


def _frequent_words(texts: Texts, min_count: int) -> tuple[list[str], NDArray[np.int64]]:
    """Words that occur so often and their counts, most frequent first, then by first occurrence."""
    table = WordTable(WORD_KINDS)
    counts = np.empty(0, np.int64)
    with progress("Counting words", len(texts), "texts") as advance:
        for block in in_order(blocks(texts), ready):
            numbers, offsets = table.add(*block)
            counts = np.bincount(numbers, minlength=len(table)) + np.pad(counts, (0, len(table) - len(counts)))
            advance(len(offsets) - 1)
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count]
    return list(table.words().take(order)), counts[order]


def _frequent_pairs(texts: Texts, cutter: WordCutter, min_count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keys of the pairs of known words that occur so often and their counts, most frequent first, then by key."""

    def distinct(block: Texts) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
        keys, counts = np.unique(pair_keys(*cutter.numbers(block), cutter.n_words), return_counts=True)
        return len(block), keys, counts

    found = PairCounts()
    with progress("Counting bigrams", len(texts), "texts") as advance:
        for n_texts, keys, counts in in_order(blocks(texts), distinct):
            found.add(keys, counts)
            advance(n_texts)
    keys, counts = found.done()
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count]
    return keys[order], counts[order]

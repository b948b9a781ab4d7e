"""Words and their pieces as tokens of one vocabulary: a frequent word has a vector of its own, a rare one shares those of its pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from longtail.core.checks import Positive, Range
from longtail.core.errors import DataError
from longtail.core.kernels.pieces import words_and_pieces
from longtail.core.values import Ints, Offsets, Texts
from longtail.tokens.rows import PADDING
from longtail.tokens.tokenizer import ALL, PADDING_NAME, PIECE_MARK, Cutter, Tokenizer, TokenSettings, is_marked_piece
from longtail.tokens.wordpiece import INSIDE, LEAST_SIZE, UNKNOWN_NAME, PieceCutter, WordPiece
from longtail.tokens.words import WordCutter, Words


@dataclass(frozen=True)
class WordsAndPieces(TokenSettings):
    """The words of a text as `Words` cuts them, and behind them its pieces as `WordPiece` cuts them, with a "~" before their names.

    A piece that is a whole word is left out where that word stands among those of the text, once for each time: it says the same.

    Args:
        min_count: words that occur less often are not known.
        ngrams: 2 adds bigrams of words. Those of a text stand between its words and its pieces; their ids are the last.
        ngram_count: bigrams that occur less often are not known.
        pieces_size: pieces in the vocabulary at most, counted as `WordPiece` does.
        piece_min_count: pieces that would occur less often are not made.
        max_tokens: words of a text at most, from its start, and as many pieces; those left out do not count.

    >>> tokenizer = WordsAndPieces(pieces_size=40).fit(["tea", "teas", "Teas!"])
    >>> [tokenizer.names()[token] for token in tokenizer(["Teas, Téas, tea"]).ids]
    ['teas', 'tea', '~teas']
    """

    kind: ClassVar[str] = "words+pieces"

    min_count: Positive = 1
    ngrams: Literal[1, 2] = 1
    ngram_count: Positive = 2
    pieces_size: Annotated[int, Range(least=LEAST_SIZE)] = 40_000
    piece_min_count: Positive = 2
    max_tokens: Positive = 64

    @property
    def has_bigrams(self) -> bool:
        return self.ngrams > 1

    def _words(self) -> Words:
        return Words(self.min_count, self.ngrams, self.ngram_count, max_tokens=self.max_tokens)

    def fit(self, texts: Texts | Sequence[str]) -> Tokenizer:
        """The vocabulary and idf of these texts: training inputs and label texts, never test rows. The same texts give the same."""
        texts = Texts.of(texts)
        words = WordCutter(self._words().vocabulary(texts))
        pieces = WordPiece(self.pieces_size, self.piece_min_count).vocabulary(texts)[2:]  # without padding and unknown
        first = 1 + words.n_words
        names = [*words.names[:first], *(PIECE_MARK + piece for piece in pieces), *words.names[first:]]
        return Tokenizer.fitted(self, self.cutter(names), texts)

    def cutter(self, names: list[str], library: str = "") -> WordAndPieceCutter:
        return WordAndPieceCutter(names)


class WordAndPieceCutter(Cutter):
    """Cuts texts into the words, pieces and bigrams of a vocabulary, whose ids are in this order."""

    def __init__(self, names: list[str]) -> None:
        words = [name for name in names if not is_marked_piece(name)]
        pieces = [PADDING_NAME, UNKNOWN_NAME, *(name.removeprefix(PIECE_MARK) for name in names if is_marked_piece(name))]
        self.names = names
        self._words, self._pieces = WordCutter(words), PieceCutter(pieces)
        self.n_bigrams = self._words.n_bigrams
        self._n_words, self._n_pieces = self._words.n_words, len(pieces) - 2
        if not all(map(is_marked_piece, names[1 + self._n_words : 1 + self._n_words + self._n_pieces])):
            raise DataError("The vocabulary mixes words and pieces; wanted all words first, then all pieces.")
        ids = {word: number for number, word in enumerate(words[: 1 + self._n_words])}
        self._same_word = np.array([ids.get(piece, PADDING) for piece in pieces], np.int64)  # (n_pieces + 2,); PADDING: none
        self._is_inside = np.array([piece.startswith(INSIDE) for piece in pieces])  # (n_pieces + 2,)

    def cut(self, texts: Texts, max_tokens: int) -> tuple[Ints, Offsets]:
        return self._together(*self._words.cut(texts, max_tokens), *self._pieces.cut(texts, ALL), max_tokens)

    def cut_blocks(self, blocks: Iterable[Texts], max_tokens: int) -> Iterator[tuple[Ints, Offsets]]:
        for_words, for_pieces = itertools.tee(blocks)
        both = zip(self._words.cut_blocks(for_words, max_tokens), self._pieces.cut_blocks(for_pieces, ALL), strict=True)
        return (self._together(*words, *pieces, max_tokens) for words, pieces in both)

    def _together(self, words: Ints, word_ends: Offsets, pieces: Ints, piece_ends: Offsets, max_tokens: int) -> tuple[Ints, Offsets]:
        """Rows of words and rows of all pieces, each with the ids of its own cutter, to rows of both."""
        sizes = self._n_words, self._n_pieces, max_tokens
        ids, ends = words_and_pieces(words, word_ends, pieces, piece_ends, self._same_word, self._is_inside, *sizes)
        return ids, ends

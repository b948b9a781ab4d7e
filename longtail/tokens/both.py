"""Words and their pieces as tokens of one vocabulary: a frequent word has a vector of its own, a rare one shares those of its pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from longtail.core.errors import DataError, SettingError
from longtail.core.kernels.pieces import words_and_pieces
from longtail.core.values import Ints, Offsets, Texts
from longtail.tokens.rows import PADDING
from longtail.tokens.tokenizer import ALL, PADDING_NAME, PIECE_MARK, Tokenizer, is_marked_piece
from longtail.tokens.wordpiece import INSIDE, LEAST_SIZE, UNKNOWN_NAME, PieceCutter, WordPiece
from longtail.tokens.words import WordCutter, Words

LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000.0  # of pieces; their idf stays an ordinary float32


@dataclass(frozen=True)
class WordsAndPieces:
    """The words of a text as `Words` cuts them, and behind them its pieces as `WordPiece` cuts them, with a "~" before their names.

    A piece that is a whole word is left out where that word stands among those of the text, once for each time: it says the same.

    Args:
        min_count: words that occur less often are not known.
        ngrams: 2 adds bigrams of words. Those of a text stand between its words and its pieces; their ids are the last.
        ngram_count: bigrams that occur less often are not known.
        pieces_size: pieces in the vocabulary at most, counted as `WordPiece` does.
        piece_min_count: pieces that would occur less often are not made.
        piece_weight: the idf of pieces is multiplied by it.
        repeat: keep the pieces that say the same as a word.
        max_tokens: words of a text that are kept, from its start, and as many pieces; those left out do not count.

    >>> tokenizer = WordsAndPieces(pieces_size=40).fit(["tea", "teas", "Teas!"])
    >>> [tokenizer.names()[token] for token in tokenizer(["Teas, Téas, tea"]).ids]
    ['teas', 'tea', '~teas']
    """

    kind: ClassVar[str] = "words+pieces"

    min_count: int = 1
    ngrams: int = 1
    ngram_count: int = 2
    pieces_size: int = 40_000
    piece_min_count: int = 2
    piece_weight: float = 1.0
    repeat: bool = False
    max_tokens: int = 64

    def __post_init__(self) -> None:
        for setting, value, least in (("pieces_size", self.pieces_size, LEAST_SIZE), ("piece_min_count", self.piece_min_count, 1)):
            if value < least:
                raise SettingError(f"{setting} is {value!r}; wanted {least} or more.")
        if not LEAST_WEIGHT <= self.piece_weight <= MOST_WEIGHT:
            raise SettingError(f"piece_weight is {self.piece_weight!r}; wanted {LEAST_WEIGHT} to {MOST_WEIGHT}.")
        self._words()  # checks the rest

    def _words(self) -> Words:
        return Words(self.min_count, self.ngrams, self.ngram_count, max_tokens=self.max_tokens)

    def fit(self, texts: Texts | Sequence[str]) -> Tokenizer:
        """The vocabulary and idf of these texts: training inputs and label texts, never test rows. The same texts give the same."""
        texts = Texts.of(texts)
        words = WordCutter(self._words().vocabulary(texts))
        pieces = WordPiece(self.pieces_size, self.piece_min_count).vocabulary(texts)[2:]  # without padding and unknown
        first, stop = 1 + words.n_words, 1 + words.n_words + len(pieces)
        names = [*words.names[:first], *(PIECE_MARK + piece for piece in pieces), *words.names[first:]]
        tokenizer = Tokenizer.fitted(self, self.cutter(names), texts)
        tokenizer.idf[first:stop] *= self.piece_weight
        return tokenizer

    def cutter(self, names: list[str]) -> WordAndPieceCutter:
        """For a vocabulary found before."""
        return WordAndPieceCutter(names, self.repeat)


class WordAndPieceCutter:
    """Cuts texts into the words, pieces and bigrams of a vocabulary, whose ids are in this order."""

    def __init__(self, names: list[str], repeat: bool) -> None:
        words = [name for name in names if not is_marked_piece(name)]
        pieces = [PADDING_NAME, UNKNOWN_NAME, *(name.removeprefix(PIECE_MARK) for name in names if is_marked_piece(name))]
        self.names = names
        self._words, self._pieces = WordCutter(words), PieceCutter(pieces)
        self.n_bigrams = self._words.n_bigrams
        self._n_words, self._n_pieces = self._words.n_words, len(pieces) - 2
        if not all(map(is_marked_piece, names[1 + self._n_words : 1 + self._n_words + self._n_pieces])):
            raise DataError("The vocabulary mixes words and pieces; wanted all words first, then all pieces.")
        ids = {} if repeat else {word: number for number, word in enumerate(words[: 1 + self._n_words])}
        self._same_word = np.array([ids.get(piece, PADDING) for piece in pieces], np.int64)  # (n_pieces + 2,); PADDING: none
        self._is_inside = np.array([piece.startswith(INSIDE) for piece in pieces])  # (n_pieces + 2,)

    def cut(self, texts: Texts, most: int) -> tuple[Ints, Offsets]:
        return self._together(*self._words.cut(texts, most), *self._pieces.cut(texts, ALL), most)

    def cut_blocks(self, blocks: Iterable[Texts], most: int) -> Iterator[tuple[Ints, Offsets]]:
        for_words, for_pieces = itertools.tee(blocks)
        both = zip(self._words.cut_blocks(for_words, most), self._pieces.cut_blocks(for_pieces, ALL), strict=True)
        return (self._together(*words, *pieces, most) for words, pieces in both)

    def _together(self, words: Ints, word_ends: Offsets, pieces: Ints, piece_ends: Offsets, most: int) -> tuple[Ints, Offsets]:
        """Rows of words and rows of all pieces, each with the ids of its own cutter, to rows of both."""
        sizes = self._n_words, self._n_pieces, most
        ids, ends = words_and_pieces(words, word_ends, pieces, piece_ends, self._same_word, self._is_inside, *sizes)
        return ids, ends

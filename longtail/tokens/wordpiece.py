"""Pieces of words as tokens: rare words are spelt from pieces, so that few are unknown."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from longtail.core.checks import Positive, Range
from longtail.core.errors import DataError
from longtail.core.kernels.pieces import piece_hashes, spell
from longtail.core.kernels.tokens import PIECE_KINDS, UNKNOWN, token_rows
from longtail.core.values import Ints, Offsets, Texts
from longtail.tokens.rows import spans
from longtail.tokens.table import WordTable, filled_slots
from longtail.tokens.tokenizer import PADDING_NAME, Cutter, Tokenizer, TokenSettings, blocks

UNKNOWN_NAME, UNKNOWN_ID = "[UNK]", 1  # stands in the vocabulary because the library wants it, never in a row
INSIDE = "##"  # before pieces that go on a word
LEAST_SIZE = 10
LETTERS_SHARE = 4  # the most frequent letters take at most this part of the vocabulary twice: at the start of a word and inside
FEW = 16  # texts that go through the library as they are
MOST_PIECES = 1 << 22  # of the words that are remembered while many texts are cut
_NO_PAIRS = np.empty(0, np.int64), np.empty(0, np.int32)


@dataclass(frozen=True)
class WordPiece(TokenSettings):
    """Pieces of words, in lower case and without accents as in BERT. Words with letters that `fit` has not met are left out.

    Args:
        size: of the vocabulary at most, padding included.
        min_count: pieces that would occur less often are not made.
        max_tokens: pieces of a text at most, from its start.

    >>> tokenizer = WordPiece(size=40).fit(["tea", "teas", "Teas!"])
    >>> rows = tokenizer(["Téas"])
    >>> [tokenizer.names()[token] for token in rows.ids]
    ['teas']
    """

    kind: ClassVar[str] = "wordpiece"

    size: Annotated[int, Range(least=LEAST_SIZE)] = 40_000
    min_count: Positive = 2
    max_tokens: Positive = 64

    @property
    def has_bigrams(self) -> bool:
        """Whether pairs of words are tokens, too."""
        return False

    def fit(self, texts: Texts | Sequence[str]) -> Tokenizer:
        """The vocabulary and idf of these texts: training inputs and label texts, never test rows. The same texts give the same."""
        texts = Texts.of(texts)
        return Tokenizer.fitted(self, self.cutter(self.vocabulary(texts)), texts)

    def vocabulary(self, texts: Texts) -> list[str]:
        """Names of padding, of what is unknown, and the pieces."""
        library = _library(models.WordPiece(unk_token=UNKNOWN_NAME))
        letters = _letters(texts, library.normalizer, self.size // LETTERS_SHARE)
        if not letters:
            raise DataError(f"None of the {len(texts):,} texts holds a letter; wanted texts with words.")
        # The library numbers the letters inside words in the order of a hash map that differs from run to run, and breaks ties by
        # number. As special tokens they have their numbers from the start.
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.size,
            min_frequency=self.min_count,
            special_tokens=[PADDING_NAME, UNKNOWN_NAME, *letters, *(INSIDE + letter for letter in letters)],
            initial_alphabet=letters,
            limit_alphabet=len(letters),
            continuing_subword_prefix=INSIDE,
            show_progress=False,
        )
        library.train_from_iterator(iter(texts), trainer)
        vocabulary = library.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def cutter(self, names: list[str], library: str = "") -> PieceCutter:
        return PieceCutter(names)


class PieceCutter(Cutter):
    """Cuts texts into the pieces of a vocabulary."""

    def __init__(self, names: list[str]) -> None:
        if len(set(names)) < len(names) or names[UNKNOWN_ID : UNKNOWN_ID + 1] != [UNKNOWN_NAME]:
            raise DataError(f"The vocabulary holds a piece twice, or no {UNKNOWN_NAME} behind {PADDING_NAME}; wanted distinct pieces.")
        self.names = names
        # from the bare vocabulary: in a library with special tokens, a text that spells `[PAD]` would get the id of padding
        self._library = _library(models.WordPiece({name: place for place, name in enumerate(names)}, unk_token=UNKNOWN_NAME))
        known = Texts.of(names)
        # what stands for no piece has a name that is none
        ends = np.maximum(known.offsets, known.offsets[1 + UNKNOWN_ID])
        hashes = piece_hashes(known.buffer, ends)
        self._spelling = known.buffer, ends, hashes, filled_slots(hashes)

    def cut(self, texts: Texts, max_tokens: int) -> tuple[Ints, Offsets]:
        if len(texts) > FEW:
            return next(self.cut_blocks([texts], max_tokens))
        return self.rows(*self.pieces(texts), max_tokens)

    def cut_blocks(self, blocks: Iterable[Texts], max_tokens: int) -> Iterator[tuple[Ints, Offsets]]:
        """Each distinct word goes through the library once. Accents, marks and blanks outside ASCII are left to it, too."""
        met = MetWords()
        for texts in blocks:
            words, word_ends = met.numbers(texts, self.pieces)
            source, ends = spans(met.ends, words)
            yield self.rows(met.pieces[source], ends[word_ends], max_tokens)

    def pieces(self, texts: Texts) -> tuple[Ints, Offsets]:
        """All pieces of each text as the library finds them, numbered from 0; UNKNOWN for words that it cannot spell."""
        ids, offsets, left = spell(texts.buffer, texts.offsets, *self._spelling)
        if left.any():
            others = np.flatnonzero(left)
            rows = [encoded.ids for encoded in self._library.encode_batch_fast(list(texts.take(others)), add_special_tokens=False)]
            found = np.fromiter(itertools.chain.from_iterable(rows), np.int32)
            ids = np.concatenate([ids, np.where(found == UNKNOWN_ID, np.int32(UNKNOWN), found)])
            places = np.arange(len(texts))
            places[others] = len(texts) + np.arange(len(others))  # behind all texts that were spelt here
            source, offsets = spans(np.concatenate([offsets, offsets[-1] + np.cumsum([len(row) for row in rows])]), places)
            ids = ids[source]
        return np.where(ids == UNKNOWN, ids, ids - np.int32(1)), offsets

    def rows(self, numbers: Ints, offsets: Offsets, max_tokens: int) -> tuple[Ints, Offsets]:
        """Ids of the first `max_tokens` pieces of each text that are not UNKNOWN."""
        ids, ends = token_rows(numbers, offsets, max_tokens, len(self.names) - 1, *_NO_PAIRS)
        return ids, ends


class MetWords:
    """Words met so far and the pieces of each; forgotten when they are many."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._table = WordTable(PIECE_KINDS)
        self.pieces = np.empty(0, np.int32)  # those of word i are pieces[ends[i]:ends[i + 1]]
        self.ends = np.zeros(1, np.int64)

    def numbers(self, texts: Texts, spell: Callable[[Texts], tuple[Ints, Offsets]]) -> tuple[Ints, Offsets]:
        """The words of each text; those not met before are spelt first."""
        if len(self.pieces) > MOST_PIECES:
            self._forget()
        n_before = len(self._table)
        words, offsets = self._table.add(texts.buffer, texts.offsets[:-1], texts.offsets[1:])
        pieces, ends = spell(self._table.words()[n_before:])
        self.ends = np.concatenate([self.ends, ends[1:] + len(self.pieces)])
        self.pieces = np.concatenate([self.pieces, pieces])
        return words, offsets


def _library(model: models.WordPiece) -> Library:
    library = Library(model)
    library.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def _letters(texts: Texts, normalizer: normalizers.Normalizer, n: int) -> list[str]:
    """The n most frequent characters of the normalised texts, blanks aside; among equals by code point."""
    raw = np.zeros(sys.maxunicode + 1, np.int64)
    for block in blocks(texts):
        raw += np.bincount(np.frombuffer(block.buffer.tobytes().decode().encode("utf-32-le"), np.uint32), minlength=len(raw))
    found: Counter[str] = Counter()
    for code in np.flatnonzero(raw).tolist():
        for letter in normalizer.normalize_str(chr(code)):
            found[letter] += int(raw[code])
    return sorted((letter for letter in found if not letter.isspace()), key=lambda letter: (-found[letter], letter))[:n]

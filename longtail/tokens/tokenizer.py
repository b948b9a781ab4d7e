"""Tokenizer: texts to tokens with tf-idf weights, for every kind of tokens; the file that it is saved in."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from longtail.core.checks import Settings
from longtail.core.errors import DataError
from longtail.core.kernels.tokens import count_texts, unit_weights
from longtail.core.progress import progress
from longtail.core.values import Floats, Ints, Offsets, Texts
from longtail.data.files import BLOCK_BYTES, new_file
from longtail.data.growing import GrowingArray, GrowingEnds
from longtail.tokens.idf import inverse_document_frequency
from longtail.tokens.rows import PADDING, TokenRows

PADDING_NAME = "[PAD]"
PIECE_MARK = "~"  # before the names of pieces in a vocabulary that holds words too; the word "~" is that alone
ALL = np.iinfo(np.int64).max  # no text has more tokens


@dataclass(frozen=True)
class TokenSettings(Settings, ABC):
    """Base of the settings of a kind of tokens: a frozen dataclass, one field for each setting."""

    kind: ClassVar[str]  # under which the registry and the file of a tokenizer name it

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """Tokens of a text at most; what is behind them is cut off."""

    @property
    def has_bigrams(self) -> bool:
        """Whether pairs of words are tokens, which an encoder that reads words in their order has no place for."""
        return False

    @abstractmethod
    def fit(self, texts: Texts | Sequence[str]) -> Tokenizer:
        """The tokenizer of these texts: training inputs and label texts, never test rows."""

    @abstractmethod
    def cutter(self, names: list[str], library: str = "") -> Cutter:
        """The cutter of a vocabulary found before; `library` holds the rules of those that follow a library's."""


class Cutter(ABC):
    """A vocabulary, and how a text is cut into tokens of it."""

    names: list[str]  # of each id; that of padding first
    n_bigrams: int = 0  # so many of the last are bigrams
    n_cut: int = 0  # texts so far that were too long; of a kind that counts them
    library: str = ""  # rules that others wrote, of a kind that takes them over

    @abstractmethod
    def cut(self, texts: Texts, max_tokens: int) -> tuple[Ints, Offsets]:
        """Ids of a few texts and offsets of their rows; at most `max_tokens` words of each text."""

    @abstractmethod
    def cut_blocks(self, blocks: Iterable[Texts], max_tokens: int) -> Iterator[tuple[Ints, Offsets]]:
        """The same for each of many blocks, in order."""


@final
class Tokenizer:
    """Texts to tokens with weights. Made by the `fit` of a kind, as in `Words().fit(texts)`, or by `load_tokenizer(path)`."""

    def __init__(self, settings: TokenSettings, cutter: Cutter, idf: Floats) -> None:
        self.settings = settings
        self.cutter = cutter
        self.idf = idf  # (n_tokens,); 0 for padding

    @classmethod
    def fitted(cls, settings: TokenSettings, cutter: Cutter, texts: Texts) -> Tokenizer:
        """With the idf of each token in these texts; its document frequency counts whole texts, however long."""
        n_tokens = len(cutter.names)
        counts, last_seen = np.zeros(n_tokens, np.int64), np.full(n_tokens, -1, np.int64)
        with progress("Counting tokens", len(texts), "texts") as advance:
            first = 0
            for ids, offsets in cutter.cut_blocks(blocks(texts), ALL):
                count_texts(ids, offsets, first, last_seen, counts)
                first += len(offsets) - 1
                advance(len(offsets) - 1)
        idf = inverse_document_frequency(counts, len(texts)).astype(np.float32)
        idf[PADDING] = 0
        return cls(settings, cutter, idf)

    @property
    def n_tokens(self) -> int:
        return len(self.cutter.names)

    @property
    def n_cut(self) -> int:
        """Texts so far that were too long, of a kind that counts them."""
        return self.cutter.n_cut

    def names(self) -> list[str]:
        """The text of each id; `[PAD]` first."""
        return list(self.cutter.names)

    def __call__(self, texts: Texts | Sequence[str]) -> TokenRows:
        """The tokens of each text; what the vocabulary does not hold is left out."""
        if isinstance(texts, str):
            raise DataError(f"The text {texts[:60]!r} came by itself; wanted a list of texts.")
        texts = Texts.of(texts)
        if texts.offsets[-1] <= BLOCK_BYTES:  # no threads, no bar: a query waits for this
            ids, offsets = self.cutter.cut(texts, self.settings.max_tokens)
        else:
            ids, offsets = self._cut_many(texts)
        return TokenRows.from_arrays(ids, unit_weights(ids, offsets, self.idf), offsets, self.n_tokens, self.cutter.n_bigrams)

    def _cut_many(self, texts: Texts) -> tuple[Ints, Offsets]:
        all_ids: GrowingArray[np.int32] = GrowingArray(np.int32)
        ends = GrowingEnds()
        done = 0
        with progress("Tokenising", len(texts), "texts") as advance:
            for ids, offsets in self.cutter.cut_blocks(blocks(texts), self.settings.max_tokens):
                done += len(offsets) - 1
                all_ids.add(ids, done / len(texts))
                ends.add(offsets, done / len(texts))
                advance(len(offsets) - 1)
        return all_ids.done(), ends.done()

    @cached_property
    def state(self) -> str:
        """All that the tokenizer is, as strict JSON."""
        # a float32 as the float64 of the same value: it comes back exactly
        parts = {"kind": self.settings.kind, "settings": asdict(self.settings), "names": self.cutter.names, "idf": self.idf.tolist()}
        if self.cutter.library:
            parts["library"] = self.cutter.library
        return json.dumps(parts, ensure_ascii=False, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write one JSON file, by custom `tokenizer.json`; an earlier file of that name stays until all is written."""
        with new_file(Path(path)) as unfinished:
            unfinished.write_text(self.state, encoding="utf-8")

    def __repr__(self) -> str:
        return f"Tokenizer({self.settings}, {self.n_tokens - 1:,} tokens)"


def is_marked_piece(name: str) -> bool:
    """Whether the name is PIECE_MARK and a piece; not the word "~", nor a bigram like "~ 5".

    >>> [is_marked_piece(name) for name in ("~tea", "~##s", "~~", "~", "~ 5", "tea")]
    [True, True, True, False, False, False]
    """
    return len(name) > 1 and name[0] == PIECE_MARK and name[1] != " "


def blocks(texts: Texts) -> Iterator[Texts]:
    """Runs of texts of about BLOCK_BYTES each."""
    inner = np.searchsorted(texts.offsets, np.arange(BLOCK_BYTES, int(texts.offsets[-1]), BLOCK_BYTES))
    edges = np.unique(np.concatenate([[0], inner, [len(texts)]])).tolist()
    return (texts[first:stop] for first, stop in zip(edges, edges[1:], strict=False))

"""What all kinds of tokens share: weights, blocks, and the file that a tokenizer is kept in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol, final

import numpy as np

from longtail.core.errors import DataError
from longtail.core.kernels.tokens import count_texts, unit_weights
from longtail.core.progress import progress
from longtail.core.values import Floats, Ints, Offsets, Texts
from longtail.data.files import BLOCK_BYTES, new_file
from longtail.data.growing import GrowingArray, GrowingEnds
from longtail.tokens.rows import PADDING, TokenRows

PADDING_NAME = "[PAD]"
PIECE_MARK = "~"  # before the names of pieces in a vocabulary that holds words too; the word "~" is that alone
ALL = np.iinfo(np.int64).max  # no text has more tokens


class Settings(Protocol):
    """A kind of tokens: a frozen dataclass. `fit` looks at texts; `cutter` takes the names of a vocabulary found before."""

    kind: ClassVar[str]  # under which the file of a tokenizer names it

    @property
    def max_tokens(self) -> int: ...

    def fit(self, texts: Texts | Sequence[str]) -> Tokenizer: ...

    def cutter(self, names: list[str]) -> Cutter: ...


class Cutter(Protocol):
    """A vocabulary, and how a text is cut into tokens of it."""

    names: list[str]  # of each id; that of padding first
    n_bigrams: int  # so many of the last are bigrams

    def cut(self, texts: Texts, most: int) -> tuple[Ints, Offsets]:
        """Ids of a few texts and offsets of their rows; at most `most` words of each text."""

    def cut_blocks(self, blocks: Iterable[Texts], most: int) -> Iterator[tuple[Ints, Offsets]]:
        """The same for each of many blocks, in order."""


@final
class Tokenizer:
    """Texts to tokens with weights. Made by the `fit` of a kind, as in `Words().fit(texts)`, or by `load_tokenizer(path)`."""

    def __init__(self, settings: Settings, cutter: Cutter, idf: Floats) -> None:
        self.settings = settings
        self.cutter = cutter
        self.idf = idf  # (n_tokens,); 0 for padding

    @classmethod
    def fitted(cls, settings: Settings, cutter: Cutter, texts: Texts) -> Tokenizer:
        """With idf = log((1 + n) / (1 + df)) + 1 from these texts; df counts whole texts, however long."""
        n_tokens = len(cutter.names)
        counts, last_seen = np.zeros(n_tokens, np.int64), np.full(n_tokens, -1, np.int64)
        with progress("Counting tokens", len(texts), "texts") as advance:
            first = 0
            for ids, offsets in cutter.cut_blocks(blocks(texts), ALL):
                count_texts(ids, offsets, first, last_seen, counts)
                first += len(offsets) - 1
                advance(len(offsets) - 1)
        idf = (np.log((1 + len(texts)) / (1 + counts)) + 1).astype(np.float32)
        idf[PADDING] = 0
        return cls(settings, cutter, idf)

    @property
    def n_tokens(self) -> int:
        return len(self.cutter.names)

    @property
    def n_cut(self) -> int:
        """Texts so far that were too long; of a kind that counts them."""
        return int(getattr(self.cutter, "n_cut", 0))

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
        return TokenRows(ids, unit_weights(ids, offsets, self.idf), offsets, self.n_tokens, self.cutter.n_bigrams)

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
        parts = {"kind": self.settings.kind, "settings": asdict(self.settings), "names": self.cutter.names, "idf": self.idf.tolist()}  # type: ignore[call-overload]
        library = getattr(self.cutter, "library", None)  # rules that others wrote, for a kind that takes them over
        if library is not None:
            parts["library"] = library
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

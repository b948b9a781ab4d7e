"""Vectors that others have trained, for the tokens of a vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from longtail.core.errors import DataError, SettingError
from longtail.core.values import Floats
from longtail.data.vectors import read_vectors
from longtail.tokens.rows import PADDING
from longtail.tokens.tokenizer import PIECE_MARK, Tokenizer, is_marked_piece

WORDLLAMA = "wordllama"
INSIDE = "##"  # WordPiece puts it before pieces that go on a word
BLANK = "\u2581"  # Llama's pieces spell a blank so, and put one before each word
Found = NDArray[np.bool_]


def pretrained_vectors(tokenizer: Tokenizer, source: str | Path) -> tuple[Floats, Found]:
    """A vector for each token, (n_tokens, d), and whether it was found, (n_tokens,). Zeros where it was not, and for padding.

    Args:
        source: a text file of word vectors (word2vec, GloVe, fastText), in which a bigram is the mean of its words; or "wordllama",
            the token table of that package, 256 dimensions: a word is the mean of its pieces.
    """
    names = [name.removeprefix(PIECE_MARK) if is_marked_piece(name) else name for name in tokenizer.names()]
    if source == WORDLLAMA:
        return _from_wordllama(names)
    if not Path(source).is_file():
        raise DataError(f"{source} is no file. Wanted a text file of word vectors, or {WORDLLAMA!r}.")
    return _from_file(names, Path(source))


def _from_file(names: list[str], path: Path) -> tuple[Floats, Found]:
    known = read_vectors(path)
    vectors = np.zeros((len(names), len(next(iter(known.values())))), np.float32)
    found = np.zeros(len(names), np.bool_)
    for token, name in enumerate(names):
        words = name.split(" ")
        if token != PADDING and all(word in known for word in words):
            vectors[token] = np.mean([known[word] for word in words], axis=0)
            found[token] = True
    return vectors, found


def _from_wordllama(names: list[str]) -> tuple[Floats, Found]:
    table, model = _load_wordllama()
    pieces: list[int] = []
    ends = [0]
    for token, name in enumerate(names):
        spelt = name.removeprefix(INSIDE) if name.startswith(INSIDE) else BLANK + name.replace(" ", BLANK)
        if token != PADDING and name != "[UNK]":
            pieces += [piece.id for piece in model.tokenize(spelt) if _has_meaning(piece.value)]
        ends.append(len(pieces))
    lengths = np.diff(ends)
    shares = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
    mean = csr_matrix((shares, pieces, ends), shape=(len(names), len(table)))
    return np.asarray(mean @ table, np.float32), lengths > 0


def _has_meaning(piece: str) -> bool:
    """Not a blank by itself, nor one of the bytes with which Llama spells what it has no piece for."""
    return piece not in (BLANK, "<unk>") and not (piece.startswith("<0x") and piece.endswith(">"))


def _load_wordllama() -> tuple[Floats, Any]:
    """The table, (32000, 256), and the model that cuts words into pieces of it."""
    try:
        import wordllama  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise SettingError(f"Vectors from {WORDLLAMA!r} need a package: pip install wordllama") from error
    # its own folder as cache: the wheel brings all files, but looks for one of them in a folder of another name
    loaded = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    return np.asarray(loaded.embedding, np.float32), loaded.tokenizer.model

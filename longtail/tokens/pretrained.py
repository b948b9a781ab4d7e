"""The tokens of a pretrained encoder: its own vocabulary, cut by its own rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from longtail.core.checks import Positive
from longtail.core.errors import DataError, SettingError
from longtail.core.values import Ints, Offsets, Texts
from longtail.data.minilm import MINILM
from longtail.tokens.folder import CONFIG, first_line, model_folder, read_settings
from longtail.tokens.tokenizer import PADDING_NAME, Cutter, Tokenizer, TokenSettings

LIBRARY, PIECES, PIECES_CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
BERT_MARKS = UNKNOWN, FIRST, LAST = "[UNK]", "[CLS]", "[SEP]"


@dataclass(frozen=True)
class Pretrained(TokenSettings):
    """Tokens as a pretrained encoder was trained on them, with its marks of begin and end. Its token i is ours i + 1, since 0 is padding.

    Args:
        model: the encoder: a folder, a name on the Hugging Face hub, or "minilm".
        max_tokens: of a text, marks included; what is behind them is cut off, and the mark of the end put there.
    """

    kind: ClassVar[str] = "pretrained"

    model: str = MINILM
    max_tokens: Positive = 32

    @property
    def has_bigrams(self) -> bool:
        """Whether pairs of words are tokens, too."""
        return False

    def fit(self, texts: Texts | Sequence[str]) -> Tokenizer:
        """The tokenizer of the model, whose vocabulary is there already, with the idf of these texts."""
        folder = model_folder(self.model)
        library = _read(folder)
        return Tokenizer.fitted(self, self.cutter(_names(library, _n_vectors(folder)), library.to_str()), Texts.of(texts))

    def cutter(self, names: list[str], library: str = "") -> PretrainedCutter:
        """The cutter of a vocabulary found before, with the rules as the library writes them. The model's folder is not looked at."""
        return PretrainedCutter(names, library, self.max_tokens)


class PretrainedCutter(Cutter):
    """Cuts texts by the rules of those who trained the encoder."""

    def __init__(self, names: list[str], library: str, max_tokens: int) -> None:
        self.names = names
        self.library = library  # JSON
        try:
            self._library = _bare(Library.from_str(library))
        except Exception as error:  # the library raises bare ones
            raise DataError(f"The rules of the tokenizer cannot be read ({first_line(error)}).") from error
        if names != _names(self._library, len(names) - 1):
            raise DataError("The names of the vocabulary are not those of the library's rules; wanted both of one model.")
        marks = self._library.num_special_tokens_to_add(is_pair=False)
        if max_tokens <= marks:
            raise SettingError(
                f"max_tokens came as {max_tokens}, and the model puts {marks} marks around each text; wanted {marks + 1} or more."
            )
        self._cuts_at: int | None = None  # so many tokens

    def cut(self, texts: Texts, max_tokens: int) -> tuple[Ints, Offsets]:
        if max_tokens != self._cuts_at:
            self._library.enable_truncation(max_tokens)
            self._cuts_at = max_tokens
        found = self._library.encode_batch_fast(list(texts))
        rows = [encoded.ids for encoded in found]
        lengths = [len(row) for row in rows]
        # to ask a text for what was cut off takes time, and one that was cut is as long as it may be
        self.n_cut += sum(1 for encoded, length in zip(found, lengths, strict=True) if length == max_tokens and encoded.overflowing)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32, int(offsets[-1]))
        return ids + np.int32(1), offsets

    def cut_blocks(self, blocks: Iterable[Texts], max_tokens: int) -> Iterator[tuple[Ints, Offsets]]:
        return (self.cut(texts, max_tokens) for texts in blocks)


def _read(folder: Path) -> Library:
    """The rules in a model's folder."""
    try:
        if (folder / LIBRARY).is_file():
            return _bare(Library.from_file(str(folder / LIBRARY)))
        if (folder / PIECES).is_file():
            return _bert(folder)
    except DataError:
        raise
    except Exception as error:  # the library raises bare ones
        raise DataError(f"The tokenizer in {folder} cannot be read ({first_line(error)}).") from error
    raise SettingError(f"{folder} holds neither {LIBRARY} nor {PIECES}; wanted one of them, to cut texts as the model does.")


def _bare(library: Library) -> Library:
    """Without padding, which our rows have no need of, and without the length that somebody cut texts at."""
    library.no_padding()
    library.no_truncation()
    return library


def _bert(folder: Path) -> Library:
    """The rules of a bare list of pieces, as old BERT models have it."""
    pieces = (folder / PIECES).read_text(encoding="utf-8").rstrip("\n").split("\n")
    places = {piece.rstrip("\r"): place for place, piece in enumerate(pieces)}
    if missing := [mark for mark in BERT_MARKS if mark not in places]:
        raise DataError(f"{folder / PIECES} has no {missing[0]}; wanted the pieces of a BERT, or a {LIBRARY}.")
    config = read_settings(folder / PIECES_CONFIG) if (folder / PIECES_CONFIG).is_file() else {}
    library = Library(models.WordPiece(places, unk_token=UNKNOWN))
    library.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.post_processor = processors.BertProcessing((LAST, places[LAST]), (FIRST, places[FIRST]))
    return library


def _names(library: Library, min_size: int) -> list[str]:
    """Padding, then the library's tokens by their numbers, `min_size` or more; a number that no token has is a name all the same."""
    vocabulary = library.get_vocab(with_added_tokens=True)
    names = [f"[{number}]" for number in range(max(min_size, 1 + max(vocabulary.values(), default=-1)))]
    for name, number in vocabulary.items():
        names[number] = name
    return [PADDING_NAME, *names]


def _n_vectors(folder: Path) -> int:
    """How many word vectors the model has: often more than tokens, since multiples of 64 are multiplied faster."""
    n = read_settings(folder / CONFIG).get("vocab_size")
    return n if isinstance(n, int) else 0

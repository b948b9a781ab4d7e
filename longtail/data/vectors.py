"""Word vectors as text, the way word2vec, GloVe and fastText write them: `word number number ...`, one word a line; or those of a BERT."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from longtail.core.errors import DataError
from longtail.core.values import Floats
from longtail.data.faults import Faults
from longtail.data.files import blocks, shorten
from longtail.data.minilm import MINILM, minilm_folder

WORD_VECTORS = "embeddings.word_embeddings.weight"


def read_vectors(path: str | Path) -> dict[str, Floats]:
    """Word -> vector, all of one length. A first line of two numbers (how many words, how long) is skipped; of a word that comes
    twice the first vector is taken.

    Args:
        path: a text file; the folder of a BERT, of which the whole words of its vocabulary are taken; or "minilm" for the one that
            comes with the extra of that name.
    """
    if str(path) == MINILM:
        path = minilm_folder()
    path = Path(path)
    if path.is_dir():
        return _of_bert(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist. Wanted a file of word vectors: a word and its numbers on each line.")
    found: dict[str, Floats] = {}
    faults = Faults(path)
    length = 0
    for block in blocks(path):
        for line, text in enumerate(block.bytes.decode().split("\n"), block.line):
            word, *numbers = text.rstrip().rsplit(" ", length or -1)  # from the right: published files have words with blanks
            if not text.strip() or (line == 1 and len(numbers) == 1):
                continue
            try:
                vector = np.array(numbers, np.float32)
            except ValueError:
                faults.add("number", line, f"{shorten(text)!r}; wanted a word and its numbers, with single blanks between.")
                continue
            length = length or len(vector)
            if len(vector) != length or not length or not np.isfinite(vector).all():
                faults.add("length", line, f"{shorten(word)!r} has {len(vector)} numbers; wanted {max(length, 1)}, none of them infinite.")
            found.setdefault(word, vector)
    faults.check()
    if not found:
        raise DataError(f"{path} holds no vectors. Wanted a word and its numbers on each line.")
    return found


def _of_bert(folder: Path) -> dict[str, Floats]:
    from safetensors import safe_open

    try:
        vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
        with safe_open(folder / "model.safetensors", "np") as weights:
            vectors = weights.get_tensor(next(name for name in weights.keys() if name.endswith(WORD_VECTORS)))
        return {word: vectors[place].astype(np.float32) for word, place in vocabulary.items() if word.isalnum()}
    except (OSError, ValueError, KeyError, TypeError, IndexError, StopIteration, RuntimeError) as error:
        raise DataError(f"{folder} is not the folder of a BERT; wanted tokenizer.json and model.safetensors there.") from error

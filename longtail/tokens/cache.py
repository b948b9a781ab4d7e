"""Token rows kept on disk, so that the same texts are cut once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from longtail import __version__
from longtail.core.errors import SettingError
from longtail.core.values import Texts
from longtail.data.files import new_folder
from longtail.tokens.rows import PADDING, TokenRows
from longtail.tokens.tokenizer import Tokenizer

PARTS = {"ids": np.int32, "weights": np.float32, "offsets": np.int64}  # one .npy file each


def cached_rows(tokenizer: Tokenizer, texts: Texts | Sequence[str], folder: str | Path | None) -> TokenRows:
    """tokenizer(texts), from `folder` where the same tokenizer has met the same texts before; None keeps nothing.

    What is found is mapped, not read. What does not fit is made again.
    """
    texts = Texts.of(texts)
    if folder is None:
        return tokenizer(texts)
    place = Path(folder) / _key(tokenizer, texts)
    rows = _mapped(place, tokenizer, len(texts))
    if rows is None:
        rows = tokenizer(texts)
        _keep(rows, place, tokenizer)
    return rows


def _key(tokenizer: Tokenizer, texts: Texts) -> str:
    """A hash of all that the rows depend on."""
    digest = blake2b(digest_size=16)
    digest.update(f"{__version__}\n{tokenizer.state}\n{len(texts)}\n".encode())  # JSON on one line
    digest.update(np.ascontiguousarray(texts.offsets).data)
    digest.update(np.ascontiguousarray(texts.buffer).data)
    return f"tokens-{digest.hexdigest()}"


def _mapped(place: Path, tokenizer: Tokenizer, n_rows: int) -> TokenRows | None:
    """The rows in this folder, or None where they are not there or cannot be right."""
    try:
        # "c": pages are copied when written to, so that nothing complains of read-only arrays and the file stays as it is
        ids, weights, offsets = (np.load(place / f"{name}.npy", mmap_mode="c", allow_pickle=False) for name in PARTS)
    except (OSError, ValueError, EOFError):
        return None
    right = (
        all(array.dtype == kind and array.ndim == 1 for array, kind in zip((ids, weights, offsets), PARTS.values(), strict=True))
        and len(offsets) == n_rows + 1
        and offsets[0] == 0
        and offsets[-1] == len(ids) == len(weights)
        and bool((np.diff(offsets) >= 0).all())
        and (not len(ids) or PADDING < int(ids.min()) <= int(ids.max()) < tokenizer.n_tokens)
    )
    return TokenRows.from_arrays(ids, weights, offsets, tokenizer.n_tokens, tokenizer.cutter.n_bigrams) if right else None


def _keep(rows: TokenRows, place: Path, tokenizer: Tokenizer) -> None:
    if place.parent.exists() and not place.parent.is_dir():
        raise SettingError(f"{place.parent} is a file; wanted a folder to keep tokens in.")
    shutil.rmtree(place, ignore_errors=True)  # damaged
    if place.is_file():  # foreign
        place.unlink()
    try:
        with new_folder(place) as unfinished:
            for name, tensor in zip(PARTS, (rows.ids, rows.weights, rows.offsets), strict=True):
                np.save(unfinished / f"{name}.npy", tensor.numpy())
    except (OSError, SettingError):
        if _mapped(place, tokenizer, len(rows)) is None:  # else another process has kept the same in the meantime
            raise

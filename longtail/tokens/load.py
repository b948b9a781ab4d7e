"""A tokenizer from its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from longtail.core.errors import DataError, SettingError
from longtail.core.registry import load
from longtail.tokens.rows import PADDING
from longtail.tokens.tokenizer import PADDING_NAME, Tokenizer


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a tokenizer that `save` wrote."""
    path = Path(path)
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"cannot be read as JSON ({error})"
        raise DataError(f"{path}: {reason}.") from error
    try:
        return _from_state(state)
    except (DataError, SettingError, TypeError, KeyError, ValueError) as error:
        raise DataError(f"{path} is not a tokenizer that longtail wrote ({str(error).rstrip('.')}). Fit and save it again.") from error


def _from_state(state: dict[str, Any]) -> Tokenizer:
    kind, settings, names, idf = (state[part] for part in ("kind", "settings", "names", "idf"))
    if not all(isinstance(name, str) for name in names) or names[PADDING : PADDING + 1] != [PADDING_NAME]:
        raise ValueError(f"its names do not begin with {PADDING_NAME}")
    rarity = np.array(idf, np.float32)
    if rarity.shape != (len(names),) or not np.isfinite(rarity).all() or (rarity[1:] <= 0).any():
        raise ValueError("its idf does not fit its names")
    made = load("tokens", kind)(**settings)
    return Tokenizer(made, made.cutter(names, state.get("library", "")), rarity)

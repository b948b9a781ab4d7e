"""Checkpoints: everything a run needs to go on as if it had never stopped, in one folder that is whole or not there."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longtail.core.errors import DataError, SettingError

TENSORS, NOTES = "tensors.safetensors", "checkpoint.json"


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds."""

    tensors: dict[str, Tensor]
    notes: dict[str, Any]

    def group(self, name: str) -> dict[str, Tensor]:
        """Tensors whose names begin with `name/`, without it."""
        return {key[len(name) + 1 :]: value for key, value in self.tensors.items() if key.startswith(name + "/")}


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Write beside the old checkpoint and put it in its place when it is whole; on a full disk the old one stays."""
    from safetensors.torch import save_file

    fresh = folder.with_name(folder.name + ".new")
    old = folder.with_name(folder.name + ".old")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, fresh / TENSORS)
        (fresh / NOTES).write_text(json.dumps(notes))
        for name in (TENSORS, NOTES):
            with open(fresh / name, "rb") as file:
                os.fsync(file.fileno())
    except Exception as error:  # safetensors wraps a full disk in an error of its own
        shutil.rmtree(fresh, ignore_errors=True)
        raise SettingError(f"The checkpoint {folder} could not be written ({error}); the one before it, if any, is kept.") from error
    if folder.exists():  # where it does not, a run was stopped between the renames, and the old one is all there is
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path) -> Saved | None:
    """The last whole checkpoint, or None where there is none."""
    from safetensors.torch import load_file

    for place in (folder, folder.with_name(folder.name + ".old")):  # the second: stopped between the two renames
        if not place.exists():
            continue
        try:
            return Saved(load_file(place / TENSORS), json.loads((place / NOTES).read_text()))
        except Exception as error:
            raise DataError(f"{place} is not a whole checkpoint ({error}). Delete it to begin anew.") from error
    return None


def drop_checkpoint(folder: Path) -> None:
    """After what the run made is kept elsewhere. At once, so that a stop while files are removed leaves none that is half there."""
    gone = folder.with_name(folder.name + ".gone")
    for name in (folder.name + ".old", folder.name + ".new", gone.name):
        shutil.rmtree(folder.with_name(name), ignore_errors=True)
    if folder.exists():
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def random_state() -> dict[str, Tensor]:
    """Of every generator that dropout and draws use."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])

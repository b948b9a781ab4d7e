"""Checkpoints: everything a run needs to go on as if it had never stopped, in one folder that is whole or not there."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longtail.core.errors import DataError, SettingError
from longtail.training.negatives.clusters import Clusters

FORMAT = 2
TENSORS, NOTES = "tensors.safetensors", "checkpoint.json"


@dataclass(frozen=True)
class Saved:
    """The content of a checkpoint."""

    tensors: dict[str, Tensor]
    notes: dict[str, Any]

    def group(self, name: str) -> dict[str, Tensor]:
        """Tensors whose names begin with `name/`, without it."""
        return {key[len(name) + 1 :]: value for key, value in self.tensors.items() if key.startswith(name + "/")}

    @property
    def clusters(self) -> Clusters | None:
        """Clusters of labels, where the run had some."""
        of_label = self.tensors.get("clusters/of_label")
        return None if of_label is None else Clusters(of_label.numpy())


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoint of one network.

    Args:
        folder: where it lies.
        mark: a hash of recipe, data, augmentation and seed; a checkpoint of another run is refused.
        notes: kept with every checkpoint.
    """

    folder: Path
    mark: str
    notes: dict[str, Any] = field(default_factory=dict)

    def save(self, state: Saved) -> None:
        save_checkpoint(self.folder, state.tensors, {**self.notes, "mark": self.mark, **state.notes})

    def load(self) -> Saved | None:
        """The last whole checkpoint of this run, or None where there is none."""
        saved = load_checkpoint(self.folder)
        if saved is not None and saved.notes.get("mark") != self.mark:
            raise SettingError(
                f"The checkpoint {self.folder} is of another recipe, data set or seed. "
                "Delete it to begin anew, or keep it and choose another place."
            )
        return saved


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Write next to the old checkpoint and put it in its place when it is whole; on a full disk the old one stays."""
    from safetensors.torch import save_file

    fresh = folder.with_name(folder.name + ".new")
    old = folder.with_name(folder.name + ".old")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, fresh / TENSORS)
        (fresh / NOTES).write_text(json.dumps({"format": FORMAT, **notes}))
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
            saved = Saved(load_file(place / TENSORS), json.loads((place / NOTES).read_text()))
        except Exception as error:
            raise DataError(f"{place} is not a whole checkpoint ({error}). Delete it to begin anew.") from error
        if saved.notes.get("format") != FORMAT:
            raise DataError(
                f"{place} is a checkpoint of another version of longtail, which this one cannot go on from. Delete it to begin anew."
            )
        return saved
    return None


def drop_checkpoint(folder: Path) -> None:
    """Remove a checkpoint, after its model is kept elsewhere. At once, so that a stop while files are removed leaves none half there."""
    gone = folder.with_name(folder.name + ".gone")
    for name in (folder.name + ".old", folder.name + ".new", gone.name):
        shutil.rmtree(folder.with_name(name), ignore_errors=True)
    if folder.exists():
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def random_state() -> dict[str, Tensor]:
    """The state of every generator that dropout and draws use."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Tensor]) -> None:
    """Put generators back where `random_state` found them."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])

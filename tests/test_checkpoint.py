"""Checkpoints: whole or not there, whatever goes wrong while they are written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

from longtail.core.errors import DataError, SettingError
from longtail.training.checkpoint import (
    FORMAT,
    NOTES,
    TENSORS,
    Checkpoints,
    Saved,
    drop_checkpoint,
    load_checkpoint,
    random_state,
    save_checkpoint,
    set_random_state,
)


def tensors(number: int) -> dict[str, Tensor]:
    return {"network/weight": torch.full((2, 3), float(number)), "optimizer/steps": torch.tensor(number)}


def loaded(folder: Path) -> int:
    """The number of the checkpoint that is found."""
    saved = load_checkpoint(folder)
    assert saved is not None and saved.notes["number"] == saved.tensors["optimizer/steps"].item()
    assert torch.equal(saved.tensors["network/weight"], torch.full((2, 3), float(saved.notes["number"])))
    return int(saved.notes["number"])


def save(folder: Path, number: int) -> None:
    save_checkpoint(folder, tensors(number), {"number": number})


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoint"


def test_saved_and_loaded(place: Path) -> None:
    assert load_checkpoint(place) is None
    transposed = torch.arange(6.0).view(2, 3).T
    kinds = {
        "a/transposed": transposed,
        "a/parameter": torch.nn.Parameter(torch.ones(2)),
        "b/number": torch.tensor(7),
        "b/bytes": torch.get_rng_state(),
        "b/empty": torch.zeros(0, 3),
        "ab/half": torch.ones(2, dtype=torch.bfloat16),
    }
    save_checkpoint(place, kinds, {"epoch": 3, "history": [{"loss": 0.1}]})
    saved = load_checkpoint(place)
    assert saved is not None and saved.notes == {"format": FORMAT, "epoch": 3, "history": [{"loss": 0.1}]}
    assert set(saved.tensors) == set(kinds)
    for name, tensor in kinds.items():
        assert torch.equal(saved.tensors[name], tensor) and saved.tensors[name].dtype == tensor.dtype
    assert files(place.parent) == [f"checkpoint/{NOTES}", f"checkpoint/{TENSORS}"]


def test_groups() -> None:
    saved = Saved({"a/x": torch.tensor(1), "a/b/y": torch.tensor(2), "ab/z": torch.tensor(3)}, {})
    assert {name: int(tensor) for name, tensor in saved.group("a").items()} == {"x": 1, "b/y": 2}
    assert saved.group("c") == {}


def test_the_next_one_takes_the_place_of_the_last(place: Path) -> None:
    for number in range(3):
        save(place, number)
        assert loaded(place) == number
    assert files(place.parent) == [f"checkpoint/{NOTES}", f"checkpoint/{TENSORS}"]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device (os error 28)")]
)
def test_a_full_disk_keeps_the_old_one(place: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    save(place, 1)

    def full(tensors: Any, path: Path) -> None:
        path.write_bytes(b"the first half")
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("safetensors.torch.save_file", full)
        with pytest.raises(SettingError) as error_info:
            save(place, 2)
        assert str(error_info.value) == f"The checkpoint {place} could not be written ({error}); the one before it, if any, is kept."
    assert loaded(place) == 1
    assert files(place.parent) == [f"checkpoint/{NOTES}", f"checkpoint/{TENSORS}"]
    save(place, 3)
    assert loaded(place) == 3


def test_notes_that_do_not_fit_keep_the_old_one(place: Path) -> None:
    save(place, 1)
    with pytest.raises(SettingError, match="could not be written"):
        save_checkpoint(place, tensors(2), {"number": object()})
    assert loaded(place) == 1 and len(files(place.parent)) == 2


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(SettingError, match="could not be written"):
        save(tmp_path / "run" / "checkpoint", 1)


class Stopped(BaseException):
    """As when the machine goes down: nothing is tidied."""


@pytest.mark.parametrize("before_rename", [1, 2])
def test_stopped_at_a_rename(place: Path, before_rename: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, calls = Path.rename, []

    def stop(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == before_rename:
            raise Stopped
        return rename(self, target)

    save(place, 1)
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(Path, "rename", stop)
        save(place, 2)
    assert loaded(place) == 1
    # and stopped again, at the next one that comes: what the first time has left must not be lost
    calls.clear()
    before_rename = 1
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(Path, "rename", stop)
        save(place, 3)
    assert loaded(place) == 1
    save(place, 4)
    assert loaded(place) == 4 and len(files(place.parent)) == 2


@pytest.mark.parametrize("name", [TENSORS, NOTES])
@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_a_damaged_file_is_named(place: Path, name: str, content: bytes | None) -> None:
    save(place, 1)
    if content is None:
        (place / name).unlink()
    else:
        (place / name).write_bytes(content)
    with pytest.raises(DataError, match=r"checkpoint is not a whole checkpoint \(.*\)\. Delete it to begin anew\."):
        load_checkpoint(place)
    save(place, 2)
    assert loaded(place) == 2


def test_dropped(place: Path) -> None:
    save(place, 1)
    for ending in (".old", ".new"):
        place.with_name(place.name + ending).mkdir()
    (place.parent / "model").mkdir()
    drop_checkpoint(place)
    assert [path.name for path in place.parent.iterdir()] == ["model"]
    drop_checkpoint(place)
    assert load_checkpoint(place) is None


def test_stopped_while_it_is_dropped(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole or not there, and what is left of it goes with the next one."""
    save(place, 1)
    removed = shutil.rmtree

    def stop(path: Path, **more: Any) -> None:
        if path.exists():
            (path / TENSORS).unlink()
            raise Stopped
        removed(path, **more)

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(shutil, "rmtree", stop)
        drop_checkpoint(place)
    assert load_checkpoint(place) is None
    save(place, 2)
    assert loaded(place) == 2
    drop_checkpoint(place)
    assert list(place.parent.iterdir()) == []


def test_random_state(place: Path) -> None:
    torch.manual_seed(5)
    torch.rand(3)
    save_checkpoint(place, random_state(), {})
    wanted = torch.rand(4).tolist()
    saved = load_checkpoint(place)
    assert saved is not None
    set_random_state(saved.tensors)
    assert torch.rand(4).tolist() == wanted


# ---- of another format, and of another run


def written(folder: Path, notes: dict[str, Any]) -> None:
    """A checkpoint with these notes and no others."""
    save(folder, 1)
    (folder / NOTES).write_text(json.dumps(notes))


@pytest.mark.parametrize("notes", [{}, {"format": 1}, {"format": FORMAT + 1}])
def test_another_format_is_answered_in_one_line(place: Path, notes: dict[str, Any]) -> None:
    """The first format had no number."""
    written(place, {**notes, "stage": 0, "epoch": 1, "step": 2, "history": [], "seconds": 1.0, "mark": "this run"})
    for read in (lambda: load_checkpoint(place), Checkpoints(place, "this run").load):
        with pytest.raises(DataError) as error_info:
            read()
        message = f"{place} is a checkpoint of another version of longtail, which this one cannot go on from. Delete it to begin anew."
        assert str(error_info.value) == message


def test_another_run_is_answered_in_one_line(place: Path) -> None:
    ours, other = Checkpoints(place, "ours", {"by": "a test"}), Checkpoints(place, "other")
    assert ours.load() is None
    ours.save(Saved(tensors(3), {"number": 3}))
    found = ours.load()
    assert found is not None and found.notes == {"format": FORMAT, "mark": "ours", "by": "a test", "number": 3}
    with pytest.raises(
        SettingError, match=r"^The checkpoint .* is of another recipe, data set or seed\. Delete it .*, or keep it and choose"
    ):
        other.load()
    assert loaded(place) == 3

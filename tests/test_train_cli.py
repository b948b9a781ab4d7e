"""longtail train, evaluate and list, from data files to model folders; a real Ctrl-C in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail import Dataset, Texts
from longtail.core import registry
from longtail.data.convert import write
from longtail.evaluation.evaluate import evaluate
from longtail.training.loop import Decision
from longtail.training.monitor import TrainingMonitor
from tests.spelled import SMALL, Command, label_names, small_model, spelled_out, write_table
from tests.spelled import command as command
from tests.tensors import same_numbers as same_numbers

ROOT = Path(__file__).parent.parent
QUICK = (*SMALL["default"], "--device", "cpu")
FEW = (*SMALL["default"], "batch_size=96", "epochs=1", "--device", "cpu")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return spelled_out()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: Dataset) -> Path:
    """The data set in the XC layout."""
    path = tmp_path_factory.mktemp("data") / "spelled"
    write(data, path, "xc")
    return path


@pytest.fixture
def table(tmp_path: Path, data: Dataset) -> Path:
    assert data.label_texts is not None
    return write_table(tmp_path / "spelled.csv", data.train, data.label_texts)


def test_trained_evaluated_and_asked(folder: Path, data: Dataset, tmp_path: Path, command: Command) -> None:
    out, err = command.run("train", "default", folder, *QUICK, "--out", tmp_path / "model", "--augment", "gandalf")
    assert "55 test rows" in out
    assert f"Wrote {tmp_path / 'model'}. Next: longtail predict {tmp_path / 'model'} texts.txt -k 5\n" in err
    assert not (tmp_path / "model.checkpoint").exists()
    model = longtail.load(tmp_path / "model")
    assert model.trained is not None and model.trained.about["rows trained on"] == len(data.train) + data.n_labels
    reached = evaluate(model.predict_test(data), data, resamples=0).metrics
    assert reached["P@1"] > 95 and model.trained.about["metrics"]["P@1"] == reached["P@1"]
    assert f"| P@1 | {reached['P@1']:.2f} |" in (tmp_path / "model" / "README.md").read_text()
    out, _ = command.run("evaluate", tmp_path / "model", folder, "--out", tmp_path / "metrics.json", "--resamples", "0")
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert "55 test rows" in out and {name: found[name] for name in reached} == reached
    (tmp_path / "texts.txt").write_text(f"{label_names(24)[3]}\n")
    out, _ = command.run("predict", tmp_path / "model", tmp_path / "texts.txt", "-k", "1")
    assert json.loads(out)["labels"] == [label_names(24)[3]]


def test_the_command_trains_what_python_trains(table: Path, tmp_path: Path, command: Command) -> None:
    command.run("train", "default", table, *FEW, "--test-share", "0.2", "--seed", "3", "--out", tmp_path / "model")
    data = longtail.read(table, test_share=0.2, seed=3)
    assert data.test.texts is not None
    model = small_model("default", "batch_size=96", "epochs=1", seed=3).fit(data)
    again = longtail.load(tmp_path / "model")
    assert again.predict(data.test.texts, k=24).scores.tobytes() == model.predict(data.test.texts, k=24).scores.tobytes()


def test_without_test_rows_nothing_is_measured(table: Path, tmp_path: Path, command: Command) -> None:
    out, err = command.run("train", "default", table, *FEW, "--out", tmp_path / "model")
    assert out == "" and "Wrote" in err
    assert "metric" not in (tmp_path / "model" / "README.md").read_text()
    assert "has no test rows" in command.fails("evaluate", tmp_path / "model", table)


def test_a_recipe_file(table: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "mine.toml").write_text('[encoder]\nkind = "bag"\ndim = 16\n[[stages]]\nepochs = 1\n')
    command.run("train", tmp_path / "mine.toml", table, "--out", tmp_path / "model", "--device", "cpu")
    assert longtail.load(tmp_path / "model").recipe.name == "mine"


# ---- stopped and resumed


def processes(*arguments: str | Path) -> subprocess.Popen[str]:
    alone = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}  # as the tests of this process run
    command = [sys.executable, "-m", "longtail.cli.main", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **alone, "PYTHONPATH": str(ROOT)}
    )


def test_ctrl_c_leaves_a_checkpoint_and_the_same_command_goes_on(table: Path, tmp_path: Path, command: Command) -> None:
    arguments = ("train", "default", table, *SMALL["default"], "epochs=40", "--device", "cpu")
    place = tmp_path / "model.checkpoint"
    run = processes(*arguments, "--out", tmp_path / "model", "--minutes", "0")  # a checkpoint after every step
    try:
        deadline = time.monotonic() + 120
        while not (place / "0" / "checkpoint.json").exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=120)
    finally:
        run.kill()
    assert run.returncode == 130, err
    assert out == "" and not (tmp_path / "model").exists()
    assert f"Stopped; {place} holds everything so far. Type the same command to go on.\n" in err and "Traceback" not in err
    _, err = command.run(*arguments, "--out", tmp_path / "model")
    assert f"Going on from {place}.\n" in err and not place.exists()
    command.run(*arguments, "--out", tmp_path / "whole")
    resumed, whole = longtail.load(tmp_path / "model"), longtail.load(tmp_path / "whole")
    for name in ("weights.safetensors", "parts.safetensors", "tokenizer.json"):
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    without_time = [[{**entry, "seconds": 0} for entry in model.history] for model in (resumed, whole)]
    assert without_time[0] == without_time[1] and len(without_time[0]) == 40


def test_a_checkpoint_of_another_run(
    folder: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = TrainingMonitor.on_step

    def on_step(monitor: TrainingMonitor, *arguments: Any) -> Decision:
        monitor._interrupt(2, None)
        return real(monitor, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingMonitor, "on_step", on_step)
        code, _, err = command._run("train", "default", folder, *FEW, "--out", tmp_path / "model")
    assert code == 130 and err.startswith("Stopped; ")
    assert err.count("\n") == 2 and "Traceback" not in err
    code, _, err = command._run("train", "default", folder, *FEW, "--seed", "1", "--out", tmp_path / "model")
    assert code == 2
    going_on, told = err.splitlines()
    assert going_on.startswith("Going on from ") and told.startswith("longtail: The checkpoint ") and "is of another recipe" in told


def test_a_model_that_cannot_be_written_is_not_trained_again(
    folder: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    arguments = ("train", "default", folder, *FEW, "--minutes", "0", "--out", tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.setattr("longtail.storage.open_model.save_model", full)
        code, _, err = command._run(*arguments)
    assert code == 2 and "No space left on device" in err.splitlines()[-1]
    assert f"Stopped; {tmp_path / 'model.checkpoint'} holds everything so far." in err
    monkeypatch.setattr(TrainingMonitor, "on_step", lambda *_: pytest.fail("trained once more"))
    command.run(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# ---- what is refused


def test_what_is_refused_before_the_data_is_read(tmp_path: Path, command: Command) -> None:
    nowhere = tmp_path / "nowhere"
    assert "No recipe called 'defualt'. Did you mean 'default'?" in command.fails("train", "defualt", nowhere)
    assert "mine.toml is not there; wanted a recipe file" in command.fails("train", "mine.toml", nowhere)
    assert "No setting called 'epoch'. Did you mean 'epochs'?" in command.fails("train", "default", nowhere, "epoch=3")
    assert "'gpu' came as the device" in command.fails("train", "default", nowhere, "--device", "gpu")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert "already exists and is not an empty folder" in command.fails("train", "default", nowhere, "--out", tmp_path / "full")
    assert "does not exist" in command.fails("train", "default", nowhere)


def test_what_is_refused_of_the_data(table: Path, tmp_path: Path, command: Command) -> None:
    out = ("--out", tmp_path / "model", "--device", "cpu")
    assert "No augmentation called 'gandlf'" in command.fails("train", "default", table, *out, "--augment", "gandlf")
    (tmp_path / "few.csv").write_text("text,labels\nred,a\ngreen,b\nblue,c\n")
    assert "3 labels are too few for clusters of 2" in command.fails("train", "decaf", tmp_path / "few.csv", *out)
    line = command.fails("train", "astec", tmp_path / "few.csv", *out)
    assert "3 training rows, of which validation=0.05 leaves 0" in line
    sparse = tmp_path / "sparse"
    command.run("data", "convert", table, sparse, "--to", "sparse")
    for name in ("trn_X.txt", "Y.txt"):
        (sparse / name).unlink()
    assert "sparse has no texts of training rows; a recipe encodes texts" in command.fails("train", "default", sparse, *out)
    assert not (tmp_path / "model").exists() and not (tmp_path / "model.checkpoint").exists()


def test_models_and_data_that_do_not_fit(folder: Path, data: Dataset, tmp_path: Path, command: Command) -> None:
    """Label ids would not mean the same."""
    command.run("train", "default", folder, *FEW, "--out", tmp_path / "model")
    for n_labels in (12, 30):
        other = spelled_out(n_labels=n_labels)
        write(replace(other, test=other.test.rows(np.arange(5))), tmp_path / str(n_labels), "xc")
        line = command.fails("evaluate", tmp_path / "model", tmp_path / str(n_labels))
        assert f"The model has 24 labels, {n_labels} has {n_labels}; wanted the labels it was trained on." in line
    assert data.label_texts is not None
    turned = replace(data, label_texts=Texts.of([*reversed(data.label_texts)]))
    write(turned, tmp_path / "turned", "xc")
    line = command.fails("evaluate", tmp_path / "model", tmp_path / "turned")
    assert f"Label 0 of the model is {data.label_texts[0]!r}, of turned {data.label_texts[23]!r}" in line
    assert "is not a model folder" in command.fails("evaluate", tmp_path, folder)


# ---- lists


def test_lists(command: Command) -> None:
    for kind, known in (("recipes", registry.recipes()), ("encoders", registry.ENCODERS), ("tokens", registry.TOKENS)):
        out, _ = command.run("list", kind)
        assert [line.split()[0] for line in out.splitlines()] == list(known)
        assert all(len(line.split()) > 3 for line in out.splitlines())  # with what it is


def test_help_and_lists_do_without_torch() -> None:
    code = """if True:
        import sys
        from longtail.cli.main import main
        sys.argv[0] = "longtail"
        try:
            main()
        except SystemExit:
            print("torch" in sys.modules)
    """
    for arguments in (["--help"], ["train", "--help"], ["list", "recipes"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, cwd=ROOT)
        assert done.stdout.splitlines()[-1] == "False", arguments

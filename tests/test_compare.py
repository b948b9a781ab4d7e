"""Comparisons: cells as the same recipe run by hand, kept and not run again, and the tables made of them."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import XMC, Dataset
from longtail.core.errors import DataError, LongtailError, SettingError, UnknownName
from longtail.core.registry import tables
from longtail.core.values import Predictions
from longtail.evaluation.evaluate import compare, evaluate
from longtail.evaluation.metrics import lost_information
from longtail.evaluation.predictions import drop_filtered
from longtail.experiments.compare import run
from longtail.experiments.compare.cells import Cell, Row, read_cells
from longtail.experiments.compare.figures import bins_grid, clusters_grid, components_grid, curves_grid, predictions_grid
from longtail.experiments.compare.grids import Entry, Grid
from longtail.experiments.compare.layout import TIE, metrics_grid, save_grid, tied_with_best
from longtail.experiments.compare.peers.run import PeerRun
from longtail.experiments.compare.plans import METRICS, Plan, Shows, grid, read_table
from longtail.experiments.compare.run import claimed, run_plans
from longtail.experiments.compare.tables import FIGURES, fill_table
from longtail.recipes.data import named_augmentation
from longtail.recipes.read import read_recipe
from longtail.training.loop import Decision
from longtail.training.monitor import TrainingMonitor
from tests.spelled import Command, spelled_out, write_table
from tests.spelled import command as command
from tests.tensors import same_numbers as same_numbers

INCEPTION = ("dim=80", "batch_size=96", "epochs=1", "min_steps=0")
SETTINGS = ("dim=32", "batch_size=96", "epochs=1", "min_steps=0", "learning_rate=0.01")


@pytest.fixture
def data() -> Dataset:
    return spelled_out()


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, int]]:
    """Recipe, augmentation and seed of every training."""
    done: list[tuple[str, Any, int]] = []
    real = XMC.fit

    def fit(model: XMC, *arguments: Any, **more: Any) -> XMC:
        done.append((model.recipe.name, model.augment, model.seed))
        return real(model, *arguments, **more)

    monkeypatch.setattr(XMC, "fit", fit)
    return done


def compared(
    data: Dataset, recipes: Any, augmentations: Any = ("none",), seeds: int = 1, settings: Any = SETTINGS, **more: Any
) -> list[Row]:
    return run_plans(data, grid(recipes, augmentations, settings), seeds, device="cpu", **more)


def test_cells_are_what_the_recipe_reaches_by_hand(
    data: Dataset, tmp_path: Path, fits: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = compared(data, ["default", "astec"], ["none", "gandalf"], 2, folder=tmp_path)
    assert [(row.plan.system, row.plan.augmentation, len(row.cells)) for row in rows] == [
        ("default", "none", 2),
        ("default", "gandalf", 2),
        ("astec", "none", 2),
        ("astec", "gandalf", 2),
    ]
    assert fits == [(row.plan.system, row.plan.augmentation, seed) for row in rows for seed in (0, 1)]
    told = [
        line for line in capsys.readouterr().err.splitlines() if ", seed " in line
    ]  # progress between them, where kernels are compiled first
    assert len(told) == 8 and told[0].startswith("default, none, seed 0: P@1 ")
    for row in (rows[1], rows[2]):
        for seed, cell in enumerate(row.cells):
            model = XMC(read_recipe(row.plan.system, SETTINGS), row.plan.augmentation, seed=seed, device="cpu").fit(data)
            found = model.predict_test(data)
            result = evaluate(found, data, resamples=0)
            assert (cell.metrics, cell.bins, cell.megabytes) == (result.metrics, result.bins, model.megabytes)
            told = (cell.data, cell.system, cell.variant, cell.augmentation, cell.settings, cell.seed)
            assert told == ("spelled", row.plan.system, "", row.plan.augmentation, SETTINGS, seed)
            assert [entry["loss"] for entry in cell.history] == [entry["loss"] for entry in model.history]
            assert cell.peak_megabytes > 50 and "CPU" in cell.machine
            left = found if data.test.filter is None else drop_filtered(found, data.test.filter)
            np.testing.assert_array_equal(cell.predictions().ids, left.ids[:, :10])
    assert rows[0].cells[0].metrics != rows[0].cells[1].metrics
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json"] * 8 + [".npz"] * 8  # and no checkpoint or lock
    assert read_cells(tmp_path) == sorted((cell for row in rows for cell in row.cells), key=lambda cell: str(cell.path))


def test_a_cell_is_run_once(data: Dataset, tmp_path: Path, fits: list[Any]) -> None:
    def run(*recipes: str, seeds: int = 1, settings: tuple[str, ...] = SETTINGS, of: Dataset = data) -> list[Row]:
        fits.clear()
        return compared(of, recipes, ["none"], seeds, settings, folder=tmp_path / "kept")

    first = run("default")
    assert run("default") == first and fits == []
    assert run("default", "astec", seeds=2)[0].cells[0] == first[0].cells[0]
    assert fits == [("default", "none", 1), ("astec", "none", 0), ("astec", "none", 1)]
    run("default", settings=(*SETTINGS, "batch_size=64"))
    assert len(fits) == 1
    run("default", settings=(*SETTINGS, "batch_size=96"))  # the same recipe in other words
    assert fits == []
    run("default", of=replace(data, test=data.test.rows(np.arange(5))))
    assert len(fits) == 1
    run("default", of=replace(data, train=data.train.rows(np.arange(50, 200))))
    assert len(fits) == 1
    run("default", of=replace(data, test=replace(data.test, filter=np.array([[0, 1]], np.int32))))
    assert len(fits) == 1


def test_models_are_kept_where_they_are_wanted(data: Dataset, tmp_path: Path, fits: list[Any]) -> None:
    def run(models: bool) -> list[Row]:
        return compared(data, ["default"], folder=tmp_path, models=models)

    (first,) = run(models=False)
    (cell,) = tmp_path.glob("*.json")
    (again,) = run(models=True)
    assert len(fits) == 2 and again.cells[0].metrics == first.cells[0].metrics
    kept = XMC.load(cell.with_suffix(""))
    assert kept.trained is not None and kept.trained.about["metrics"]["P@1"] == first.cells[0].metrics["P@1"]
    assert run(models=True) == run(models=False) == [again] and len(fits) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"system": "default"}', b"\xff"])
def test_a_damaged_cell_is_run_again(
    content: bytes, data: Dataset, tmp_path: Path, fits: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (first,) = compared(data, ["default"], folder=tmp_path)
    (cell,) = tmp_path.glob("*.json")
    cell.write_bytes(content)
    (again,) = compared(data, ["default"], folder=tmp_path)
    assert len(fits) == 2 and again.cells[0].metrics == first.cells[0].metrics
    assert f"{cell} is damaged or of an older version, and left aside.\n" in capsys.readouterr().err
    assert compared(data, ["default"], folder=tmp_path) == [again]
    assert len(fits) == 2


def test_a_comparison_that_was_stopped_goes_on(data: Dataset, tmp_path: Path, fits: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(place: str) -> list[Row]:
        return compared(data, ["default"], ["none", "gandalf"], folder=tmp_path / place)

    real = TrainingMonitor.on_step

    def on_step(monitor: TrainingMonitor, *arguments: Any) -> Decision:
        if fits[-1][1] == "gandalf":  # in the second cell
            monitor._interrupt(2, None)
        return real(monitor, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingMonitor, "on_step", on_step)
        with pytest.raises(KeyboardInterrupt):
            run("stopped")
    assert sorted(path.suffix for path in (tmp_path / "stopped").iterdir()) == [".checkpoint", ".json", ".npz"]
    fits.clear()
    rows = run("stopped")
    assert fits == [("default", "gandalf", 0)]
    assert sorted(path.suffix for path in (tmp_path / "stopped").iterdir()) == [".json", ".json", ".npz", ".npz"]
    assert [row.cells[0].metrics for row in rows] == [row.cells[0].metrics for row in run("whole")]


def test_a_cell_that_is_trained_is_kept_before_ctrl_c_ends_it(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def predict_test(model: XMC, *arguments: Any, times: int) -> Any:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return real(model, *arguments)

    real, before = XMC.predict_test, signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("longtail.training.monitor.SOON", 0)
    for times, kept in ((1, [".json", ".npz"]), (2, [".checkpoint"])):
        monkeypatch.setattr(XMC, "predict_test", lambda model, *arguments, times=times: predict_test(model, *arguments, times=times))
        with pytest.raises(KeyboardInterrupt):
            compared(data, ["default"], folder=tmp_path / str(times))
        assert sorted(path.suffix for path in (tmp_path / str(times)).iterdir()) == kept
        assert "it is measured and kept first" in capsys.readouterr().err
        assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.setattr(XMC, "predict_test", real)
    monkeypatch.setattr(TrainingMonitor, "on_step", lambda *_: pytest.fail("trained once more"))
    again = compared(data, ["default"], folder=tmp_path / "2")
    monkeypatch.undo()
    (whole,), (measured,) = compared(data, ["default"], folder=tmp_path / "whole")[0].cells, again[0].cells
    assert measured.metrics == whole.metrics
    assert whole.peak_megabytes > 0 and measured.peak_megabytes == 0  # nobody knows what the first try held
    both = metrics_grid([Row(again[0].plan, (whole, measured))], data).rows[0]
    assert f"{whole.peak_megabytes:,.0f} MB" in [entry.text for entry in both]


def test_what_cannot_be_compared_is_told_before_any_training(data: Dataset, tmp_path: Path, fits: list[Any]) -> None:
    without_test = replace(data, test=data.test.rows(np.arange(0)))
    for of, recipes, augmentations, seeds, told in (
        (without_test, ["default"], ["none"], 1, "spelled has no test rows to compare on; hold some out with test_share"),
        (data, [], ["none"], 1, "Nothing to compare: wanted at least one recipe, one augmentation and one seed"),
        (data, ["default"], [], 1, "Nothing to compare"),
        (data, ["default"], ["none"], 0, "Nothing to compare"),
        (data, ["default", "eclaire"], ["none"], 1, "No recipe called 'eclaire'. Did you mean 'eclare'"),
        (data, ["default"], ["none", "gandalff"], 1, "No augmentation called 'gandalff'. Did you mean 'gandalf'"),
        (data, ["default"], ["none", "gandalf:dleta=1"], 1, "No setting of gandalf called 'dleta'"),
        (data, ["default"], ["none", "manifold-mixup"], 1, "manifold-mixup .* is a hook"),
    ):
        with pytest.raises(LongtailError, match=told):
            compared(of, recipes, augmentations, seeds, folder=tmp_path)
    assert fits == [] and list(tmp_path.iterdir()) == []


def test_processes_share_the_work(data: Dataset, tmp_path: Path, fits: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that another process is at is left to it; when all others are done it is waited for."""
    (first, second) = compared(data, ["default"], ["none", "gandalf"], folder=tmp_path / "whole")
    fits.clear()
    folder = tmp_path / "shared"
    folder.mkdir()
    assert first.cells[0].path is not None
    done = first.cells[0].path
    lock = folder / done.with_suffix(".lock").name
    # the other process has the first cell, and puts it down ready after a second
    other = f"""
import fcntl, shutil, sys, time
with open({str(lock)!r}, "w") as handle:
    fcntl.flock(handle, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(1)
    for ending in (".npz", ".json"):
        shutil.copy({str(done.with_suffix(""))!r} + ending, {str(folder)!r})
"""
    process = subprocess.Popen([sys.executable, "-c", other], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    assert compared(data, ["default"], ["none", "gandalf"], folder=folder)[0] == first
    assert fits == [("default", "gandalf", 0)]
    assert process.wait() == 0
    process.stdout.close()


def test_what_a_killed_process_was_at_is_free_again(data: Dataset, tmp_path: Path) -> None:
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('locked', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a.lock")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    with claimed(tmp_path / "a.lock", wait=False) as ours:
        assert not ours
    process.kill()
    process.wait()
    process.stdout.close()
    with claimed(tmp_path / "a.lock", wait=False) as ours:
        assert ours
        with claimed(tmp_path / "a.lock", wait=False) as twice:
            assert not twice
    assert not (tmp_path / "a.lock").exists()


def test_peers_are_compared_with_recipes(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def run_peer(name: str, train: Any, of: Dataset, k: int, seed: int, folder: Path, settings: Any) -> PeerRun:
        asked.append((name, len(train), k, seed, settings))
        folder.mkdir()
        ids = np.tile(np.arange(12, dtype=np.int32), (len(of.test), 1))
        return PeerRun(Predictions(ids, -ids.astype(np.float32)), 3.0, 0.001 * len(of.test), 7.0, 80.0)

    def ready(name: str) -> Path:
        if name == "bonsai":
            raise SettingError("The peer bonsai is not installed.")
        return tmp_path

    monkeypatch.setattr(run, "run_peer", run_peer)
    monkeypatch.setattr(run, "check_ready", ready)
    plans = grid([], ["none", "gandalf"], (), ["pecos", "bonsai"])
    rows = run_plans(data, plans, folder=tmp_path / "kept")
    n = len(data.train)
    assert asked == [("pecos", n, 100, 0, ()), ("pecos", n + data.n_labels, 100, 0, ())]
    assert [(row.plan.called, row.plan.augmentation) for row in rows] == [("pecos", "none"), ("pecos", "gandalf")]
    cell = rows[0].cells[0]
    costs = cell.train_seconds, cell.predict_milliseconds, cell.megabytes, cell.peak_megabytes
    assert costs == (3.0, pytest.approx(1.0), 7.0, 80.0)
    assert capsys.readouterr().err.count("Left out: The peer bonsai is not installed.") == 2
    assert run_plans(data, plans, folder=tmp_path / "kept") == rows and len(asked) == 2
    with pytest.raises(SettingError, match="none of these peers is installed. Type: make peers"):
        run_plans(data, grid([], ["none"], (), ["bonsai"]), folder=tmp_path / "kept")
    with pytest.raises(UnknownName, match="No peer called 'pecs'. Did you mean 'pecos'"):
        run_plans(data, grid([], ["none"], (), ["pecs"]), folder=tmp_path / "kept")


def test_parts_are_measured_by_themselves(data: Dataset, tmp_path: Path) -> None:
    settings = (
        "tokens.kind=wordpiece",
        "encoder.model=none",
        "hidden=32",
        "layers=1",
        "encoder.attention_heads=2",
        "batch_size=96",
        "epochs=1",
    )
    (row,) = compared(data, ["unidec"], settings=settings, folder=tmp_path)
    cell = row.cells[0]
    assert list(cell.ablations) == ["labels", "classifiers"] and cell.components == []
    for tower, metrics in cell.ablations.items():
        alone = XMC.from_recipe("unidec", [*settings, f'predict.towers=["{tower}"]'], device="cpu").fit(data)
        assert metrics["P@1"] == evaluate(alone.predict_test(data), data, resamples=0).metrics["P@1"]
    grid_of = metrics_grid([row], data, ("P@1", "PSP@5"), ablations=True)
    assert [line[0].text for line in grid_of.rows] == ["unidec", "· labels alone", "· classifiers alone"]
    assert grid_of.rows[1][2].text == f"{cell.ablations['labels']['P@1']:.2f}"


# ---- tables


def row(recipe: str, *values: float, seconds: float = 2.0, published: dict[str, list[float]] | None = None) -> Row:
    """Every metric has the same value, one for each seed."""
    plan = Plan(recipe, published=published or {})
    return Row(plan, tuple(cell_of(recipe, dict.fromkeys(METRICS, value), seed, seconds) for seed, value in enumerate(values)))


def cell_of(system: str, metrics: dict[str, float], seed: int = 0, seconds: float = 2.0, **more: Any) -> Cell:
    told = dict(data="shop", variant="", augmentation="none", settings=("epochs=1",), machine="2 CPU threads", version="1")
    costs = dict(train_seconds=seconds, predict_milliseconds=0.5, megabytes=12.0, peak_megabytes=600.0)
    return Cell(**{**told, **costs, "system": system, "seed": seed, "metrics": metrics, "bins": [], "history": [], **more})


def test_mean_and_deviation() -> None:
    assert row("a", 1.0, 3.0).mean("P@1") == 2 and row("a", 1.0, 3.0).deviation("P@1") == pytest.approx(2**0.5)
    assert row("a", 7.0).mean("P@1") == 7 and row("a", 7.0).deviation("P@1") == 0


def test_the_best_stands_in_bold_with_the_paper_below_it(data: Dataset) -> None:
    of = replace(data, name="shop")
    made = metrics_grid(
        [row("a", 10.0, 20.0), row("b", 30.0, 31.0, published={"shop": [32.0, 30.0], "other": [1.0, 1.0]})], of, ("P@1", "P@3")
    )
    assert made.columns == ("system", "rows added", "P@1", "P@3", "train", "a text", "peak", "model")
    assert made.title == "shop, test rows, mean and deviation of 2 seeds; 2 CPU threads" and made.notes == ()
    plain = [[entry.plain for entry in line] for line in made.rows]
    assert plain[0] == ["a", "none", "15.00 ±7.07", "15.00 ±7.07", "2 s", "0.50 ms", "600 MB", "12 MB"]
    assert plain[1][:4] == ["b", "none", "30.50 ±0.71", "30.50 ±0.71"]
    assert plain[2] == ["· the paper", "", "32.00", "30.00", "", "", "", ""]
    assert plain[3] == ["· difference", "", "-1.50", "+0.50", "", "", "", ""]
    assert [[entry.bold for entry in line] for line in made.rows][:2] == [[False] * 8, [False, False, True, True, *[False] * 4]]
    assert metrics_grid([row("a", 10.0)], of).title == "shop, test rows, 1 seed; 2 CPU threads"


def test_what_a_paired_test_cannot_tell_from_the_best_is_marked(data: Dataset, tmp_path: Path) -> None:
    """Three systems: the truth, the truth but for one row, and nothing right."""
    labels = data.test.labels
    right = np.array([labels[place].indices[0] for place in range(len(data.test))], np.int32)[:, None]
    wrong = np.array([[min(set(range(data.n_labels)) - set(labels[place].indices))] for place in range(len(right))], np.int32)
    nearly = np.concatenate([wrong[:1], right[1:]])
    rows = []
    for name, ids in (("right", right), ("nearly", nearly), ("wrong", wrong)):
        found = Predictions(ids, np.zeros(ids.shape, np.float32))
        np.savez(tmp_path / f"{name}.npz", ids=found.ids, scores=found.scores)
        metrics = evaluate(found, data, resamples=0).metrics
        rows.append(Row(Plan(name), (cell_of(name, metrics, path=tmp_path / f"{name}.json"),)))
    ties = tied_with_best(rows, data, ("P@1", "coverage@5"))
    results = [evaluate(one.cells[0].predictions(), data, resamples=0) for one in rows]
    chances = [next(one.p_value for one in compare(results[0], other) if one.name == "P@1") for other in results[1:]]
    assert chances[0] >= 0.05 > chances[1] and ties == {(1, "P@1")}
    made = metrics_grid(rows, data, ("P@1",))
    assert [line[2].plain.endswith(TIE) for line in made.rows] == [False, True, False] and len(made.notes) == 1


def test_saved_in_five_ways(data: Dataset, tmp_path: Path) -> None:
    rows = [row("a", 10.0, 20.0), row("b & c", 30.0, seconds=4.0)]
    made = metrics_grid(rows, replace(data, name="shop"), ("P@1",))
    for ending in ("json", "csv", "md", "tex", "html"):
        save_grid(made, rows, tmp_path / f"table.{ending}")
    cells = json.loads((tmp_path / "table.json").read_text())
    assert [Cell(**{**cell, "settings": tuple(cell["settings"])}) for cell in cells] == [cell for one in rows for cell in one.cells]
    lines = [*csv.DictReader((tmp_path / "table.csv").read_text().splitlines())]
    assert [(line["name"], line["seed"], float(line["P@1"]), float(line["train_seconds"]), line["settings"]) for line in lines] == [
        ("a", "0", 10.0, 2.0, "epochs=1"),
        ("a", "1", 20.0, 2.0, "epochs=1"),
        ("b & c", "0", 30.0, 4.0, "epochs=1"),
    ]
    head, rule, first, second = (tmp_path / "table.md").read_text().splitlines()
    assert head == "| system | rows added | P@1 | train | a text | peak | model |" and rule == "| :-- | :-- | --: | --: | --: | --: | --: |"
    assert second == "| b & c | none | **30.00** | 4 s | 0.50 ms | 600 MB | 12 MB |"
    latex = (tmp_path / "table.tex").read_text()
    assert r"b \& c & none & \textbf{30.00} & 4 s" in latex and r"\begin{tabular}{llrrrrr}" in latex and r"15.00 $\pm$7.07" in latex
    page = (tmp_path / "table.html").read_text()
    assert "<td>b &amp; c</td><td>none</td><td><b>30.00</b></td>" in page
    with pytest.raises(SettingError, match="table.txt is to be written; wanted a name that ends in .json, .csv, .md, .tex, .html"):
        save_grid(made, rows, tmp_path / "table.txt")


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=6)


@given(st.lists(st.lists(WORDS, min_size=2, max_size=2), max_size=3))
def test_no_word_breaks_a_table(words: list[list[str]]) -> None:
    made = Grid("t", ("a", "b"), tuple(tuple(Entry(word) for word in line) for line in words))
    assert [*csv.reader(made.to_csv().splitlines())][1:] == words
    for line in made.to_markdown().split("\n")[2:-1]:
        assert line.replace(r"\|", "").count("|") == 3
    page = made.to_html()
    assert page.count("<td>") == 2 * len(words) and page.count("<") == page.count(">")
    body = made.to_latex().split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert body.replace(r"\&", "").count("&") == len(words)


# ---- tables of papers


def test_every_table_of_a_paper_names_what_there_is() -> None:
    assert {"gandalf-2", "gandalf-3", "gandalf-4", "gandalf-6", "gandalf-7", "gandalf-fig2", "gandalf-fig3", "labelmix-3"} <= set(tables())
    assert {*(f"unidec-{n}" for n in range(2, 7)), "eclare-2", "eclare-4", "eclare-5", "eclare-7", "eclare-fig9", "qualitative"} <= set(
        tables()
    )
    for name in tables():
        table = read_table(name)
        assert table.about and len({(plan.called, plan.augmentation) for plan in table.plans}) == len(table.plans), name
        for plan in table.plans:
            named_augmentation(plan.augmentation)
            if not plan.peer:
                read_recipe(plan.system, plan.settings)
    tested = {(plan.settings, plan.augmentation) for plan in read_table("eclare-5").plans}
    assert len(tested) == 12
    assert read_table("gandalf-2", ["epochs=3"]).plans[0].settings == ("epochs=3",)
    assert read_table("gandalf-2").plans[2].published["LF-AmazonTitles-131K"] == [43.52, 29.23, 20.92, 36.96, 42.71, 47.64]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("rows = [", "not a TOML file"),
        ("colums = []", "No setting in mine.toml called 'colums'. Did you mean 'columns'"),
        ("about = 'x'", "mine.toml has no rows"),
        ("shows = 'bin'\n[[rows]]\nrecipe = 'astec'", "Did you mean 'bins'"),
        ("[[rows]]\nname = 'x'", "mine.toml, row 1: wanted a recipe or a peer"),
        ("[[rows]]\nrecipe = 'astec'\npeer = 'pecos'", "wanted a recipe or a peer, and one of the two"),
        ("[[rows]]\nrecipe = 'astec'\naugmentation = 'none'", "Did you mean 'augment'"),
        ("columns = ['P@1']\n[[rows]]\nrecipe = 'astec'\npublished = {x = [1.0, 2.0]}", "2 published numbers for x; the table has 1"),
    ],
)
def test_a_table_that_cannot_be_read_is_told_in_one_line(content: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(LongtailError, match=told) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingError, match="other.toml is not there"):
        read_table(tmp_path / "other.toml")
    with pytest.raises(UnknownName, match="No table called 'gandalf-22'. Did you mean 'gandalf-2'"):
        read_table("gandalf-22")


def test_figures(data: Dataset, tmp_path: Path) -> None:
    plans = grid(["eclare"], ["none", "gandalf"], [*SETTINGS, "validation=0.2"])
    rows = run_plans(data, plans, 2, folder=tmp_path, device="cpu")
    bins = bins_grid(rows, data)
    shown = [float(entry.text) for entry in bins.rows[0][2:]]
    assert shown[0] == pytest.approx(sum(shown[1:]), abs=0.03) and shown[0] == round(rows[0].mean("P@5"), 2)
    curves = curves_grid(rows, data)
    last = [np.mean([[entry["P@1"] for entry in cell.history if "P@1" in entry][-1] for cell in row.cells]) for row in rows]
    assert [line[-1].text for line in curves.rows[::2]] == [f"{value:.2f}" for value in last]
    parts = components_grid(rows, data)
    assert [line[2].text for line in parts.rows] == ["text", "graph", "free"] * 2
    clusters = clusters_grid(plans, data)
    assert [line[0].text for line in clusters.rows] == ["eclare", "eclare", "at random"]
    n_clusters = int(clusters.rows[0][1].text)
    random = np.random.default_rng(0).permutation(data.n_labels).astype(np.int32) % n_clusters
    assert clusters.rows[2][2].text == f"{lost_information(random, data.train.labels)[0]:.3f}"
    shown_texts = predictions_grid(rows, data)
    assert data.test.texts is not None and {line[0].text for line in shown_texts.rows} - {""} <= set(data.test.texts)
    for line in shown_texts.rows:
        assert line[3].text.count(";") == 4
    with pytest.raises(DataError, match="without validation rows, so there is no curve; type validation=0.1"):
        curves_grid(compared(data, ["eclare"], folder=tmp_path), data)
    with pytest.raises(DataError, match="astec has label vectors of one part"):
        components_grid(compared(data, ["astec"], folder=tmp_path), data)


def test_every_thing_a_table_shows_has_a_grid() -> None:
    assert set(FIGURES) == set(get_args(Shows))


def test_cells_that_are_not_there(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(DataError, match="wanted .* `longtail compare --keep` filled"):
            read_cells(place)
    with pytest.raises(DataError, match="not read from a folder"):
        cell_of("a", {}).predictions()


# ---- the command


def test_the_command(data: Dataset, tmp_path: Path, command: Command, fits: list[Any]) -> None:
    assert data.label_texts is not None
    table = write_table(tmp_path / "spelled.csv", data.train, data.label_texts)
    arguments = ("compare", table, *SETTINGS, "--recipes", "default,astec", "--augment", "none", "--test-share", "0.2", "--device", "cpu")
    kept = ("--keep", tmp_path / "kept")
    assert "table.txt is to be written; wanted a name" in command.fails(*arguments, *kept, "--out", tmp_path / "table.txt")
    assert fits == []
    out, err = command.run(*arguments, *kept, "--out", tmp_path / "table.md")
    assert "spelled, test rows, 1 seed" in out and "default" in out and "astec" in out
    assert f"Wrote {tmp_path / 'table.md'}." in err and f"next: longtail report {tmp_path / 'kept'} --data {table}" in err
    assert len(fits) == 2
    again, _ = command.run(*arguments, *kept)
    assert again == out and len(fits) == 2
    shown, _ = command.run("compare", table, *INCEPTION, "--table", "gandalf-fig2", *kept, "--test-share", "0.2", "--device", "cpu")
    assert "contribution of each label frequency to P@5" in shown and len(fits) == 4
    assert "Did you mean 'default'" in command.fails("compare", table, "--recipes", "defualt", *kept, "--test-share", "0.2")
    assert "No table called 'gandalf-9'" in command.fails("compare", table, "--table", "gandalf-9", *kept)
    assert "Nothing to compare" in command.fails("compare", table, "--recipes", "", *kept)
    assert "has no test rows to compare on" in command.fails("compare", table, *kept)


def test_data_without_texts_is_told(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="spelled has no texts of training rows"):
        compared(replace(data, train=replace(data.train, texts=None)), ["default"], folder=tmp_path)


def test_a_table_is_filled_by_its_name(data: Dataset, tmp_path: Path) -> None:
    started = time.monotonic()
    made, rows = fill_table(read_table("gandalf-4", INCEPTION), data, folder=tmp_path, device="cpu")
    assert made.columns[2:5] == ("C@1", "C@3", "C@5") and len(rows) == 2
    assert rows[0].cells[0].train_seconds <= time.monotonic() - started
    of_clusters = tmp_path / "clusters.toml"
    of_clusters.write_text('shows = "clusters"\n[[rows]]\nrecipe = "decaf"\n')
    none, no_rows = fill_table(read_table(of_clusters), data, folder=tmp_path)
    assert no_rows == [] and [line[0].text for line in none.rows][-1] == "at random"

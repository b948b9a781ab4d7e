"""Comparisons: cells as the same recipe run by hand, kept and not run again, and the tables made of them."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.text import Text

from longtail import XMC, Dataset
from longtail.comparison import SHOWN, Cell, Row, compare_recipes, comparison_table, markdown, save_rows
from longtail.errors import DataError, LongtailError, SettingError
from longtail.evaluation import evaluate
from longtail.recipe import read_recipe
from longtail.tables import to_text
from longtail.train.watch import Watch
from tests.spelled import Command, spelled_out, write_table
from tests.spelled import command as command
from tests.tensors import same_numbers as same_numbers

SETTINGS = ("dim=32", "batch_size=96", "epochs=1", "least_steps=0", "learning_rate=0.01")


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


def test_cells_are_what_the_recipe_reaches_by_hand(
    data: Dataset, tmp_path: Path, fits: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = compare_recipes(data, ["default", "astec"], ["none", "gandalf"], 2, SETTINGS, folder=tmp_path, device="cpu")
    assert [(row.recipe, row.augmentation, len(row.cells)) for row in rows] == [
        ("default", "none", 2),
        ("default", "gandalf", 2),
        ("astec", "none", 2),
        ("astec", "gandalf", 2),
    ]
    assert fits == [(row.recipe, row.augmentation, seed) for row in rows for seed in (0, 1)]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 8 and told[0].startswith("default, none, seed 0: P@1 ")
    for row in (rows[1], rows[2]):
        for seed, cell in enumerate(row.cells):
            model = XMC(read_recipe(row.recipe, SETTINGS), row.augmentation, seed=seed, device="cpu").fit(data)
            assert cell.metrics == evaluate(model.predict_test(data), data, resamples=0).metrics
            assert cell.megabytes == model.megabytes
            assert (cell.data, cell.recipe, cell.augmentation, cell.seed) == ("spelled", row.recipe, row.augmentation, seed)
    assert rows[0].cells[0].metrics != rows[0].cells[1].metrics
    assert len(list(tmp_path.iterdir())) == 8  # a file a cell, and no checkpoint


def test_a_cell_is_run_once(data: Dataset, tmp_path: Path, fits: list[Any]) -> None:
    def run(*recipes: str, seeds: int = 1, settings: tuple[str, ...] = SETTINGS, of: Dataset = data) -> list[Row]:
        fits.clear()
        return compare_recipes(of, recipes, ["none"], seeds, settings, folder=tmp_path / "kept", device="cpu")

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
        return compare_recipes(data, ["default"], settings=SETTINGS, folder=tmp_path, device="cpu", models=models)

    (first,) = run(models=False)
    (cell,) = tmp_path.iterdir()
    (again,) = run(models=True)
    assert len(fits) == 2 and again.cells[0].metrics == first.cells[0].metrics
    kept = XMC.load(cell.with_suffix(""))
    assert kept.stored is not None and kept.stored.about["metrics"]["P@1"] == first.cells[0].metrics["P@1"]
    assert run(models=True) == run(models=False) == [again] and len(fits) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"recipe": "default"}', b"\xff"])
def test_a_damaged_cell_is_run_again(
    content: bytes, data: Dataset, tmp_path: Path, fits: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (first,) = compare_recipes(data, ["default"], settings=SETTINGS, folder=tmp_path, device="cpu")
    (cell,) = tmp_path.iterdir()
    cell.write_bytes(content)
    (again,) = compare_recipes(data, ["default"], settings=SETTINGS, folder=tmp_path, device="cpu")
    assert len(fits) == 2 and again.cells[0].metrics == first.cells[0].metrics
    assert f"{cell} is damaged; running the cell again.\n" in capsys.readouterr().err
    assert compare_recipes(data, ["default"], settings=SETTINGS, folder=tmp_path, device="cpu") == [again]
    assert len(fits) == 2


def test_a_comparison_that_was_stopped_goes_on(data: Dataset, tmp_path: Path, fits: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(place: str) -> list[Row]:
        return compare_recipes(data, ["default"], ["none", "gandalf"], settings=SETTINGS, folder=tmp_path / place, device="cpu")

    real = Watch.stepped

    def stepped(watch: Watch, *arguments: Any) -> None:
        if fits[-1][1] == "gandalf":  # in the second cell
            watch._interrupt(2, None)
        real(watch, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "stepped", stepped)
        with pytest.raises(KeyboardInterrupt):
            compared("stopped")
    assert sorted(path.suffix for path in (tmp_path / "stopped").iterdir()) == [".checkpoint", ".json"]
    fits.clear()
    rows = compared("stopped")
    assert fits == [("default", "gandalf", 0)]
    assert [path.suffix for path in (tmp_path / "stopped").iterdir()] == [".json", ".json"]
    assert [row.cells[0].metrics for row in rows] == [row.cells[0].metrics for row in compared("whole")]


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
            compare_recipes(of, recipes, augmentations, seeds, SETTINGS, folder=tmp_path, device="cpu")
    assert fits == [] and list(tmp_path.iterdir()) == []


# ---- tables


def row(recipe: str, *values: float, seconds: float = 2.0) -> Row:
    """Every metric has the same value, one for each seed."""
    cells = [Cell("shop", recipe, "none", seed, dict.fromkeys(SHOWN, value), seconds, 0.5, 12.0) for seed, value in enumerate(values)]
    return Row(recipe, "none", tuple(cells))


def test_mean_and_deviation() -> None:
    assert row("a", 1.0, 3.0).mean("P@1") == 2 and row("a", 1.0, 3.0).deviation("P@1") == pytest.approx(2**0.5)
    assert row("a", 7.0).mean("P@1") == 7 and row("a", 7.0).deviation("P@1") == 0


def test_markdown_has_the_best_in_bold() -> None:
    head, rule, first, second, third = markdown([row("a", 10.0, 20.0), row("b", 30.0, 31.0), row("c", 30.5, 30.5)]).splitlines()
    assert head.split(" | ")[2:-1] == list(SHOWN) and rule.count("---") == len(SHOWN) + 3
    assert first == f"| a | none | {' | '.join(['15.00'] * len(SHOWN))} | 2 s |"
    assert second == f"| b | none | {' | '.join(['**30.50**'] * len(SHOWN))} | 2 s |"
    assert third == f"| c | none | {' | '.join(['**30.50**'] * len(SHOWN))} | 2 s |"  # as good as the other


def test_the_printed_table_has_the_best_in_bold() -> None:
    table = comparison_table([row("a", 10.0, 20.0), row("b", 30.0, 31.0)])
    cells = [cell for cell in table.columns[2].cells if isinstance(cell, Text)]
    assert [(cell.plain, cell.style) for cell in cells] == [("15.00 ±7.07", ""), ("30.50 ±0.71", "bold")]
    shown = to_text(table)
    assert "shop, test rows, mean and deviation of 2 seeds" in shown and "0.50 ms" in shown and "12 MB" in shown
    single = to_text(comparison_table([row("a", 10.0)]))
    assert "shop, test rows, 1 seed" in single and "±" not in single


def test_saved_as_json_csv_and_markdown(tmp_path: Path) -> None:
    rows = [row("a", 10.0, 20.0), row("b", 30.0, seconds=4.0)]
    for ending in ("json", "csv", "md"):
        save_rows(rows, tmp_path / f"table.{ending}")
    cells = json.loads((tmp_path / "table.json").read_text())
    assert cells == [asdict(cell) for one in rows for cell in one.cells]
    header, first, second = csv.reader((tmp_path / "table.csv").read_text().splitlines())
    named = dict(zip(header, first, strict=True))
    assert (named["recipe"], named["seeds"], float(named["P@1"]), float(named["train seconds"])) == ("a", "2", 15.0, 2.0)
    assert float(named["PSP@5 deviation"]) == pytest.approx(50**0.5)
    assert dict(zip(header, second, strict=True))["P@1 deviation"] == "0.0"
    assert (tmp_path / "table.md").read_text() == markdown(rows)
    with pytest.raises(SettingError, match="table.txt is to be written; wanted a name that ends in .json, .csv, .md"):
        save_rows(rows, tmp_path / "table.txt")


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
    assert f"Wrote {tmp_path / 'table.md'}." in err
    assert len((tmp_path / "table.md").read_text().splitlines()) == 4
    assert len(fits) == 2
    again, _ = command.run(*arguments, *kept)
    assert again == out and len(fits) == 2
    assert "Did you mean 'default'" in command.fails("compare", table, "--recipes", "defualt", *kept, "--test-share", "0.2")
    assert "has no test rows to compare on" in command.fails("compare", table, *kept)


def test_data_without_texts_is_told(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="spelled has no texts of training rows"):
        compare_recipes(replace(data, train=replace(data.train, texts=None)), ["default"], folder=tmp_path, device="cpu")

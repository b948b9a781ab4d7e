"""COMPARE: recipes x augmentations x seeds -> one table. Every cell is kept, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import csv
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

import longtail
from longtail.data.files import new_file
from longtail.errors import DataError, SettingError
from longtail.estimator import XMC, named_augmentation
from longtail.evaluation import evaluate
from longtail.recipe import Recipe, read_recipe
from longtail.values import Dataset

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "coverage@5")
WHERE_THERE_ARE = ("unseen P@1",)  # labels without training rows
FORMATS = (".json", ".csv", ".md")


@dataclass(frozen=True)
class Cell:
    """One recipe trained on one augmentation with one seed."""

    data: str
    recipe: str
    augmentation: str
    seed: int
    metrics: dict[str, float]  # of the test rows, in percent
    train_seconds: float
    predict_milliseconds: float  # a text
    megabytes: float  # label vectors, token table, encoder


@dataclass(frozen=True)
class Row:
    """The cells of one recipe and augmentation."""

    recipe: str
    augmentation: str
    cells: tuple[Cell, ...]

    def mean(self, metric: str) -> float:
        return float(np.mean([cell.metrics[metric] for cell in self.cells]))

    def deviation(self, metric: str) -> float:
        """Standard deviation over seeds; 0 for a single one."""
        return float(np.std([cell.metrics[metric] for cell in self.cells], ddof=1)) if len(self.cells) > 1 else 0.0


def compare_recipes(
    data: Dataset,
    recipes: Sequence[str | Path],
    augmentations: Sequence[str] = ("none",),
    seeds: int = 1,
    settings: Iterable[str] = (),
    *,
    folder: Path,
    device: str | None = None,
    models: bool = False,
) -> list[Row]:
    """Train, predict for the test rows and measure, cell by cell.

    Args:
        folder: where cells are kept, under a name that stands for data, recipe, augmentation, seed and version; what is there
            is not run again.
        models: keep the model folder of every cell too, beside it.
    """
    if not len(data.test):
        raise DataError(f"{data.name} has no test rows to compare on; hold some out with test_share.")
    if seeds < 1 or not recipes or not augmentations:
        raise SettingError("Nothing to compare: wanted at least one recipe, one augmentation and one seed.")
    for augmentation in augmentations:
        named_augmentation(augmentation)  # told now, not after the cells before it
    settings = tuple(settings)
    read = [read_recipe(recipe, settings) for recipe in recipes]
    folder.mkdir(parents=True, exist_ok=True)
    mark = _fingerprint(data)
    rows = []
    for recipe in read:
        for augmentation in augmentations:
            cells = tuple(_cell(data, mark, recipe, augmentation, seed, folder, device, models) for seed in range(seeds))
            rows.append(Row(recipe.name, augmentation, cells))
    return rows


def _cell(data: Dataset, mark: str, recipe: Recipe, augmentation: str, seed: int, folder: Path, device: str | None, models: bool) -> Cell:
    model = XMC(recipe, augmentation, seed=seed, device=device)
    tables = [one.tables for one in (recipe, *recipe.beside)]
    told = json.dumps([mark, tables, augmentation, seed, model.device.type, longtail.__version__], sort_keys=True)
    path = folder / f"{recipe.name}-{augmentation.partition(':')[0]}-{seed}-{hashlib.sha256(told.encode()).hexdigest()[:16]}.json"
    kept = path.with_suffix("")  # the model
    if path.exists() and (kept.exists() or not models):
        try:
            return Cell(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            sys.stderr.write(f"{path} is damaged; running the cell again.\n")
    start = time.monotonic()
    model.fit(data, checkpoint=path.with_suffix(".checkpoint"))
    trained = time.monotonic()
    found = model.predict_test(data)
    predicted = time.monotonic()
    metrics = evaluate(found, data, resamples=0).metrics
    cell = Cell(
        data.name,
        recipe.name,
        augmentation,
        seed,
        metrics,
        trained - start,
        1000 * (predicted - trained) / max(1, len(data.test)),
        model.megabytes,
    )
    if models and not kept.exists():
        model.note_metrics(metrics)
        model.save(kept)
    with new_file(path) as fresh:
        fresh.write_text(json.dumps(asdict(cell)), encoding="utf-8")
    shown = ", ".join(f"{name} {metrics[name]:.2f}" for name in ("P@1", "PSP@1", "PSP@5"))
    sys.stderr.write(f"{recipe.name}, {augmentation}, seed {seed}: {shown}; {cell.train_seconds:.0f} s\n")
    return cell


def _fingerprint(data: Dataset) -> str:
    digest = hashlib.sha256(data.name.encode())
    for split in (data.train, data.test):
        for array in (split.labels.indptr, split.labels.indices, split.labels.data):
            digest.update(np.ascontiguousarray(array).tobytes())
        if split.filter is not None:
            digest.update(np.ascontiguousarray(split.filter).tobytes())
    for texts in (data.train.texts, data.test.texts, data.label_texts):
        if texts is not None:
            digest.update(texts.offsets.tobytes())
            digest.update(texts.buffer.tobytes())
    return digest.hexdigest()


def check_name(path: Path) -> None:
    """Whether the name says how to write."""
    if path.suffix not in FORMATS:
        raise SettingError(f"{path} is to be written; wanted a name that ends in {', '.join(FORMATS)}.")


def save_rows(rows: Sequence[Row], path: Path) -> None:
    """As .json (every cell), .csv (a line a row) or .md (a table to paste)."""
    check_name(path)
    with new_file(path) as fresh:
        if path.suffix == ".json":
            fresh.write_text(json.dumps([asdict(cell) for row in rows for cell in row.cells], indent=1), encoding="utf-8")
        elif path.suffix == ".csv":
            with open(fresh, "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                shown = columns_of(rows)
                writer.writerow(["recipe", "augmentation", "seeds", *shown, *(f"{name} deviation" for name in shown), "train seconds"])
                for row in rows:
                    means, spread = [row.mean(name) for name in shown], [row.deviation(name) for name in shown]
                    writer.writerow([row.recipe, row.augmentation, len(row.cells), *means, *spread, train_seconds(row)])
        else:
            fresh.write_text(markdown(rows), encoding="utf-8")


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """The metrics that a table shows."""
    there = [name for name in WHERE_THERE_ARE if all(name in cell.metrics for row in rows for cell in row.cells)]
    return (*SHOWN, *there)


def markdown(rows: Sequence[Row]) -> str:
    """The table in Markdown, the best of each column in bold."""
    shown = columns_of(rows)
    best = {name: max(row.mean(name) for row in rows) for name in shown}
    lines = [f"| recipe | augmentation | {' | '.join(shown)} | train |", "|---" * (len(shown) + 3) + "|"]
    for row in rows:
        values = [f"**{row.mean(name):.2f}**" if row.mean(name) == best[name] else f"{row.mean(name):.2f}" for name in shown]
        lines.append(f"| {row.recipe} | {row.augmentation} | {' | '.join(values)} | {train_seconds(row):.0f} s |")
    return "\n".join(lines) + "\n"


def train_seconds(row: Row) -> float:
    """The mean over seeds."""
    return float(np.mean([cell.train_seconds for cell in row.cells]))


def comparison_table(rows: Sequence[Row]) -> Table:
    """A line for each recipe and augmentation, the best of each column in bold."""
    cells = rows[0].cells
    seeds = "1 seed" if len(cells) == 1 else f"mean and deviation of {len(cells)} seeds"
    table = Table(title=f"{cells[0].data}, test rows, {seeds}", title_justify="left")
    for column in ("recipe", "augmentation"):
        table.add_column(column)
    shown = columns_of(rows)
    for column in (*(name.replace("coverage", "C") for name in shown), "train", "a text", "size"):
        table.add_column(column, justify="right")
    best = {name: max(row.mean(name) for row in rows) for name in shown}
    for row in rows:
        values = []
        for name in shown:
            spread = f" ±{row.deviation(name):.2f}" if len(row.cells) > 1 else ""
            values.append(Text(f"{row.mean(name):.2f}{spread}", style="bold" if row.mean(name) == best[name] else ""))
        milliseconds = sum(cell.predict_milliseconds for cell in row.cells) / len(row.cells)
        costs = f"{train_seconds(row):,.0f} s", f"{milliseconds:.2f} ms", f"{row.cells[0].megabytes:,.0f} MB"
        table.add_row(row.recipe, row.augmentation, *values, *costs)
    return table

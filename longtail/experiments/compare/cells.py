"""Cells, the trainings that a table is made of, as they are kept on disk."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from longtail.core.errors import DataError
from longtail.core.values import Dataset, Predictions
from longtail.data.files import new_file
from longtail.evaluation.predictions import drop_filtered, read_predictions, write_predictions
from longtail.experiments.compare.plans import Plan

KEPT_PLACES = 10  # labels of a test row that are kept, when the filtered ones are out


@dataclass(frozen=True)
class Cell:
    """One system trained on one augmentation with one seed."""

    data: str
    system: str  # recipe or peer
    variant: str  # the name of its line in a table, where that is not the name of the system
    augmentation: str
    settings: tuple[str, ...]
    seed: int
    machine: str
    version: str
    metrics: dict[str, float]  # of the test rows, in percent
    bins: list[dict[str, float]]  # of equal training volume, the most frequent labels first
    train_seconds: float
    predict_milliseconds: float  # a text
    megabytes: float  # of what prediction keeps in memory
    peak_megabytes: float  # of the process, or on the GPU; 0 where unknown, as in a run that was stopped and went on
    history: list[dict[str, Any]]  # of every epoch
    ablations: dict[str, dict[str, float]] = field(default_factory=dict)  # metrics of each member or tower alone
    components: list[dict[str, float]] = field(default_factory=list)  # lengths of the parts of label vectors, by frequency bin
    path: Path | None = field(default=None, compare=False, repr=False)  # where it is kept

    def predictions(self) -> Predictions:
        """The ten best labels of each test row that the filter leaves."""
        if self.path is None:
            raise DataError("This cell was not read from a folder, so its predictions are not known.")
        return read_predictions(self.path.with_suffix(".npz"))

    @property
    def costs(self) -> dict[str, float]:
        """Time and memory; 0 where unknown."""
        return {
            "train_seconds": self.train_seconds,
            "predict_milliseconds": self.predict_milliseconds,
            "megabytes": self.megabytes,
            "peak_megabytes": self.peak_megabytes,
        }

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {key: value for key, value in asdict(self).items() if key != "path"}


@dataclass(frozen=True)
class Row:
    """The cells of one line of a table, one for each seed."""

    plan: Plan
    cells: tuple[Cell, ...]

    def mean(self, metric: str) -> float:
        return float(np.mean([cell.metrics[metric] for cell in self.cells]))

    def deviation(self, metric: str) -> float:
        """Standard deviation over seeds; 0 for a single one."""
        return deviation([cell.metrics[metric] for cell in self.cells])


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample; 0 for a single value.

    >>> deviation([1.0, 3.0]) ** 2, deviation([7.0])
    (2.0000000000000004, 0.0)
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def read_cells(folder: Path) -> list[Cell]:
    """All cells of a folder, by name."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; wanted one that `longtail compare --keep` filled.")
    found = [cell for path in sorted(folder.glob("*.json")) if (cell := read_cell(path)) is not None]
    if not found:
        raise DataError(f"{folder} holds no cells; wanted a folder that `longtail compare --keep` filled.")
    return found


def read_cell(path: Path) -> Cell | None:
    """The cell of a file; None where there is none, or a damaged one, which is named."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return Cell(**{**held, "settings": tuple(held["settings"])}, path=path)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        sys.stderr.write(f"{path} is damaged or of an older version, and left aside.\n")
        return None


def write_cell(cell: Cell, predictions: Predictions, data: Dataset) -> None:
    """Keep a cell at its path, with the best of its predictions next to it."""
    assert cell.path is not None
    left = predictions if data.test.filter is None else drop_filtered(predictions, data.test.filter)
    write_predictions(cell.path.with_suffix(".npz"), Predictions(left.ids[:, :KEPT_PLACES], left.scores[:, :KEPT_PLACES]))
    with new_file(cell.path) as unfinished:
        unfinished.write_text(json.dumps(cell.as_dict()), encoding="utf-8")

"""Plans of a comparison: lines of a table, typed on the command line or read from a TOML file that stands for a table of a paper."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from longtail.core.errors import SettingError, UnknownName
from longtail.core.registry import tables

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "coverage@5")
Shows = Literal["metrics", "bins", "curves", "clusters", "components", "predictions"]
ROW = ("name", "recipe", "peer", "augment", "settings", "published")
TOP = ("about", "shows", "columns", "ablations", "settings", "rows")


@dataclass(frozen=True)
class Plan:
    """One line of a table: a recipe or a peer, and what it is trained on."""

    system: str  # name of a recipe, its TOML file, or name of a peer
    augmentation: str = "none"
    settings: tuple[str, ...] = ()
    name: str = ""  # of the line, where that is not the name of the recipe
    peer: bool = False
    published: Mapping[str, Sequence[float]] = field(default_factory=dict, hash=False)  # by data set, in the order of columns

    @property
    def called(self) -> str:
        return self.name or Path(self.system).stem


@dataclass(frozen=True)
class NamedTable:
    """A table of a paper, to be filled with any data set.

    Args:
        shows: "metrics"; the part that "bins" of labels have in P@5; "curves" of a metric while training; quality of "clusters";
            "components" of label vectors by frequency; "predictions" side by side.
        columns: metrics, where those are shown.
        ablations: also a line for each member or tower alone.
    """

    name: str
    about: str
    plans: tuple[Plan, ...]
    shows: Shows = "metrics"
    columns: tuple[str, ...] = METRICS
    ablations: bool = False


def grid(recipes: Iterable[str], augmentations: Sequence[str], settings: Sequence[str] = (), peers: Iterable[str] = ()) -> tuple[Plan, ...]:
    """Every recipe and every peer with every augmentation."""
    systems = [(recipe, tuple(settings), False) for recipe in recipes] + [(peer, (), True) for peer in peers]
    return tuple(Plan(system, augmentation, typed, peer=peer) for system, typed, peer in systems for augmentation in augmentations)


def read_table(source: str | Path, settings: Sequence[str] = ()) -> NamedTable:
    """A table by its name, see `longtail list tables`, or from a TOML file; `settings` are put on top of those of every line."""
    path = Path(source)
    if path.suffix == ".toml":
        if not path.is_file():
            raise SettingError(f"{path} is not there; wanted a file that describes a table, or the name of one: {', '.join(tables())}.")
    else:
        known = tables()
        if str(source) not in known:
            raise UnknownName("table", str(source), known)
        path = known[str(source)]
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: not a TOML file ({error}).") from error
    for key in found:
        if key not in TOP:
            raise UnknownName(f"setting in {path.name}", key, TOP)
    shows = found.get("shows", "metrics")
    if shows not in get_args(Shows):
        raise UnknownName(f"value of shows in {path.name}", str(shows), get_args(Shows))
    rows = found.get("rows")
    if not isinstance(rows, list) or not rows:
        raise SettingError(f"{path.name} has no rows; wanted at least one [[rows]] table with a recipe or a peer.")
    columns = tuple(found.get("columns", METRICS))
    common = (*found.get("settings", ()), *settings)
    plans = tuple(_plan(row, common, len(columns), f"{path.name}, row {place + 1}") for place, row in enumerate(rows))
    return NamedTable(path.stem, str(found.get("about", "")), plans, shows, columns, bool(found.get("ablations", False)))


def _plan(row: Mapping[str, Any], common: Sequence[str], n_columns: int, where: str) -> Plan:
    for key in row:
        if key not in ROW:
            raise UnknownName(f"setting in {where}", key, ROW)
    if ("recipe" in row) == ("peer" in row):
        raise SettingError(f"{where}: wanted a recipe or a peer, and one of the two.")
    published = row.get("published", {})
    for data, numbers in published.items():
        if len(numbers) != n_columns:
            raise SettingError(f"{where}: {len(numbers)} published numbers for {data}; the table has {n_columns} columns.")
    peer = "peer" in row
    system = row["peer"] if peer else row["recipe"]
    typed = (*(() if peer else common), *row.get("settings", ()))
    return Plan(str(system), str(row.get("augment", "none")), typed, str(row.get("name", "")), peer, published)

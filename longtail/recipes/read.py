"""Recipes from TOML files, by name or path, with typed settings on top. A setting that is not known is named, not ignored."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from longtail.core.errors import SettingError, UnknownName
from longtail.core.registry import recipes
from longtail.core.settings import from_table
from longtail.recipes.recipe import Recipe
from longtail.recipes.tables import TABLES, Tables, Top, check_shape, class_of, kind_of, merged, objective_of, stage_hints, with_settings
from longtail.training.stage import Stage

MEMBER = re.compile(r"members\.(\d+)\.(.+)", re.DOTALL)  # a typed setting of one member
OF_RUN = ("validation", "patience", "members", "augment")  # settings of a recipe that its members do not take over


def read_recipe(source: str | Path, settings: Iterable[str] = ()) -> Recipe:
    """A recipe by its name, or from a TOML file, with `key=value` settings on top.

    A key may be given with its table, `encoder.dim=256`, or without, `dim=256`, where only one table has it. A setting of stages,
    `epochs=5`, is for all of them; `stages.0.epochs=5` for the first alone, `members.0.epochs=5` for the first of [[members]].
    `encoder.kind=inception` takes what the recipe says of the former kind alone out of the table.

    Args:
        source: the name of a recipe of longtail's, see `longtail list recipes`, or a path that ends in .toml.
        settings: words such as "epochs=5".

    >>> read_recipe("astec", ["dim=64", "stages.0.epochs=1"]).encoder.dim
    64
    """
    path = _path_of(source)
    return make_recipe(_tables_of(path), path.stem, path.name, settings, (path.resolve(),))


def make_recipe(tables: Tables, name: str, where: str, settings: Iterable[str] = (), seen: tuple[Path, ...] = ()) -> Recipe:
    """A recipe from tables as a TOML file holds them.

    Args:
        where: how messages call their source.
        settings: `key=value` words on top.
        seen: the files that led here.
    """
    for_members: dict[int, list[str]] = {}
    own = []
    for word in settings:
        match = MEMBER.fullmatch(word)
        if match:
            for_members.setdefault(int(match[1]), []).append(match[2])
        else:
            own.append(word)
    tables = _on_base(tables, where)
    check_shape(tables, where)
    made = with_settings(tables, own)
    check_shape(made, where)
    recipe = _recipe(made, name, where)
    members = made.get("members", [])
    for place in for_members:
        if place >= len(members):
            wanted = f"members.0 to members.{len(members) - 1}" if members else "none, as the recipe has no [[members]]"
            raise SettingError(f"members.{place}.{for_members[place][0]} came; wanted {wanted}.")
    found: list[Recipe] = []
    for place, table in enumerate(members):
        found += _member(recipe, table, place, f"{where}, members.{place}", for_members.get(place, ()), seen)
    return replace(recipe, members=tuple(found))


def recipe_of_members(members: Sequence[tuple[str, Tables]], where: str) -> Recipe:
    """The recipe of a trained model, from the name and the tables of each of its members."""
    first, *others = (_recipe(tables, name, where) for name, tables in members)
    return replace(first, members=tuple(others))


def _member(recipe: Recipe, table: Tables, place: int, where: str, settings: Iterable[str], seen: tuple[Path, ...]) -> tuple[Recipe, ...]:
    """A [[members]] table: another recipe and its members, or the recipe itself with a few settings changed."""
    own = {key: value for key, value in table.items() if key not in ("base", "name")}
    if "base" in table:
        path = _path_of(str(table["base"]))
        if path.resolve() in seen:
            raise SettingError(f"{where}: {path} leads back to itself by its [[members]]; wanted another base.")
        base, name, seen = _tables_of(path), path.stem, (*seen, path.resolve())
    else:
        base = {key: value for key, value in recipe.tables.items() if key not in OF_RUN}
        name = f"{recipe.name} {place + 2}"
    made = make_recipe(_merged(base, own, where), str(table.get("name", name)), where, settings, seen)
    return replace(made, members=()), *made.members


def _path_of(source: str | Path) -> Path:
    path = Path(source)
    if path.suffix == ".toml":
        if not path.is_file():
            raise SettingError(f"{path} is not there; wanted a recipe file, or the name of one: {', '.join(recipes())}.")
        return path
    known = recipes()
    if str(source) not in known:
        raise UnknownName("recipe", str(source), known)
    return known[str(source)]


def _tables_of(path: Path, seen: tuple[Path, ...] = ()) -> Tables:
    """The tables of a recipe file, on those of its base."""
    if path.resolve() in seen:
        raise SettingError(f"{path}: the base of this recipe leads back to itself; wanted another one.")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: not a TOML file ({error}).") from error
    members = tables.get("members", [])
    for table in (tables, *(members if isinstance(members, list) else ())):
        _find_near(path, table)
    return _on_base(tables, path.name, (*seen, path.resolve()))


def _find_near(path: Path, table: object) -> None:
    """A base that is a file is looked for in the folder of the recipe that names it first."""
    if isinstance(table, dict) and str(table.get("base", "")).endswith(".toml") and (path.parent / table["base"]).is_file():
        table["base"] = str(path.parent / table["base"])


def _on_base(tables: Tables, where: str, seen: tuple[Path, ...] = ()) -> Tables:
    """The tables on those of the recipe that they name as their base."""
    if "base" not in tables:
        return tables
    own = {key: value for key, value in tables.items() if key != "base"}
    return _merged(_tables_of(_path_of(str(tables["base"])), seen), own, where)


def _merged(base: Tables, own: Tables, where: str) -> Tables:
    try:
        return merged(base, own)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None


def _recipe(tables: Tables, name: str, where: str) -> Recipe:
    """One recipe, without its members."""
    top = {one.name for one in fields(Top)}
    for key in tables:
        if key not in {*top, *TABLES, "stages", "members"}:
            raise UnknownName(f"setting in {where}", key, [*top, *TABLES, "stages", "members", "base"])
    check_shape(tables, where)
    try:
        made = Recipe(
            name=name,
            **{**{table: _part(table, tables) for table in TABLES}, "graph": _graph(tables)},
            stages=tuple(_stage(stage, f"stages.{place}") for place, stage in enumerate(tables["stages"])),
            tables=tables,
            **vars(from_table(Top, {key: value for key, value in tables.items() if key in top}, "")),
        )
        for parts in (made.clusters.parts, *(stage.parts for stage in made.stages)):
            if parts is not None:
                replace(made.labels, parts=parts)  # which checks them
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None
    made.check(where)
    return made


def _part(name: str, tables: Tables) -> Any:
    """The settings of a table, as the dataclass of its kind."""
    table = {key: value for key, value in tables.get(name, {}).items() if key != "kind"}
    settings = class_of(name, tables)
    if "model" in {one.name for one in fields(settings)}:  # tokens of a pretrained model: the encoder says of which
        table |= {key: value for key, value in tables.get("encoder", {}).items() if key == "model"}
    return from_table(settings, table, name)


def _graph(tables: Tables) -> Mapping[str, Any] | None:
    """The kind of the label graph and the settings that are given for it."""
    if "graph" not in tables:
        return None
    made, given = _part("graph", tables), tables["graph"]
    return {"kind": kind_of("graph", tables), **{key: getattr(made, key) for key in given if key != "kind"}}


def _stage(table: Tables, where: str) -> Stage:
    known = stage_hints(table)
    for key in table:
        if key not in known:
            raise UnknownName(f"setting of {where}", key, known)
    objective = objective_of(table)
    own = {one.name for one in fields(objective)}
    made = from_table(objective, {key: value for key, value in table.items() if key in own}, where)
    rest = {key: value for key, value in table.items() if key not in own and key != "objective"}
    return replace(from_table(Stage, rest, where), objective=made)

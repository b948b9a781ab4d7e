"""Recipes as tables: which settings each table may have, how one recipe builds on another, and settings that are typed on top."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from inspect import signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from longtail.core.checks import Described
from longtail.core.errors import SettingError, UnknownName
from longtail.core.registry import KINDS, load
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.recipes.recipe import PredictSettings
from longtail.training.settings import ClusterSettings, Contrast
from longtail.training.stage import Stage

Tables = Mapping[str, Any]

NAMED = {"tokens": "tokens", "encoder": "encoders", "negatives": "negatives", "graph": "graphs"}  # table -> registry of its `kind`
CLASSES = {
    "labels": LabelVectors,
    "classifiers": LabelVectors,
    "contrast": Contrast,
    "clusters": ClusterSettings,
    "predict": PredictSettings,
}
DEFAULT_KINDS = {"graph": "walk"}  # where it is not the first of the registry
OPTIONAL = ("classifiers", "contrast", "graph")  # a setting without its table's name is not looked for there, unless the recipe has it
TABLES = (*NAMED, *CLASSES)
NOT_TYPED = ("labels", "seed", "label_vectors", "min_similarity")  # what functions that make graphs get from elsewhere


@dataclass(frozen=True)
class Top:
    """Settings that stand above the tables."""

    about: str = ""
    ensemble: int = 1
    validation: float = 0.0
    patience: int = 0
    vectors: None | Annotated[str, Described("a file of word vectors")] = None  # None comes first: "none" is no file
    augment: str | None = None


# ---- which settings there are


def kind_of(table: str, tables: Tables) -> str:
    """The `kind` of a table, or the first of its registry."""
    default = DEFAULT_KINDS.get(table) or next(iter(KINDS[NAMED[table]]))
    return str(tables.get(table, {}).get("kind", default))


def class_of(table: str, tables: Tables) -> Any:
    """The dataclass of a table's settings."""
    if table in CLASSES:
        return CLASSES[table]
    found = load(NAMED[table], kind_of(table, tables))
    return found if is_dataclass(found) else _settings_of(found)


def objective_of(stage: Tables) -> Any:
    """The dataclass of a stage's objective."""
    return load("objectives", str(stage.get("objective", next(iter(KINDS["objectives"])))))


def stage_hints(stage: Tables) -> dict[str, Any]:
    """Settings that a stage may have, those of its objective among them, and their types."""
    return {**_hints(Stage), **_hints(objective_of(stage)), "objective": str}


def known_settings(tables: Tables) -> dict[str, dict[str, Any]]:
    """Each table with the settings it may have, and their types; "" is the top of the file."""
    known: dict[str, dict[str, Any]] = {"": {name: hint for name, hint in _hints(Top).items() if name != "about"}}
    known[""]["members"] = list
    for table in TABLES:
        if table not in OPTIONAL or table in tables:
            known[table] = _hints(class_of(table, tables))
    known["tokens"].pop("model", None)  # which is the encoder's
    known["stages"] = {}
    for stage in tables["stages"]:
        known["stages"] |= stage_hints(stage)
    return known


def _hints(settings: Any) -> dict[str, Any]:
    """The type of each setting; ClassVars are none."""
    hints = get_type_hints(settings)
    return {one.name: hints[one.name] for one in fields(settings)}


def _settings_of(function: Any) -> Any:
    """The settings of a function that makes a graph, as a dataclass."""
    taken = signature(function).parameters.items()
    known = {name: (one.annotation, one.default) for name, one in taken if name not in NOT_TYPED}
    known.setdefault("normalise", (str, "square-root"))
    return make_dataclass(function.__name__, [(name, hint, field(default=default)) for name, (hint, default) in known.items()], frozen=True)


def check_shape(tables: Tables, where: str) -> None:
    """Raise where a table is not one."""
    stages = tables.get("stages")
    if not isinstance(stages, list) or not stages:
        raise SettingError(f"{where} has no stages; wanted at least one [[stages]] table.")
    members = tables.get("members", [])
    if not isinstance(members, list):
        raise SettingError(f"{where}: members came as {members!r}; wanted [[members]] tables, or [] for none.")
    found = [(table, tables.get(table, {})) for table in TABLES]
    found += [(f"stages.{place}", stage) for place, stage in enumerate(stages)]
    found += [(f"members.{place}", member) for place, member in enumerate(members)]
    for name, table in found:
        if not isinstance(table, Mapping):
            raise SettingError(f"{where}: {name} came as {table!r}; wanted a table of settings.")


# ---- one recipe on another


def merged(base: Tables, own: Tables) -> dict[str, Any]:
    """The tables of a recipe that names only what differs from its base.

    Tables are merged setting by setting, stages one by one. More stages and members are added behind those of the base;
    `members = []` drops its members.

    >>> merged({"encoder": {"dim": 8}, "stages": [{"loss": "bce"}]}, {"ensemble": 2, "stages": [{"learning_rate": 0.1}]})
    {'encoder': {'dim': 8}, 'stages': [{'loss': 'bce', 'learning_rate': 0.1}], 'ensemble': 2}
    """
    made = deepcopy(dict(base))
    for key, value in own.items():
        if key == "stages":
            made[key] = _merged_stages(made.get(key, []), value)
        elif key == "members":
            made[key] = [*made.get(key, []), *deepcopy(value)] if value else []
        elif isinstance(value, Mapping) and isinstance(made.get(key), Mapping):
            table = made[key] | deepcopy(dict(value))
            if "kind" in value and key in NAMED:
                table = _without_strangers(table, value, {"kind", *_hints(class_of(key, {key: table}))})
            made[key] = table
        else:
            made[key] = deepcopy(value)
    return made


def _merged_stages(base: list[dict[str, Any]], own: Any) -> Any:
    if not isinstance(own, list) or not all(isinstance(stage, Mapping) for stage in own):
        return own  # which check_shape refuses
    made = [dict(stage) for stage in base]
    for place, stage in enumerate(own):
        if place >= len(made):
            made.append(deepcopy(dict(stage)))
            continue
        table = made[place] | deepcopy(dict(stage))
        if "objective" in stage:
            table = _without_strangers(table, stage, set(stage_hints(table)))
        if "epochs" in stage and "min_steps" not in stage:  # whoever names epochs wants so many
            table["min_steps"] = 0
        made[place] = table
    return made


def _without_strangers(table: dict[str, Any], own: Tables, known: set[str]) -> dict[str, Any]:
    """Without settings of the base that only its former kind has."""
    return {name: value for name, value in table.items() if name in known or name in own}


# ---- typed settings


def with_settings(tables: Tables, settings: Iterable[str]) -> dict[str, Any]:
    """The tables of a recipe with `key=value` words put in."""
    made = deepcopy(dict(tables))
    # kinds first: they say which other settings there are
    for word in sorted(settings, key=lambda word: word.partition("=")[0].rpartition(".")[2] not in ("kind", "objective")):
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise SettingError(f"{word!r} came as a setting; wanted key=value, such as epochs=5 or encoder.dim=256.")
        _put(made, key, _value(text))
    return made


def _value(text: str) -> Any:
    """The value as TOML reads it; what TOML cannot read is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tables: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    known = known_settings(tables)
    home = path[0] if path else _home(last, known)
    hint = known.get(home, {}).get(last)
    if isinstance(value, str) and value != "none" and any(get_origin(kind) is tuple for kind in (hint, *get_args(hint))):
        value = value.split(",")  # parts=text,free
    for table in _places(tables, key, path or ([home] if home else []), last):
        table[last] = value
        if last == "epochs":  # whoever types epochs wants so many, however small the data; min_steps may be typed behind it
            table["min_steps"] = 0
        if last == "objective":
            strangers = set(table) - set(stage_hints(table))
        elif last == "kind":  # settings that only the former kind has go with it
            strangers = set(table) - {"kind", *_hints(class_of(home, tables))}
        else:
            continue
        for name in strangers:
            del table[name]


def _home(name: str, known: Mapping[str, Mapping[str, Any]]) -> str:
    """The one table that has a setting of this name. The top has no name to type in front of a setting, so it comes first."""
    homes = [table for table, hints in known.items() if name in hints]
    if "" in homes:
        return ""
    if not homes:
        raise UnknownName("setting", name, {name for hints in known.values() for name in hints})
    if len(homes) > 1:
        choices = " or ".join(f"{home}.{name}" for home in homes)
        raise SettingError(f"{name} is a setting of {len(homes)} tables; type {choices}.")
    return homes[0]


def _places(tables: dict[str, Any], key: str, path: list[str], last: str) -> list[dict[str, Any]]:
    """The tables that a path leads to: several only for `stages`, which means each of them that has such a setting."""
    stages: list[dict[str, Any]] = tables["stages"]
    if not path:
        return [tables]
    if path == ["stages"]:
        return [stage for stage in stages if last in stage_hints(stage)] or stages
    if path[0] == "stages":
        if len(path) != 2 or not path[1].isdigit() or int(path[1]) >= len(stages):
            raise SettingError(f"{key} came; wanted a stage from stages.0 to stages.{len(stages) - 1}, as in stages.0.epochs=5.")
        return [stages[int(path[1])]]
    if len(path) != 1 or path[0] not in TABLES:
        raise UnknownName("table of a recipe", ".".join(path), [*TABLES, "stages"])
    return [tables.setdefault(path[0], {})]

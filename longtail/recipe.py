"""RECIPE: a TOML file -> the parts of a system. A setting it does not know is named, not ignored."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from longtail.classify.vectors import LabelVectors
from longtail.errors import SettingError, UnknownName
from longtail.names import KINDS, load, recipes
from longtail.settings import from_table
from longtail.train.course import Parts
from longtail.train.stages import ClusterSettings, Stage

SHORTLISTS = ("clusters", "nearest")
WAYS = ("all", "clusters", "fused")
TABLES = ("tokens", "encoder", "labels", "graph", "clusters", "shortlist", "predict")


@dataclass(frozen=True)
class ShortlistSettings:
    """Where shortlists of a stage come from: the best "clusters", or the "nearest" label centroids, so many as `keep`."""

    by: str = "clusters"
    keep: int = 500

    def __post_init__(self) -> None:
        _one_of("shortlist.by", self.by, SHORTLISTS)


@dataclass(frozen=True)
class PredictSettings:
    """How labels are found: score "all" of them; those of the best "clusters"; or "fused" with the nearest centroids."""

    by: str = "all"

    def __post_init__(self) -> None:
        _one_of("predict.by", self.by, WAYS)


@dataclass(frozen=True)
class Recipe:
    """A system, put together from parts.

    Args:
        ensemble: networks that are trained and whose scores are added.
        validation: share of the training rows that is held out, to pick what stages leave open (the weight of a fusion, the best epoch).
        patience: epochs without a better validation after which a stage of labels ends; 0 trains all epochs.
        vectors: pretrained token vectors to start from: a word2vec or GloVe file, or "wordllama".
    """

    name: str
    about: str
    tokens: Any
    encoder: Any
    labels: LabelVectors
    graph: Mapping[str, Any] | None
    clusters: ClusterSettings
    shortlist: ShortlistSettings
    predict: PredictSettings
    stages: tuple[Stage, ...]
    ensemble: int = 1
    validation: float = 0.0
    patience: int = 0
    vectors: str | None = None
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)  # as read, to save beside a model

    @property
    def parts(self) -> Parts:
        return Parts(self.encoder, self.labels, self.clusters, self.shortlist.by, self.shortlist.keep, self.stages)


def read_recipe(source: str | Path, settings: Iterable[str] = ()) -> Recipe:
    """A recipe by its name, or from a TOML file, with `key=value` settings on top.

    A key may be given with its table, `encoder.dim=256`, or without, `dim=256`, where only one table has it. A setting of stages,
    `epochs=5`, is for all of them; `stages.0.epochs=5` for the first alone.

    >>> read_recipe("astec", ["dim=64", "stages.0.epochs=1"]).encoder.dim
    64
    """
    path = Path(source)
    if path.suffix == ".toml":
        if not path.is_file():
            raise SettingError(f"{path} is not there; wanted a recipe file, or the name of one: {', '.join(recipes())}.")
    else:
        known = recipes()
        if str(source) not in known:
            raise UnknownName("recipe", str(source), known)
        path = known[str(source)]
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: not a TOML file ({error}).") from error
    return make_recipe(with_settings(tables, settings), path.stem, str(path.name))


def make_recipe(tables: Mapping[str, Any], name: str, where: str) -> Recipe:
    """From tables as a TOML file holds them. `where` is how messages call their source."""
    own = {one.name for one in fields(Recipe)} - {*TABLES, "name", "stages", "tables"}
    for key in tables:
        if key not in {*own, *TABLES, "stages"}:
            raise UnknownName(f"setting in {where}", key, [*own, *TABLES, "stages"])
    if not tables.get("stages"):
        raise SettingError(f"{where} has no stages; wanted at least one [[stages]] table.")
    try:
        made = Recipe(
            name=name,
            about=str(tables.get("about", "")),
            tokens=_named("tokens", tables),
            encoder=_named("encoder", tables),
            labels=from_table(LabelVectors, tables.get("labels", {}), "labels"),
            graph=_graph(tables.get("graph")),
            clusters=from_table(ClusterSettings, tables.get("clusters", {}), "clusters"),
            shortlist=from_table(ShortlistSettings, tables.get("shortlist", {}), "shortlist"),
            predict=from_table(PredictSettings, tables.get("predict", {}), "predict"),
            stages=tuple(from_table(Stage, stage, f"stages.{place}") for place, stage in enumerate(tables["stages"])),
            tables=tables,
            **{key: tables[key] for key in own & set(tables) if key != "about"},
        )
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None
    _check(made, where)
    return made


def _named(kind: str, tables: Mapping[str, Any]) -> Any:
    """The class that `kind = "..."` of a table names, with the rest of the table as its settings."""
    table = dict(tables.get(kind, {}))
    registry = {"tokens": "tokens", "encoder": "encoders"}[kind]
    name = table.pop("kind", next(iter(KINDS[registry])))
    return from_table(load(registry, name), table, kind)


def _graph(table: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if table is None:
        return None
    kind = str(table.get("kind", "walk"))
    known = set(inspect.signature(load("graphs", kind)).parameters) - {"labels", "seed", "label_vectors", "min_similarity"} | {
        "kind",
        "normalise",
    }
    for key in table:
        if key not in known:
            raise UnknownName(f"setting of the graph {kind}", key, known)
    return {"kind": kind, **table}


def _check(recipe: Recipe, where: str) -> None:
    """Settings that contradict each other."""
    wrong = None
    tasks = [stage.task for stage in recipe.stages]
    has_clusters = False
    for place, stage in enumerate(recipe.stages):
        has_clusters |= stage.cluster_by != "nothing"
        learnt = any(task in ("clusters", "both") for task in tasks[:place])
        if stage.task != "labels" and not has_clusters:
            wrong = f'stages.{place} learns clusters, but no stage up to it makes them; wanted cluster_by = "features"'
        elif stage.score == "shortlist" and stage.task == "labels" and recipe.shortlist.by == "clusters" and not learnt:
            wrong = f"stages.{place} takes shortlists from clusters, but no stage before it learns them"
    needs_graph = recipe.labels.needs_graph or recipe.clusters.smooth or recipe.clusters.game
    if tasks[-1] == "clusters":
        wrong = 'the last stage learns clusters; wanted one that learns labels, task = "labels" or "both"'
    elif needs_graph and recipe.graph is None:
        wrong = "label vectors, clusters.smooth or clusters.game need a graph, and there is no [graph] table"
    elif recipe.predict.by == "clusters" and not any(task in ("clusters", "both") for task in tasks):
        wrong = 'predict.by = "clusters", but no stage learns clusters'
    elif recipe.predict.by == "fused" and recipe.shortlist.by != "nearest":
        wrong = 'predict.by = "fused" searches label centroids; wanted shortlist.by = "nearest" with it'
    elif recipe.ensemble < 1:
        wrong = f"ensemble came as {recipe.ensemble}; wanted 1 or more"
    elif not 0 <= recipe.validation < 1:
        wrong = f"validation came as {recipe.validation}; wanted a share from 0 to below 1"
    elif recipe.patience and not recipe.validation:
        wrong = "patience ends a stage by its validation rows, and there are none; wanted validation = 0.1 or so with it"
    elif getattr(recipe.tokens, "ngrams", 1) > 1 and not hasattr(recipe.encoder, "word_dropout"):
        wrong = "the encoder reads words in their order, where bigrams have no place; wanted ngrams = 1"
    if wrong:
        raise SettingError(f"{where}: {wrong}.")


def with_settings(tables: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """The tables of a recipe with `key=value` words put in."""
    made = json.loads(json.dumps(tables))
    for word in settings:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise SettingError(f"{word!r} came as a setting; wanted key=value, such as epochs=5 or encoder.dim=256.")
        _put(made, key, _value(text))
    return dict(made)


def _value(text: str) -> Any:
    """As TOML reads it; what TOML cannot read is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tables: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    if not path:
        homes = _homes(tables, last)
        if not homes:
            raise UnknownName("setting", last, sorted({name for _, names in _known(tables) for name in names}))
        if len(homes) > 1:
            told = " or ".join(f"{home}.{last}" for home in homes)
            raise SettingError(f"{last} is a setting of {len(homes)} tables; type {told}.")
        path = [] if homes[0] == "" else [homes[0]]
    if path and path[0] == "stages":
        stages = tables.get("stages", [])
        if len(path) == 1:
            for stage in stages:
                stage[last] = value
            return
        if not path[1].isdigit() or int(path[1]) >= len(stages):
            raise SettingError(f"{key} came; wanted a stage from stages.0 to stages.{len(stages) - 1}.")
        stages[int(path[1])][last] = value
        return
    here = tables
    for step in path:
        here = here.setdefault(step, {})
    here[last] = value


def _known(tables: Mapping[str, Any]) -> list[tuple[str, set[str]]]:
    """Each table with the settings it may have; "" is the top of the file."""
    classes: dict[str, Any] = {
        "labels": LabelVectors,
        "clusters": ClusterSettings,
        "shortlist": ShortlistSettings,
        "predict": PredictSettings,
    }
    for kind, registry in (("tokens", "tokens"), ("encoder", "encoders")):
        name = tables.get(kind, {}).get("kind", next(iter(KINDS[registry])))
        classes[kind] = load(registry, name)
    classes["stages"] = Stage
    known = [(table, {one.name for one in fields(cls)}) for table, cls in classes.items()]
    return [("", {"ensemble", "validation", "patience", "vectors"}), *known]


def _homes(tables: Mapping[str, Any], key: str) -> list[str]:
    return [table for table, names in _known(tables) if key in names]


def _one_of(what: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise SettingError(f"{what} came as {value!r}; wanted one of {', '.join(known)}.")

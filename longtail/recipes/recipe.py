"""RECIPE: a TOML file -> the parts of a system. A setting it does not know is named, not ignored."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, make_dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from longtail.core.errors import SettingError, UnknownName
from longtail.core.registry import KINDS, LOSSES, load, recipes
from longtail.core.settings import from_table
from longtail.models.encoders.base import EncoderSettings
from longtail.models.label_vectors.vectors import LabelVectors
from longtail.models.losses.all_labels import ALL_LABELS
from longtail.tokens.tokenizer import TokenSettings
from longtail.training.stages import ClusterSettings, Contrast, Stage
from longtail.training.trainer import Parts

SHORTLISTS = ("clusters", "nearest")
WAYS = ("all", "clusters", "fused")
TOWERS = ("labels", "classifiers")
TABLES = ("tokens", "encoder", "labels", "classifiers", "contrast", "graph", "clusters", "shortlist", "predict")
TOP: dict[str, tuple[type | tuple[type, ...], str]] = {  # settings that stand above the tables
    "about": (str, "a text"),
    "ensemble": (int, "a whole number"),
    "validation": ((int, float), "a number"),
    "patience": (int, "a whole number"),
    "vectors": (str, "a file of word vectors, or none"),
    "beside": (list, "a list of recipes"),
}
NOT_TYPED = ("labels", "seed", "label_vectors", "min_similarity")  # what functions that make graphs get from elsewhere


@dataclass(frozen=True)
class ShortlistSettings:
    """Where shortlists of a stage come from: the best "clusters", or the "nearest" label centroids, so many as `keep`."""

    by: str = "clusters"
    keep: int = 500

    def __post_init__(self) -> None:
        _one_of("shortlist.by", self.by, SHORTLISTS)
        if self.keep < 1:
            raise SettingError(f"keep came as {self.keep}; wanted 1 or more.")


@dataclass(frozen=True)
class PredictSettings:
    """How labels are found.

    Args:
        by: score "all" of them; those of the best "clusters"; or "fused" with the nearest centroids.
        towers: which label vectors are searched: "labels", "classifiers", or both side by side. What the second counts is chosen on
            validation rows, where there are some; otherwise it counts as much as the first.
        unit: let cosines decide, also where training did not (UniDEC).
    """

    by: str = "all"
    towers: tuple[str, ...] = ("labels",)
    unit: bool = False

    def __post_init__(self) -> None:
        _one_of("predict.by", self.by, WAYS)
        for tower in self.towers:
            _one_of("predict.towers", tower, TOWERS)
        if not self.towers or len(set(self.towers)) < len(self.towers):
            raise SettingError(f"predict.towers came as {list(self.towers)}; wanted some of {', '.join(TOWERS)}, each once.")


@dataclass(frozen=True)
class Recipe:
    """A system, put together from parts.

    Args:
        ensemble: networks that are trained and whose scores are added.
        validation: share of the training rows that is held out, to pick what stages leave open (the weight of a fusion, the best epoch).
        patience: epochs without a better validation after which a stage of labels ends; 0 trains all epochs.
        vectors: pretrained token vectors to start from: a word2vec or GloVe file, or "wordllama".
        beside: other recipes that are trained too, each on its own, with settings behind their names, such as "dpr epochs=10"; settings
            without a name, such as "loss=softmax", are on top of this recipe and of what was typed for it. Scores are added up, with
            weights that are learnt on validation rows.
    """

    name: str
    about: str
    tokens: TokenSettings
    encoder: EncoderSettings
    labels: LabelVectors
    classifiers: LabelVectors
    contrast: Contrast
    graph: Mapping[str, Any] | None
    clusters: ClusterSettings
    shortlist: ShortlistSettings
    predict: PredictSettings
    stages: tuple[Stage, ...]
    ensemble: int = 1
    validation: float = 0.0
    patience: int = 0
    vectors: str | None = None
    beside: tuple[Recipe, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)  # as read, to save beside a model

    @property
    def parts(self) -> Parts:
        return Parts(
            self.encoder,
            self.labels,
            self.classifiers,
            self.contrast,
            self.clusters,
            self.shortlist.by,
            self.shortlist.keep,
            self.stages,
        )


def read_recipe(source: str | Path, settings: Iterable[str] = ()) -> Recipe:
    """A recipe by its name, or from a TOML file, with `key=value` settings on top.

    A key may be given with its table, `encoder.dim=256`, or without, `dim=256`, where only one table has it. A setting of stages,
    `epochs=5`, is for all of them; `stages.0.epochs=5` for the first alone. `encoder.kind=inception` takes what the recipe tells
    the former kind alone out of the table.

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
    _check_shape(tables, path.name)
    made = make_recipe(with_settings(tables, settings), path.stem, path.name)
    return replace(made, beside=tuple(one for typed in made.tables.get("beside", ()) for one in _beside(made, typed, path.name)))


def _beside(recipe: Recipe, typed: str, where: str) -> tuple[Recipe, ...]:
    """What stands in `beside`: another recipe and those beside it, or this one with a few settings changed."""
    source, settings = _with_words(typed)
    if source:
        other = read_recipe(source, settings)
        return replace(other, beside=()), *other.beside
    own = {key: value for key, value in recipe.tables.items() if key not in ("validation", "patience", "beside")}
    return (make_recipe(with_settings(own, settings), f"{recipe.name}, {' '.join(settings)}", f"{where}, beside"),)


def _with_words(typed: str) -> tuple[str, list[str]]:
    """The name of a recipe, and settings of its own.

    >>> _with_words("my own.toml epochs=3 encoder.dim=64")
    ('my own.toml', ['epochs=3', 'encoder.dim=64'])
    >>> _with_words("labels.parts=free")
    ('', ['labels.parts=free'])
    """
    source, *settings = re.split(r"(?:^| +)(?=[\w.]+=)", typed.strip())
    return source, settings


def make_recipe(tables: Mapping[str, Any], name: str, where: str) -> Recipe:
    """From tables as a TOML file holds them. `where` is how messages call their source."""
    for key in tables:
        if key not in {*TOP, *TABLES, "stages"}:
            raise UnknownName(f"setting in {where}", key, [*TOP, *TABLES, "stages"])
    _check_shape(tables, where)
    try:
        made = Recipe(
            name=name,
            tokens=_named("tokens", tables),
            encoder=_named("encoder", tables),
            labels=from_table(LabelVectors, tables.get("labels", {}), "labels"),
            classifiers=from_table(LabelVectors, tables.get("classifiers", {}), "classifiers"),
            contrast=from_table(Contrast, tables.get("contrast", {}), "contrast"),
            graph=_graph(tables.get("graph")),
            clusters=from_table(ClusterSettings, tables.get("clusters", {}), "clusters"),
            shortlist=from_table(ShortlistSettings, tables.get("shortlist", {}), "shortlist"),
            predict=from_table(PredictSettings, tables.get("predict", {}), "predict"),
            stages=tuple(from_table(Stage, stage, f"stages.{place}") for place, stage in enumerate(tables["stages"])),
            tables=tables,
            **_top(tables),
        )
        for parts in (made.clusters.parts, *(stage.parts for stage in made.stages)):
            if parts is not None:
                replace(made.labels, parts=parts)  # which checks them
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None
    _check(made, where)
    return made


def _check_shape(tables: Mapping[str, Any], where: str) -> None:
    """Tables where tables are wanted."""
    stages = tables.get("stages")
    if not isinstance(stages, list) or not stages:
        raise SettingError(f"{where} has no stages; wanted at least one [[stages]] table.")
    found = [(table, tables.get(table, {})) for table in TABLES] + [(f"stages.{place}", stage) for place, stage in enumerate(stages)]
    for name, table in found:
        if not isinstance(table, Mapping):
            raise SettingError(f"{where}: {name} came as {table!r}; wanted a table of settings.")


def _top(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The settings above the tables."""
    made = {key: tables[key] for key in TOP if key in tables and key != "beside"}
    for key, value in made.items():
        kind, wanted = TOP[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise SettingError(f"{key} came as {value!r}; wanted {wanted}.")
    beside = tables.get("beside", [])
    if not isinstance(beside, list) or not all(isinstance(name, str) for name in beside):
        raise SettingError(f'beside came as {beside!r}; wanted a list of recipes, such as ["default"].')
    if made.get("vectors") == "none":
        made["vectors"] = None
    return {"about": "", **made}


def _class_of(kind: str, tables: Mapping[str, Any]) -> Any:
    """The class that `kind = "..."` of a table names."""
    registry = {"tokens": "tokens", "encoder": "encoders"}[kind]
    name = tables.get(kind, {}).get("kind", next(iter(KINDS[registry])))
    return load(registry, str(name))


def _named(kind: str, tables: Mapping[str, Any]) -> Any:
    """That class, with the rest of the table as its settings."""
    table = {key: value for key, value in tables.get(kind, {}).items() if key != "kind"}
    if kind == "tokens" and tables.get(kind, {}).get("kind") == "pretrained":  # the encoder says whose tokens
        table |= {key: value for key, value in tables.get("encoder", {}).items() if key == "model"}
    return from_table(_class_of(kind, tables), table, kind)


def _graph_settings(kind: str) -> Any:
    """What a graph of that kind may be told, as a dataclass."""
    taken = signature(load("graphs", kind)).parameters.items()
    known = {name: (one.annotation, one.default) for name, one in taken if name not in NOT_TYPED}
    known.setdefault("normalise", (str, "square-root"))
    return make_dataclass(kind, [(name, hint, field(default=default)) for name, (hint, default) in known.items()], frozen=True)


def _graph(table: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if table is None:
        return None
    kind = str(table.get("kind", "walk"))
    given = {key: value for key, value in table.items() if key != "kind"}
    made = from_table(_graph_settings(kind), given, "graph")
    return {"kind": kind, **{key: getattr(made, key) for key in given}}


def _check(recipe: Recipe, where: str) -> None:
    """Settings that contradict each other."""
    wrong = None
    tasks = [stage.task for stage in recipe.stages]
    has_clusters = False
    for place, stage in enumerate(recipe.stages):
        has_clusters |= stage.cluster_by != "nothing"
        learnt = any(task in ("clusters", "both") for task in tasks[:place])
        if stage.task in ("clusters", "both") and not has_clusters:
            wrong = f'stages.{place} learns clusters, but no stage up to it makes them; wanted cluster_by = "features"'
        elif stage.score == "shortlist" and stage.task in ("labels", "classifiers") and recipe.shortlist.by == "clusters" and not learnt:
            wrong = f"stages.{place} takes shortlists from clusters, but no stage before it learns them"
        elif stage.task in ("classifiers", "unified") and "classifiers" not in recipe.tables:
            wrong = f"stages.{place} learns classifiers, and there is no [classifiers] table to say what they are made of"
        elif stage.task == "unified" and stage.score not in ("picked", "all"):
            wrong = f'stages.{place} learns both sets of label vectors by score = "{stage.score}"; wanted "picked" or "all"'
        elif stage.loss not in {"pool": ALL_LABELS, "shortlist": ("bce",)}.get(stage.score, LOSSES):
            wrong = f'stages.{place} has the loss {stage.loss}, which a {stage.score} does not take; wanted score = "picked" or "all"'
        elif stage.task not in ("clusters", "both") and stage.cluster_by != "nothing":
            wrong = f'stages.{place} makes clusters and learns labels alone; wanted task = "both", or cluster_by = "nothing"'
    parts = [recipe.labels.parts, recipe.clusters.parts or (), *(stage.parts or () for stage in recipe.stages)]
    needs_graph = recipe.labels.needs_graph or recipe.clusters.smooth or recipe.clusters.game or any("graph" in part for part in parts)
    if tasks[-1] == "clusters":
        wrong = 'the last stage learns clusters; wanted one that learns labels, task = "labels" or "both"'
    elif needs_graph and recipe.graph is None:
        wrong = "label vectors, clusters.smooth or clusters.game need a graph, and there is no [graph] table"
    elif "classifiers" in recipe.predict.towers and not {"classifiers", "unified"} & set(tasks):
        wrong = 'predict.towers names classifiers, but no stage learns them; wanted one of task = "classifiers" or "unified"'
    elif len(recipe.predict.towers) > 1 and recipe.predict.by != "all":
        wrong = f'predict.by = "{recipe.predict.by}" searches one set of label vectors; wanted predict.by = "all" for two towers'
    elif recipe.predict.by == "clusters" and not any(task in ("clusters", "both") for task in tasks):
        wrong = 'predict.by = "clusters", but no stage learns clusters'
    elif recipe.predict.by == "fused" and recipe.shortlist.by != "nearest":
        wrong = 'predict.by = "fused" searches label centroids; wanted shortlist.by = "nearest" with it'
    elif recipe.ensemble < 1:
        wrong = f"ensemble came as {recipe.ensemble}; wanted 1 or more"
    elif not 0 <= recipe.validation < 1:
        wrong = f"validation came as {recipe.validation}; wanted a share from 0 to below 1"
    elif recipe.patience < 0:
        wrong = f"patience came as {recipe.patience}; wanted 0 or more"
    elif recipe.patience and not recipe.validation:
        wrong = "patience ends a stage by its validation rows, and there are none; wanted validation = 0.1 or so with it"
    elif recipe.tables.get("beside") and not recipe.validation:
        wrong = "recipes beside this one are weighed by validation rows, and there are none; wanted validation = 0.05 or so, or beside = []"
    elif recipe.tokens.has_bigrams and recipe.encoder.reads_order:
        wrong = "the encoder reads words in their order, where bigrams have no place; wanted ngrams = 1"
    elif _learns_nothing(recipe):
        wrong = "the encoder is frozen, and nothing behind it learns; wanted encoder.adapter = 1024 or so, or labels with free vectors"
    if wrong:
        raise SettingError(f"{where}: {wrong}.")


def _learns_nothing(recipe: Recipe) -> bool:
    """Whether there is neither a layer behind a frozen encoder nor a vector of a label of its own."""
    return not recipe.encoder.learns and recipe.labels.parts == ("encoded",) and not recipe.labels.bias and len(recipe.stages) == 1


def with_settings(tables: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """The tables of a recipe with `key=value` words put in."""
    made = deepcopy(dict(tables))
    # kinds first: they say which other settings there are
    for word in sorted(settings, key=lambda word: not word.partition("=")[0].endswith(".kind")):
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise SettingError(f"{word!r} came as a setting; wanted key=value, such as epochs=5 or encoder.dim=256.")
        _put(made, key, _value(text))
    return made


def _value(text: str) -> Any:
    """As TOML reads it; what TOML cannot read is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tables: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    if not path:
        homes = [table for table, hints in _known(tables).items() if last in hints]
        if not homes:
            raise UnknownName("setting", last, {name for hints in _known(tables).values() for name in hints})
        if len(homes) > 1:
            told = " or ".join(f"{home}.{last}" for home in homes)
            raise SettingError(f"{last} is a setting of {len(homes)} tables; type {told}.")
        path = [] if homes[0] == "" else [homes[0]]
    home = path[0] if path else ""
    hint = _known(tables).get(home, {}).get(last)
    if isinstance(value, str) and value != "none" and any(get_origin(kind) is tuple for kind in (hint, *get_args(hint))):
        value = value.split(",")  # parts=text,free
    for table in _places(tables, key, path):
        table[last] = value
        if last == "epochs":  # whoever types epochs wants so many, however small the data; least_steps may be typed behind it
            table["least_steps"] = 0
        if last == "kind":  # what the recipe told the former kind alone goes with it
            for name in set(table) - {"kind", *_known(tables).get(home, ())}:
                del table[name]


def _places(tables: dict[str, Any], key: str, path: list[str]) -> list[dict[str, Any]]:
    """The tables that a path leads to: several only for `stages`, which means each of them."""
    stages: list[dict[str, Any]] = tables["stages"]
    if not path:
        return [tables]
    if path == ["stages"]:
        return stages
    if path[0] == "stages":
        if len(path) != 2 or not path[1].isdigit() or int(path[1]) >= len(stages):
            raise SettingError(f"{key} came; wanted a stage from stages.0 to stages.{len(stages) - 1}, as in stages.0.epochs=5.")
        return [stages[int(path[1])]]
    if len(path) != 1 or path[0] not in TABLES:
        raise UnknownName("table of a recipe", ".".join(path), [*TABLES, "stages"])
    return [tables.setdefault(path[0], {})]


def _known(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each table with the settings it may have, and their types; "" is the top of the file."""
    classes = {
        "labels": LabelVectors,
        "clusters": ClusterSettings,
        "shortlist": ShortlistSettings,
        "predict": PredictSettings,
        "tokens": _class_of("tokens", tables),
        "encoder": _class_of("encoder", tables),
        "stages": Stage,
    }
    if "classifiers" in tables:
        classes["classifiers"] = LabelVectors
    if "contrast" in tables:
        classes["contrast"] = Contrast
    if "graph" in tables:
        classes["graph"] = _graph_settings(str(tables["graph"].get("kind", "walk")))
    known = {table: _types_of(cls) for table, cls in classes.items()}
    known["tokens"].pop("model", None)  # which is the encoder's
    top = {key: kind for key, (kind, _) in TOP.items() if key != "about"}
    return {"": {**top, "beside": tuple[str, ...]}, **known}


def _types_of(settings: Any) -> dict[str, Any]:
    """The type of each setting; ClassVars are none."""
    hints = get_type_hints(settings)
    return {one.name: hints[one.name] for one in fields(settings)}


def _one_of(what: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise SettingError(f"{what} came as {value!r}; wanted one of {', '.join(known)}.")

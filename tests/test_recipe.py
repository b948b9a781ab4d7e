"""Recipes: what a TOML file and typed settings make, and the line that answers each thing that cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longtail.core import registry
from longtail.core.errors import LongtailError, SettingError, UnknownName
from longtail.models.encoders.bag import Bag
from longtail.models.encoders.inception import Inception
from longtail.recipes.recipe import Recipe, make_recipe, read_recipe
from longtail.tokens.words import Words

STAGES = [{"epochs": 1}]


def recipe(**tables: Any) -> Recipe:
    return make_recipe({"stages": STAGES, **tables}, "own", "own.toml")


def refused(told: str, **tables: Any) -> None:
    with pytest.raises(LongtailError, match=f"^{re.escape(told)}"):
        recipe(**tables)


def refused_words(told: str, name: str, *words: str) -> None:
    with pytest.raises(LongtailError, match=f"^{re.escape(told)}"):
        read_recipe(name, words)


@pytest.mark.parametrize("name", registry.recipes())
def test_recipes_that_come_with_longtail(name: str) -> None:
    found = read_recipe(name)
    assert found.name == name and found.about
    assert replace(make_recipe(found.tables, name, name), beside=found.beside) == found


def test_defaults() -> None:
    found = recipe()
    assert found.tokens == registry.load("tokens", next(iter(registry.TOKENS)))()
    assert found.encoder == registry.load("encoders", next(iter(registry.ENCODERS)))()
    assert (found.ensemble, found.validation, found.patience, found.vectors, found.graph) == (1, 0.0, 0, None, None)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('ensemble = 2\n[tokens]\nkind = "words"\nmin_count = 3\n[[stages]]\nepochs = 4\n[[stages]]\nfreeze = ["table"]\n')
    found = read_recipe(path)
    assert found.name == "mine" and found.ensemble == 2 and found.tokens == Words(min_count=3)
    assert [(stage.epochs, stage.freeze) for stage in found.stages] == [(4, ()), (10, ("table",))]


# ---- typed settings


def test_typed_settings_find_their_table() -> None:
    found = read_recipe("eclare", ["dim=64", "stages.0.epochs=1", "labels.dropout=0.1", "top=5", "graph.head=7", "ensemble=2", "beam=3"])
    assert found.encoder.dim == 64 and found.labels.dropout == 0.1 and found.clusters.beam == 3 and found.ensemble == 2
    assert found.graph == {"kind": "walk", "length": 400, "restart": 0.8, "top": 5, "head": 7}
    given = read_recipe("eclare")
    assert [stage.epochs for stage in found.stages] == [1, *(stage.epochs for stage in given.stages[1:])]
    assert [stage.epochs for stage in read_recipe("eclare", ["epochs=2"]).stages] == [2, 2, 2]
    assert [stage.epochs for stage in read_recipe("eclare", ["stages.epochs=2"]).stages] == [2, 2, 2]


def test_the_last_of_two_words_counts() -> None:
    assert read_recipe("default", ["dim=64", "encoder.dim=32"]).encoder.dim == 32


def test_typed_values() -> None:
    assert read_recipe("decaf", ["labels.parts=free,text"]).labels.parts == ("free", "text")
    assert read_recipe("decaf", ['labels.parts=["free"]']).labels.parts == ("free",)
    assert read_recipe("default", ["stages.freeze=table"]).stages[0].freeze == ("table",)
    assert read_recipe("decaf", ["stages.0.parts=none"]).stages[0].parts is None
    assert read_recipe("eclare", ["clusters.head=none"]).clusters.head is None
    assert read_recipe("default", ["labels.bias=false"]).labels.bias is False
    assert read_recipe("ngame", ["validation=0"]).validation == 0
    assert read_recipe("default", ["vectors=none"]).vectors is None
    assert read_recipe("default", ["vectors=some/file.txt"]).vectors == "some/file.txt"


def test_kinds_are_taken_first_and_only_where_they_are_the_setting() -> None:
    assert read_recipe("default", ["tokens.size=90", "tokens.kind=wordpiece", "beside=[]", "validation=0"]).tokens.size == 90
    typed = read_recipe("default", ["beside=[]", 'beside=["tokens.kind=words"]'])  # the last word counts
    assert [one.tables["tokens"]["kind"] for one in typed.beside] == ["words"]


def test_settings_leave_the_recipe_as_it_was() -> None:
    found = read_recipe("default")
    before = repr(found.tables)
    read_recipe("default", ["dim=64", "epochs=1"])
    assert repr(read_recipe("default").tables) == before


def test_epochs_that_are_typed_are_run_as_they_are() -> None:
    assert read_recipe("astec").stages[0].least_steps > 0
    assert [stage.least_steps for stage in read_recipe("astec", ["epochs=1"]).stages] == [0, 0]
    typed = read_recipe("astec", ["stages.0.epochs=1", "stages.0.least_steps=7"]).stages
    assert typed[0].least_steps == 7 and typed[1].least_steps > 0


def test_another_kind_takes_the_place_of_the_whole_table() -> None:
    """Of what the recipe told the bag encoder, the convolutions have no block; what is typed for them is kept, wherever it stands."""
    for words in (["encoder.kind=inception", "channels=16"], ["channels=16", "encoder.kind=inception"]):
        found = read_recipe("default", [*words, "encoder.dim=80", "ngrams=1"]).encoder
        assert found == Inception(dim=80, channels=16, dropout=read_recipe("default").encoder.dropout)
    assert read_recipe("eclare", ["graph.kind=ppr"]).graph == {"kind": "ppr", "restart": 0.8, "top": 10}
    refused_words(
        "default.toml: No setting of encoder called 'block'.", "default", "encoder.kind=inception", "encoder.block=plain", "ngrams=1"
    )
    assert isinstance(read_recipe("default", ["encoder.kind=bag"]).encoder, Bag)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("epoch=3", "No setting called 'epoch'. Did you mean 'epochs'? Known: add_missed, "),
        ("encoder.dmi=3", "astec.toml: No setting of encoder called 'dmi'. Did you mean 'dim'?"),
        ("stages.0.epoch=3", "astec.toml: No setting of stages.0 called 'epoch'. Did you mean 'epochs'?"),
        ("encodr.dim=3", "No table of a recipe called 'encodr'. Did you mean 'encoder'?"),
        ("encoder.block.dim=3", "No table of a recipe called 'encoder.block'."),
        ("validation.dim=3", "No table of a recipe called 'validation'."),
        ("dropout=0.3", "dropout is a setting of 2 tables; type labels.dropout or encoder.dropout."),
        ("parts=free", "parts is a setting of 3 tables; type labels.parts or clusters.parts or stages.parts."),
        ("stages.7.epochs=3", "stages.7.epochs came; wanted a stage from stages.0 to stages.1, as in stages.0.epochs=5."),
        ("stages.-1.epochs=3", "stages.-1.epochs came; wanted a stage"),
        ("stages.first.epochs=3", "stages.first.epochs came; wanted a stage"),
        ("stages.0.encoder.epochs=3", "stages.0.encoder.epochs came; wanted a stage"),
        ("epochs", "'epochs' came as a setting; wanted key=value, such as epochs=5 or encoder.dim=256."),
        ("=5", "'=5' came as a setting; wanted key=value"),
        ("epochs=", "astec.toml: stages.0.epochs came as ''; wanted a whole number."),
        ("epochs=many", "astec.toml: stages.0.epochs came as 'many'; wanted a whole number."),
        ("epochs=2.5", "astec.toml: stages.0.epochs came as 2.5; wanted a whole number."),
        ("epochs=true", "astec.toml: stages.0.epochs came as True; wanted a whole number."),
        ("epochs=0", "astec.toml: epochs came as 0; wanted 1 or more."),
        ("batch_size=0", "astec.toml: batch_size came as 0; wanted 1 or more."),
        ("n_random=-1", "astec.toml: n_random came as -1; wanted 0 or more."),
        ("detached_epochs=-1", "astec.toml: detached_epochs came as -1; wanted 0 or more."),
        ("learning_rate=0", "astec.toml: learning_rate came as 0.0; wanted more than 0, such as 0.001."),
        ("learning_rate=nan", "astec.toml: learning_rate came as nan; wanted more than 0"),
        ("learning_rate=inf", "astec.toml: learning_rate came as inf; wanted more than 0"),
        ("schedule=cosine", "astec.toml: schedule came as 'cosine'; wanted one of onecycle, halved, linear, constant."),
        ("task=label", "astec.toml: task came as 'label'; wanted one of labels, clusters, both, classifiers, unified."),
        ("stages.freeze=tables", "astec.toml: freeze came as 'tables'; wanted one of table, encoder."),
        ("stages.parts=txt", "astec.toml: parts came as ['txt']; wanted some of text, graph, free, encoded, each once."),
        ("clusters.parts=txt", "astec.toml: parts came as ['txt']; wanted some of text, graph, free, encoded, each once."),
        ("beam=0", "astec.toml: beam came as 0; wanted 1 or more."),
        ("game=2", "astec.toml: game came as 2.0; wanted a share from 0 to 1."),
        ("keep=0", "astec.toml: keep came as 0; wanted 1 or more."),
        ("shortlist.by=luck", "astec.toml: shortlist.by came as 'luck'; wanted one of clusters, nearest."),
        ("predict.by=luck", "astec.toml: predict.by came as 'luck'; wanted one of all, clusters, fused."),
        ("tokens.kind=wrods", "No token called 'wrods'. Did you mean 'words'?"),
        ("encoder.kind=3", "No encoder called '3'."),
        ("ensemble=2.5", "astec.toml: ensemble came as 2.5; wanted a whole number."),
        ("ensemble=true", "astec.toml: ensemble came as True; wanted a whole number."),
        ("vectors=3", "astec.toml: vectors came as 3; wanted a file of word vectors, or none."),
    ],
)
def test_words_that_cannot_be(word: str, told: str) -> None:
    refused_words(told, "astec", word)


def test_an_unknown_recipe() -> None:
    with pytest.raises(UnknownName, match="^No recipe called 'defalt'. Did you mean 'default'[?] Known: ance, astec, best, "):
        read_recipe("defalt")


# ---- files


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="nowhere.toml is not there; wanted a recipe file, or the name of one: ance, astec, "):
        read_recipe(tmp_path / "nowhere.toml")
    path = tmp_path / "bad.toml"
    for content in (b"[tokens\n", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(SettingError, match=r"bad.toml: not a TOML file \(.*\)[.]$"):
            read_recipe(path)
    path.write_text("graph = 3\n[[stages]]\nepochs = 1\n")
    with pytest.raises(SettingError, match="^bad.toml: graph came as 3; wanted a table of settings[.]$"):
        read_recipe(path, ["dim=32"])


def test_tables_that_cannot_be() -> None:
    for value in (3, "words", [1]):
        for table in ("tokens", "encoder", "labels", "graph", "clusters", "shortlist", "predict"):
            refused(f"own.toml: {table} came as {value!r}; wanted a table of settings.", **{table: value})
    for stages in (3, [], {"epochs": 1}):
        refused("own.toml has no stages; wanted at least one [[stages]] table.", stages=stages)
    refused("own.toml: stages.1 came as 3; wanted a table of settings.", stages=[{}, 3])
    refused("No setting in own.toml called 'ensembel'. Did you mean 'ensemble'? Known: about, beside, classifiers, ", ensembel=2)
    refused("own.toml: about came as 3; wanted a text.", about=3)
    refused("own.toml: validation came as 'some'; wanted a number.", validation="some")
    refused("own.toml: patience came as 'some'; wanted a whole number.", patience="some", validation=0.1)
    refused("own.toml: labels.parts came as 'free'; wanted a list of texts.", labels={"parts": "free"})
    refused("own.toml: No token called '3'.", tokens={"kind": 3})
    refused("own.toml: No graph called 'wolk'. Did you mean 'walk'?", graph={"kind": "wolk"})
    refused(
        "own.toml: No setting of graph called 'tpo'. Did you mean 'top'? Known: head, length, normalise, restart, top.", graph={"tpo": 3}
    )
    refused("own.toml: graph.top came as 'many'; wanted a whole number.", graph={"top": "many"})
    refused("own.toml: graph.head came as 0.5; wanted a whole number, or none.", graph={"head": 0.5})


# ---- settings that contradict each other


CLUSTERS = {"task": "clusters", "cluster_by": "features"}


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        (
            {"stages": [{"task": "both"}]},
            'stages.0 learns clusters, but no stage up to it makes them; wanted cluster_by = "features".',
        ),
        (
            {"stages": [{"score": "shortlist"}]},
            "stages.0 takes shortlists from clusters, but no stage before it learns them.",
        ),
        (
            {"stages": [CLUSTERS, {"cluster_by": "vectors"}]},
            'stages.1 makes clusters and learns labels alone; wanted task = "both", or cluster_by = "nothing".',
        ),
        ({"stages": [CLUSTERS]}, 'the last stage learns clusters; wanted one that learns labels, task = "labels" or "both".'),
        ({"labels": {"parts": ["graph"]}}, "label vectors, clusters.smooth or clusters.game need a graph, and there is no [graph] table."),
        ({"labels": {"start": "graph"}}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"clusters": {"smooth": True}}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"clusters": {"game": 0.5}}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"clusters": {"parts": ["graph"]}}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"stages": [{"parts": ["graph"]}]}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"predict": {"by": "clusters"}}, 'predict.by = "clusters", but no stage learns clusters.'),
        ({"predict": {"by": "fused"}}, 'predict.by = "fused" searches label centroids; wanted shortlist.by = "nearest" with it.'),
        ({"ensemble": 0}, "ensemble came as 0; wanted 1 or more."),
        ({"validation": 1.0}, "validation came as 1.0; wanted a share from 0 to below 1."),
        ({"validation": -0.1}, "validation came as -0.1; wanted a share from 0 to below 1."),
        ({"validation": float("nan")}, "validation came as nan; wanted a share from 0 to below 1."),
        ({"validation": 0.1, "patience": -1}, "patience came as -1; wanted 0 or more."),
        ({"patience": 2}, "patience ends a stage by its validation rows, and there are none; wanted validation = 0.1 or so with it."),
        (
            {"tokens": {"kind": "words", "ngrams": 2}, "encoder": {"kind": "inception"}},
            "the encoder reads words in their order, where bigrams have no place; wanted ngrams = 1.",
        ),
    ],
)
def test_contradictions(tables: dict[str, Any], told: str) -> None:
    refused(f"own.toml: {told}", **tables)


@pytest.mark.parametrize(
    "tables",
    [
        {"stages": [{"task": "both", "cluster_by": "features"}]},
        {"stages": [CLUSTERS, {"score": "shortlist"}]},
        {"stages": [CLUSTERS, {"score": "shortlist"}], "predict": {"by": "clusters"}},
        {"stages": [CLUSTERS, {"task": "clusters"}, {}]},
        {"stages": [{"score": "shortlist"}], "shortlist": {"by": "nearest"}, "predict": {"by": "fused"}},
        {"labels": {"parts": ["graph"]}, "graph": {}},
        {"validation": 0.1, "patience": 2},
        {"tokens": {"kind": "words", "ngrams": 2}, "encoder": {"kind": "bag"}},
    ],
)
def test_the_same_without_the_contradiction(tables: dict[str, Any]) -> None:
    assert recipe(**tables).name == "own"

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
from longtail.recipes.read import make_recipe, read_recipe, recipe_of_members
from longtail.recipes.recipe import Recipe
from longtail.recipes.tables import merged
from longtail.tokens.words import Words
from longtail.training.negatives.in_batch import InBatch
from longtail.training.negatives.mined import Mined
from longtail.training.negatives.shortlists import NearestCentroids
from longtail.training.objectives.all_labels import AllLabels
from longtail.training.objectives.pool import Pool
from longtail.training.objectives.shortlist import Shortlist

STAGES = [{"epochs": 1}]


def recipe(**tables: Any) -> Recipe:
    return make_recipe({"stages": STAGES, **tables}, "own", "own.toml")


def refused(message: str, **tables: Any) -> None:
    with pytest.raises(LongtailError, match=f"^{re.escape(message)}"):
        recipe(**tables)


def refused_words(message: str, name: str, *words: str) -> None:
    with pytest.raises(LongtailError, match=f"^{re.escape(message)}"):
        read_recipe(name, words)


@pytest.mark.parametrize("name", registry.recipes())
def test_recipes_that_come_with_longtail(name: str) -> None:
    found = read_recipe(name)
    assert found.name == name and found.about
    assert make_recipe(found.tables, name, name) == found
    assert recipe_of_members([(one.name, one.tables) for one in found.all_members], name) == found  # as a model keeps it


def test_defaults() -> None:
    found = recipe()
    assert found.tokens == registry.load("tokens", next(iter(registry.TOKENS)))()
    assert found.encoder == registry.load("encoders", next(iter(registry.ENCODERS)))()
    assert (found.ensemble, found.validation, found.patience, found.vectors, found.graph) == (1, 0.0, 0, None, None)
    assert (found.augment, found.members, found.negatives) == (None, (), InBatch())
    assert [(stage.objective, stage.augment) for stage in found.stages] == [(AllLabels(), None)]


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
    assert read_recipe("decaf", ["stages.1.cluster_by=none"]).stages[1].objective.makes_clusters_by is None
    assert read_recipe("unidec", ["classifier_losses=bce,sup-con"]).stages[0].objective.losses == ("decoupled", "bce", "sup-con")
    assert read_recipe("ngame", ["predict.towers=classifiers"]).predict.towers == ("classifiers",)
    assert read_recipe("renee", ["augment=gandalf", "stages.0.augment=none"]).augment == "gandalf"
    assert [stage.augment for stage in read_recipe("renee", ["augment=gandalf", "stages.0.augment=none"]).stages] == ["none", None]
    assert [stage.augment for stage in read_recipe("renee", ["stages.augment=labelmix:soft=false"]).stages] == ["labelmix:soft=false"] * 2


def test_kinds_are_taken_first_and_only_where_they_are_the_setting() -> None:
    assert read_recipe("default", ["tokens.size=90", "tokens.kind=wordpiece", "members=[]", "validation=0"]).tokens.size == 90
    typed = read_recipe("default", ["members=[]", 'members=[{tokens={kind="words"}}]'])  # the last word counts
    assert [one.tables["tokens"]["kind"] for one in typed.members] == ["words"]


def test_another_objective_takes_its_own_settings_alone() -> None:
    """Of those that the recipe has for the former one the others go; what all stages have stays."""
    given = read_recipe("quick").stages[0]
    assert given.objective == Pool(hard_negatives=512, random_negatives=256)
    found = read_recipe("quick", ["random_negatives=7", "objective=shortlist", "negatives.kind=nearest-centroids", "top_k=9"])
    assert found.stages[0].objective == Shortlist(random_negatives=7) and found.negatives == NearestCentroids(top_k=9)
    assert replace(found.stages[0], objective=given.objective) == given
    assert read_recipe("quick", ["objective=all-labels", "loss=softmax"]).stages[0].objective == AllLabels(loss="softmax")
    refused_words("quick.toml: No setting of stages.0 called 'hard_negatives'.", "quick", "objective=all-labels", "stages.hard_negatives=3")
    mined = read_recipe("unidec").negatives
    assert mined == Mined(hard=6, batches="clustered", refresh=5)
    assert read_recipe("unidec", ["negatives.kind=in-batch"]).negatives == InBatch()
    assert read_recipe("unidec", ["negatives.kind=mined"]).negatives == mined


def test_settings_leave_the_recipe_as_it_was() -> None:
    found = read_recipe("default")
    before = repr(found.tables)
    read_recipe("default", ["dim=64", "epochs=1"])
    assert repr(read_recipe("default").tables) == before


def test_epochs_that_are_typed_are_run_as_they_are() -> None:
    assert read_recipe("astec").stages[0].min_steps > 0
    assert [stage.min_steps for stage in read_recipe("astec", ["epochs=1"]).stages] == [0, 0]
    typed = read_recipe("astec", ["stages.0.epochs=1", "stages.0.min_steps=7"]).stages
    assert typed[0].min_steps == 7 and typed[1].min_steps > 0


def test_another_kind_takes_the_place_of_the_whole_table() -> None:
    """Of the settings of the bag encoder, the convolutions have no block; what is typed for them is kept, wherever it stands."""
    for words in (["encoder.kind=inception", "channels=16"], ["channels=16", "encoder.kind=inception"]):
        found = read_recipe("default", [*words, "encoder.dim=80", "ngrams=1"]).encoder
        assert found == Inception(dim=80, channels=16, dropout=read_recipe("default").encoder.dropout)
    assert read_recipe("eclare", ["graph.kind=ppr"]).graph == {"kind": "ppr", "restart": 0.8, "top": 10}
    refused_words(
        "default.toml: No setting of encoder called 'block'.", "default", "encoder.kind=inception", "encoder.block=plain", "ngrams=1"
    )
    assert isinstance(read_recipe("default", ["encoder.kind=bag"]).encoder, Bag)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("epoch=3", "No setting called 'epoch'. Did you mean 'epochs'? Known: augment, batch_size, "),
        ("encoder.dmi=3", "astec.toml: No setting of encoder called 'dmi'. Did you mean 'dim'?"),
        ("stages.0.epoch=3", "astec.toml: No setting of stages.0 called 'epoch'. Did you mean 'epochs'?"),
        ("encodr.dim=3", "No table of a recipe called 'encodr'. Did you mean 'encoder'?"),
        ("encoder.block.dim=3", "No table of a recipe called 'encoder.block'."),
        ("validation.dim=3", "No table of a recipe called 'validation'."),
        ("dropout=0.3", "dropout is a setting of 2 tables; type encoder.dropout or labels.dropout."),
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
        ("random_negatives=-1", "astec.toml: random_negatives came as -1; wanted 0 or more."),
        ("stages.1.hard_negatives=1", "astec.toml: No setting of stages.1 called 'hard_negatives'. Did you mean 'random_negatives'?"),
        ("min_steps=-1", "astec.toml: min_steps came as -1; wanted 0 or more."),
        ("glas_weight=-1", "astec.toml: glas_weight came as -1.0; wanted 0 or more."),
        ("learning_rate=0", "astec.toml: learning_rate came as 0.0; wanted more than 0, such as 0.001."),
        ("learning_rate=nan", "astec.toml: learning_rate came as nan; wanted more than 0"),
        ("learning_rate=inf", "astec.toml: learning_rate came as inf; wanted more than 0"),
        ("schedule=cosine", "astec.toml: schedule came as 'cosine'; wanted one of onecycle, halved, linear, constant."),
        (
            "objective=pol",
            "No objective called 'pol'. Did you mean 'pool'? Known: all-labels, clusters, contrastive, joint, pool, shortlist",
        ),
        ("task=labels", "No setting called 'task'."),
        ("cluster_by=nothing", "astec.toml: stages.0.cluster_by came as 'nothing'; wanted one of features, vectors, texts, or none."),
        ("tower=label", "astec.toml: stages.1.tower came as 'label'; wanted one of labels, classifiers. Did you mean 'labels'?"),
        ("stages.freeze=tables", "astec.toml: stages.0.freeze came as 'tables'; wanted one of table, encoder. Did you mean 'table'?"),
        ("stages.parts=txt", "astec.toml: parts came as ('txt',); wanted one of text, graph, free, encoded. Did you mean 'text'?"),
        ("clusters.parts=txt", "astec.toml: parts came as ('txt',); wanted one of text, graph, free, encoded. Did you mean 'text'?"),
        ("stages.parts=free,free", "astec.toml: parts came as ['free', 'free']; wanted some of text, graph, free, encoded, each once."),
        ("beam=0", "astec.toml: beam came as 0; wanted 1 or more."),
        ("game=2", "astec.toml: game came as 2.0; wanted a number from 0 to 1."),
        ("top_k=0", "astec.toml: top_k came as 0; wanted 1 or more."),
        ("negatives.kind=luck", "No source of hard negatives called 'luck'. Known: clusters, in-batch, mined, nearest-centroids."),
        ("predict.by=luck", "astec.toml: predict.by came as 'luck'; wanted one of all, clusters, fused."),
        ("predict.towers=label", "astec.toml: predict.towers came as 'label'; wanted one of labels, classifiers. Did you mean 'labels'?"),
        (
            "predict.towers=labels,labels",
            "astec.toml: predict.towers came as ['labels', 'labels']; wanted labels, classifiers or both, each",
        ),
        ("tokens.kind=wrods", "No token called 'wrods'. Did you mean 'words'?"),
        ("encoder.kind=3", "No encoder called '3'."),
        ("ensemble=2.5", "astec.toml: ensemble came as 2.5; wanted a whole number."),
        ("ensemble=true", "astec.toml: ensemble came as True; wanted a whole number."),
        ("vectors=3", "astec.toml: vectors came as 3; wanted none, or a file of word vectors."),
        ("augment=3", "astec.toml: augment came as 3; wanted a text, or none."),
        ("stages.1.augment=3", "astec.toml: stages.1.augment came as 3; wanted a text, or none."),
        ("members=3", "astec.toml: members came as 3; wanted [[members]] tables, or [] for none."),
        ("members=[3]", "astec.toml: members.0 came as 3; wanted a table of settings."),
        ("members.0.epochs=1", "members.0.epochs=1 came; wanted none, as the recipe has no [[members]]."),
        ("members.first.epochs=1", "No table of a recipe called 'members.first'."),
    ],
)
def test_words_that_cannot_be(word: str, message: str) -> None:
    refused_words(message, "astec", word)


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


MINED = {"kind": "mined"}


def test_tables_that_cannot_be() -> None:
    for value in (3, "words", [1]):
        for table in ("tokens", "encoder", "labels", "graph", "clusters", "negatives", "predict", "classifiers", "contrast"):
            refused(f"own.toml: {table} came as {value!r}; wanted a table of settings.", **{table: value})
    for stages in (3, [], {"epochs": 1}):
        refused("own.toml has no stages; wanted at least one [[stages]] table.", stages=stages)
    refused("own.toml: stages.1 came as 3; wanted a table of settings.", stages=[{}, 3])
    refused("No setting in own.toml called 'ensembel'. Did you mean 'ensemble'? Known: about, augment, base, classifiers, ", ensembel=2)
    refused("own.toml: about came as 3; wanted a text.", about=3)
    refused("own.toml: validation came as 'some'; wanted a number.", validation="some")
    refused("own.toml: patience came as 'some'; wanted a whole number.", patience="some", validation=0.1)
    refused("own.toml: labels.parts came as 'free'; wanted a list of texts.", labels={"parts": "free"})
    refused("own.toml: No token called '3'.", tokens={"kind": 3})
    refused("own.toml: No objective called '3'.", stages=[{"objective": 3}])
    refused("own.toml: No source of hard negatives called 'minded'. Did you mean 'mined'?", negatives={"kind": "minded"})
    refused(
        "own.toml: No setting of negatives called 'hrd'. Did you mean 'hard'? Known: batches, hard, refresh.", negatives=MINED | {"hrd": 3}
    )
    refused("own.toml: No graph called 'wolk'. Did you mean 'walk'?", graph={"kind": "wolk"})
    refused(
        "own.toml: No setting of graph called 'tpo'. Did you mean 'top'? Known: head, length, normalise, restart, top.", graph={"tpo": 3}
    )
    refused("own.toml: graph.top came as 'many'; wanted a whole number.", graph={"top": "many"})
    refused("own.toml: graph.head came as 0.5; wanted a whole number, or none.", graph={"head": 0.5})


# ---- one recipe on another


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        (folder / f"{name}.toml").write_text(content)


def test_tables_are_merged_setting_by_setting_and_stages_one_by_one() -> None:
    base = {"ensemble": 3, "encoder": {"kind": "bag", "dim": 8}, "stages": [{"epochs": 5, "min_steps": 9}, {"loss": "softmax"}]}
    before = repr(base)
    own = {"encoder": {"dim": 9}, "labels": {"bias": False}, "stages": [{"batch_size": 4}, {"batch_size": 6}, {"batch_size": 7}]}
    assert merged(base, own) == {
        "ensemble": 3,
        "encoder": {"kind": "bag", "dim": 9},
        "labels": {"bias": False},
        "stages": [{"epochs": 5, "min_steps": 9, "batch_size": 4}, {"loss": "softmax", "batch_size": 6}, {"batch_size": 7}],
    }
    assert merged(base, {"stages": [{}, {"epochs": 2}]})["stages"] == [
        *base["stages"][:1],
        {"loss": "softmax", "epochs": 2, "min_steps": 0},
    ]
    assert merged(base, {"stages": [{"epochs": 1, "min_steps": 2}]})["stages"][0] == {"epochs": 1, "min_steps": 2}
    assert merged(base, {})["stages"] == base["stages"] and repr(base) == before
    merged(base, own)["stages"][0]["epochs"] = 7
    assert repr(base) == before


def test_another_kind_leaves_the_settings_of_the_former_one_behind() -> None:
    base = {
        "encoder": {"kind": "bag", "dim": 80, "block": "plain"},
        "negatives": {"kind": "mined", "hard": 3},
        "stages": [{"objective": "pool", "hard_negatives": 5, "loss": "softmax", "epochs": 3}],
    }
    own = {"encoder": {"kind": "inception", "channels": 4}, "negatives": {"kind": "in-batch"}, "stages": [{"objective": "all-labels"}]}
    assert merged(base, own) == {
        "encoder": {"kind": "inception", "dim": 80, "channels": 4},
        "negatives": {"kind": "in-batch"},
        "stages": [{"objective": "all-labels", "loss": "softmax", "epochs": 3}],
    }
    assert merged(base, {"negatives": {"kind": "mined", "refresh": 2}})["negatives"] == {"kind": "mined", "hard": 3, "refresh": 2}
    with pytest.raises(UnknownName, match="^No encoder called 'inceptoin'"):
        merged(base, {"encoder": {"kind": "inceptoin"}})


def test_members_are_added_or_dropped() -> None:
    base = {"members": [{"base": "dpr"}], "stages": STAGES}
    assert merged(base, {"members": [{"base": "ance"}]})["members"] == [{"base": "dpr"}, {"base": "ance"}]
    assert merged(base, {"members": []})["members"] == [] and merged(base, {"ensemble": 2})["members"] == [{"base": "dpr"}]


def test_a_recipe_on_another_says_only_what_differs(tmp_path: Path) -> None:
    write(tmp_path, mine='base = "quick"\nabout = "mine"\n[encoder]\ndim = 64\n[[stages]]\nloss = "softmax"\n')
    found, quick = read_recipe(tmp_path / "mine.toml", ["batch_size=8"]), read_recipe("quick")
    assert (found.name, found.about, found.encoder) == ("mine", "mine", replace(quick.encoder, dim=64))
    assert found.stages == (replace(quick.stages[0], batch_size=8, objective=replace(quick.stages[0].objective, loss="softmax")),)
    assert (found.tokens, found.labels, found.ensemble, found.members) == (quick.tokens, quick.labels, quick.ensemble, ())
    write(tmp_path, other=f'base = "{tmp_path / "mine.toml"}"\nensemble = 3\n')  # a base may have a base, and be a file
    again = read_recipe(tmp_path / "other.toml")
    assert again.encoder == found.encoder and again.ensemble == 3
    assert make_recipe({"base": "quick", "ensemble": 3}, "own", "own.toml").encoder == quick.encoder


def test_quick_is_default_with_less_of_it() -> None:
    quick, default = read_recipe("quick"), read_recipe("default")
    assert quick.tokens == default.tokens and quick.labels == default.labels
    assert default.members and not quick.members and (quick.ensemble, quick.validation) == (1, 0)


def test_a_base_that_leads_back_to_itself(tmp_path: Path) -> None:
    write(tmp_path, one=f'base = "{tmp_path / "two.toml"}"\n', two=f'base = "{tmp_path / "one.toml"}"\n')
    write(tmp_path, itself=f'base = "{tmp_path / "itself.toml"}"\n')
    write(tmp_path, member=f'base = "quick"\nvalidation = 0.1\n[[members]]\nbase = "{tmp_path / "one.toml"}"\n')
    for name, at in (("one", "one"), ("itself", "itself"), ("member", "one")):
        with pytest.raises(SettingError) as error_info:
            read_recipe(tmp_path / f"{name}.toml")
        assert str(error_info.value) == f"{tmp_path / at}.toml: the base of this recipe leads back to itself; wanted another one."


def test_a_member_that_leads_back_to_itself(tmp_path: Path) -> None:
    """By its own members alone: it may build on the recipe that it is a member of, where it drops the members of that."""
    first = 'base = "quick"\nvalidation = 0.1\n[[members]]\nbase = "{}"\n'
    write(tmp_path, itself=first.format(tmp_path / "itself.toml"), one=first.format(tmp_path / "two.toml"))
    write(tmp_path, two=f'base = "{tmp_path / "one.toml"}"\nensemble = 3\n')
    for name, at, where in (("itself", "itself", "members.0"), ("one", "two", "members.0, members.0")):
        with pytest.raises(SettingError) as error_info:
            read_recipe(tmp_path / f"{name}.toml")
        assert str(error_info.value) == (
            f"{name}.toml, {where}: {tmp_path / at}.toml leads back to itself by its [[members]]; wanted another base."
        )
    write(tmp_path, two=f'base = "{tmp_path / "one.toml"}"\nensemble = 3\nmembers = []\n')
    assert [(one.name, one.ensemble) for one in read_recipe(tmp_path / "one.toml").all_members] == [("one", 1), ("two", 3)]


def test_bases_that_cannot_be(tmp_path: Path) -> None:
    write(
        tmp_path,
        typo='base = "defalt"\n',
        missing='base = "nowhere.toml"\n',
        number="base = 3\n",
        wrong='base = "quick"\n[encoder]\nkind = "bagg"\n',
    )
    for name, message in (
        ("typo", "No recipe called 'defalt'. Did you mean 'default'?"),
        ("missing", "nowhere.toml is not there; wanted a recipe file, or the name of one: ance, "),
        ("number", "No recipe called '3'."),
        ("wrong", "wrong.toml: No encoder called 'bagg'. Did you mean 'bag'?"),
    ):
        with pytest.raises(SettingError, match=f"^{re.escape(message)}"):
            read_recipe(tmp_path / f"{name}.toml")
    refused_words("No setting called 'base'.", "quick", "base=default")  # which is the first thing that is read, not one of the settings


# ---- members


MEMBERS: dict[str, Any] = {
    "validation": 0.1,
    "patience": 2,
    "ensemble": 2,
    "augment": "gandalf",
    "encoder": {"dim": 16},
    "labels": {"parts": ["text", "free"]},
    "stages": [{"epochs": 3, "batch_size": 8}],
    "members": [
        {"labels": {"parts": ["free"]}},
        {"name": "softmax", "ensemble": 1, "augment": "labelmix", "stages": [{"loss": "softmax"}]},
        {"base": "dpr", "stages": [{"epochs": 2}]},
    ],
}


def test_members_are_this_recipe_with_changes_or_another_one() -> None:
    found = recipe(**MEMBERS)
    own, softmax, dpr = found.members
    assert found.all_members == (found, own, softmax, dpr)
    assert [one.name for one in found.all_members] == ["own", "own 2", "softmax", "dpr"]
    assert [one.ensemble for one in found.all_members] == [2, 2, 1, 1]
    assert own.labels.parts == ("free",) and own.stages == found.stages and own.encoder == found.encoder
    assert softmax.stages == (replace(found.stages[0], objective=AllLabels(loss="softmax")),) and softmax.labels == found.labels
    given = read_recipe("dpr")
    assert dpr.stages == (replace(given.stages[0], epochs=2),) and replace(dpr, stages=given.stages, tables=given.tables) == given
    # validation and patience are the run's; an augmentation is the member's own, or that of the run
    assert [(one.validation, one.patience, one.augment) for one in found.members] == [(0, 0, None), (0, 0, "labelmix"), (0, 0, None)]


def test_settings_typed_for_one_member() -> None:
    words = ["members.0.epochs=1", "members.1.augment=none", "members.1.ensemble=4", "members.2.stages.0.batch_size=7", "epochs=9"]
    found = make_recipe({"stages": STAGES, **MEMBERS}, "own", "own.toml", words)
    assert [one.stages[0].epochs for one in found.all_members] == [
        9,
        1,
        9,
        2,
    ]  # those without a base take over what is typed for the recipe
    assert (found.members[1].augment, found.members[1].ensemble, found.members[2].stages[0].batch_size) == ("none", 4, 7)
    alone = make_recipe({"stages": STAGES, **MEMBERS}, "own", "own.toml", ["members=[]", "patience=0", "validation=0"])
    assert alone.members == () and alone.stages == recipe(**MEMBERS).stages
    assert recipe_of_members([(one.name, one.tables) for one in found.all_members], "model.json") == found


def test_members_of_a_member_come_along(tmp_path: Path) -> None:
    write(tmp_path, mine='base = "quick"\nvalidation = 0.1\n[[members]]\nbase = "best-cpu"\nensemble = 1\n')
    found = read_recipe(tmp_path / "mine.toml")
    assert [one.name for one in found.members] == ["best-cpu", "default, softmax", "default, words", "frozen"]
    assert all(not one.members for one in found.members) and found.members[0].ensemble == 1
    assert [one.name for one in read_recipe("best-cpu").all_members] == ["best-cpu", "default, softmax", "default, words", "frozen"]


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ({"ensembel": 2}, "No setting in own.toml, members.0 called 'ensembel'. Did you mean 'ensemble'? Known: about, augment, base, "),
        ({"base": "dpr", "ensembel": 2}, "No setting in own.toml, members.0 called 'ensembel'. Did you mean 'ensemble'?"),
        ({"encoder": {"dmi": 3}}, "own.toml, members.0: No setting of encoder called 'dmi'. Did you mean 'dim'?"),
        ({"base": "astec", "encoder": {"dmi": 3}}, "own.toml, members.0: No setting of encoder called 'dmi'. Did you mean 'dim'?"),
        ({"stages": [{"epoch": 3}]}, "own.toml, members.0: No setting of stages.0 called 'epoch'. Did you mean 'epochs'?"),
        ({"stages": 3}, "own.toml, members.0 has no stages; wanted at least one [[stages]] table."),
        ({"encoder": 3}, "own.toml, members.0: encoder came as 3; wanted a table of settings."),
        ({"encoder": {"kind": "bagg"}}, "own.toml, members.0: No encoder called 'bagg'. Did you mean 'bag'?"),
        ({"ensemble": 0}, "own.toml, members.0: ensemble came as 0; wanted 1 or more."),
        ({"augment": 3}, "own.toml, members.0: augment came as 3; wanted a text, or none."),
        ({"base": "dprr"}, "No recipe called 'dprr'. Did you mean 'dpr'?"),
        ({"members": [{"ensembel": 2}], "validation": 0.1}, "No setting in own.toml, members.0, members.0 called 'ensembel'."),
        (3, "own.toml: members.0 came as 3; wanted a table of settings."),
    ],
)
def test_members_that_cannot_be(member: Any, message: str) -> None:
    refused(message, validation=0.1, members=[member])


def test_members_need_validation_rows() -> None:
    none = "members are stacked with weights from validation rows, and there are none; wanted validation = 0.05 or so, or members = []."
    refused(f"own.toml: {none}", members=[{"base": "dpr"}])
    refused_words(f"default.toml: {none}", "default", "validation=0")
    assert read_recipe("default", ["validation=0", "members=[]"]).members == ()
    refused("own.toml: members came as {}; wanted [[members]] tables, or [] for none.", members={})
    refused_words("members.2.epochs=1 came; wanted members.0 to members.1.", "default", "members.2.epochs=1")
    refused_words("default.toml, members.1: epochs came as 0; wanted 1 or more.", "default", "members.1.epochs=0")
    refused_words("No setting called 'epoch'.", "default", "members.1.epoch=0")


# ---- settings that contradict each other


CLUSTERS = {"objective": "clusters", "cluster_by": "features"}
SHORTLIST = {"objective": "shortlist"}
TWO_TOWERS: dict[str, Any] = {"classifiers": {}, "stages": [{}, {"tower": "classifiers"}]}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"stages": [{"objective": "synchronised"}]},
            'stages.0 learns clusters, but no stage up to it makes them; wanted cluster_by = "features".',
        ),
        (
            {"stages": [{"objective": "clusters"}, {}]},
            'stages.0 learns clusters, but no stage up to it makes them; wanted cluster_by = "features".',
        ),
        (
            {"stages": [SHORTLIST], "negatives": {"kind": "clusters"}},
            "stages.0 takes shortlists from clusters, but no stage before it learns them.",
        ),
        (
            {"stages": [CLUSTERS, SHORTLIST]},
            'stages.1 scores shortlists, and [negatives] gives none; wanted kind = "clusters" or "nearest-centroids".',
        ),
        (
            {"stages": [SHORTLIST], "negatives": {"kind": "mined", "hard": 3}},
            'stages.0 scores shortlists, and [negatives] gives none; wanted kind = "clusters" or "nearest-centroids".',
        ),
        (
            {"stages": [CLUSTERS, {"cluster_by": "vectors"}]},
            "No setting of stages.1 called 'cluster_by'. Known: augment, batch_size, ",
        ),
        (
            {"stages": [{}, {"tower": "classifiers"}]},
            "stages.1 learns classifiers, and there is no [classifiers] table to say what they are made of.",
        ),
        ({"stages": [CLUSTERS]}, 'the last stage learns clusters; wanted one that learns labels, such as objective = "all-labels".'),
        ({"labels": {"parts": ["graph"]}}, "label vectors, clusters.smooth or clusters.game need a graph, and there is no [graph] table."),
        ({"labels": {"start": "graph"}}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"clusters": {"smooth": True}}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"clusters": {"game": 0.5}}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"clusters": {"parts": ["graph"]}}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"stages": [{"parts": ["graph"]}]}, "label vectors, clusters.smooth or clusters.game need a graph"),
        ({"predict": {"by": "clusters"}}, 'predict.by = "clusters", but no stage learns clusters.'),
        (
            {"predict": {"by": "fused"}},
            'predict.by = "fused" searches label centroids; wanted negatives.kind = "nearest-centroids" with it.',
        ),
        (
            {"predict": {"towers": ["classifiers"]}, "classifiers": {}},
            'predict.towers names classifiers, but no stage learns them; wanted one with tower = "classifiers", or objective = "joint".',
        ),
        (
            {**TWO_TOWERS, "predict": {"towers": ["labels", "classifiers"], "by": "clusters"}},
            'predict.by = "clusters" searches one set of label vectors; wanted predict.by = "all" for two towers.',
        ),
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
def test_contradictions(tables: dict[str, Any], message: str) -> None:
    refused(f"own.toml: {message}", **tables)


@pytest.mark.parametrize(
    "tables",
    [
        {"stages": [{"objective": "synchronised", "cluster_by": "features"}]},
        {"stages": [CLUSTERS, SHORTLIST], "negatives": {"kind": "clusters"}},
        {"stages": [CLUSTERS, SHORTLIST], "negatives": {"kind": "clusters"}, "predict": {"by": "clusters"}},
        {"stages": [CLUSTERS, {"objective": "clusters"}, {}]},
        {"stages": [SHORTLIST], "negatives": {"kind": "nearest-centroids"}, "predict": {"by": "fused"}},
        {**TWO_TOWERS, "predict": {"towers": ["labels", "classifiers"]}},
        {"stages": [{"objective": "joint"}], "classifiers": {}, "predict": {"towers": ["classifiers"]}},
        {"labels": {"parts": ["graph"]}, "graph": {}},
        {"validation": 0.1, "patience": 2},
        {"tokens": {"kind": "words", "ngrams": 2}, "encoder": {"kind": "bag"}},
    ],
)
def test_the_same_without_the_contradiction(tables: dict[str, Any]) -> None:
    assert recipe(**tables).name == "own"


def test_a_base_is_looked_for_next_to_the_recipe_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "wide.toml").write_text('base = "quick"\n[encoder]\ndim = 48\n')
    (folder / "mine.toml").write_text('base = "wide.toml"\nvalidation = 0.2\n[[members]]\nbase = "wide.toml"\nencoder = {dim = 16}\n')
    monkeypatch.chdir(tmp_path)
    found = read_recipe("recipes/mine.toml")
    assert found.encoder.dim == 48 and [member.encoder.dim for member in found.members] == [16]

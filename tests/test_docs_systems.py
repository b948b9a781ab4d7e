"""The pages of the systems: each recipe has one, and every setting that it names is the recipe's, or can be typed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields

import pytest

from longtail.core.registry import name_of, recipes
from longtail.recipes.read import read_recipe
from longtail.recipes.recipe import Recipe
from tests.examples import ROOT, run_page

FOLDER = ROOT / "docs" / "systems"
TABLE = re.compile(r"^\| `([a-z_0-9.]+)` \| `([^`]+)` \|", re.MULTILINE)  # a row of the table of hyperparameters
HAS = re.compile(r"`([a-z_0-9.]+) = ([^`]+)`")  # the same in a sentence
TYPED = re.compile(r"`([a-z_0-9.]+=[^ `]+(?: [a-z_0-9.]+=[^ `]+)*)`")  # what may be typed
RUN = 'model = longtail.XMC.from_recipe("{name}"{more}).fit(longtail.read("DATA"))'
REGISTRIES = {"tokens": "tokens", "encoder": "encoders", "negatives": "negatives"}
SECTIONS = ("When to use it", "Train it", "Hyperparameters", "Cost", "Results")


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def setting(recipe: Recipe, path: str) -> object:
    """The value of a recipe at a path such as stages.0.epochs; the settings of an objective stand among those of its stage."""
    table, *steps = path.split(".")
    if table == "stages":
        stage, name = recipe.stages[int(steps[0])], steps[1]
        if name == "objective":
            return name_of("objectives", type(stage.objective))
        return getattr(stage if name in {field.name for field in fields(stage)} else stage.objective, name)
    part = getattr(recipe, table)
    if not steps:
        return part
    if isinstance(part, Mapping):  # the table [graph]
        return part[steps[0]]
    return name_of(REGISTRIES[table], type(part)) if steps == ["kind"] else getattr(part, steps[0])


def test_every_recipe_has_a_page_that_the_overview_and_the_contents_name() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {"index", *recipes()}
    assert sorted(re.findall(r"^\| \[`([a-z-]+)`\]\(\1\.md\)", page("index"), re.MULTILINE)) == sorted(recipes())
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert {f"systems/{name}.md" in contents for name in ("index", *recipes())} == {True}


@pytest.mark.parametrize("name", ["index", *recipes()])
def test_examples_run(name: str) -> None:
    assert len(list(run_page(page(name), f"docs/systems/{name}.md"))) == 1


@pytest.mark.parametrize("name", list(recipes()))
def test_settings_of_a_page_are_those_of_its_recipe(name: str) -> None:
    recipe, listed = read_recipe(name), TABLE.findall(page(name))
    assert len(listed) > 8
    for path, value in [*listed, *HAS.findall(page(name))]:
        wanted = tomllib.loads(f"value = {value}")["value"]
        found = setting(recipe, path)
        assert (list(found) if isinstance(found, tuple) else found) == wanted, (path, found)


@pytest.mark.parametrize("name", list(recipes()))
def test_settings_to_type_are_taken(name: str) -> None:
    for typed in TYPED.findall(page(name)):
        read_recipe(name, typed.split())


@pytest.mark.parametrize("name", list(recipes()))
def test_a_page_says_how_to_train_and_has_its_sections(name: str) -> None:
    text = page(name)
    [command] = re.findall(rf"^longtail train {name} DATA (.*)--out MODEL$", text, re.MULTILINE)
    more = f', augment="{command.split()[1]}"' if command else ""
    assert RUN.format(name=name, more=more) in text
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert set(SECTIONS) < set(titles)
    assert any(title.startswith("Differences from ") for title in titles)
    assert "**Paper.**" in text

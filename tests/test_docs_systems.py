"""The pages of the systems: each recipe has one, and every setting that it names is the recipe's, or can be typed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from longtail.core.registry import recipes
from longtail.recipes.recipe import read_recipe
from tests.examples import ROOT, run_page

FOLDER = ROOT / "docs" / "systems"
HAS = re.compile(r"`([a-z_0-9.]+) = ([^`]+)`")  # what the recipe has
TYPED = re.compile(r"`([a-z_0-9.]+=[^ `]+(?: [a-z_0-9.]+=[^ `]+)*)`")  # what may be typed
RUN = 'model = longtail.XMC.from_recipe("{name}"{more}).fit(longtail.read("DATA"))'


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def setting(recipe: Any, path: str) -> Any:
    """What a recipe has at a path such as stages.0.epochs."""
    for step in path.split("."):
        recipe = recipe[int(step)] if step.isdigit() else recipe[step] if isinstance(recipe, Mapping) else getattr(recipe, step)
    return recipe


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
    recipe, named = read_recipe(name), HAS.findall(page(name))
    assert len(named) > 8
    for path, value in named:
        wanted = tomllib.loads(f"value = {value}")["value"]
        if path == "beside":
            assert [one.name for one in recipe.beside] == wanted
            continue
        found = setting(recipe, path) if not path.endswith(".kind") else setting(recipe.tables, path)
        assert (list(found) if isinstance(found, tuple) else found) == wanted, (path, found)


@pytest.mark.parametrize("name", list(recipes()))
def test_settings_to_type_are_taken(name: str) -> None:
    for typed in TYPED.findall(page(name)):
        read_recipe(name, typed.split())


@pytest.mark.parametrize("name", list(recipes()))
def test_a_page_says_how_to_train_and_has_a_place_for_numbers(name: str) -> None:
    told = page(name)
    [command] = re.findall(rf"^longtail train {name} DATA (.*)--out MODEL$", told, re.MULTILINE)
    more = f', augment="{command.split()[1]}"' if command else ""
    assert RUN.format(name=name, more=more) in told
    assert f"\n## Measured\n\n<!-- measured: {name} -->\n" in told
    assert "**Paper.**" in told

"""The documentation: its examples run and print what it says, its reference pages leave nothing out, and its words are the field's."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import yaml

import longtail
from longtail.core import registry
from longtail.data.formats.table import LABEL_NAMES, TEXT_NAMES
from longtail.data.synth import SHAPES
from longtail.evaluation.evaluate import CONSTANTS, OTHER_CONSTANTS
from longtail.recipes.recipe import Recipe
from longtail.recipes.tables import CLASSES
from longtail.training.stage import Stage
from tests.examples import ROOT, examples, run_page
from tests.house_words import HOUSE_WORDS, IN_PROSE, found_in

DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix().removesuffix(".md"): path for path in sorted(DOCS.rglob("*.md"))}
NO_EXAMPLES = {"guide/serve", "api/tuning"}  # a server runs until it is stopped; the guide has the example
RUN = [
    name for name in PAGES if name in ("index", "commands", "metrics") or name.startswith(("guide/", "api/"))
]  # systems have their own test
WRITTEN = {"README": ROOT / "README.md", **PAGES}
MOST_LETTERS = 140
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`[^`]*`")


def page(name: str) -> str:
    return WRITTEN[name].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(RUN) - NO_EXAMPLES))
def test_examples_print_what_the_page_says(name: str) -> None:
    assert examples(page(name)), "a page without examples"
    for example, printed in run_page(page(name), f"docs/{name}.md"):
        if example.promised is not None:
            assert printed == example.promised, f"docs/{name}.md:{example.line}"


def test_example_of_the_readme_works() -> None:
    [(example, printed)] = run_page(page("README"), "README.md")
    assert example.language == "python" and "P@1" not in printed and "nDCG" in printed


def test_a_wrong_promise_is_found() -> None:
    [(example, printed)] = run_page("```sh\necho two\n```\n\n```text\nthree\n```\n", "page")
    assert (example.promised, printed) == ("three\n", "two\n")
    with pytest.raises(AssertionError, match="page:1: '1 \\+ 1  # -> 3' gives 2"):
        list(run_page("```python\n1 + 1  # -> 3\n```\n", "page"))
    with pytest.raises(AssertionError, match="page:1: exit code 2"):
        list(run_page("```sh\nlongtail check nowhere\n```\n", "page"))
    with pytest.raises(AssertionError, match="page:1: exit code 0"):
        list(run_page("```sh\necho fine\n```\n\n```text\nlongtail: an error\n```\n", "page"))


def test_blocks_of_other_languages_do_not_run_and_hold_no_promise_for_others() -> None:
    text = "```console\napt-get update\n```\n\n```text\nnothing\n```\n\n```sh\ntrue\n```\n\nAnd:\n\n```text\napart\n```\n"
    assert [(example.language, example.promised) for example in examples(text)] == [("sh", None)]


# ---- how it is written


@pytest.mark.parametrize("name", list(WRITTEN))
def test_lines_are_short(name: str) -> None:
    prose = FENCED.sub(lambda block: "\n" * block[0].count("\n"), page(name))
    long = [number for number, line in enumerate(prose.splitlines(), start=1) if len(line) > MOST_LETTERS and not line.startswith("|")]
    assert not long, f"lines {long} of {name} are longer than {MOST_LETTERS}"


@pytest.mark.parametrize("name", list(WRITTEN))
def test_words_are_the_fields(name: str) -> None:
    assert found_in(INLINE.sub("", FENCED.sub("", page(name))), HOUSE_WORDS + IN_PROSE) == []


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page("README")):
        assert target.startswith("http") or (ROOT / target).is_file(), target


def test_every_page_is_in_the_contents() -> None:
    listed = re.findall(r": ([\w/-]+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(PAGES)


# ---- the command line


def every_command() -> list[tuple[str, list[str]]]:
    """Each command with its options, as the command line itself has them."""
    from typer.main import get_command

    from longtail.cli.main import app

    found = []
    todo = [("longtail", get_command(app))]
    while todo:
        called, command = todo.pop()
        inner = getattr(command, "commands", {})
        todo += [(f"{called} {name}", part) for name, part in inner.items()]
        if not inner:
            options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
            found.append((called, [max(option.opts, key=len) for option in options if "--help" not in option.opts]))
    return found


def options_in(section: str, shared: list[str]) -> list[str]:
    """The options that the tables of a section name; a line that links to the data options stands for all of them."""
    found: list[str] = []
    for option in re.findall(r"^\| (?:`(-[-A-Za-z]+)|\[data options\]\(#data-options\))", section, re.MULTILINE):
        found += [option] if option else shared
    return found


def test_commands_page_has_every_command_with_its_options_and_no_other() -> None:
    text = page("commands")
    shared = options_in(text.split("## Data options")[1].split("\n## ")[0], [])
    sections = dict(re.findall(r"^## `(longtail [a-z ]+)`\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    commands = dict(every_command())
    assert set(sections) == set(commands)
    for called, options in commands.items():
        assert options_in(sections[called], shared) == options, called
        assert any(called in example.code for example in examples(sections[called])) or f"\n{called} " in sections[called], called


# ---- the API reference


SHOWN = {  # dotted name -> the members that the reference shows of it
    dotted: list((yaml.safe_load(options) or {}).get("options", {}).get("members", []))
    for name in PAGES
    for dotted, options in re.findall(r"^::: ([\w.]+)\n((?:    .*\n)*)", page(name), re.MULTILINE)
}


def object_at(dotted: str) -> Any:
    module, _, attribute = dotted.rpartition(".")
    return getattr(import_module(module), attribute)


def test_api_reference_has_every_public_name() -> None:
    for name, home in longtail._HOME.items():
        assert f"{home}.{name}" in SHOWN, name
        assert f".md#{home}.{name})" in page("api/index"), name


def test_api_reference_has_every_setting_of_a_recipe() -> None:
    shown = [object_at(dotted) for dotted in SHOWN]
    parts = [registry.load(kind, name) for kind in ("tokens", "encoders", "objectives", "negatives") for name in registry.KINDS[kind]]
    for part in (*parts, *CLASSES.values(), Stage, Recipe):
        assert part in shown, part


def explained(text: str | None) -> set[str]:
    """The names that the section "Args" of a docstring explains."""
    section = re.search(r"^Args:\n((?:(?:    .*)?\n?)*)", inspect.cleandoc(text or ""), re.MULTILINE)
    return set(re.findall(r"^    \*{0,2}(\w+): ", section[1], re.MULTILINE)) if section else set()


def callables_of(dotted: str) -> Iterator[tuple[str, Any, set[str]]]:
    """A function, or the constructor and the methods of a class that the reference shows: name, signature, explained arguments."""
    shown = object_at(dotted)
    if not inspect.isclass(shown):
        yield dotted, shown, explained(shown.__doc__)
    elif not issubclass(shown, Exception):
        bases = [base for base in shown.__mro__ if f"{base.__module__}.{base.__qualname__}" in SHOWN]  # whose settings it has
        yield dotted, shown, set().union(*(explained(base.__doc__) for base in bases))
    for name in SHOWN[dotted]:
        member = inspect.getattr_static(shown, name)
        function = getattr(member, "__func__", member)
        assert function.__doc__, f"{dotted}.{name} has no docstring"
        if inspect.isfunction(function):
            yield f"{dotted}.{name}", function, explained(function.__doc__)


@pytest.mark.parametrize("dotted", sorted(SHOWN))
def test_every_argument_is_explained(dotted: str) -> None:
    assert object_at(dotted).__doc__, f"{dotted} has no docstring"
    for name, called, known in callables_of(dotted):
        arguments = {argument for argument in inspect.signature(called).parameters if argument not in ("self", "cls")}
        assert arguments <= known, f"{name}: {sorted(arguments - known)}"


def test_explained_arguments_are_found() -> None:
    assert explained(
        "Do.\n\n    Args:\n        one: first,\n            on two lines.\n        two: second.\n\n    Returns:\n        x: y"
    ) == {"one", "two"}
    assert explained("Do.") == explained(None) == set()


# ---- tables that follow the code


def test_pages_name_every_format_shape_and_constant() -> None:
    for name in registry.FORMATS:
        assert f"| `{name}` |" in page("guide/data-formats")
    for kind in ("graphs", "augmentations"):
        for name, what in registry.describe_names(kind):
            assert f"{name:<28}{what}\n" in page("commands")
    for name, shape in SHAPES.items():
        row = f"| {name} | {shape.train:,} | {shape.test:,} | {shape.labels:,} | {shape.labels_per_point:g} |"
        assert row in page("guide/make-data")
    for _, a, b in (*CONSTANTS, ("", *OTHER_CONSTANTS)):
        assert f"| {a} | {b} |" in page("metrics")


def test_recipes_page_names_every_recipe_objective_and_source_of_negatives() -> None:
    for name in (*registry.recipes(), *registry.OBJECTIVES, *registry.NEGATIVES):
        assert f"| `{name}` |" in page("guide/recipes"), name


def test_data_formats_page_names_every_option_and_guessed_column() -> None:
    options = [name for name in inspect.signature(longtail.read).parameters if name != "path"]
    assert re.findall(r"^\| `([a-z_]+)=", page("guide/data-formats"), re.MULTILINE) == options
    unwrapped = re.sub(r"\n  +", " ", page("guide/data-formats"))
    for title, usual in (("text", TEXT_NAMES), ("labels", LABEL_NAMES)):
        assert f"- {title}: {', '.join(f'`{name}`' for name in usual)}\n" in unwrapped


def test_contributing_names_every_make_target() -> None:
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"^\| `make ([a-z]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(set(targets) - {"help", "clean"})


def test_glossary_links_every_word_to_a_page() -> None:
    entries = re.findall(r"^### ([^\n]+)\n\n(.*?)(?=^##|\Z)", page("glossary"), re.DOTALL | re.MULTILINE)
    assert len(entries) > 40
    for word, text in entries:
        targets = re.findall(r"\]\(([\w/.-]+)\.md", text)
        assert targets and set(targets) <= set(PAGES), word

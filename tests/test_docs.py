"""The documentation: its examples run and print what it says, and its reference pages leave nothing out."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import longtail
from longtail.core import registry
from longtail.data.formats.table import LABEL_NAMES, TEXT_NAMES
from longtail.data.synth import SHAPES
from longtail.evaluation.evaluate import CONSTANTS, OTHER_CONSTANTS
from tests.examples import ROOT, examples, run_page

PAGES = (
    *("index", "reading", "checking", "making", "graphs", "augmentation"),
    *("training", "metrics", "comparing", "serving", "commands", "python"),
)


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_examples_print_what_the_page_says(name: str) -> None:
    assert examples(page(name)), "a page without examples"
    for example, printed in run_page(page(name), f"docs/{name}.md"):
        if example.promised is not None:
            assert printed == example.promised, f"docs/{name}.md:{example.line}"


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
    told = "```console\napt-get update\n```\n\n```text\nnothing\n```\n\n```sh\ntrue\n```\n\nAnd:\n\n```text\napart\n```\n"
    assert [(example.language, example.promised) for example in examples(told)] == [("sh", None)]


def every_command() -> list[tuple[str, list[str]]]:
    """Each command with its options, as the command line itself tells them."""
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


def test_commands_page_has_every_command_with_its_options_and_no_other() -> None:
    sections = dict(re.findall(r"^## `(longtail [a-z ]+)`\n(.*?)(?=^## |\Z)", page("commands"), re.DOTALL | re.MULTILINE))
    commands = dict(every_command())
    assert set(sections) == set(commands)
    for called, options in commands.items():
        assert re.findall(r"^\| `(-[-A-Za-z]+)", sections[called], re.MULTILINE) == options, called
        assert any(called in example.code for example in examples(sections[called])) or f"\n{called} " in sections[called], called


def test_python_page_has_every_public_name() -> None:
    titles = re.findall(r"^## `([A-Za-z_]+)", page("python"), re.MULTILINE)
    assert sorted(titles) == longtail.__all__


def test_pages_name_every_format_shape_and_constant() -> None:
    for name in registry.FORMATS:
        assert f"| `{name}` |" in page("reading")
    for kind in ("graphs", "augmentations"):
        for name, what in registry.describe_names(kind):
            assert f"{name:<28}{what}\n" in page("commands")
    for name, shape in SHAPES.items():
        row = f"| {name} | {shape.train:,} | {shape.test:,} | {shape.labels:,} | {shape.labels_per_point:g} |"
        assert row in page("making")
    for _, a, b in (*CONSTANTS, ("", *OTHER_CONSTANTS)):
        assert f"| {a} | {b} |" in page("metrics")


def test_reading_page_names_every_option_and_guessed_column() -> None:
    options = [name for name in inspect.signature(longtail.read).parameters if name != "path"]
    assert re.findall(r"^\| `([a-z_]+)=", page("reading"), re.MULTILINE) == options
    for title, usual in (("text", TEXT_NAMES), ("labels", LABEL_NAMES)):
        assert f"- {title}: {', '.join(f'`{name}`' for name in usual)}\n" in page("reading")


def test_contributing_names_every_make_target() -> None:
    targets = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    told = re.findall(r"^\| `make ([a-z]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(told) == sorted(set(targets) - {"help", "clean"})


def test_every_page_is_in_the_contents() -> None:
    listed = set(re.findall(r": (\w+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {path.stem for path in Path(ROOT, "docs").glob("*.md")}

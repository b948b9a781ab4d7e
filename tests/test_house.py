"""The house: how large its parts may grow, which words stay out, and what imports what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from longtail.core import registry
from longtail.models.encoders.base import Encoder, EncoderSettings
from tests.house_words import found_in

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "longtail"
MAX_ENTRIES, MAX_CLASS_LINES, MAX_COMPLEXITY, MAX_COMPARISONS = 14, 220, 15, 15
# settings that name a kind and are no registry of their own
KINDS = set(
    "labels clusters classifiers all fused features vectors texts table encoder random clustered growing one some batch text graph free "
    "encoded sum gated attention gale lightgcn gcn scaled plain mean cls none adaptive".split()
)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_the_top_level_stays_small() -> None:
    entries = sorted(path.name for path in PACKAGE.iterdir() if path.name != "__pycache__")
    assert len(entries) <= MAX_ENTRIES, entries


def test_classes_stay_small() -> None:
    classes = ((path, node) for path, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    long = [f"{path}: {node.name}" for path, node in classes if (node.end_lineno or 0) - node.lineno + 1 > MAX_CLASS_LINES]
    assert not long


def test_functions_stay_simple() -> None:
    config = f"lint.mccabe.max-complexity={MAX_COMPLEXITY}"
    command = [sys.executable, "-m", "ruff", "check", "--select", "C901", "--config", config, "--output-format", "concise", str(PACKAGE)]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def names_a_kind(node: ast.expr, kinds: set[str]) -> bool:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(names_a_kind(one, kinds) for one in node.elts)
    return isinstance(node, ast.Constant) and node.value in kinds


def test_few_comparisons_with_names_of_kinds() -> None:
    """What a kind does stands in its class or table, not behind an `if kind == ...` somewhere else."""
    kinds = KINDS | {name for table in registry.KINDS.values() for name in table}
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Compare):
                continue
            pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
            for left, operator, right in pairs:
                is_equality = isinstance(operator, (ast.Eq, ast.NotEq)) and (names_a_kind(left, kinds) or names_a_kind(right, kinds))
                is_one_of = isinstance(operator, (ast.In, ast.NotIn)) and names_a_kind(right, kinds)
                if is_equality or is_one_of:
                    found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert len(found) <= MAX_COMPARISONS, "\n".join(found)


def test_the_encoder_seam_is_typed() -> None:
    for interface in (Encoder, EncoderSettings):
        for name, method in vars(interface).items():
            function = method.fget if isinstance(method, property) else method
            if callable(function) and not name.startswith("_"):
                assert "typing.Any" not in {str(part) for hint in get_type_hints(function).values() for part in (hint, *get_args(hint))}, (
                    name
                )
    for file in ("models/network.py", "models/encoders/base.py", "models/encoders/context.py"):
        text = (PACKAGE / file).read_text(encoding="utf-8")
        assert "Any" not in re.findall(r"\w+", text) and "type: ignore" not in text, file


@pytest.mark.parametrize("room", ["inference", "storage", "serve"])
def test_answering_needs_no_training(room: str) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        found = re.findall(r"^\s*(?:from|import) longtail\.(training|recipes)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not found, f"{path.name} imports longtail.{found[0]}"


def test_house_words_stay_out() -> None:
    """Words that nobody in the field would search for are gone from code, settings and messages; tests/test_docs.py looks at the docs."""
    found = []
    for folder in ("longtail", "benchmarks", "examples", "scripts"):
        for path in sorted(ROOT.joinpath(folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".html", ".js", ".css", "") and path.is_file():
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                    found += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in found_in(line)]
    assert not found, "\n".join(found)


def test_docstrings_begin_with_a_word_to_search_for() -> None:
    empty = ("Of ", "What ")
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                if (ast.get_docstring(node) or "").startswith(empty):
                    found.append(f"{path}: {getattr(node, 'name', '')}")
    assert not found, found

"""The package as a whole: what it exports, how its parts import each other, how fast it answers, what its README shows."""

from __future__ import annotations

import ast
import os
import re
import resource
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import longtail
from longtail.core import registry
from longtail.data.formats.base import Format
from tests.examples import run_python

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "longtail"


def test_exported_names_exist_and_name_themselves() -> None:
    assert longtail.__all__ == sorted(longtail._HOME)
    assert set(dir(longtail)) == {*longtail.__all__, "__version__"}
    for name in longtail.__all__:
        assert getattr(longtail, name).__name__ == name
    with pytest.raises(AttributeError, match="longtail has no 'predictt'"):
        longtail.predictt  # noqa: B018


def test_every_registered_name_can_be_loaded() -> None:
    for kind, table in registry.KINDS.items():
        for name, (_, what) in table.items():
            loaded = registry.load(kind, name)
            assert callable(loaded) and what
            if kind == "augmentations":
                assert is_dataclass(loaded)
            if kind == "formats":
                assert issubclass(loaded, Format) and loaded.title and loaded.uses is not None


def page_order() -> list[str]:
    """The rooms of the package in the order of the page in docs/design.md."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    block = page.split("```", 2)[1]
    return [match.group(1) for match in re.finditer(r"^  ([a-z_]+)(?:\.py|/) ", block, re.MULTILINE)]


def part_of(module: str) -> str | None:
    """The part of the page a module belongs to: the first name below the package."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 and pieces[0] == "longtail" else None


def imports(path: Path) -> set[str]:
    """Modules that a file imports when it runs; imports for annotations alone do not count."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{name.name}" for name in node.names if node.module == "longtail"}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def test_every_part_imports_only_from_parts_above_it() -> None:
    order = page_order()
    on_disk = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert on_disk - {"__init__"} <= set(order), "a part is missing from the page in docs/design.md"
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for module in imports(path):
            used = part_of(module)
            if used and used in order and used != part:
                assert order.index(used) < order.index(part), f"{path.name} imports {module}, which stands below it"


def test_help_answers_at_once() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "longtail.cli.main", "--help"], check=True, capture_output=True, cwd=ROOT, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 0.4


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python example of the README, in order, in an empty folder; what a comment promises must come out."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for block in blocks:
        run_python(block, space, "README.md")


def test_readme_commands_exist() -> None:
    from typer.main import get_command

    from longtail.cli.main import app

    command = get_command(app)
    assert hasattr(command, "commands")
    known = set(command.commands)
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            if language in ("python", "text"):
                continue
            for line in re.findall(r"^(?:\$ )?longtail +([a-z]+)", block, re.MULTILINE):
                assert line in known, f"{document.name} shows `longtail {line}`"

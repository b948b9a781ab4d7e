"""Examples of the documentation: taken out of a page, run in order, and held against what the page says they print.

In a page, blocks of `python` and `sh` run, and a `text` block right after one shows what it prints, errors included.
A line `expression  # -> value` in a `python` block shows the value's repr. Blocks of other languages are not run.

After a change, `python -m tests.examples docs` writes what is printed now into the `text` blocks of a folder's pages, or of the pages that
are named; read the difference.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
EXPECTED_FAILURE = 2  # the exit code of every error that a user may meet


@dataclass(frozen=True)
class Example:
    """A block that runs, with what the page says it prints; None where the page does not say."""

    language: str
    code: str
    line: int  # in the page
    promised: str | None
    promised_at: slice | None  # in the page


def examples(page: str) -> list[Example]:
    """The blocks of a page that run.

    >>> [(example.code, example.promised) for example in examples("```sh\\ndate\\n```\\n\\n```text\\nMonday\\n```\\n")]
    [('date\\n', 'Monday\\n')]
    """
    found = list(BLOCK.finditer(page))
    runnable = []
    for block, after in zip(found, [*found, None][1:], strict=True):
        if block["language"] in ("python", "sh"):
            shown = after if after and after["language"] == "text" and not page[block.end() : after.start()].strip() else None
            line = page.count("\n", 0, block.start()) + 1
            promised = (shown["code"], slice(*shown.span("code"))) if shown else (None, None)
            runnable.append(Example(block["language"], block["code"], line, *promised))
    return runnable


def run_page(page: str, name: str) -> Iterator[tuple[Example, str]]:
    """Run the examples of a page in an empty folder; each with what it printed, blanks at the ends of lines dropped."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, programs = Path(scratch, "work"), Path(scratch, "bin")
        folder.mkdir()
        programs.mkdir()
        command = programs / "longtail"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m longtail.cli.main "$@"\n')
        command.chmod(0o755)
        space: dict[str, object] = {}
        for example in examples(page):
            with contextlib.chdir(folder):
                where = f"{name}:{example.line}"
                printed = run_python(example.code, space, where) if example.language == "python" else _run_shell(example, programs, where)
            yield example, "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def run_python(code: str, space: dict[str, object], where: str) -> str:
    """Run a block and hold its `# -> value` comments against what comes out; returns what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, where, "exec", dont_inherit=True), space)
    for line in code.splitlines():
        expression, arrow, promised = line.partition("  # -> ")
        if arrow:
            came = repr(eval(expression, space))
            assert came == promised, f"{where}: {line!r} gives {came}"
    return printed.getvalue()


def _run_shell(example: Example, programs: Path, where: str) -> str:
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    environment = {**plain, "PATH": f"{programs}:{plain['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-e", "-c", example.code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", env=environment
    )
    shows_error = bool(re.search(r"^longtail: ", example.promised or "", re.MULTILINE))
    assert done.returncode == (EXPECTED_FAILURE if shows_error else 0), f"{where}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def pages_in(paths: Iterable[Path]) -> list[Path]:
    """These pages, and all pages of these folders."""
    return [page for path in paths for page in (sorted(path.rglob("*.md")) if path.is_dir() else [path])]


def updated(page: str, name: str) -> str:
    """The page with what its examples print now."""
    for example, printed in reversed(list(run_page(page, name))):
        if example.promised_at is not None:
            page = page[: example.promised_at.start] + printed + page[example.promised_at.stop :]
    return page


if __name__ == "__main__":
    for path in pages_in(map(Path, sys.argv[1:])):
        path.write_text(updated(path.read_text(encoding="utf-8"), path.name), encoding="utf-8")

"""Progress of long work: a rich bar with rate and time left on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PLAIN_LINE_EVERY_S = 10.0


@contextmanager
def progress(what: str, total: float, unit: str = "rows") -> Iterator[Callable[[float], None]]:
    """Hand out a function to call with the amount of work just done. `unit` "bytes" is shown as MB.

    Work that ends within a second shows nothing on a plain output and a vanishing bar on a terminal.
    """
    if sys.stderr.isatty():
        yield from _bar(what, total, unit)
    else:
        yield from _plain_lines(what, total, unit)


def _bar(what: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task) -> Text:  # type: ignore[no-untyped-def]
            return Text(_amount(task.speed or 0.0, unit) + "/s", style="cyan")

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda amount: bars.advance(task, amount)


def _plain_lines(what: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    started = last = time.monotonic()
    done = 0.0

    def advance(amount: float) -> None:
        nonlocal done, last
        done += amount
        now = time.monotonic()
        if now - last >= PLAIN_LINE_EVERY_S:
            last = now
            rate = done / (now - started)
            left = (total - done) / rate if rate else float("inf")
            share = f"{100 * done / total:.0f} %" if total else ""
            sys.stderr.write(f"{what}: {share}, {_amount(rate, unit)}/s, {left:.0f} s left\n")

    yield advance


def _amount(value: float, unit: str) -> str:
    return f"{value / 1e6:,.1f} MB" if unit == "bytes" else f"{value:,.0f} {unit}"

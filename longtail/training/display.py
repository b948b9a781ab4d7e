"""Progress of training: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

REPORT_EVERY_S = 0.5
PLAIN_LINE_EVERY_S = 10.0


class Display:
    """Shows how far a stage is. Nothing is shown more often than people can read."""

    def __init__(self) -> None:
        self._shown_at = self._line_at = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None
        self.title = ""

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def open(self, title: str, done: int, total: int) -> None:
        """Begin an epoch: `done` of the stage's `total` steps are behind it."""
        self.title = title
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[message]}"))
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        bar.start()
        self._bar = bar, bar.add_task(title, total=total, completed=done, message="")

    def is_due(self, now: float) -> bool:
        """Whether it is time to show something."""
        if now - self._shown_at <= REPORT_EVERY_S:
            return False
        self._shown_at = now
        return True

    def show(self, done: int, message: str, now: float) -> None:
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=done, message=message)
        elif now - self._line_at > PLAIN_LINE_EVERY_S:
            self._line_at = now
            sys.stderr.write(f"{self.title}: {message}\n")

    def close(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None

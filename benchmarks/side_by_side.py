"""Run each contender in a process of its own and print seconds and memory next to each other."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    seconds: float
    peak_mb: float  # beyond what the process held before the work
    result_mb: float


def measure(script: str, contender: str, *arguments: str, times: int = 3) -> Measured:
    """Call `script contender arguments` several times; the fastest counts, and the largest peak."""
    runs = []
    for _ in range(times):
        command = [sys.executable, script, "--contender", contender, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        runs.append([float(value) for value in done.stdout.split()[-3:]])
    return Measured(min(run[0] for run in runs), max(run[1] for run in runs), runs[0][2])


def contend(work: Callable[[], object], size: Callable[[object], int]) -> None:
    """Do the work in this process and print seconds, peak MB and result MB, for `measure` to read."""
    before = _peak_mb()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    print(seconds, _peak_mb() - before, size(result) / 1e6)


def _peak_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines() if sys.platform == "linux" else ():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def table(title: str, rows: dict[str, Measured], ours: str) -> None:
    """Print all rows, with the ratio of each one's time to ours."""
    print(f"\n{title}")
    print(f"  {'':<34}{'seconds':>9}{'times ours':>12}{'peak MB':>10}{'result MB':>11}")
    for name, row in rows.items():
        print(f"  {name:<34}{row.seconds:>9.2f}{row.seconds / rows[ours].seconds:>12.1f}{row.peak_mb:>10.0f}{row.result_mb:>11.0f}")

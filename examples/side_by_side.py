"""Shared by the examples: export the rows before and after Gandalf, train another system on both, print both results.

The other system lives in a virtual environment of its own, so that its versions and those of longtail never meet. It sees
exported files only, as any system would.
"""

from __future__ import annotations

import subprocess
import sys
import time
import venv
from pathlib import Path

import longtail
from longtail.data.augment.gandalf import Gandalf
from longtail.data.augment.rows import to_dataset
from longtail.data.convert import write

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "coverage@5")
BUILD = Path(__file__).parent.parent / "build"


def compare(script: str, system: str, packages: list[str]) -> None:
    """Run `script` in build/venv-SYSTEM on exported rows: D, then D+Z."""
    if len(sys.argv) != 2:
        raise SystemExit(f"Usage: python {Path(script).name} DATA    (a folder in any format that longtail reads, with a test split)")
    data = longtail.read(sys.argv[1])
    python = environment(BUILD / f"venv-{system}", packages)
    work = BUILD / f"{system}-on-gandalf" / f"{data.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    # linear one-vs-all learners know no soft targets: every target above delta becomes 1
    made = Gandalf().augment(data.train, data.label_texts)
    after = to_dataset(made, data, binary=True)
    print(f"{data.name}: {made}")
    print(f"{'':<22}" + "".join(f"{name:>12}" for name in SHOWN) + f"{'seconds':>10}")
    for name, rows in ((system, data), (f"{system} + Gandalf", after)):
        folder, found = work / ("after" if rows is after else "before"), work / ("after.npz" if rows is after else "before.npz")
        write(rows, folder, "pecos")
        started = time.perf_counter()
        done = subprocess.run([python, script, folder, found], capture_output=True, text=True)  # its progress bars stay out of the table
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        took = time.perf_counter() - started
        # always judged on the real data: its test rows, its filter, its label counts
        result = longtail.evaluate(longtail.read_predictions(found), data, resamples=0)
        print(f"{name:<22}" + "".join(f"{result.metrics[metric]:>12.2f}" for metric in SHOWN) + f"{took:>10.0f}")
    print(f"Next: longtail evaluate {work}/after.npz {sys.argv[1]} --against {work}/before.npz")


def environment(folder: Path, packages: list[str]) -> Path:
    """The Python of a virtual environment with these packages, made on first use."""
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"Making {folder} with {', '.join(packages)} ...")
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        ready.touch()
    return python

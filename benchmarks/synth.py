"""Time and memory of generating a catalogue: python benchmarks/synth.py [--like LF-AmazonTitles-1.3M]"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from longtail.data.synth import Shape, SynthSummary, shape_like, write_synth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--like", default="LF-AmazonTitles-131K", help="the data set whose sizes to take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # the child's folder
    given = parser.parse_args()
    shape = shape_like(given.like)
    if given.into:
        write_here(given.into, shape, given.seed)
    else:
        measure(given.like, shape, given.seed)


def write_here(folder: Path, shape: Shape, seed: int) -> None:
    """Work of the child process: make the kernels once on a tiny shape, then write the asked one, timed."""
    tiny = folder / "tiny"
    tiny.mkdir()
    write_synth(tiny, Shape(50, 20, 10, 2.0))
    out = folder / "out"
    out.mkdir()
    started = time.perf_counter()
    summary = write_synth(out, shape, seed)
    print(json.dumps({"seconds": time.perf_counter() - started, "summary": asdict(summary)}))


def measure(name: str, shape: Shape, seed: int) -> None:
    """Run the child, so that its memory is counted apart from everything else."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--like", name, "--seed", str(seed), "--into", folder]
        started = time.perf_counter()
        child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        whole = time.perf_counter() - started
    said = json.loads(child.stdout)
    summary, seconds = SynthSummary(**said["summary"]), said["seconds"]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # kilobytes on Linux
    rows = shape.train + shape.test
    print(f"{name}, seed {seed}: {seconds:.1f} s ({whole:.1f} s with start and compilation), {rows / seconds:,.0f} rows/s")
    print(f"{summary.bytes / 1e6:,.0f} MB written, peak memory {peak:,.0f} MiB")
    print(summary)
    print(
        f"{summary.train_pairs:,} train and {summary.test_pairs:,} test pairs, {summary.test_pairs / summary.test:.2f} labels a test row; "
        f"at most {summary.most_points:,} points per label, {summary.most_labels:,} labels per row"
    )


if __name__ == "__main__":
    main()

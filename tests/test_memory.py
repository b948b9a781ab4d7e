"""Freed memory stays with a process while it trains, and goes back afterwards."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ROUNDS = """
import resource
import numpy as np
from longtail.train.memory import freed_memory_kept

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        blocks = [np.empty(3 << 20, np.uint8) for _ in range(64)]  # too small for numpy to ask for large pages
        for block in blocks:
            block[::4096] = 1
        del blocks, block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(1)
outside = faults(10)
with freed_memory_kept():
    faults(1)
    inside = faults(10)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
with open("/proc/self/statm") as file:
    left = int(file.read().split()[1]) * resource.getpagesize()
print(outside, inside, held, left)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_freed_blocks_stay_inside_and_go_back_afterwards() -> None:
    ran = subprocess.run([sys.executable, "-c", ROUNDS], capture_output=True, text=True, check=True)
    outside, inside, held, left = map(int, ran.stdout.split())
    assert outside > 10 * 64 * 3 * 256 * 0.5  # pages of 4 KB, most of them new in every round
    assert inside < outside / 20
    assert left < held - 100e6

"""Freed memory stays with a process while it trains, and goes back afterwards."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import weakref

import pytest
import torch

from longtail.recipes.data import DataSource
from longtail.recipes.read import read_recipe
from longtail.training.monitor import TrainingMonitor
from longtail.training.trainer import Trainer
from tests.spelled import spelled_out

ROUNDS = """
import ctypes, resource, sys
from longtail.core.memory import freed_memory_kept

library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
size, n_blocks = map(int, sys.argv[1:])

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        blocks = [library.malloc(size) for _ in range(n_blocks)]
        for block in blocks:
            ctypes.memset(block, 1, size)
        for block in blocks:
            library.free(block)
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
@pytest.mark.parametrize(("size", "n_blocks"), [(3 << 20, 64), (48 << 20, 4)])  # the C library has a way of its own with blocks over 32 MB
def test_freed_blocks_stay_inside_and_go_back_afterwards(size: int, n_blocks: int) -> None:
    ran = subprocess.run([sys.executable, "-c", ROUNDS, str(size), str(n_blocks)], capture_output=True, text=True, check=True)
    outside, inside, held, left = map(int, ran.stdout.split())
    assert outside > 10 * n_blocks * size / (2 << 20) / 2  # most pages are new in every round, be they of 4 KB or of 2 MB
    assert inside < outside / 20
    assert left < held - 100e6


def test_a_network_that_is_trained_is_freed_at_once() -> None:
    """Nothing of a trainer points back to it: the moments of an optimizer do not wait for the garbage collector."""
    recipe = read_recipe("quick", ["epochs=1", "dim=16"])
    training = DataSource(spelled_out(), recipe, None, 0).training_data(recipe)
    gc.collect()
    gc.disable()
    try:
        trainer = Trainer(recipe.plan, training, torch.device("cpu"), 0)
        monitor = TrainingMonitor("quick", trainer.network, 1)
        with monitor:
            trainer.run(monitor)
        left = weakref.ref(trainer), weakref.ref(trainer.optimizer)  # type: ignore[arg-type]
        del trainer, monitor
        assert [one() for one in left] == [None, None]
    finally:
        gc.enable()

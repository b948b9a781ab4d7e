"""The benchmark setup of a cell: the machine it ran on, and its peak memory."""

from __future__ import annotations

import gc
import resource
from contextlib import suppress
from pathlib import Path

import torch

from longtail.core.memory import give_back_memory


def machine_name(device: torch.device) -> str:
    """The GPU, or the number of CPU threads."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"


class PeakMemory:
    """Peak memory since this was made.

    The memory of the cell before it is given back first.

    Args:
        whole: this process does all of the run; the peak of a run that was stopped and went on is not known.
    """

    def __init__(self, whole: bool) -> None:
        self._is_whole = whole
        gc.collect()
        give_back_memory()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # Linux counts the peak anew

    def megabytes(self, device: torch.device) -> float:
        """On the GPU, or of this process; 0 where it is not known."""
        if not self._is_whole:
            return 0.0
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device) / 1e6
        try:
            lines = Path("/proc/self/status").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6
        except (OSError, StopIteration):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # where it is in bytes, macOS

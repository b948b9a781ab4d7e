"""Freed memory: the C library keeps it for this process, or gives it back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# what mallopt of the GNU C library takes: malloc.h calls them M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_MMAP_MAX
TRIM, MAP, MAPPED = -1, -3, -4
LARGEST_KEPT = 32 << 20  # bytes of a block that is no mapping of its own; the library takes no more
USUALLY_MAPPED = 1 << 16  # blocks that may be mappings of their own, which go back to the system when they are freed
KEPT_AFTERWARDS = 2 * LARGEST_KEPT  # as it would keep of itself, once a block of that size was freed
ALL = 2**31 - 1


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Inside, freed blocks stay with the process; afterwards they go back to the system.

    A step of training on CPUs makes and frees matrices of a hundred megabytes. Left to itself, the C library hands them back each time, and
    the system fills every page of the next ones with zeros as it is touched: on two cores that was a tenth to a quarter of all time.
    What is kept lies in pieces, which took up to a quarter more memory where tables are large.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # another C library, which has other ways
        yield
        return
    set_option(MAP, LARGEST_KEPT)
    set_option(MAPPED, 0)  # larger blocks are kept, too
    set_option(TRIM, ALL)
    try:
        yield
    finally:
        set_option(MAPPED, USUALLY_MAPPED)
        set_option(TRIM, KEPT_AFTERWARDS)
        give_back_memory()


def give_back_memory() -> None:
    """To the system, what was freed; left to itself, the C library keeps much of it, and more each time."""
    with suppress(OSError, TypeError, AttributeError):  # another C library, which has other ways
        ctypes.CDLL(None).malloc_trim(0)

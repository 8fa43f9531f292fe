"""Memory settings of the broker's processes: rare garbage collection, and free memory returned to the system."""

import asyncio
import ctypes
import gc

__all__ = ["collect_seldom", "few_heaps", "keep_giving_back"]

BETWEEN_COLLECTIONS = 20_000
"""New objects after which the collector runs. With Python's default of 700, each full scan stops the process for a
tenth of a second, and the start takes a tenth longer.
"""


def collect_seldom() -> None:
    """Make the garbage collector run rarely, because most objects of this process are short-lived."""
    gc.set_threshold(BETWEEN_COLLECTIONS, 20, 50)


M_ARENA_MAX = -8
HEAPS = 2
GIVEN_BACK = 20.0
"""Seconds between two returns of free memory."""


def few_heaps() -> None:
    """Limit the number of glibc's heaps; by default each thread has some, and partly used heaps are never returned."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_ARENA_MAX, HEAPS)


async def keep_giving_back() -> None:
    """Return free memory to the system every `GIVEN_BACK` seconds until cancelled, since glibc would keep free gaps."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(GIVEN_BACK)
        await asyncio.to_thread(trim, 0)

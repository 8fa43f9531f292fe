"""Less frequent garbage collection, and the return of free memory to the system, for the broker's processes."""

import asyncio
import ctypes
import gc

__all__ = ["collect_seldom", "few_heaps", "keep_giving_back"]

BETWEEN_COLLECTIONS = 20_000
"""New objects after which the collector runs. With Python's default of 700, it stops all else for a tenth of a second
to scan all that was imported, and a start takes a tenth longer.
"""


def collect_seldom() -> None:
    """Make the garbage collector run rarely, as suits a process that makes very many short-lived objects."""
    gc.set_threshold(BETWEEN_COLLECTIONS, 20, 50)


M_ARENA_MAX = -8
HEAPS = 2
GIVEN_BACK = 20.0
"""Seconds between two returns of free memory."""


def few_heaps() -> None:
    """Limit the number of heaps of glibc, which has some for each thread, and returns none that is partly used."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_ARENA_MAX, HEAPS)


async def keep_giving_back() -> None:
    """Return free memory to the system from time to time, until cancelled; glibc would keep free gaps."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(GIVEN_BACK)
        await asyncio.to_thread(trim, 0)

"""How often the processes of the broker look for garbage, and that they give back the memory which it had."""

import asyncio
import ctypes
import gc

__all__ = ["collect_seldom", "few_heaps", "keep_giving_back"]

BETWEEN_COLLECTIONS = 20_000
"""New objects that make the collector look for garbage: with Python's 700 it holds up all else for a tenth of a second,
looking through all that was imported, and a start takes a tenth longer.
"""


def collect_seldom() -> None:
    """Have this process look for garbage as rarely as one should that makes very many objects which do not last."""
    gc.set_threshold(BETWEEN_COLLECTIONS, 20, 50)


M_ARENA_MAX = -8
HEAPS = 2
GIVEN_BACK = 20.0
"""Seconds between two times."""


def few_heaps() -> None:
    """Have glibc keep few heaps: it has some for each thread, and gives back none that has anything left in it."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_ARENA_MAX, HEAPS)


async def keep_giving_back() -> None:
    """Give the system the memory that is free, now and then, until cancelled; glibc keeps what lies between."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(GIVEN_BACK)
        await asyncio.to_thread(trim, 0)

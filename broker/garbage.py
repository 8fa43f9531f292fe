"""How often the processes of the broker look for garbage."""

import gc

__all__ = ["collect_seldom"]

BETWEEN_COLLECTIONS = 20_000
"""New objects that make the collector look for garbage: with Python's 700 it holds up all else for a tenth of a second,
looking through all that was imported, and a start takes a tenth longer.
"""


def collect_seldom() -> None:
    """Have this process look for garbage as rarely as one should that makes very many objects which do not last."""
    gc.set_threshold(BETWEEN_COLLECTIONS, 20, 50)

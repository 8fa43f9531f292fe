"""Pictures of plans. Needs matplotlib, from the extra `plots`."""

from coalloc.pictures.bars import Bar, bars, hops
from coalloc.pictures.figure import draw

__all__ = ["Bar", "bars", "draw", "hops"]

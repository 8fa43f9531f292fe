"""Pictures of plans. Needs matplotlib, from the extra `plots`."""

from coalloc.display.pictures.bars import Bar, bars, hops
from coalloc.display.pictures.figure import draw

__all__ = ["Bar", "bars", "draw", "hops"]

"""Paths for bytes that are so few that a linear program loses them."""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from coalloc.planner.paths import FlowLeft

__all__ = ["Order", "little_path"]

Order = Callable[[float, float, int], tuple[Any, ...]]
"""The rank of a path by its narrowest width, its price, and its number of arcs; the path of lowest rank is best."""


def little_path(
    onward: FlowLeft,
    sink: int,
    starts: Iterable[int],
    width: Callable[[int], float],
    price: Callable[[int], float],
    order: Order,
) -> list[int] | None:
    """Return the best path from one of these arcs to the sink; None if there is none.

    :param onward: the arcs that can carry anything
    :param width: how much an arc can carry; one that carries nothing is not used
    :param price: what a byte over an arc costs
    """
    number, seen = count(), set[int]()
    heap = [(order(inf, 0.0, 1), next(number), inf, 0.0, [arc]) for arc in starts]
    while heap:
        _, _, narrowest, paid, path = heappop(heap)
        here = onward.heads[path[-1]]
        if here == sink:
            return path
        if here in seen:
            continue
        seen.add(here)
        for arc in onward.leaving.get(here, ()):
            if onward.heads[arc] not in seen and (wide := width(arc)) > 0:
                least, costs = min(narrowest, wide), paid + price(arc)
                rank = order(least, costs, len(path) + 1)
                heappush(heap, (rank, next(number), least, costs, [*path, arc]))
    return None

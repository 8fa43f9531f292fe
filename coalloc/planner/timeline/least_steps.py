"""A lower bound of the number of steps, from the graph without time; usually it is the least number."""

import numpy as np
from numpy.typing import NDArray

from coalloc.errors import UsageError
from coalloc.planner.solvers.maxflow import Backend
from coalloc.planner.timeline.expansion import Expansion, still
from coalloc.planner.timeline.flows import cut
from coalloc.planner.timeline.steps import ARRIVING, Steps

__all__ = ["bound"]


def bound(steps: Steps, backend: Backend) -> tuple[int, NDArray[np.bool_]]:
    """Return a lower bound of the number of steps, and a cut that proves it.

    The cut is a set of nodes of the time-expanded graph with one step less. It follows from a cut of the graph without
    time, which data available from step r on have to cross in steps from r on.

    :raises UsageError: when some data cannot get to the destination at all
    """
    found = max((_least(steps, ready, backend) for ready in steps.readies), key=lambda each: each[0])
    count, ready, side = found
    return count, _over_time(steps, count - 1, ready, side)


def _least(steps: Steps, ready: int, backend: Backend) -> tuple[int, int, NDArray[np.bool_]]:
    """Return the least number of steps for data available from `ready` on, `ready`, and a cut, by Newton's method.

    Each round uses the number of steps that the last cut needs, until no cut is too small.
    """
    count, side = 0, np.ones(len(steps.places) + len(steps.copies), bool)
    side[len(steps.hosts) - 1] = False
    while (short := cut(still(steps, ready, max(count, 1)), backend)) is not None:
        graph, side = still(steps, ready, 1), short
        out = side[graph.tails] & ~side[graph.heads]
        held = int(graph.supplies[side & (graph.supplies > 0)].sum())
        each_step = int(graph.capacities[out].sum())
        if not each_step:
            stuck = [origin.host for origin in steps.origins if side[steps.at(origin.host)]]
            raise UsageError(
                f"no data can get from {', '.join(stuck)} to {steps.destination}",
                "add links, or choose longer steps or smaller units of data",
            )
        count = -(-held // each_step)
    return ready + max(count, 1), ready, side


def _over_time(steps: Steps, count: int, ready: int, side: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the cut in the graph of `count` steps, from step `ready` on; one step later for places of arrival."""
    expansion = Expansion(steps, count)
    found = np.zeros(expansion.size, bool)
    layers = found[: expansion.everywhere].reshape(count + 1, expansion.width)
    layers[ready:] = side[: expansion.width]
    arriving = [number for place, number in steps.places.items() if place.kind in ARRIVING]
    layers[: ready + 1, arriving] = False
    for origin, node in expansion.waiting.items():
        found[node] = origin.ready >= ready and side[steps.at(origin.host)]
    for number, copies in enumerate(steps.copies):
        inside = side[expansion.width + number] and copies.origins[0].ready >= ready
        found[expansion.size - len(steps.copies) + number] = inside
    return found

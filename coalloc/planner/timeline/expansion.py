"""The graphs of a collect job as arrays: without time (for the static bound), and over T steps (Cheng, III)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coalloc.planner.timeline.steps import ARRIVING, Arc, Steps

__all__ = ["Expansion", "ExpansionGraph", "Ints", "still"]

Ints = NDArray[np.int64]
FINEST = 1000
"""Number of values to which c' is rounded in costs; with more, sums of costs would overflow."""


@dataclass(frozen=True)
class ExpansionGraph:
    """A graph: arrays with one element per arc, and the supply of each node, negative for nodes that want units."""

    tails: Ints
    heads: Ints
    capacities: Ints
    costs: Ints
    supplies: Ints

    @property
    def total(self) -> int:
        """Units that have to arrive."""
        return int(self.supplies[self.supplies > 0].sum())


class Expansion:
    """The time-expanded graph G_T.

    Place p in step i is node i * places + p. The further nodes are D', where all units are wanted; the origins whose
    data become available later; and the files with several origins.

    A link leads from each step to the next, and costs C1 - C2 c', where c' is its capacity. Data wait only at their
    origin, from which an edge of cost i leads to each step i. C2 = T + 1 makes capacity count more than any wait of the
    same unit, and C1 = hosts * C2 * (max c' + 1) makes the number of transfers count more than any capacity, on paths
    with at most as many hops as there are hosts.

    :param steps: the step that is repeated
    :param count: T
    """

    def __init__(self, steps: Steps, count: int) -> None:
        self.steps = steps
        self.count = count
        self.width = len(steps.places)
        self.everywhere = (count + 1) * self.width
        later = [origin for origin in steps.origins if origin.ready]
        self.waiting = {origin: self.everywhere + 1 + i for i, origin in enumerate(later)} | {
            origin: steps.at(origin.host) for origin in steps.origins if not origin.ready
        }
        self.size = self.everywhere + 1 + len(later) + len(steps.copies)
        self.links = [arc for arc in steps.arcs if arc.link]

    @property
    def moves(self) -> int:
        """Number of arcs for transfers, which come first, step by step."""
        return len(self.links) * self.count

    @cached_property
    def waits(self) -> Ints:
        """The origin's number and the step of each holdover edge; these arcs follow the transfers."""
        spans = [
            (number, np.arange(max(origin.ready, not origin.ready), self.count))
            for number, origin in enumerate(self.steps.origins)
        ]
        columns = [np.stack((np.full(len(span), number), span)) for number, span in spans]
        return np.concatenate([*columns, np.empty((2, 0), np.int64)], axis=1)

    @cached_property
    def graph(self) -> ExpansionGraph:
        """All arcs, in this order: transfers, holdovers, from copies to origins, limits of access, and to D'."""
        parts = [self._transfers(), self._holdovers(), self._choices(), self._narrows(), self._ends()]
        tails, heads, capacities, costs = (
            np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)
        )
        total = self.steps.total
        return ExpansionGraph(tails, heads, np.minimum(capacities, total), costs, self._supplies(total))

    def _transfers(self) -> tuple[Ints, ...]:
        tails, heads, capacities = _columns(self.links)
        most = int(capacities.max(initial=1))
        scaled = capacities if most <= FINEST else capacities * FINEST // most
        less = self.count + 1
        much = len(self.steps.hosts) * less * (min(most, FINEST) + 1)
        step = self.width * np.arange(self.count)[:, None]
        return (
            (step + tails).ravel(),
            (step + self.width + heads).ravel(),
            np.tile(capacities, self.count),
            np.tile(much - less * scaled, self.count),
        )

    def _holdovers(self) -> tuple[Ints, ...]:
        numbers, steps = self.waits
        nodes = np.array([self.waiting[origin] for origin in self.steps.origins], np.int64)
        places = np.array(
            [self.steps.at(origin.host) for origin in self.steps.origins],
            np.int64,
        )
        return nodes[numbers], steps * self.width + places[numbers], np.full(len(steps), self.steps.total), steps

    def _choices(self) -> tuple[Ints, ...]:
        first = self.size - len(self.steps.copies)
        pairs = [
            (first + number, self.waiting[origin])
            for number, copies in enumerate(self.steps.copies)
            for origin in copies.origins
        ]
        tails, heads = np.array(pairs, np.int64).reshape(-1, 2).T
        return tails, heads, np.full(len(pairs), self.steps.total), np.zeros(len(pairs), np.int64)

    def _narrows(self) -> tuple[Ints, ...]:
        tails, heads, capacities = _columns([arc for arc in self.steps.arcs if not arc.link])
        kinds = [place.kind for place in self.steps.places]
        arriving = np.array([kinds[tail] in ARRIVING for tail in tails], bool)
        # Data leave in steps 0 to T - 1, and arrive in steps 1 to T.
        step = self.width * (np.arange(self.count)[:, None] + arriving)
        count = len(tails) * self.count
        return (
            (step + tails).ravel(),
            (step + heads).ravel(),
            np.tile(capacities, self.count),
            np.zeros(count, np.int64),
        )

    def _ends(self) -> tuple[Ints, ...]:
        tails = self.width * np.arange(self.count + 1) + len(self.steps.hosts) - 1
        same = np.ones_like(tails)
        return tails, same * self.everywhere, same * self.steps.total, same * 0

    def _supplies(self, total: int) -> Ints:
        supplies = np.zeros(self.size, np.int64)
        for origin, units in self.steps.origins.items():
            supplies[self.waiting[origin]] = units
        for number, copies in enumerate(reversed(self.steps.copies), 1):
            supplies[self.size - number] = copies.units
        supplies[self.everywhere] = -total
        return supplies


def still(steps: Steps, ready: int, count: int) -> ExpansionGraph:
    """Return the graph without time: all `count` steps together, for data that are not available before step `ready`.

    Its nodes are the places, then all copies, even those available earlier, which have no supply.
    """
    tails, heads, capacities = _columns(steps.arcs)
    copies = [(number, copies) for number, copies in enumerate(steps.copies) if copies.origins[0].ready >= ready]
    supplies = np.zeros(len(steps.places) + len(steps.copies), np.int64)
    for origin, units in steps.origins.items():
        supplies[steps.at(origin.host)] += units if origin.ready >= ready else 0
    choices = [
        (len(steps.places) + number, steps.at(origin.host)) for number, each in copies for origin in each.origins
    ]
    for number, each in copies:
        supplies[len(steps.places) + number] = each.units
    total = int(supplies.sum())
    supplies[len(steps.hosts) - 1] -= total
    more = np.array(choices, np.int64).reshape(-1, 2).T
    return ExpansionGraph(
        np.concatenate((tails, more[0])),
        np.concatenate((heads, more[1])),
        np.concatenate((np.minimum(capacities * count, total), np.full(len(choices), total))),
        np.zeros(len(tails) + len(choices), np.int64),
        supplies,
    )


def _columns(arcs: Sequence[Arc]) -> Ints:
    return np.array([arc[:3] for arc in arcs], np.int64).reshape(-1, 3).T

"""The choice of the task that gets the next lane.

A higher priority, which admins set, comes first; then the owner with the fewest open lanes, so that one user's many
files do not delay other users; then the nearest deadline; then the oldest task.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from broker.models.lanes import CollectionPair, LaneCandidate, OpenLane

__all__ = ["LaneChoice", "choose"]


class LaneChoice(NamedTuple):
    """The task that gets a lane, if any; the reason of each waiting task; and the tasks that need no further lane."""

    candidate: LaneCandidate | None
    waits: Mapping[str, str]
    content: frozenset[str] = frozenset()


def choose(
    candidates: Sequence[LaneCandidate],
    lanes: Sequence[OpenLane],
    caps: Mapping[str, int | None],
    tuned: Mapping[CollectionPair, int],
    hosts: Mapping[str, str] = MappingProxyType({}),
) -> LaneChoice:
    """Choose the task to open a lane for.

    :param caps: highest number of lanes of each existing collection; None for no limit
    :param tuned: highest number of lanes of each pair of collections
    :param hosts: hosts of guest collections, whose limits count the lanes of their guests, too
    """
    by_owner, by_pair = Counter(lane.owner for lane in lanes), Counter(lane.pair for lane in lanes)
    by_collection = Counter(end for lane in lanes for end in {hosts.get(end, end) for end in lane.pair} if end)
    by_task = Counter(lane.task for lane in lanes)
    waits: dict[str, str] = {}
    content: set[str] = set()

    def order(each: LaneCandidate) -> tuple[float, ...]:
        return (-each.priority, by_owner[each.owner], each.deadline, each.requested_at)

    for each in sorted(candidates, key=order):
        full = _full({end: hosts.get(end, end) for end in each.pair if end}, by_collection, caps)
        requested_lanes = each.options.perf_cc
        if full:
            waits[each.task] = full
        elif requested_lanes is not None and by_task[each.task] >= requested_lanes:
            content.add(each.task)  # it has as many lanes as its owner requested
        elif requested_lanes is None and by_pair[each.pair] >= tuned[each.pair]:
            if not by_task[each.task]:
                waits[each.task] = (
                    f"{tuned[each.pair]} transfers between these collections are running, and more would not be faster"
                )
        else:
            return LaneChoice(each, waits, frozenset(content))
    return LaneChoice(None, waits, frozenset(content))


def _full(ends: Mapping[str, str], lanes: Mapping[str, int], caps: Mapping[str, int | None]) -> str:
    """Return the reason why a task's collections allow no further lane; an empty string if they allow one.

    :param ends: the task's collections, each with the one whose limit applies: itself, or its host
    """
    for end, limited in ends.items():
        cap = caps.get(limited)
        if cap is not None and lanes.get(limited, 0) >= cap:
            return f"collection {end} has {cap} running transfers, which is its limit"
    return ""

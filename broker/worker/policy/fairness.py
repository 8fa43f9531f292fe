"""The choice of the task that gets the next lane; pure.

The owner with the fewest open lanes comes first, so that one user's hundred thousand files delay no other user; an
admin's priority overrules that. Among the tasks of one owner, the nearest deadline comes first, then the oldest task.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.models.lanes import CollectionPair, LaneCandidate, OpenLane

__all__ = ["LaneChoice", "choose"]


class LaneChoice(NamedTuple):
    """The task to open a lane for, if any; the reasons why tasks wait; and the tasks that have all their lanes."""

    candidate: LaneCandidate | None
    waits: Mapping[str, str]
    content: frozenset[str] = frozenset()


def choose(
    candidates: Sequence[LaneCandidate],
    lanes: Sequence[OpenLane],
    caps: Mapping[str, int | None],
    tuned: Mapping[CollectionPair, int],
) -> LaneChoice:
    """Choose the task to open a lane for.

    :param caps: lanes that each collection may have; a collection that is not in it no longer exists
    :param tuned: lanes that each pair of collections may have
    """
    by_owner, by_pair = Counter(lane.owner for lane in lanes), Counter(lane.pair for lane in lanes)
    by_collection = Counter(end for lane in lanes for end in set(lane.pair) if end)
    by_task = Counter(lane.task for lane in lanes)
    waits: dict[str, str] = {}
    content: set[str] = set()

    def order(each: LaneCandidate) -> tuple[float, ...]:
        return (-each.priority, by_owner[each.owner], each.deadline, each.requested_at)

    for each in sorted(candidates, key=order):
        full = _full(each, by_collection, caps)
        requested_lanes = each.options.perf_cc
        if full:
            waits[each.task] = full
        elif requested_lanes is not None and by_task[each.task] >= requested_lanes:
            content.add(each.task)  # it has all the lanes that its owner asked for
        elif requested_lanes is None and by_pair[each.pair] >= tuned[each.pair]:
            if not by_task[each.task]:
                waits[each.task] = (
                    f"{tuned[each.pair]} transfers between these collections are running, and more would not be faster"
                )
        else:
            return LaneChoice(each, waits, frozenset(content))
    return LaneChoice(None, waits, frozenset(content))


def _full(each: LaneCandidate, lanes: Mapping[str, int], caps: Mapping[str, int | None]) -> str:
    """Return the reason why a task's collections allow no further lane; empty if they do."""
    for end in filter(None, each.pair):
        cap = caps.get(end)
        if cap is not None and lanes.get(end, 0) >= cap:
            return f"collection {end} has {cap} running transfers, which is its limit"
    return ""

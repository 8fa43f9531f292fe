"""The choice of the task that gets the next lane.

A higher priority, which admins set, comes first. Then users take turns: the next lane goes to the user with the fewest
open lanes at what the task competes for, and among these to the user whose last turn there began earliest. Deadlines
and age order only the tasks of one user, so that no user gets a turn of another by an early deadline.

What a task competes for is its pair of collections, and each of the two whose limit the next lane reaches. A user's
lanes elsewhere delay no other task, so they decide only between users who are equal otherwise.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from broker.models.lanes import CollectionPair, LaneCandidate, LaneTurn, OpenLane

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
    turns: Sequence[LaneTurn] = (),
    hosts: Mapping[str, str] = MappingProxyType({}),
    names: Mapping[str, str] = MappingProxyType({}),
) -> LaneChoice:
    """Choose the task to open a lane for.

    :param caps: highest number of lanes of each existing collection; None for no limit
    :param tuned: highest number of lanes of each pair of collections
    :param turns: last turns of the candidates' owners; an owner without one comes first
    :param hosts: hosts of guest collections, whose limits count the lanes of their guests, too
    :param names: names of collections, for the reasons
    """
    by_pair = Counter(lane.pair for lane in lanes)
    by_collection = Counter(end for lane in lanes for end in set(_limited(lane.pair, hosts)))
    by_task = Counter(lane.task for lane in lanes)
    waits: dict[str, str] = {}
    content: set[str] = set()
    for each in _in_order(candidates, lanes, _scarce(by_collection, caps), turns, hosts):
        full = _full({end: hosts.get(end, end) for end in each.pair if end}, by_collection, caps, names)
        requested_lanes = each.options.perf_cc
        if full:
            waits[each.task] = full
        elif requested_lanes is not None and by_task[each.task] >= requested_lanes:
            content.add(each.task)  # it has as many lanes as its owner requested
        elif requested_lanes is None and by_pair[each.pair] >= tuned[each.pair]:
            if not by_task[each.task]:
                running = _running(tuned[each.pair])
                waits[each.task] = f"this pair of collections has {running}, and more would not be faster"
        else:
            return LaneChoice(each, waits, frozenset(content))
    return LaneChoice(None, waits, frozenset(content))


def _limited(pair: CollectionPair, hosts: Mapping[str, str]) -> list[str]:
    """Return the collections whose limits apply to tasks between two collections."""
    return [hosts.get(end, end) for end in pair if end]


def _in_order(
    candidates: Sequence[LaneCandidate],
    lanes: Sequence[OpenLane],
    scarce: frozenset[str],
    turns: Sequence[LaneTurn],
    hosts: Mapping[str, str],
) -> list[LaneCandidate]:
    """Return the candidates in the order in which they get lanes.

    :param scarce: collections whose limit the next lane reaches
    """

    def parts_of(pair: CollectionPair) -> list[CollectionPair | str]:
        return [pair, *scarce.intersection(_limited(pair, hosts))]

    open_lanes = Counter((lane.owner, part) for lane in lanes for part in parts_of(lane.pair))
    everywhere = Counter(lane.owner for lane in lanes)
    last_turn: dict[tuple[str, CollectionPair | str], float] = {}
    for turn in turns:
        for part in parts_of(turn.pair):
            last_turn[turn.owner, part] = max(turn.at, last_turn.get((turn.owner, part), 0.0))
    first_request: dict[str, float] = {}
    for each in candidates:
        first_request[each.owner] = min(each.requested_at, first_request.get(each.owner, each.requested_at))

    def order(each: LaneCandidate) -> tuple[float | str, ...]:
        parts = [(each.owner, part) for part in parts_of(each.pair)]
        turn = max(open_lanes[part] for part in parts), max(last_turn.get(part, 0.0) for part in parts)
        user = everywhere[each.owner], first_request[each.owner], each.owner
        return (-each.priority, *turn, *user, each.deadline, each.requested_at)

    return sorted(candidates, key=order)


def _scarce(lanes: Mapping[str, int], caps: Mapping[str, int | None]) -> frozenset[str]:
    """Return the collections whose limit the next lane reaches or exceeds."""
    return frozenset(end for end, cap in caps.items() if cap is not None and lanes.get(end, 0) + 1 >= cap)


def _full(
    ends: Mapping[str, str], lanes: Mapping[str, int], caps: Mapping[str, int | None], names: Mapping[str, str]
) -> str:
    """Return the reason why a task's collections allow no further lane; an empty string if they allow one.

    :param ends: the task's collections, each with the one whose limit applies: itself, or its host
    """
    for end, limited in ends.items():
        cap = caps.get(limited)
        if cap is not None and lanes.get(limited, 0) >= cap:
            return f"{names.get(end, end)} has {_running(cap)}, which is its limit"
    return ""


def _running(count: int) -> str:
    return f"{count} running transfer{'' if count == 1 else 's'}"

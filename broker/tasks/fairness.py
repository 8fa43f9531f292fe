"""Which task gets the next lane; pure.

Whoever has the fewest lanes open comes first, so that a hundred thousand files of one user hold up nobody; an admin's
priority overrules that. Among one owner's tasks the nearest deadline is first, then the oldest.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.storage.lanes import Candidate, Open, Pair

__all__ = ["Choice", "choose"]


class Choice(NamedTuple):
    """The task to open a lane for, if there is one; for what those wait that could have none; and who wants no more."""

    candidate: Candidate | None
    waits: Mapping[str, str]
    content: frozenset[str] = frozenset()


def choose(
    candidates: Sequence[Candidate],
    lanes: Sequence[Open],
    caps: Mapping[str, int | None],
    tuned: Mapping[Pair, int],
) -> Choice:
    """:param caps: lanes that each collection may have; one that is not in it is gone
    :param tuned: lanes that a pair may have
    """
    by_owner, by_pair = Counter(lane.owner for lane in lanes), Counter(lane.pair for lane in lanes)
    by_collection = Counter(end for lane in lanes for end in set(lane.pair) if end)
    by_task = Counter(lane.task for lane in lanes)
    waits: dict[str, str] = {}
    content: set[str] = set()

    def order(each: Candidate) -> tuple[float, ...]:
        return (-each.priority, by_owner[each.owner], each.deadline, each.requested_at)

    for each in sorted(candidates, key=order):
        full = _full(each, by_collection, caps)
        asked = each.options.perf_cc
        if full:
            waits[each.task] = full
        elif asked is not None and by_task[each.task] >= asked:
            content.add(each.task)  # it has all the lanes that it asked for
        elif asked is None and by_pair[each.pair] >= tuned[each.pair]:
            if not by_task[each.task]:
                waits[each.task] = (
                    f"{tuned[each.pair]} transfers between these collections are under way: as many as help"
                )
        else:
            return Choice(each, waits, frozenset(content))
    return Choice(None, waits, frozenset(content))


def _full(each: Candidate, lanes: Mapping[str, int], caps: Mapping[str, int | None]) -> str:
    """Why its collections take no further lane; empty if they do."""
    for end in filter(None, each.pair):
        cap = caps.get(end)
        if cap is not None and lanes.get(end, 0) >= cap:
            return f"collection {end} has {cap} transfers under way, as many as it may"
    return ""

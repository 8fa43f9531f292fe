"""Max-min fair rates by progressive filling, and their progress: numeric functions that can be compiled.

The rates of all flows rise together until a link is full; the flows over it keep their rates, the others rise further.
Flows and links are numbered. `FlowLinkMatrix` has the weight of each flow on each of its links.
"""

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from predictors.compiled import compilable, floats, integers

__all__ = ["FlowLinkMatrix", "advance", "share", "soonest"]

Integers = Sequence[int]
Floats = MutableSequence[float]


class FlowLinkMatrix(NamedTuple):
    """The sparse matrix of flows and links, stored twice: by flow, with the weights, and by link.

    The weight of a flow on a link is the number of bytes that the link carries for each byte of the flow.
    """

    flow_first: Integers
    flow_links: Integers
    flow_weights: Floats
    link_first: Integers
    link_flows: Integers

    @classmethod
    def of(cls, routes: Sequence[Mapping[int, float]], links: int, fast: bool) -> "FlowLinkMatrix":
        """Build the lists. :param routes: for each flow, the amount per byte that it takes of each of its links"""
        over: list[list[int]] = [[] for _ in range(links)]
        for flow, route in enumerate(routes):
            for link in route:
                over[link].append(flow)
        return cls(
            integers(_firsts(map(len, routes)), fast),
            integers([link for route in routes for link in route], fast),
            floats([weight for route in routes for weight in route.values()], fast),
            integers(_firsts(map(len, over)), fast),
            integers([flow for flows in over for flow in flows], fast),
        )


def _firsts(lengths: Iterable[int]) -> Iterable[int]:
    return accumulate(lengths, initial=0)


@compilable
def share(
    weave: FlowLinkMatrix,
    active: Integers,
    capacities: Floats,
    shares: Floats,
    rates: Floats,
    left: Floats,
    load: Floats,
    users: MutableSequence[int],
    live: MutableSequence[int],
    state: MutableSequence[int],
) -> None:
    """Put the fair rate of each active flow into `rates`.

    A flow with twice the `shares` of another one has twice its rate at a bottleneck of both. The arguments after
    `rates` are working memory, with an entry for each link. Only `state` has an entry for each flow: 0 if inactive, 1
    while its rate rises, 2 when it is fixed. `users` and `state` must be all zero, and are all zero again at the end.
    """
    firsts, links, weights, link_firsts, flows = weave
    count = 0
    for flow in active:
        state[flow] = 1
        for entry in range(firsts[flow], firsts[flow + 1]):
            link = links[entry]
            if users[link] == 0:
                live[count] = link
                count += 1
                left[link] = capacities[link]
                load[link] = 0.0
            users[link] += 1
            load[link] += weights[entry] * shares[flow]
    while count > 0:
        count, level, bottleneck = _bottleneck(left, load, users, live, count)
        if bottleneck < 0:
            break
        level = max(level, 0.0)  # rounding errors may have made it slightly negative
        for place in range(link_firsts[bottleneck], link_firsts[bottleneck + 1]):
            flow = flows[place]
            if state[flow] != 1:
                continue
            state[flow] = 2
            rates[flow] = level * shares[flow]
            for entry in range(firsts[flow], firsts[flow + 1]):
                link = links[entry]
                users[link] -= 1
                left[link] -= weights[entry] * rates[flow]
                load[link] -= weights[entry] * shares[flow]
    for flow in active:
        state[flow] = 0


@compilable
def _bottleneck(
    left: Floats, load: Floats, users: MutableSequence[int], live: MutableSequence[int], count: int
) -> tuple[int, float, int]:
    """Remove unused links from the first `count` of `live`, and find the one that is full at the lowest level.

    Return the number of remaining links, this level, and the link; -1 if no link remains.
    """
    level, bottleneck, i = inf, -1, 0
    while i < count:
        link = live[i]
        if users[link] == 0:
            count -= 1
            live[i] = live[count]
            continue
        if left[link] < level * load[link]:
            level, bottleneck = left[link] / load[link], link
        i += 1
    return count, level, bottleneck


@compilable
def soonest(active: Integers, sizes: Floats, moved: Floats, rates: Floats) -> float:
    """Return the seconds until the first flow has moved all of its bytes."""
    least = inf
    for flow in active:
        if rates[flow] > 0 and sizes[flow] - moved[flow] < least * rates[flow]:
            least = (sizes[flow] - moved[flow]) / rates[flow]
    return max(least, 0.0)


@compilable
def advance(
    active: Integers, sizes: Floats, moved: Floats, rates: Floats, seconds: float, over: MutableSequence[int]
) -> int:
    """Move bytes for `seconds`; put the flows that have moved all their bytes into `over`, and return their number.

    A flow that would be done within a nanosecond counts as done, because rounding would leave a remainder.
    """
    count = 0
    for flow in active:
        moved[flow] += rates[flow] * seconds
        if moved[flow] + rates[flow] * 1e-9 >= sizes[flow]:
            over[count] = flow
            count += 1
    return count

"""Plans of the bytes that each host still has to send to each other host (Confluence, 3.3, 3.4). Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from coalloc import planner
from coalloc.collect.methods.adaptive.link_queue import Pair
from coalloc.planner.network import Demand, File, Network
from coalloc.planner.results import TransferPlan

__all__ = ["WORTH", "Directives", "Lot", "directives", "reachable"]

WORTH = Fraction(3, 100)
"""Minimum relative gain of a plan that justifies a change; estimates are too inexact for smaller gains."""
NEW = Fraction(10, 100)
"""Minimum gain for new pairs in the middle of a job; the capacities that predict it are the best seen: optimistic."""
SETUP, RELAY = Fraction(1, 2), Fraction(1, 4)
"""Cost in seconds of using any new pairs, and of using any relays."""


class Lot(NamedTuple):
    """Bytes with the same position and the same destination: at `origins`, and staged at `staged` if given.

    To the planner a lot is a file with these holders. For staged blocks this equals the data edge of Confluence (3.4).
    The paper counts blocks of x that are staged at y as data of y, on an edge from the super-source to y0, and lets
    their flow pass from y0 to x0. So each block leaves from y0 or from x0, like a file that y and x hold.
    """

    origins: tuple[str, ...]
    staged: str
    to: str

    @property
    def holders(self) -> tuple[str, ...]:
        """The hosts that can send these bytes."""
        return (*self.origins, self.staged) if self.staged else self.origins


@dataclass(frozen=True)
class Directives:
    """The bytes to be sent, until the next plan.

    `left` are l_xy: for each host and destination, the bytes (at the host or in flight to it) that go to each next
    host. `rates` are f*_xy, in bytes per second. `recalled` are the staged bytes that their origins send again.
    """

    seconds: float = 0.0
    direct_seconds: float | None = None
    left: Mapping[Pair, Counter[str]] = field(default_factory=dict)
    rates: Mapping[Pair, float] = field(default_factory=dict)
    recalled: Mapping[Lot, int] = field(default_factory=dict)
    is_direct: bool = False


def directives(network: Network, lots: Mapping[Lot, int], used: Collection[Pair] = ()) -> Directives:
    """Return the best plan for these lots, in bytes, all of which must be `reachable` in this network.

    Among plans of similar duration, it prefers the one that changes least: direct transfers, or transfers over pairs
    that are `used`, with staged pieces sent from their relays. Max-flow alone would choose a different plan each time.
    """
    if not lots:
        return Directives()
    stay, wanted = _staying(lots), {lot.to for lot in lots}
    calm = network.keeping(lambda key: key.sink in wanted or key[:2] in used)
    choices = [(network.without_relays(), stay), (calm, stay), (network, stay), (network, lots)]
    best = None
    for net, goods in choices:
        if reachable(net, goods) == goods:
            found = planner.plan(net, _demand(goods))
            seconds = found.makespan + _overhead(found, used)
            worth = NEW if used and net is network else WORTH
            if best is None or seconds < best[0] * (1 - worth):
                best = seconds, found, goods
    assert best is not None, "these lots cannot be reached"
    return _directed(best[1], best[2])


def _overhead(plan: TransferPlan, used: Container[Pair]) -> Fraction:
    """Return the costs of a plan that max-flow ignores, in seconds."""
    relays = any(len(path.hosts) > 2 for path in plan.paths)
    new = any(pair not in used for path in plan.paths for pair in pairwise(path.hosts[:-1]))
    return RELAY * relays + SETUP * new


def _staying(lots: Mapping[Lot, int]) -> Mapping[Lot, int]:
    """Return the lots without the origins of staged pieces, so that these are sent from their relays only."""
    stay: Counter[Lot] = Counter()
    for lot, size in lots.items():
        stay[lot._replace(origins=()) if lot.staged else lot] += size
    return stay


def _demand(lots: Mapping[Lot, int]) -> Demand:
    return Demand(tuple(File(str(i), size, lot.holders, (lot.to,)) for i, (lot, size) in enumerate(lots.items())))


def _directed(plan: TransferPlan, lots: Mapping[Lot, int]) -> Directives:
    left: defaultdict[Pair, Counter[str]] = defaultdict(Counter)
    moved: Counter[Pair] = Counter()
    for path in plan.paths:
        for source, sink in pairwise(path.hosts):
            left[source, path.hosts[-1]][sink] += path.bytes
            moved[source, sink] += path.bytes
    seconds = float(plan.makespan)
    return Directives(
        seconds,
        None if plan.direct is None else float(plan.direct),
        left,
        {pair: nbytes / seconds for pair, nbytes in moved.items()},
        _recalled(plan, lots),
        is_direct=all(len(path.hosts) <= 2 for path in plan.paths),
    )


def _recalled(plan: TransferPlan, lots: Mapping[Lot, int]) -> Mapping[Lot, int]:
    named = {str(i): lot for i, lot in enumerate(lots)}
    recalled: Counter[Lot] = Counter()
    for path in plan.paths:
        lot = named.get(path.file)
        if lot and lot.staged and path.hosts[0] != lot.staged:
            recalled[lot] += path.bytes
    return recalled


def reachable(network: Network, lots: Mapping[Lot, int]) -> dict[Lot, int]:
    """Return the lots that can reach their destination, directly or over relays."""
    back: defaultdict[str, list[str]] = defaultdict(list)
    for key, link in network.links.items():
        if link.capacity:
            back[key.sink].append(key.source)
    senders = {to: _senders(network, back, to) for to in {lot.to for lot in lots}}
    return {lot: size for lot, size in lots.items() if senders[lot.to].intersection(lot.holders)}


def _senders(network: Network, back: Mapping[str, Iterable[str]], to: str) -> set[str]:
    found, new = {to}, [to]
    while new:
        sink = new.pop()
        if sink == to or network.hosts[sink].relays:
            fresh = set(back[sink]) - found
            found |= fresh
            new.extend(fresh)
    return found

"""A checker that proves, without a solver and in exact arithmetic, that a plan is sound and that none is faster."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from fractions import Fraction
from heapq import heappop, heappush
from itertools import pairwise

from coalloc.planner.demands import with_direct_path
from coalloc.planner.limits import BUDGET, PlanLimits
from coalloc.planner.network import Demand, Network
from coalloc.planner.results import Limit, TransferPlan
from coalloc.planner.uncertainty import NO_RELAYS, lowered

__all__ = ["BadPlan", "bound", "check", "faults"]


PRECISE = Fraction(1, 10**6)
"""Maximum relative excess over the budget."""
Straight = Container[tuple[str, str]]
"""Pairs of a file and a destination without relays."""


class BadPlan(Exception):
    """A plan that breaks the rules; a bug of the planner that made it."""


def check(network: Network, demand: Demand, plan: TransferPlan) -> None:
    """Check a plan. :raises BadPlan: if it has faults; the message lists all of them"""
    if found := list(faults(network, demand, plan)):
        raise BadPlan("; ".join(found))


def faults(network: Network, demand: Demand, plan: TransferPlan) -> Iterator[str]:
    """Yield the faults of a plan as sentences; nothing if it is sound, complete and proved to be the fastest."""
    caution = plan.certificate.caution
    cautious = network if caution is None else lowered(network, demand, caution)
    straight = with_direct_path(network, demand) if caution == NO_RELAYS else ()
    yield from _paths(cautious, demand, plan, straight)
    yield from _sums(demand, plan, parts=2 if straight else 1)
    yield from _conservation(demand, plan)
    yield from _capacities(network, demand, plan)
    least = bound(cautious, demand, plan.certificate.prices, straight)
    needed = plan.makespan if caution is None else _seconds(cautious, plan)
    if needed > least * (1 + plan.certificate.tolerance):
        yield f"only {float(least)} s are proved to be needed, not {float(needed)} s"
    if caution is not None and plan.makespan > _seconds(network, plan):
        yield f"its flows take {float(_seconds(network, plan))} s, not {float(plan.makespan)} s"
    if plan.direct is not None and plan.direct < plan.makespan:
        yield f"without relays it takes {float(plan.direct)} s, less than {float(plan.makespan)} s"


def _paths(network: Network, demand: Demand, plan: TransferPlan, straight: Straight) -> Iterator[str]:
    files = {file.name: file for file in demand.files}
    arrived: Counter[tuple[str, str]] = Counter()
    pairs = {(key.source, key.sink) for key in network.links}
    for path in plan.paths:
        if path.file not in files or not path.hosts:
            yield f"{path} is of no file, or leads nowhere"
            continue
        file, (first, *_, last) = files[path.file], (path.hosts[0], *path.hosts)
        if first not in file.holders or last not in file.destinations:
            yield f"{path} does not lead from a holder to a destination"
        if len(set(path.hosts)) < len(path.hosts) or path.bytes < 0:
            yield f"{path} goes in circles, or carries less than nothing"
        if strange := set(pairwise(path.hosts)) - pairs:
            yield f"{path} has no links {sorted(strange)}"
        between = [name for name in path.hosts[1:-1] if name in network.hosts]
        if lazy := [name for name in between if (file.name, last) in straight or not network.hosts[name].relays]:
            yield f"{path} goes over {', '.join(lazy)}, which do not relay"
        arrived[path.file, last] += path.bytes
    for file in demand.files:
        for to in file.destinations:
            if arrived[file.name, to] != file.size or (file.name, to) not in arrived:
                yield f"{arrived[file.name, to]} of the {file.size} bytes of {file.name} get to {to}"


def _sums(demand: Demand, plan: TransferPlan, parts: int) -> Iterator[str]:
    """Check that the paths carry the flows of each link, to less than a byte for each destination and part."""
    each = parts * len({to for file in demand.files for to in file.destinations})
    moved: Counter[tuple[str, str]] = Counter()
    for path in plan.paths:
        for pair in pairwise(path.hosts):
            moved[pair] += path.bytes
    flows: defaultdict[tuple[str, str], list[Fraction]] = defaultdict(list)
    for key, flow in plan.flows.items():
        flows[key.source, key.sink].append(flow)
        if flow < 0:
            yield f"a flow of {flow} over {key}"
    for pair in moved.keys() | flows.keys():
        flow = sum(flows[pair], Fraction(0))
        if abs(moved[pair] - flow) >= max(1, each * len(flows[pair])):
            yield f"paths move {moved[pair]} bytes from {pair[0]} to {pair[1]}, the flow is {float(flow)}"


def _conservation(demand: Demand, plan: TransferPlan) -> Iterator[str]:
    """Check that each host receives or contributes as many bytes as it sends or wants."""
    origins = plan.certificate.origins
    balance: defaultdict[str, Fraction] = defaultdict(Fraction)
    for key, flow in plan.flows.items():
        balance[key.source] -= flow
        balance[key.sink] += flow
    sent: defaultdict[str, Fraction] = defaultdict(Fraction)
    holders = {file.name: file.holders for file in demand.files}
    for (name, host), size in origins.items():
        if size < 0 or host not in holders.get(name, ()):
            yield f"{host} cannot send {float(size)} bytes of {name}"
        sent[name] += size
        balance[host] += size
    for file in demand.files:
        wanted = [to for to in file.destinations if to not in file.holders]
        if sent[file.name] != file.size * len(wanted):
            yield f"of {file.name}, {float(sent[file.name])} bytes are sent"
        for to in wanted:
            balance[to] -= file.size
    for host, left in balance.items():
        if left:
            yield f"{float(left)} bytes more come to {host} than leave it or are wanted there"


def _capacities(network: Network, demand: Demand, plan: TransferPlan) -> Iterator[str]:
    if strange := plan.flows.keys() - network.links.keys():
        yield f"flows over {sorted(strange)}, which are not there"
        return
    limits = PlanLimits(network, demand.budget)
    for limit, load in limits.loads(plan.flows).items():
        most = limits.capacity(limit) * (
            1 + min(plan.certificate.tolerance, PRECISE) if limit == BUDGET else plan.makespan
        )
        if load > most:
            yield f"{limit} carries {float(load)}, and can carry {float(most)}"


def _seconds(network: Network, plan: TransferPlan) -> Fraction:
    """Return the seconds in which a network carries the flows of a plan; 0 if it has no such links."""
    if plan.flows.keys() - network.links.keys():
        return Fraction(0)
    return PlanLimits(network, None).seconds(plan.flows)


def bound(network: Network, demand: Demand, prices: Mapping[Limit, Fraction], straight: Straight = ()) -> Fraction:
    """Return a lower bound of the makespan in seconds, by weak duality (`Certificate`).

    A budget is paid once, not per second.

    :param straight: pairs of a file and a destination without relays
    :raises BadPlan: when a price is negative, or of a limit that this network does not have
    """
    limits = PlanLimits(network, demand.budget)
    if any(price < 0 for price in prices.values()):
        raise BadPlan("a price is negative")
    try:
        speed = sum((price * limits.capacity(limit) for limit, price in prices.items() if limit != BUDGET), Fraction(0))
        money = prices[BUDGET] * limits.capacity(BUDGET) if BUDGET in prices else Fraction(0)
    except KeyError as error:
        raise BadPlan(f"{error} has a price, but is not a limit") from None
    paid = (
        sum((_cheapest(network, limits, demand, prices, to, straight) for to in _destinations(demand)), Fraction(0))
        - money
    )
    return paid / speed if paid > 0 and speed else Fraction(0)


def _destinations(demand: Demand) -> set[str]:
    return {to for file in demand.files for to in file.destinations}


def _cheapest(
    network: Network,
    limits: PlanLimits,
    demand: Demand,
    prices: Mapping[Limit, Fraction],
    sink: str,
    straight: Straight,
) -> Fraction:
    """Return the minimum that all bytes for a destination pay, by Dijkstra's algorithm backwards from it."""
    wanted = [file for file in demand.files if file.size and sink in file.destinations and sink not in file.holders]
    into: defaultdict[str, list[tuple[str, Fraction]]] = defaultdict(list)
    for key in network.links:
        length = sum((prices.get(limit, Fraction(0)) * weight for limit, weight in limits.by(key)), Fraction(0))
        into[key.sink].append((key.source, length))
    near: dict[str, Fraction] = {}
    for source, length in into[sink]:
        near[source] = min(length, near.get(source, length))
    far: dict[str, Fraction] = {}
    queue = [(Fraction(0), sink)]
    while queue:
        length, here = heappop(queue)
        if here in far:
            continue
        far[here] = length
        if here == sink or network.hosts[here].relays:
            for source, more in into[here]:
                if source not in far:
                    heappush(queue, (length + more, source))
    paid = Fraction(0)
    for file in wanted:
        lengths = near if (file.name, sink) in straight else far
        paid += file.size * min(lengths[host] for host in file.holders if host in lengths)
    return paid

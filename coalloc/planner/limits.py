"""The limits of a plan: those that a byte uses on its way over a link."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction

from coalloc.planner.network import LinkKey, Network
from coalloc.planner.plan import Limit

__all__ = ["BUDGET", "PlanLimits"]

BUDGET = Limit("budget", "")


class PlanLimits:
    """The limits of a network, and of a budget. The limit of a host's disks counts both reads and writes."""

    def __init__(self, network: Network, budget: float | None) -> None:
        self._network, self._budget = network, budget
        self._isps = {(host.name, isp.name): isp for host in network.hosts.values() for isp in host.isps}
        self._sets = {each.name: each.capacity for each in network.shared}
        self._shared: defaultdict[LinkKey, list[tuple[Limit, Fraction]]] = defaultdict(list)
        for each in network.shared:
            for key, weight in each.weights.items():
                self._shared[key].append((Limit("shared", each.name), Fraction(weight)))

    def by(self, key: LinkKey) -> Iterator[tuple[Limit, Fraction]]:
        """Yield the limits that a link uses, each with the amount that a byte takes."""
        one = Fraction(1)
        yield Limit("link", key), one
        out, into = self._isps.get((key.source, key.source_isp)), self._isps.get((key.sink, key.sink_isp))
        if out is not None and out.up is not None:
            yield Limit("up", (key.source, out.name)), one
        if into is not None and into.down is not None:
            yield Limit("down", (key.sink, into.name)), one
        for name in (key.source, key.sink):
            if self._network.hosts[name].io is not None:
                yield Limit("io", name), one
        yield from self._shared.get(key, ())
        if self._budget is not None:
            yield BUDGET, Fraction(self._network.links[key].price)

    def loads(self, flows: Mapping[LinkKey, Fraction]) -> dict[Limit, Fraction]:
        """Return the load of flows on each limit."""
        loads: defaultdict[Limit, Fraction] = defaultdict(Fraction)
        for key, flow in flows.items():
            for limit, weight in self.by(key):
                loads[limit] += weight * flow
        return loads

    def capacity(self, limit: Limit) -> Fraction:
        """Return the capacity of a limit in bytes per second; in money for the budget.

        :raises KeyError: when this limit does not exist here
        """
        found: float | None
        match limit:
            case Limit("link", LinkKey() as key):
                found = self._network.links[key].capacity
            case Limit("up", (host, isp)):
                found = self._isps[host, isp].up
            case Limit("down", (host, isp)):
                found = self._isps[host, isp].down
            case Limit("io", str(name)):
                found = self._network.hosts[name].io
            case Limit("shared", str(name)):
                found = self._sets[name]
            case _:
                found = self._budget
        if found is None:
            raise KeyError(limit)
        return Fraction(found)

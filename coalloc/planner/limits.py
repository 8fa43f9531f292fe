"""The limits of a plan: the limits that apply to each link, their loads, and their descriptions for users."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from coalloc.planner.network import Host, LinkKey, Network
from coalloc.planner.results import Limit

__all__ = ["BUDGET", "PlanLimits", "duration", "named", "reason"]

BUDGET = Limit("budget", "")
FEW = 3


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
        """Yield the limits that apply to a link, each with the amount that a byte over the link takes."""
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

    def seconds(self, flows: Mapping[LinkKey, Fraction]) -> Fraction:
        """Return the seconds in which flows pass all limits but the budget."""
        loads = self.loads(flows)
        return max(
            (load / self.capacity(limit) for limit, load in loads.items() if load and limit != BUDGET),
            default=Fraction(0),
        )

    def capacity(self, limit: Limit) -> Fraction:
        """Return the capacity of a limit in bytes per second; for the budget, in money.

        :raises KeyError: when the network has no such limit
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


def duration(seconds: Fraction) -> str:
    """Return a duration as text.

    >>> duration(Fraction(1000, 3)), duration(Fraction(100000, 3))
    ('333.3 s', '33333 s')
    """
    return f"{round(seconds)} s" if seconds >= 1000 else f"{float(seconds):.4g} s"


def reason(network: Network, limits: Iterable[Limit], seconds: Fraction, direct: Fraction | None) -> str:
    """Return one sentence about the limits of a plan, and the gain from relays."""
    limit = f"{duration(seconds)} at least, because of {named(network, limits)}"
    if direct is None:
        return f"{limit}; without relays, not every file has a path"
    if direct == seconds:
        return f"{limit}; relays are not faster"
    return f"{limit}; without relays it takes {duration(direct)}"


def named(network: Network, limits: Iterable[Limit]) -> str:
    """Return the names of the limits of a cut.

    >>> named(Network.of((), ()), [Limit("down", ("t", "")), Limit("io", "x")])
    'the downlink of t and the disks of x'
    """
    found: list[str] = []
    links: list[LinkKey] = []
    for limit in sorted(limits):
        match limit:
            case Limit("link", LinkKey() as key):
                links.append(key)
            case Limit("up" | "down" as direction, (host, isp)):
                found.append(f"the {direction}link of {host}" + f" to {isp}" * bool(isp))
            case Limit("io", host):
                found.append(f"the disks of {host}")
            case Limit("shared", name):
                found.append(f"the shared set {name}")
            case _:
                found.append("the budget")
    return _listed([*_bundles(network, links), *found])


def _bundles(network: Network, links: list[LinkKey]) -> list[str]:
    if not links:
        return []
    sources, sinks = {key.source for key in links}, {key.sink for key in links}
    if len(sinks) == 1 and len(links) == _between(network, network.hosts, sinks):
        return [f"all links into {links[0].sink}"]
    if len(sources) == 1 and len(links) == _between(network, sources, network.hosts):
        return [f"all links out of {links[0].source}"]
    if len(links) <= FEW:
        return [f"the link {key}" for key in links]
    return [f"{len(links)} links from {_hosts(sources)} to {_hosts(sinks)}"]


def _between(network: Network, sources: Iterable[str], sinks: Iterable[str]) -> int:
    """Return the number of links from some hosts to others, without a look at all links, of which there may be many."""
    outs, ins = ([(name, isp) for name in names for isp in _isps(network.hosts[name])] for names in (sources, sinks))
    pairs = ((out, into) for out in outs for into in ins)
    return sum(LinkKey(source, sink, x, y) in network.links for (source, x), (sink, y) in pairs)


def _isps(host: Host) -> list[str]:
    return [isp.name for isp in host.isps] or [""]


def _hosts(names: set[str]) -> str:
    return _listed(sorted(names)) if len(names) <= FEW else f"{len(names)} hosts"


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)

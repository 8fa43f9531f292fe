"""The input of planners: the network, and the data to be moved through it.

Sizes are bytes, times seconds, capacities whole bytes per second, so that plans can be exact. None means that no limit
is known. Networks known from several origins can be joined.
"""

from array import array
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from operator import index
from typing import NamedTuple, Self

from coalloc.errors import UsageError
from coalloc.planner.checks import check_finite, check_once, check_same, check_whole

__all__ = ["Demand", "File", "Host", "Isp", "Link", "LinkKey", "Network", "Shared", "joined"]

MOST = 2**60
"""Limit of bytes, and of bytes per second, so that doubles, and sums of two doubles, fit into 63 bits."""


class Isp(NamedTuple):
    """A connection of a host to the network, with its capacities up and down (C- and C+ in Confluence, 2.1)."""

    name: str = ""
    up: int | None = None
    down: int | None = None


@dataclass(frozen=True)
class Host:
    """A machine that holds, relays or wants files.

    `isps` is empty if the access is not a limit. `io` is the rate of its disks, for reads and writes together.
    `storage` is the number of bytes that it lends for staging. A host with `relays` False only sends the files that it
    holds, and receives the files that it wants.
    """

    name: str
    isps: tuple[Isp, ...] = ()
    io: int | None = None
    storage: int | None = None
    relays: bool = True


class LinkKey(NamedTuple):
    """A link from one host to another, by an ISP of each; the ISP's name may be empty if the host has at most one."""

    source: str
    sink: str
    source_isp: str = ""
    sink_isp: str = ""

    def __str__(self) -> str:
        return f"{self.source} -> {self.sink}"


@dataclass(frozen=True)
class Link:
    """The capacity from one host to another, end to end.

    `bounds` are the capacities that the true capacity exceeds in nine of ten cases, and in one of ten; `age` is the
    seconds since the measurement; `price` is money per byte.
    """

    key: LinkKey
    capacity: int
    bounds: tuple[int, int] | None = None
    age: float | None = None
    price: float = 0.0


class Shared(NamedTuple):
    """A set of links that share a bottleneck: the sum of weight x rate over these links is at most `capacity`."""

    name: str
    capacity: int
    weights: Mapping[LinkKey, float]


class LinkColumns(NamedTuple):
    """The links of a network in arrays, in their order, for solvers.

    The connections of all hosts are numbered in the order of the hosts; a host without any counts as one connection.

    :param outs: number of the connection by which a link leaves its source
    :param ins: number of the connection by which it enters its sink
    :param capacities: bytes per second, at most `MOST`
    """

    outs: "array[int]"
    ins: "array[int]"
    capacities: "array[int]"


@dataclass(frozen=True)
class Network:
    """Hosts, and the links between them. Two hosts without a link cannot reach each other.

    :raises UsageError: when a link names an unknown host or ISP, or joins a host with itself, a shared set names an
        unknown link, a name occurs twice, or a number is negative, not finite, or not whole where it has to be
    """

    hosts: Mapping[str, Host]
    links: Mapping[LinkKey, Link]
    shared: tuple[Shared, ...] = ()
    is_uncertain: bool = field(init=False, repr=False, compare=False, default=False)
    """Whether the capacity of any link is uncertain, by its bounds or its age."""
    columns: LinkColumns = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, host in self.hosts.items():
            what = f"host {host.name}"
            check_same(what, name, host.name)
            check_once(f"an ISP of {what}", (isp.name for isp in host.isps))
            check_whole(what, host.io, host.storage, *(limit for isp in host.isps for limit in isp[1:]))
        object.__setattr__(self, "columns", self._checked_links())
        check_once("a shared set", (each.name for each in self.shared))
        for each in self.shared:
            check_whole(f"shared set {each.name}", each.capacity)
            check_finite(f"shared set {each.name}", *each.weights.values())
            for key in each.weights:
                if key not in self.links:
                    raise UsageError(f"shared set {each.name} names the unknown link {key}", "add the link")

    def _checked_links(self) -> LinkColumns:
        numbers = count()
        isps = {name: {isp.name: next(numbers) for isp in host.isps or (Isp(),)} for name, host in self.hosts.items()}
        columns = LinkColumns(array("i"), array("i"), array("q"))
        add_out, add_in, add_capacity = (column.append for column in columns)
        for key, link in self.links.items():  # up to a million links: call the checks only for unusual values
            capacity = link.capacity
            if (
                type(capacity) is not int
                or not 0 <= capacity < MOST
                or link.bounds
                or link.price
                or link.age is not None
            ):
                self._check(link)
                capacity = min(index(capacity), MOST)
            if key != link.key:
                check_same(f"link {key}", key, link.key)
            source, sink, source_isp, sink_isp = key
            try:
                add_out(isps[source][source_isp])
                add_in(isps[sink][sink_isp])
            except KeyError:
                self._refuse(key, isps)
            if source == sink:
                raise UsageError(f"link {key} has the same host at both ends", "give two hosts")
            add_capacity(capacity)
        return columns

    def _check(self, link: Link) -> None:
        if link.capacity is None:
            raise UsageError(f"link {link.key} has no capacity", "give whole bytes per second, or leave out the link")
        check_whole(f"link {link.key}", link.capacity, *(link.bounds or ()))
        check_finite(f"link {link.key}", link.price, link.age)
        if link.age or (link.bounds and link.bounds[0] != link.bounds[1]):
            object.__setattr__(self, "is_uncertain", True)

    @staticmethod
    def _refuse(key: LinkKey, isps: Mapping[str, Container[str]]) -> None:
        """Refuse a link whose hosts or ISPs are unknown. :raises UsageError:"""
        for name, isp in ((key.source, key.source_isp), (key.sink, key.sink_isp)):
            if name not in isps:
                raise UsageError(f"link {key} names the unknown host {name!r}", "add the host")
            if isp not in isps[name]:
                raise UsageError(
                    f"link {key} names the ISP {isp!r}, which {name} does not have", "give one of its ISPs"
                )

    @classmethod
    def of(cls, hosts: tuple[Host, ...], links: tuple[Link, ...], shared: tuple[Shared, ...] = ()) -> Self:
        """Create a network from hosts and links, without their names as keys."""
        by_key = {link.key: link for link in links}
        check_once("a host", (host.name for host in hosts))
        if len(by_key) < len(links):
            check_once("a link", (link.key for link in links))
        return cls({host.name: host for host in hosts}, by_key, shared)

    def cautious(self) -> Self:
        """Return the network with the capacities that links reach in nine of ten cases."""
        links = {
            key: replace(link, capacity=link.bounds[0]) if link.bounds else link for key, link in self.links.items()
        }
        return replace(self, links=links)

    def without(self, host: str) -> Self:
        """Return the network without a host."""
        left = self.keeping(lambda key: host not in (key.source, key.sink))
        return replace(left, hosts={name: each for name, each in self.hosts.items() if name != host})

    def without_relays(self) -> Self:
        """Return the network with hosts that do not relay."""
        return replace(self, hosts={name: replace(host, relays=False) for name, host in self.hosts.items()})

    def keeping(self, wanted: Callable[[LinkKey], bool]) -> Self:
        """Return the network with only some of the links."""
        links = {key: link for key, link in self.links.items() if wanted(key)}
        return replace(self, links=links, shared=_among(self.shared, links))


def _among(shared: Iterable[Shared], links: Container[LinkKey]) -> tuple[Shared, ...]:
    """Return the shared sets with only these links."""
    return tuple(
        each._replace(weights={key: weight for key, weight in each.weights.items() if key in links}) for each in shared
    )


@dataclass(frozen=True)
class File:
    """Bytes with the same holders and the same destinations, for example a file with replicas.

    A part of a file that other hosts hold, such as blocks in transit, is a separate `File`. `available` is the time
    from which the file can be sent, `deadline` the time by which it has to arrive, both in seconds from the start of
    the plan.

    :raises UsageError: when the size is not a whole number from 0, a time is negative or not finite, or a host is named
        twice
    """

    name: str
    size: int
    holders: tuple[str, ...]
    destinations: tuple[str, ...]
    available: float = 0.0
    deadline: float | None = None

    def __post_init__(self) -> None:
        what = f"file {self.name}"
        check_whole(what, self.size)
        check_finite(what, self.available, self.deadline)
        check_once(f"a holder of {what}", self.holders)
        check_once(f"a destination of {what}", self.destinations)


@dataclass(frozen=True)
class Demand:
    """All data to be moved, and the budget: the maximum cost.

    :raises UsageError: when two files have the same name, or the budget is negative or not finite
    """

    files: tuple[File, ...]
    budget: float | None = None

    def __post_init__(self) -> None:
        check_once("a file", (file.name for file in self.files))
        check_finite("the budget", self.budget)

    @property
    def size(self) -> int:
        """Bytes that have to arrive, counted once for each destination."""
        return sum(file.size * len(file.destinations) for file in self.files)


def joined(first: Network, *others: Network) -> Network:
    """Return the first network, completed by the hosts, limits and links that only the other networks have.

    >>> from coalloc.planner.network import Isp
    >>> a, b = Host("a"), Host("b", (Isp("", up=5),))
    >>> joined(Network.of((a,), ()), Network.of((Host("a", io=1), b), ())) == Network.of((Host("a", io=1), b), ())
    True
    """
    hosts, links, shared = dict(first.hosts), dict(first.links), list(first.shared)
    for other in others:
        for name, host in other.hosts.items():
            hosts[name] = _filled(hosts[name], host) if name in hosts else host
        links = {**other.links, **links}
        names = {each.name for each in shared}
        shared += [each for each in other.shared if each.name not in names]
    links = {key: link for key, link in links.items() if _fits(key, hosts)}
    return Network(hosts, links, _among(shared, links))


def _filled(host: Host, other: Host) -> Host:
    return replace(
        host,
        isps=host.isps or other.isps,
        io=other.io if host.io is None else host.io,
        storage=other.storage if host.storage is None else host.storage,
    )


def _fits(key: LinkKey, hosts: Mapping[str, Host]) -> bool:
    """Return whether the link's hosts have its ISPs: of two networks, only one may know the ISPs of a host."""
    ends = ((key.source, key.source_isp), (key.sink, key.sink_isp))
    return all(isp in ({each.name for each in hosts[name].isps} or {""}) for name, isp in ends)

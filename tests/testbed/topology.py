"""The description of a WAN: hosts, links and their settings, read from YAML files. `wan` builds WANs from it.

    congestion: cubic
    links:
      client-core: {rate: 1gbit, delay: 0.1ms}
      core-s1: {rate: 400mbit, delay: 10ms, queue: 50ms, loss: 0.1%}
      core-s2: {rate: 200mbit, delay: 40ms, ab: {rate: 20mbit}}

A link is named after the two hosts that it joins; `ab` is the direction from the first to the second, `ba` the opposite
direction. docs/howto/testbed.md lists all settings.
"""

import heapq
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.testbed.settings import Settings, TopologyError

__all__ = ["DIRECTIONS", "Link", "Topology", "TopologyError"]

TOPOLOGIES = Path(__file__).with_name("topologies")
DIRECTIONS = ("ab", "ba")
CONGESTION = ("bbr", "cubic", "reno")
MOST_HOSTS = 250
HOST = re.compile("[A-Za-z0-9]{1,11}")  # a device is called "to-" and the neighbour's name, and may have 15 characters
DEFAULT_QUEUE = "50ms"  # as usual in routers


@dataclass(frozen=True)
class Link:
    """A link between two hosts, with the settings of its direction from `a` to `b` and of the opposite one."""

    name: str
    a: str
    b: str
    ab: Settings
    ba: Settings


@dataclass(frozen=True)
class Topology:
    """The topology of a WAN.

    :param name: name of its file
    :param congestion: congestion control of each host, for the data that it sends
    :param seed: seed of the random numbers for loss, jitter and cross traffic
    """

    name: str
    links: tuple[Link, ...]
    congestion: Mapping[str, str]
    seed: int = 1

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts in the order in which the links name them."""
        return tuple(dict.fromkeys(host for link in self.links for host in (link.a, link.b)))

    @classmethod
    def load(cls, source: Path | str | Mapping[str, Any]) -> "Topology":
        """Read a topology.

        :param source: path of a YAML file, name of a file in `topologies/`, or the content of such a file
        :raises TopologyError: when the file cannot be read, or is not a valid topology
        """
        if isinstance(source, Mapping):
            return _topology("unnamed", source)
        path = Path(source)
        if path.parent == Path() and not path.suffix:
            path = TOPOLOGIES / f"{path}.yaml"
        try:
            return _topology(path.stem, _read_yaml(path))
        except TopologyError as error:
            raise TopologyError(f"{path}: {error}") from None

    def routes(self, host: str) -> dict[str, str]:
        """Return, for each reachable host, the next hop on the route with the least delay; of several, the shortest."""
        ways: dict[str, list[tuple[str, float]]] = {name: [] for name in self.hosts}
        for link in self.links:
            ways[link.a].append((link.b, link.ab.delay))
            ways[link.b].append((link.a, link.ba.delay))
        first: dict[str, str] = {}
        # The heap orders by delay, then by the number of hops.
        reached = [(delay, 1, neighbour, neighbour) for neighbour, delay in ways[host]]
        heapq.heapify(reached)
        while reached:
            delay, hops, here, neighbour = heapq.heappop(reached)
            if here == host or here in first:
                continue
            first[here] = neighbour
            for there, more in ways[here]:
                heapq.heappush(reached, (delay + more, hops + 1, there, neighbour))
        return first


def _read_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        known = ", ".join(sorted(file.stem for file in TOPOLOGIES.glob("*.yaml")))
        raise TopologyError(f"no such file; there are {known}") from None
    except (OSError, yaml.YAMLError) as error:
        raise TopologyError(str(error)) from error
    if not isinstance(content, Mapping):
        raise TopologyError("not a mapping; it begins with `links:`")
    return content


def _topology(name: str, content: Mapping[str, Any]) -> Topology:
    unknown = set(content) - {"links", "congestion", "seed"}
    if unknown:
        raise TopologyError(f"unknown: {', '.join(map(str, unknown))}; there are links, congestion, seed")
    links = content.get("links")
    if not isinstance(links, Mapping) or not links:
        raise TopologyError("no links; write for example `links: {client-server: {rate: 100mbit, delay: 10ms}}`")
    topology = Topology(name, tuple(_link(str(key), value) for key, value in links.items()), {})
    _no_doubles(topology.links)
    if len(topology.hosts) > MOST_HOSTS:
        raise TopologyError(f"{len(topology.hosts)} hosts; at most {MOST_HOSTS} have addresses")
    seed = content.get("seed", 1)
    if not isinstance(seed, int) or seed < 0:
        raise TopologyError(f"seed: {seed!r} is not a number from 0 up")
    return replace(topology, congestion=_congestion(content.get("congestion", "cubic"), topology.hosts), seed=seed)


def _no_doubles(links: tuple[Link, ...]) -> None:
    found: dict[frozenset[str], str] = {}
    for link in links:
        other = found.setdefault(frozenset((link.a, link.b)), link.name)
        if other != link.name:
            raise TopologyError(f"{link.name}: there is a link {other} already")


def _link(name: str, content: object) -> Link:
    ends = name.split("-")
    if len(ends) != 2 or ends[0] == ends[1] or not all(map(HOST.fullmatch, ends)):
        raise TopologyError(f"{name}: a link is called FIRST-SECOND, after two hosts of up to 11 letters and digits")
    if not isinstance(content, Mapping):
        raise TopologyError(f"{name}: not a mapping; write for example `{name}: {{rate: 100mbit, delay: 10ms}}`")
    both = {key: value for key, value in content.items() if key not in DIRECTIONS}
    ways = [_settings(f"{name}.{way}", both, content.get(way, {})) for way in DIRECTIONS]
    return Link(name, *ends, *ways)


def _settings(where: str, both: Mapping[str, Any], own: object) -> Settings:
    if not isinstance(own, Mapping):
        raise TopologyError(f"{where}: not a mapping; write for example {{rate: 20mbit}}")
    words = {"queue": DEFAULT_QUEUE, **both, **own}
    if "rate" not in words:
        raise TopologyError(f"{where}: has no rate")
    try:
        return Settings(rate=0, delay=0, jitter=0, queue=0, loss=0).changed(**words)
    except TopologyError as error:
        raise TopologyError(f"{where}: {error}") from None


def _congestion(content: object, hosts: tuple[str, ...]) -> dict[str, str]:
    """Return the congestion control of each host.

    :param content: one name for all hosts, or a mapping of some hosts; the others get cubic
    """
    chosen = content if isinstance(content, Mapping) else dict.fromkeys(hosts, content)
    for host, algorithm in chosen.items():
        if host not in hosts:
            raise TopologyError(f"congestion: no link names a host {host}")
        if algorithm not in CONGESTION:
            raise TopologyError(f"congestion: {algorithm!r} is not one of {', '.join(CONGESTION)}")
    return {**dict.fromkeys(hosts, "cubic"), **chosen}

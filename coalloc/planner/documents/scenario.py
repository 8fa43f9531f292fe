"""A network and the data to be moved through it, as a document of plain values, for YAML and JSON.

    hosts: {cern: {url: "ftp://cern.example:2811", up: 1 Gbit/s, storage: 50 GB}, desk: {down: 200 Mbit/s}}
    links: {cern -> desk: 100 Mbit/s}
    files: {run1.root: {size: 8 GB, at: [cern], to: [desk]}}

docs/reference/network.md describes the whole format.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from coalloc.errors import UsageError
from coalloc.planner.documents import units
from coalloc.planner.documents.parts import DocumentPart
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network, Shared

__all__ = ["Scenario", "document", "scenario"]

# A broker matches these patterns against names from any user, so both take at most time proportional to the length.
ARROW = re.compile(r"\s(<?->)\s")
END = re.compile(r"(.*\S)\s+\(([^()]+)\)")
LINK = "cern -> desk: 100 Mbit/s"


class Scenario(NamedTuple):
    """A network, the data to be moved through it, and the servers of its hosts.

    `urls` are the URLs of servers, such as `ftp://host:port`, by host name.
    """

    network: Network
    demand: Demand = Demand(())
    urls: Mapping[str, str] = {}


def scenario(document: object) -> Scenario:
    """Parse a document.

    :param document: mappings, lists, strings, numbers and booleans
    :raises Misread: when a part of it is invalid
    :raises UsageError: when its parts contradict each other
    """
    parts = DocumentPart(document).fields("hosts", "links", "shared", "files", "budget")
    nothing = DocumentPart(None)
    hosts, urls = {}, {}
    for name, part in parts.get("hosts", nothing).items("cern: {up: 1 Gbit/s}"):
        hosts[name], url = _host(name, part)
        if url:
            urls[name] = url
    links: dict[LinkKey, Link] = {}
    for name, part in parts.get("links", nothing).items(LINK):
        for link in _links(name, part):
            if link.key in links:
                raise part.wrong("this link occurs twice", "leave out one of them")
            links[link.key] = link
    shared = tuple(_shared(name, part) for name, part in parts.get("shared", nothing).items("sea: {rate: 1 Gbit/s}"))
    files = tuple(_file(name, part, hosts) for name, part in parts.get("files", nothing).items("x: {size: 1 GB}"))
    budget = parts["budget"].read(units.amount) if "budget" in parts else None
    return Scenario(Network(hosts, links, shared), Demand(files, budget), urls)


def _host(name: str, part: DocumentPart) -> tuple[Host, str | None]:
    if not _sayable(name):
        raise part.wrong(f"{name!r} cannot be the name of a host", "leave out arrows, brackets ( ) and outer spaces")
    fields = part.fields("url", "up", "down", "isps", "io", "storage", "relays")
    isps = []
    if {"up", "down"} & fields.keys():
        if "isps" in fields:
            raise part.wrong("up and down cannot be combined with isps", "move them into each ISP")
        isps.append(_isp("", fields))
    elif "isps" in fields:
        for isp, its in fields["isps"].items("fibre: {up: 1 Gbit/s}"):
            if not _sayable(isp):
                raise its.wrong(f"{isp!r} cannot be the name of an ISP", "leave out arrows, and brackets ( )")
            isps.append(_isp(isp, its.fields("up", "down")))
    host = Host(
        name,
        tuple(isps),
        io=fields["io"].read(units.rate) if "io" in fields else None,
        storage=fields["storage"].read(units.size) if "storage" in fields else None,
        relays=fields["relays"].flag() if "relays" in fields else True,
    )
    return host, fields["url"].text() if "url" in fields else None


def _sayable(name: str) -> bool:
    """Return whether a name can be a part of a link's name."""
    return bool(name) and name == name.strip() and not re.search(r"[()\n]|->", name)


def _isp(name: str, fields: Mapping[str, DocumentPart]) -> Isp:
    up, down = (fields[direction].read(units.rate) if direction in fields else None for direction in ("up", "down"))
    return Isp(name, up, down)


def _links(name: str, part: DocumentPart) -> list[Link]:
    """Parse an entry of links: one link, or two for both directions."""
    whole = isinstance(part.value, dict)
    fields = part.fields("rate", "likely", "age", "price") if whole else {"rate": part}
    if "rate" not in fields:
        raise part.wrong("it has no rate", f"write for example {LINK}")
    bounds = None
    if "likely" in fields:
        read = tuple(each.read(units.rate) for each in fields["likely"].elements("[80 Mbit/s, 120 Mbit/s]"))
        if len(read) != 2 or read[0] > read[1]:
            raise fields["likely"].wrong("it is not two rates, the lower one first", "write [80 Mbit/s, 120 Mbit/s]")
        bounds = (read[0], read[1])
    rate = fields["rate"].read(units.rate)
    age = fields["age"].read(units.seconds) if "age" in fields else None
    price = fields["price"].read(units.price) if "price" in fields else 0.0
    return [Link(key, rate, bounds, age, price) for key in _keys(name, part)]


def _keys(name: str, part: DocumentPart) -> list[LinkKey]:
    """Return the links for a name such as `a -> b`, `a <-> b` or `a (fibre) -> b`."""
    source, arrow, sink = map(str.strip, [*ARROW.split(name, 1), "", ""][:3])
    if not source or not sink:
        raise part.wrong(f"{name!r} is not a link", f"write for example {LINK}, or cern <-> desk for both directions")
    hosts, isps = zip(_end(source), _end(sink), strict=True)
    key = LinkKey(*hosts, *isps)
    back = LinkKey(key.sink, key.source, key.sink_isp, key.source_isp)
    return [key, back] if arrow == "<->" else [key]


def _end(text: str) -> tuple[str, str]:
    """Split one side of a link's name into the host and its ISP."""
    found = END.fullmatch(text)
    return (found[1], found[2]) if found else (text, "")


def _shared(name: str, part: DocumentPart) -> Shared:
    fields = part.fields("rate", "links")
    if {"rate", "links"} - fields.keys():
        raise part.wrong("it needs a rate, and links", f"write for example {{rate: 1 Gbit/s, links: [{LINK[:12]}]}}")
    weights: dict[LinkKey, float] = {}
    for link, weight in _weighed(fields["links"]):
        for key in _keys(link, fields["links"]):
            weights[key] = weight
    return Shared(name, fields["rate"].read(units.rate), weights)


def _weighed(part: DocumentPart) -> list[tuple[str, float]]:
    """Return the named links with their weights; links in a list have weight 1."""
    if isinstance(part.value, list):
        return [(each.text(), 1.0) for each in part.elements(f"[{LINK[:12]}]")]
    return [(name, each.read(units.amount)) for name, each in part.items(f"{LINK[:12]}: 1")]


def _file(name: str, part: DocumentPart, hosts: Mapping[str, Host]) -> File:
    fields = part.fields("size", "at", "to", "available", "deadline")
    for needed, like in (("size", "8 GB"), ("at", "[cern]"), ("to", "[desk]")):
        if needed not in fields:
            raise part.wrong(f"it lacks {needed!r}", f"write for example {needed}: {like}")
    holders, destinations = _places(fields["at"], hosts), _places(fields["to"], hosts)
    if both := set(holders) & set(destinations):
        raise fields["to"].wrong(f"{min(both)} has the file already", "leave out that destination")
    return File(
        name,
        fields["size"].read(units.size),
        holders,
        destinations,
        available=fields["available"].read(units.seconds) if "available" in fields else 0.0,
        deadline=fields["deadline"].read(units.seconds) if "deadline" in fields else None,
    )


def _places(part: DocumentPart, hosts: Mapping[str, Host]) -> tuple[str, ...]:
    """Parse one host, or a list of hosts; return their names."""
    each = part.elements("[cern]") if isinstance(part.value, list) else [part]
    names = tuple(dict.fromkeys(place.text() for place in each))
    if not names:
        raise part.wrong("no host is given", "give one")
    for name in names:
        if name not in hosts:
            raise part.wrong(f"there is no host {name!r}", "add it to hosts")
    return names


def document(scenario: Scenario) -> dict[str, Any]:
    """Return the document of a scenario, which `scenario` parses to an equal one.

    :raises UsageError: when a name contains an arrow, a bracket or outer spaces
    """
    network, demand, urls = scenario
    isps = [isp.name for host in network.hosts.values() for isp in host.isps if len(host.isps) > 1 or isp.name]
    for name in [*network.hosts, *isps]:
        if not _sayable(name):
            raise UsageError(f"{name!r} cannot be written into a network", "give it a name without arrows and brackets")
    written: dict[str, Any] = {
        "hosts": {name: _written_host(host, urls.get(name)) for name, host in network.hosts.items()},
        "links": {_name(key): _written_link(link) for key, link in network.links.items()},
        "shared": {
            each.name: {
                "rate": units.show_rate(each.capacity),
                "links": {_name(key): weight for key, weight in each.weights.items()},
            }
            for each in network.shared
        },
        "files": {file.name: _written_file(file) for file in demand.files},
        "budget": demand.budget,
    }
    return {key: value for key, value in written.items() if value not in ({}, None)}


def _written_host(host: Host, url: str | None) -> dict[str, Any]:
    isps = {isp.name: _limits(isp) for isp in host.isps}
    unnamed = isps.pop("", {})
    return {
        **({"url": url} if url else {}),
        **({"isps": isps} if isps else unnamed),
        **({"io": units.show_rate(host.io)} if host.io is not None else {}),
        **({"storage": units.show_size(host.storage)} if host.storage is not None else {}),
        **({} if host.relays else {"relays": False}),
    }


def _limits(isp: Isp) -> dict[str, str]:
    limits = {"up": isp.up, "down": isp.down}
    return {direction: units.show_rate(limit) for direction, limit in limits.items() if limit is not None}


def _name(key: LinkKey) -> str:
    source = f"{key.source} ({key.source_isp})" if key.source_isp else key.source
    sink = f"{key.sink} ({key.sink_isp})" if key.sink_isp else key.sink
    return f"{source} -> {sink}"


def _written_link(link: Link) -> str | dict[str, Any]:
    rate = units.show_rate(link.capacity)
    more = {
        **({"likely": [units.show_rate(bound) for bound in link.bounds]} if link.bounds else {}),
        **({"age": units.show_seconds(link.age)} if link.age is not None else {}),
        **({"price": units.show_price(link.price)} if link.price else {}),
    }
    return {"rate": rate, **more} if more else rate


def _written_file(file: File) -> dict[str, Any]:
    return {
        "size": units.show_size(file.size),
        "at": list(file.holders),
        "to": list(file.destinations),
        **({"available": units.show_seconds(file.available)} if file.available else {}),
        **({"deadline": units.show_seconds(file.deadline)} if file.deadline is not None else {}),
    }

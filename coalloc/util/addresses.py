"""Classes of IP addresses, and the policy that decides which addresses may be connected to. Pure.

URLs that the user gives may lead to any address. A name from a server (in a redirect, a Metalink, a PASV reply or a
broker's answer) may not lead to an address of a more internal class than the server's own address. Addresses with an
embedded IPv4 address (IPv4-mapped, 6to4, NAT64, Teredo, ISATAP, ...) have the class of the embedded address.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from coalloc.model.replicas import Origin

__all__ = [
    "ANYWHERE",
    "USUAL_PORTS",
    "AddressClass",
    "AddressPolicy",
    "Network",
    "carried",
    "class_of",
    "parse_networks",
    "policy_of",
    "server",
]

USUAL_PORTS = {
    "dav": 80,
    "davs": 443,
    "ftp": 21,
    "ftpes": 21,
    "ftps": 990,
    "gsiftp": 2811,
    "http": 80,
    "https": 443,
    "sftp": 22,
    "sshftp": 22,
}
"""Ports of URLs that name none, by scheme."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressClass(IntEnum):
    """A class of addresses; a greater value is more internal."""

    PUBLIC = 0
    PRIVATE = 1
    """Addresses of a site: RFC 1918, unique local, carrier-grade NAT, benchmarking."""
    LOOPBACK = 2
    LINK_LOCAL = 3
    """Addresses that are never allowed for names from servers: link-local, multicast, unspecified, reserved, and the
    metadata services of clouds, which give out a machine's credentials.
    """


CLASSES: tuple[tuple[AddressClass, tuple[str, ...]], ...] = (
    (
        AddressClass.LINK_LOCAL,
        (
            *("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            *("168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::254/128", "fd20:ce::254/128"),  # used by clouds
            *("::/128", "fe80::/10", "ff00::/8", "100::/64", "2001:10::/28"),
        ),
    ),
    (AddressClass.LOOPBACK, ("127.0.0.0/8", "::1/128")),
    (
        AddressClass.PRIVATE,
        (
            *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15"),
            *("fc00::/7", "fec0::/10", "2001:2::/48"),
        ),
    ),
    (AddressClass.PUBLIC, ("0.0.0.0/0", "2000::/3")),
    (AddressClass.LINK_LOCAL, ("::/0",)),  # reserved
)
"""Networks by class; the first match counts."""
NETWORKS = tuple((each, ip_network(text)) for each, texts in CLASSES for text in texts)
REFUSED = [network for each, network in NETWORKS[:-1] if each == AddressClass.LINK_LOCAL]

MAPPED, TRANSLATED, COMPATIBLE = IPv6Network("::ffff:0:0/96"), IPv6Network("::ffff:0:0:0/96"), IPv6Network("::/96")
NAT64, LOCAL_NAT64 = IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48")
SIX_TO_FOUR, TEREDO = IPv6Network("2002::/16"), IPv6Network("2001::/32")
ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")
"""First bytes of the lower half of an ISATAP address."""
NAT64_BYTES = ((12, 13, 14, 15), (9, 10, 11, 12), (7, 9, 10, 11), (6, 7, 9, 10))
"""Positions of the IPv4 address's bytes after prefixes of 96, 64, 56 and 48 bits (RFC 6052, section 2.2)."""


class AddressPolicy(NamedTuple):
    """The rules for the addresses that may be connected to.

    :param innermost: the most internal class that is allowed
    :param networks: further allowed networks, without link-local addresses
    :param addresses: numeric addresses that are allowed whatever their class
    :param servers: names from `server` whose addresses are allowed unless they are link-local
    :param data_hosts: pairs of a name from `server` and another host that its data may come from, or go to
    :param pinned: pairs of a host and the numeric addresses to connect to, without another look-up
    :param remedy: remedy in the message of a refusal
    """

    innermost: AddressClass = AddressClass.LINK_LOCAL
    networks: tuple[Network, ...] = ()
    addresses: frozenset[str] = frozenset()
    servers: frozenset[tuple[str, int]] = frozenset()
    data_hosts: frozenset[tuple[tuple[str, int], str]] = frozenset()
    pinned: tuple[tuple[str, tuple[str, ...]], ...] = ()
    remedy: str = "give the URL yourself if you trust it, or list the network in config.toml (networks)"

    @property
    def anywhere(self) -> bool:
        """Return whether every address is allowed."""
        return self.innermost == AddressClass.LINK_LOCAL

    def allows(self, address: str, server: tuple[str, int] | None = None) -> bool:
        """Return whether a numeric address may be connected to.

        :param server: original host name and port, if `address` is the result of a look-up
        """
        return (
            self.anywhere
            or address in self.addresses
            or all(self._allows(each, server) for each in _carried(_parsed(address)))
        )

    def data_hosts_of(self, server: tuple[str, int]) -> frozenset[str]:
        """Return the other hosts that the data of a server may come from, or go to."""
        return frozenset(host for each, host in self.data_hosts if each == server)

    def lists(self, address: str) -> bool:
        """Return whether a numeric address is in one of the networks."""
        return all(self._lists(each) for each in _carried(_parsed(address)))

    def _allows(self, address: Address, server: tuple[str, int] | None) -> bool:
        inner = _class(address)
        if inner == AddressClass.LINK_LOCAL:
            return False
        return inner <= self.innermost or server in self.servers or self._lists(address)

    def _lists(self, address: Address) -> bool:
        return _class(address) != AddressClass.LINK_LOCAL and any(address in each for each in self.networks)

    def named_by(self, address: str | None) -> "AddressPolicy":
        """Return the policy for names from a server at this numeric address, None if unknown.

        In a chain of servers the most public one counts. A server's own address stays allowed.
        """
        known = AddressClass.PUBLIC if address is None else reach(address)
        return self._replace(
            innermost=min(self.innermost, known),
            addresses=frozenset() if address is None else frozenset({address}),
            servers=self.servers if known else frozenset(),
        )

    def pin(self, known: Mapping[str, tuple[str, ...]]) -> "AddressPolicy":
        """Return this policy with the numeric addresses of these hosts, which are then not looked up again."""
        new = {_plain(host): addresses for host, addresses in known.items()}
        return self._replace(pinned=tuple(({**dict(self.pinned), **new}).items()))

    def pinned_to(self, host: str) -> tuple[str, ...]:
        """Return the pinned numeric addresses of a host; empty if it has to be looked up."""
        return next((addresses for name, addresses in self.pinned if name == _plain(host)), ())

    def with_address(self, address: str) -> "AddressPolicy":
        """Return this policy with one more allowed numeric address."""
        return self._replace(addresses=self.addresses | {address})


ANYWHERE = AddressPolicy()
"""The policy for URLs that the user gives."""


def policy_of(origin: Origin, own: AddressPolicy = ANYWHERE) -> AddressPolicy:
    """Return the policy for names of this origin.

    A local document was provided by the user: it may name all but link-local addresses.

    :param own: the policy for URLs that the user gives
    """
    if origin.kind == "server":
        return own.named_by(origin.address)
    if origin.kind == "document":
        return own._replace(innermost=min(own.innermost, AddressClass.LOOPBACK))
    return own


def server(host: str, port: int) -> tuple[str, int]:
    """Return a server's name in the form used in policies."""
    return _plain(host), port


def class_of(address: str) -> AddressClass:
    """Return the class of a numeric address; with embedded addresses, their most internal class.

    >>> [class_of(each).name for each in ("192.0.2.1", "10.1.2.3", "127.0.0.2", "169.254.169.254")]
    ['PUBLIC', 'PRIVATE', 'LOOPBACK', 'LINK_LOCAL']
    >>> [class_of(each).name for each in ("2001:db8::1", "fd00::1", "::1", "fe80::1%eth0")]
    ['PUBLIC', 'PRIVATE', 'LOOPBACK', 'LINK_LOCAL']
    >>> [class_of(each).name for each in ("::ffff:127.0.0.1", "2002:a00:1::", "64:ff9b::169.254.1.1", "::")]
    ['LOOPBACK', 'PRIVATE', 'LINK_LOCAL', 'LINK_LOCAL']
    """
    return max(_class(each) for each in _carried(_parsed(address)))


def carried(address: str) -> tuple[str, ...]:
    """Return the numeric addresses that packets to an address may reach: the embedded ones, or itself.

    >>> carried("::ffff:192.0.2.1"), carried("2001:DB8::1%eth0")
    (('192.0.2.1',), ('2001:db8::1',))
    """
    return tuple(map(str, _carried(_parsed(address))))


def reach(address: str) -> AddressClass:
    """Return the most internal class of addresses to which a server at this numeric address may lead.

    A server with a link-local address counts as a server of the site.
    """
    known = class_of(address)
    return AddressClass.PRIVATE if known == AddressClass.LINK_LOCAL else known


def parse_networks(texts: Iterable[object]) -> tuple[Network, ...]:
    """Return networks such as "10.1.0.0/16" or "fd00:1::/48".

    :raises ValueError: for an invalid network, or one of link-local addresses only
    """
    found = []
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is not a network")
        network = ip_network(text)
        if any(network.version == each.version and network.subnet_of(each) for each in REFUSED):  # type: ignore[arg-type]
            raise ValueError(f"{text} is link-local or reserved")
        found.append(network)
    return tuple(found)


def _plain(host: str) -> str:
    return host.rstrip(".").lower()


def _parsed(address: str) -> Address:
    return ip_address(address.partition("%")[0])


def _class(address: Address) -> AddressClass:
    return next(each for each, network in NETWORKS if address in network)


def _carried(address: Address) -> tuple[Address, ...]:
    """Return the addresses that packets to an address may reach, as far as its form shows."""
    if isinstance(address, IPv4Address):
        return (address,)
    raw = address.packed
    if address in TEREDO:
        return IPv4Address(raw[4:8]), IPv4Address(bytes(255 - each for each in raw[12:]))
    if address in SIX_TO_FOUR:
        return (IPv4Address(raw[2:6]),)
    if address in LOCAL_NAT64:
        return tuple(_translated(raw))
    tail = IPv4Address(raw[12:])
    if address in MAPPED or address in TRANSLATED or address in NAT64 or (address in COMPATIBLE and int(address) > 1):
        return (tail,)
    return (address, tail) if raw[8:12] in ISATAP else (address,)


def _translated(raw: bytes) -> Iterator[Address]:
    """Yield the IPv4 addresses possibly embedded by a local NAT64, whose prefix length is unknown."""
    found = {IPv4Address(bytes(raw[i] for i in places)) for places in NAT64_BYTES}
    yield from {each for each in found if each.packed[0]} or {IPv4Address(0)}

"""Hosts with ports, and patterns of permitted destinations. Pure."""

import re
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from coalloc.util.addresses import Network, carried

__all__ = ["MOST_PORT", "DestinationPattern", "HostPort", "is_numeric"]

MOST_PORT = 65535
NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")
"""A host name of the domain name system; those of other alphabets in their ASCII form (xn--...)."""
LONGEST_NAME = 253
PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


class HostPort(NamedTuple):
    """A host, by name or numeric address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, least_port: int = 1) -> "HostPort":
        """Return the host and port in "HOST:PORT" or "[IPV6]:PORT".

        :param least_port: smallest valid port

        >>> HostPort.parse("depot.example:4000"), HostPort.parse("[2001:db8::1]:80").host
        (HostPort(host='depot.example', port=4000), '2001:db8::1')

        :raises ValueError: if the text has another form
        """
        host, colon, port = text.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9]{1,5}", port):
            raise ValueError(f"{text!r} is not HOST:PORT")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text!r} needs brackets around the address")
        return cls.of(host, int(port), least_port)

    @classmethod
    def of(cls, host: str, port: int, least_port: int = 1) -> "HostPort":
        """Return a host and port after checks.

        :raises ValueError: for an invalid name, an address with a zone, or a port out of range
        """
        if not least_port <= port <= MOST_PORT:
            raise ValueError(f"{port} is not a port")
        if is_numeric(host):
            return cls(host, port)
        if not NAME.fullmatch(host) or len(host) > LONGEST_NAME:
            raise ValueError(f"{host!r} is not a host name")
        return cls(host.lower().rstrip("."), port)


class DestinationPattern(NamedTuple):
    """A pattern of destinations: a host or a network, and a range of ports.

    :param host: host name in lower case; empty for a network
    """

    host: str
    network: Network | None
    first_port: int
    last_port: int

    @classmethod
    def parse(cls, text: str) -> "DestinationPattern":
        """Return the pattern in HOST, HOST:PORT, HOST:FIRST-LAST, or the same with a network for HOST.

        >>> DestinationPattern.parse("gridftp.example:2811-2812")[2:]
        (2811, 2812)
        >>> DestinationPattern.parse("[2001:db8::/32]:443").network
        IPv6Network('2001:db8::/32')

        :raises ValueError: if the text has another form
        """
        host, first, last = _split(text)
        if "/" in host or is_numeric(host):
            return cls("", ip_network(host), first, last)
        return cls(HostPort.of(host, first or 1).host, None, first, last)

    def covers_port(self, port: int) -> bool:
        """Return whether a port is in the range."""
        return self.first_port <= port <= self.last_port

    def covers_address(self, address: str) -> bool:
        """Return whether a numeric address, or each IPv4 address embedded in it, is in the network."""
        network = self.network
        return network is not None and all(ip_address(each) in network for each in carried(address))

    def __str__(self) -> str:
        place = str(self.network) if self.network is not None else self.host
        place = f"[{place}]" if ":" in place else place
        if (self.first_port, self.last_port) == (1, MOST_PORT):
            return place
        last = "" if self.first_port == self.last_port else f"-{self.last_port}"
        return f"{place}:{self.first_port}{last}"


def is_numeric(host: str) -> bool:
    """Return whether a host is a numeric address in standard notation, without a zone."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _split(text: str) -> tuple[str, int, int]:
    """Return the host or network, and the first and last port, of the text of a pattern."""
    bracketed = re.fullmatch(r"\[([^\[\]]+)\](?::(.+))?", text)
    if bracketed:
        host, ports = bracketed[1], bracketed[2]
    elif text.count(":") > 1:  # an IPv6 address or network without a port
        host, ports = text, None
    else:
        host, colon, after = text.partition(":")
        ports = after if colon else None
    if ports is None or ports == "*":
        return host, 1, MOST_PORT
    found = PORTS.fullmatch(ports)
    if not found:
        raise ValueError(f"{text!r} is not HOST[:PORT[-PORT]]")
    first, last = int(found[1]), int(found[2] or found[1])
    if not 0 < first <= last <= MOST_PORT:
        raise ValueError(f"{text!r} has an invalid range of ports")
    return host, first, last

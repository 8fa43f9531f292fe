"""The forwarding table that a broker gives a depot: the next depot by host of the server, for some minutes.

It makes sessions faster, and never fails one: a next depot that fails is left out for a while, and the session goes to
its server directly.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from aiohappyeyeballs import AddrInfoType

from coalloc.depot.daemon.forwarding import NextHop
from coalloc.depot.protocol.addresses import HostPort, is_numeric

__all__ = ["BrokerTable", "ChosenDepot"]

AGAIN = 30.0
"""Seconds for which a depot that failed is left out."""


class ChosenDepot(NamedTuple):
    """A depot that a broker has chosen as next hop.

    :param name: its registered name
    :param addresses: addresses of its host that this depot may connect to
    """

    name: str
    hop: NextHop
    addresses: Sequence[AddrInfoType]


class BrokerTable:
    """The newest table of a broker, until it expires."""

    def __init__(self) -> None:
        self._until = 0.0
        self._chosen: Mapping[str, ChosenDepot] = {}
        self._avoided: dict[HostPort, float] = {}
        """Time until which each depot that failed is left out."""

    def replace(self, chosen: Mapping[str, ChosenDepot], seconds: float) -> None:
        """Use another table.

        :param chosen: next depots by name, and by numeric addresses, of the servers' hosts
        :param seconds: time until it expires
        """
        now = time.monotonic()
        self._until, self._chosen = now + seconds, chosen
        self._avoided = {depot: until for depot, until in self._avoided.items() if until > now}

    def choose(self, to: HostPort, addresses: Sequence[str], visited: Collection[str]) -> ChosenDepot | None:
        """Return the next depot for a session; None to connect to the server directly.

        :param addresses: numeric addresses of the server's host
        :param visited: names of the depots that the session must not come to again
        """
        now = time.monotonic()
        if now >= self._until:
            return None
        hosts = [to.host, *addresses] if is_numeric(to.host) else [to.host]  # a ticket is for one name of a host
        found = next((self._chosen[host] for host in hosts if host in self._chosen), None)
        if found is None or found.name in visited or now < self._avoided.get(found.hop.depot, now):
            return None
        return found

    def avoid(self, depot: HostPort) -> None:
        """Leave out a depot that has failed, for a while."""
        self._avoided[depot] = time.monotonic() + AGAIN

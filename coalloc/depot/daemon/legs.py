"""The use of a depot's legs, for reports to a broker: connections to next hops, and what the kernel measured on them.

The kernel counts lost bytes of a connection only in the direction in which it sends them. Most bytes are those of
downloads, which come from the next hop. So a depot that knows the others also counts the bytes that it sends back to
one of them that is its client, as bytes of its leg to that depot.
"""

import errno
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import NamedTuple

from coalloc.depot.protocol.addresses import HostPort
from coalloc.util.addresses import carried
from coalloc.util.tcp_info import SentState

__all__ = ["EXHAUSTED", "MOST_LEGS", "LegBook", "LegUse"]

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of this machine, and not of a connection."""
MOST_LEGS = 256
"""Maximum number of legs in a report."""
MOST_TIMES = 100
MOST_NAMES, MOST_PLACES = 4096, 16
"""Maximum number of hosts whose places are known, and of the places at each of them."""
ENOUGH = 1 << 16
"""Minimum number of sent bytes that show a share of losses, or a rate."""


class LegUse:
    """The use of one leg since the last report.

    :ivar sessions: number of connections that were made, for sessions or measurements
    :ivar failures: number of those that failed
    """

    def __init__(self) -> None:
        self.sessions = 0
        self.failures = 0
        self._times: list[float] = []
        self._round_trip: float | None = None
        self._sent = self._sent_again = 0
        self._rate: float | None = None

    def connected(self, seconds: float) -> None:
        """Count a connection that was made in this time."""
        self.sessions += 1
        if len(self._times) < MOST_TIMES:
            self._times.append(seconds)

    def sent(self, state: SentState) -> None:
        """Add what the kernel measured on a connection."""
        if state.round_trip is not None:
            self._round_trip = min(state.round_trip, self._round_trip or state.round_trip)
        self._sent += state.sent
        self._sent_again += state.sent_again
        if state.rate is not None and state.sent >= ENOUGH:
            self._rate = max(state.rate, self._rate or 0.0)

    def add(self, other: "LegUse") -> None:
        """Add the use of another time."""
        self.sessions += other.sessions
        self.failures += other.failures
        self._times = [*self._times, *other._times][:MOST_TIMES]
        self.sent(SentState(other._round_trip, other._sent, other._sent_again, other._rate))

    def document(self) -> dict[str, object]:
        """Return the values for a broker; unknown ones are None."""
        return {
            "sessions": self.sessions,
            "failures": self.failures,
            "connect_seconds": median_low(self._times) if self._times else None,
            "round_trip": self._round_trip,
            "loss": min(1.0, self._sent_again / self._sent) if self._sent >= ENOUGH else None,
            "rate": self._rate,
        }


class _NamedPlaces(NamedTuple):
    """The depots and servers that a broker has named, by address and name of their hosts.

    :param depots: the only depot at an address; None if there are several
    """

    all: dict[str, list[HostPort]]
    depots: Mapping[str, HostPort | None]

    def leg(self, hop: HostPort, address: str) -> tuple[HostPort, bool]:
        """Return the leg to a hop, and whether the hop is at its very port, and not only at the same host.

        Programs connect to numeric addresses, and FTP servers have a new port for each transfer.
        """
        named = self.all.get(hop.host) or self.all.get(address) or [hop]
        same = [each for each in named if each.port == hop.port]
        return (same or named)[0], bool(same)


class LegBook:
    """The use of all legs since the last report. If there are very many, those with the least use are left out."""

    def __init__(self) -> None:
        self._legs: dict[HostPort, LegUse] = {}
        self._named = _NamedPlaces({}, {})

    def connected(self, hop: HostPort, address: str, seconds: float) -> None:
        """Count a connection to a next hop.

        :param address: numeric address of its host
        """
        leg, exactly = self._named.leg(hop, address)
        if exactly:
            self._use(leg).connected(seconds)

    def failed(self, hop: HostPort, address: str, error: OSError) -> None:
        """Count a connection to a next hop that failed, unless this machine had no file descriptors or memory.

        Those to other ports of a named host are not counted: FTP servers close data ports that are not needed.
        """
        leg, exactly = self._named.leg(hop, address)
        if exactly and error.errno not in EXHAUSTED:
            self._use(leg).failures += 1

    def ended(self, hop: HostPort, address: str, state: SentState) -> None:
        """Add what the kernel measured on a connection to a next hop."""
        self._use(self._named.leg(hop, address)[0]).sent(state)

    def sent_back(self, address: str, state: SentState) -> None:
        """Add what the kernel measured on the connection to a client, if it is a depot that the broker has named."""
        for each in carried(address):  # an IPv4 address may be embedded in an IPv6 one
            if depot := self._named.depots.get(each):
                self._use(depot).sent(state)

    def name(self, places: Mapping[HostPort, Iterable[str]], depots: Sequence[HostPort]) -> None:
        """Remember depots and servers that a broker has named, with the numeric addresses of each.

        :param depots: all registered depots
        """
        known = self._named.all
        only: dict[str, HostPort | None] = {}
        for place, addresses in places.items():
            for host in {place.host, *addresses}:
                if place not in (named := known.setdefault(host, [])):
                    named.append(place)
                    del named[:-MOST_PLACES]
                if place in depots:
                    only[host] = None if only.get(host, place) != place else place
        while len(known) > MOST_NAMES:
            del known[next(iter(known))]
        self._named = _NamedPlaces(known, only)

    def take(self) -> Mapping[HostPort, LegUse]:
        """Return the use of all legs, and reset it."""
        taken, self._legs = self._legs, {}
        return taken

    def restore(self, taken: Mapping[HostPort, LegUse]) -> None:
        """Put back what could not be reported."""
        for leg, use in taken.items():
            self._legs.setdefault(leg, LegUse()).add(use)
        while len(self._legs) > MOST_LEGS:
            self._drop()

    def _use(self, leg: HostPort) -> LegUse:
        if leg not in self._legs and len(self._legs) >= MOST_LEGS:
            self._drop()
        return self._legs.setdefault(leg, LegUse())

    def _drop(self) -> None:
        del self._legs[min(self._legs, key=lambda leg: self._legs[leg].sessions + self._legs[leg].failures)]

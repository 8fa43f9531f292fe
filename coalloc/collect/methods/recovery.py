"""Recovery after failed hops and lost hosts: another holder, another path, and a pause.

A piece goes directly from the holder with the fewest failures; if no holder can send directly, over the fewest relays.
A pair that failed pauses for a while; further failures before the end of the pause do not count. A pair that failed
more often in a row than there are `PAUSES` is not tried any more.
"""

from collections import Counter, deque
from collections.abc import Collection

from coalloc.collect.methods.actions import Piece, Send
from coalloc.collect.methods.events import Gone, HopFailed, HopFault
from coalloc.collect.methods.ledger import Ledger
from coalloc.planner.network import Network

__all__ = ["PAUSES", "Recovery"]

PAUSES = (1.0, 4.0, 16.0)
"""Seconds for which a pair pauses after one, two, three failures in a row."""


class Recovery:
    """A record of failed pairs and hosts, which finds paths around them.

    :param network: network whose links may be used; if it has none, any pair may be used
    :param ledger: ledger that knows which host holds which piece
    """

    def __init__(self, network: Network, ledger: Ledger) -> None:
        self._network = network
        self._ledger = ledger
        self._linked = {(key.source, key.sink) for key, link in network.links.items() if link.capacity}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._rests: dict[tuple[str, str], float] = {}
        self._reasons: dict[tuple[str, str], str] = {}
        self._gone: dict[str, str] = {}
        self._full: set[str] = set()

    def arrived(self, send: Send) -> None:
        """Reset the failures of a pair that works."""
        self._failures.pop((send.source, send.sink), None)

    def failed(self, send: Send, event: HopFailed) -> None:
        """Record a failed hop; an intermediate host that takes no more is not used any more."""
        if event.fault is HopFault.FILE and send.source in self._ledger.files[send.piece.file].holders:
            return
        pair = (send.source, send.sink)
        self._reasons[pair] = event.reason
        if event.fault is HopFault.SINK:
            self._full.add(send.sink)
        if event.fault is HopFault.NO_LINK:
            self._failures[pair] = len(PAUSES) + 1
        elif event.at >= self.rests_until(*pair):
            self._failures[pair] += 1
            self._rests[pair] = event.at + PAUSES[min(self._failures[pair], len(PAUSES)) - 1]

    def gone(self, event: Gone) -> None:
        """Record that a host cannot be used any more."""
        self._gone[event.host] = event.reason

    def rests_until(self, source: str, sink: str) -> float:
        """Return the time at which a pair may be tried; a past time if it has no pause."""
        return self._rests.get((source, sink), 0.0) if self._failures[source, sink] else 0.0

    def usable(self, source: str, sink: str) -> bool:
        """Return whether a pair may be tried, now or later."""
        linked = not self._linked or (source, sink) in self._linked
        return linked and self._failures[source, sink] <= len(PAUSES) and not self._gone.keys() & {source, sink}

    def trouble(self, source: str, sink: str) -> str:
        """Return why a pair is not used."""
        ends = [self._gone[host] for host in (source, sink) if host in self._gone]
        return (ends or [self._reasons.get((source, sink), f"{source} has no usable link to {sink}")])[0]

    def relays(self, host: str) -> bool:
        """Return whether a host may be used as a relay."""
        return self._network.hosts[host].relays and host not in self._full and host not in self._gone

    def path(self, piece: Piece, to: str, at: str) -> tuple[str, ...] | None:
        """Return a path from a holder of a piece to a destination; None when there is no path.

        :param at: preferred holder among equals
        """
        origins = self._ledger.files[piece.file].holders
        known = dict.fromkeys((at, *origins, *self._network.hosts))
        holders = [host for host in known if self._ledger.holds(host, piece)]
        straight = [host for host in holders if self.usable(host, to)]
        if straight:
            return (min(straight, key=lambda host: self._failures[host, to]), to)
        return self._around(holders, to)

    def _around(self, holders: Collection[str], to: str) -> tuple[str, ...] | None:
        paths: deque[tuple[str, ...]] = deque((host,) for host in holders)
        seen = set(holders)
        while paths:
            path = paths.popleft()
            if self.usable(path[-1], to):
                return (*path, to)
            for host in self._network.hosts:
                if host not in seen and self.relays(host) and self.usable(path[-1], host):
                    seen.add(host)
                    paths.append((*path, host))
        return None

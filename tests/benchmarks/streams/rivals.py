"""Ways to schedule packets that IQ-Paths is compared with, and IQ-Paths itself, behind one interface."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Protocol

from coalloc.guarantees.mapping import map_streams
from coalloc.guarantees.packets import Packet, PacketScheduler
from tests.benchmarks.streams.experiments import Feed

__all__ = ["POLICIES", "FairQueuing", "PathGuarantees", "Policy", "RoundRobin"]

MEMORY = 0.2
"""Weight of the newest window in the mean rate that MSFQ predicts."""
REMAP = 60
"""Windows after which streams are mapped anew."""


class Policy(Protocol):
    """A schedule of packets. Windows have a second; `learn` is called before each with the rates of those before it."""

    def learn(self, past: Mapping[str, Sequence[float]], now: float) -> None: ...
    def arrived(self, name: str, packets: int) -> None: ...
    def next(self, path: str, now: float) -> Packet | None: ...
    def sent(self, path: str, packet: Packet) -> None: ...
    def blocked(self, path: str, now: float) -> float | None: ...


class PathGuarantees:
    """PGOS, with the product's mapping and choice of packets."""

    def __init__(self, feeds: Sequence[Feed], paths: Sequence[str]) -> None:
        self._streams = [feed.stream for feed in feeds]
        self._scheduler = PacketScheduler(paths)
        self._windows = 0
        self.arrived, self.next = self._scheduler.arrived, self._scheduler.next
        self.sent, self.blocked = self._scheduler.sent, self._scheduler.blocked

    def learn(self, past: Mapping[str, Sequence[float]], now: float) -> None:
        if self._windows % REMAP == 0:
            self.placements = map_streams(self._streams, {path: sorted(rates) for path, rates in past.items()})
            self._scheduler.place(self.placements, now)
        self._windows += 1


class _Plain:
    """A schedule that waits for each packet, however long it takes."""

    def __init__(self, feeds: Sequence[Feed], paths: Sequence[str]) -> None:
        self._feeds = {feed.name: feed for feed in feeds}
        self._ready = dict.fromkeys(self._feeds, 0)
        self._taken = dict.fromkeys(self._feeds, 0)

    def learn(self, past: Mapping[str, Sequence[float]], now: float) -> None:
        pass

    def arrived(self, name: str, packets: int) -> None:
        self._ready[name] += packets

    def _take(self, name: str) -> Packet:
        self._ready[name] -= 1
        self._taken[name] += 1
        return Packet(name, self._taken[name] - 1)

    def sent(self, path: str, packet: Packet) -> None:
        pass

    def blocked(self, path: str, now: float) -> float | None:
        return None


class RoundRobin(_Plain):
    """The blocked layout of GridFTP: record by record, each path takes the next packet when it is ready."""

    def __init__(self, feeds: Sequence[Feed], paths: Sequence[str]) -> None:
        super().__init__(feeds, paths)
        least = min(feed.target / feed.packet for feed in feeds)
        turns = [feed.name for feed in feeds for _ in range(round(4 * feed.target / feed.packet / least))]
        self._length, self._turns = len(turns), cycle(turns)

    def next(self, path: str, now: float) -> Packet | None:
        for _ in range(self._length):
            name = next(self._turns)
            if self._ready[name]:
                return self._take(name)
        return None


class FairQueuing(_Plain):
    """Start-time fair queuing: the packet with the least start tag goes next, over whatever path is ready.

    With one path and the targets as weights it is WFQ, over several paths and equal weights it is equal shares.
    """

    def __init__(self, feeds: Sequence[Feed], paths: Sequence[str], equal: bool = False) -> None:
        super().__init__(feeds, paths)
        self._weights = {feed.name: 1.0 if equal else feed.target for feed in feeds}
        self._tags = dict.fromkeys(self._feeds, 0.0)
        self._now = 0.0

    def next(self, path: str, now: float) -> Packet | None:
        ready = [(max(self._tags[name], self._now), name) for name, count in self._ready.items() if count]
        if not ready:
            return None
        self._now, name = min(ready)
        self._tags[name] = self._now + self._feeds[name].packet / self._weights[name]
        return self._take(name)


class PredictedShares(FairQueuing):
    """MSFQ: the share of a guaranteed stream is its target divided by the predicted mean rate of all paths."""

    def __init__(self, feeds: Sequence[Feed], paths: Sequence[str]) -> None:
        super().__init__(feeds, paths)
        self._predicted = 0.0

    def learn(self, past: Mapping[str, Sequence[float]], now: float) -> None:
        for window in zip(*(rates if not self._predicted else rates[-1:] for rates in past.values()), strict=True):
            total = sum(window) * 8e-6
            self._predicted += MEMORY * (total - self._predicted)
        shares = {
            name: feed.target / self._predicted for name, feed in self._feeds.items() if feed.guaranteed is not None
        }
        rest = [name for name in self._feeds if name not in shares]
        left = max(0.01, 1 - sum(shares.values()))
        self._weights = {**shares, **{name: left / len(rest) for name in rest}}


class EqualShares(FairQueuing):
    """Fair queuing in which all streams have the same weight."""

    def __init__(self, feeds: Sequence[Feed], paths: Sequence[str]) -> None:
        super().__init__(feeds, paths, equal=True)


POLICIES = {
    "WFQ, first path": FairQueuing,
    "round robin": RoundRobin,
    "equal shares": EqualShares,
    "MSFQ": PredictedShares,
    "PGOS": PathGuarantees,
}

"""The best path (Cheng, II and III): the best path for each file alone, regardless of the others."""

from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import ClassVar, Literal

from coalloc.collect.methods.actions import Action, Piece
from coalloc.collect.methods.travelling import Travelling, Trip, whole
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, File, Network

__all__ = ["BestPath"]

BLOCK = 4 * 1024 * 1024
BLOCKS = 256
"""Maximum number of blocks of a file, unless their size is given."""


class BestPath(Travelling):
    """Uncoordinated transfers: one path per file, direct or over relays, pipelined in blocks.

    :param best: "widest" for the path whose slowest link is the fastest, the shortest of equals, as in the paper;
        "quickest" for the path of least time, including the time to fill the pipeline
    :param block: bytes of a block; by default 4 MiB, or more for large files
    :raises UsageError: when `best` is neither
    """

    name: ClassVar[str] = "best-path"

    def __init__(
        self,
        network: Network,
        demand: Demand,
        seed: int = 0,
        *,
        best: Literal["widest", "quickest"] = "widest",
        block: int | None = None,
    ) -> None:
        if best not in ("widest", "quickest"):
            raise UsageError(f"{best!r} is not a criterion for paths", 'choose "widest" or "quickest"')
        super().__init__(network, demand, seed)
        self._best = best
        self._block = block
        self._widths = _widths(network)
        self._linked: defaultdict[str, list[str]] = defaultdict(list)
        for source, sink in self._widths:
            self._linked[source].append(sink)
        self.rationale = f"every file takes its {best} path, independent of the others"

    def _begin(self, now: float) -> Iterator[Action]:
        for trip in self._direct():
            file = self.ledger.files[trip.piece.file]
            block = self._block or max(BLOCK, -(-file.size // BLOCKS))
            path = self._path(file, trip.to, block) or trip.path
            for start in range(0, file.size, block):
                yield from self._go(Trip(Piece(file.name, start, min(start + block, file.size)), path), now)
            if not file.size:
                yield from self._go(Trip(whole(file), path), now)

    def _path(self, file: File, to: str, block: int) -> tuple[str, ...] | None:
        """Return the best path: the widest; or, of the shortest paths for each minimum width, the quickest."""
        widest = self._widest(file.holders, to)
        if not widest:
            return None
        if self._best == "widest":
            return self._shortest(file.holders, to, widest, 0)[1]
        soonest, best = inf, None
        for width in sorted({width for width in self._widths.values() if width <= widest}, reverse=True):
            # The first block passes all links, then the others follow at the rate of the narrowest one.
            others = max(file.size - block, 0) / width
            if others >= soonest:
                break
            first, path = self._shortest(file.holders, to, width, block)
            if others + first < soonest:
                soonest, best = others + first, path
        return best

    def _widest(self, holders: tuple[str, ...], to: str) -> float:
        """Return the rate of the widest path's slowest link, by Dijkstra's algorithm with the widest host first."""
        hosts, seen = [(-inf, holder) for holder in holders], set()
        while hosts:
            width, host = heappop(hosts)
            if host == to:
                return -width
            if host not in seen:
                seen.add(host)
                for sink in self._sinks(host, to):
                    heappush(hosts, (max(width, -self._widths[host, sink]), sink))
        return 0.0

    def _shortest(self, holders: tuple[str, ...], to: str, least: float, block: int) -> tuple[float, tuple[str, ...]]:
        """Return the length of the shortest path over links of at least this width, and the path.

        The length is the seconds that a block takes over all links, or, for blocks of 0 bytes, the number of links.
        """
        paths: list[tuple[float, tuple[str, ...]]] = [(0.0, (holder,)) for holder in holders]
        seen: set[str] = set()
        while paths[0][1][-1] != to:
            length, path = heappop(paths)
            if path[-1] not in seen:
                seen.add(path[-1])
                for sink in self._sinks(path[-1], to):
                    if (width := self._widths[path[-1], sink]) >= least:
                        heappush(paths, (length + (block / width if block else 1), (*path, sink)))
        return paths[0]

    def _sinks(self, host: str, to: str) -> Iterator[str]:
        for sink in self._linked[host]:
            if sink == to or self.network.hosts[sink].relays:
                yield sink


def _widths(network: Network) -> dict[tuple[str, str], float]:
    """Return the rate from host to host: the lowest of the link's and both accesses', as if each were used alone."""
    ups = {(name, isp.name): isp.up for name, host in network.hosts.items() for isp in host.isps}
    downs = {(name, isp.name): isp.down for name, host in network.hosts.items() for isp in host.isps}
    widths: dict[tuple[str, str], float] = {}
    for key, link in network.links.items():
        limits = (ups.get((key.source, key.source_isp)), downs.get((key.sink, key.sink_isp)))
        width = min([link.capacity, *(limit for limit in limits if limit is not None)])
        if width:
            widths[key.source, key.sink] = widths.get((key.source, key.sink), 0) + width
    return widths

"""A replica whose bytes go to another server, not to this machine; it has the same contract as other sources.

Ranges are copied in short slices, two at a time, so that a running range can be shortened, and progress is reported
often.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.gridftp.source import GridFTPSource
from coalloc.engine.gridftp.thirdparty import ThirdParty, open_third_party
from coalloc.engine.gridftp.transfer import StoredCallback
from coalloc.engine.sessions.route_meter import RouteMeter
from coalloc.engine.span import Deliver, Span
from coalloc.model.replicas import Stat
from coalloc.model.routes import RouteUse
from coalloc.util.intervals import Intervals

__all__ = ["RemoteSource", "Sink"]

FIRST, MOST = 256 * 1024, 1 << 30
"""Bytes of the first (and smallest) slice, and of the largest."""
GROWTH = 4
"""Maximum growth factor from one slice to the next."""
SLICE_SECONDS = 0.25
AHEAD = 2
"""Slices under way at once, so that the next one follows without a pause."""
DRAIN_SECONDS = 0.3
"""Maximum seconds to wait for unwanted slices to end; reconnecting takes about as long."""


@dataclass(frozen=True)
class Sink:
    """The file to write: its server's URL, its path, and the proxy to show; None for the user's usual one."""

    url: str
    path: str
    proxy: Path | None = None


class RemoteSource(Source):
    """One replica at a GridFTP server, copied to another server.

    :param proxy: the file of the proxy to show to the source; None for the user's usual one
    """

    def __init__(self, url: str, sink: Sink, options: EngineOptions, proxy: Path | None = None) -> None:
        super().__init__(url, options)
        self._sink = sink
        self._proxy = proxy
        self._replica = GridFTPSource(url, replace(options, proxy=proxy))
        self._pair: ThirdParty | None = None
        self._meters: dict[str, RouteMeter] = {}
        """Use of each route of the data connections."""
        self._pairing = asyncio.Lock()
        self.slice = FIRST
        """Bytes of the next slice, which should take SLICE_SECONDS."""
        self.touched = Intervals()
        """Ranges that this source may have written at the sink, wanted or not."""

    async def open(self) -> Stat:
        """Log in to both servers; return the source's answer."""
        stat = await self._replica.open()
        await self._usable_pair()
        return stat

    async def _usable_pair(self) -> ThirdParty:
        async with self._pairing:
            if self._pair is None or not self._pair.usable:
                self._drop_pair()
                proxies, began = (self._proxy, self._sink.proxy), time.monotonic()
                self._pair = await open_third_party(self.url, self._sink.url, self.options, proxies)
                self._meter(self._pair.route).opened(time.monotonic() - began)
            return self._pair

    def _meter(self, route: str) -> RouteMeter:
        return self._meters.setdefault(route, RouteMeter(lambda: route))

    def _drop_pair(self) -> None:
        """Close the pair, even an unusable one, as one of its connections may still be open."""
        if self._pair:
            self._pair.close()
            self._pair = None

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        """Copy [span.start, span.end); call `deliver`, without data, for each range that is on the sink's disk."""
        if span.start < span.end:
            await self._usable_pair()
            await _Slices(self, span, deliver).run()

    async def copy(self, start: int, end: int, received: StoredCallback) -> None:
        """Copy one slice by the open pair."""
        self.touched.add(start, end)
        pair = await self._usable_pair()
        path, ranges = self._replica.path, [(start, end)]
        with self._meter(pair.route).fetching(lambda start, end, _: received(start, end), self) as stored:
            await pair.copy(path, self._sink.path, end, ranges, lambda start, end: stored(start, end, None))

    @property
    def routes(self) -> tuple[RouteUse, ...]:
        if self.options.data_routes is None:
            return ()
        return tuple(meter.use for meter in self._meters.values() if meter.use)

    async def make_empty(self) -> None:
        """Copy an empty replica."""
        await (await self._usable_pair()).copy(self._replica.path, self._sink.path, 0)

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return await self._replica.checksum(algorithm, start, end)

    async def recheck(self) -> Stat:
        return await self._replica.recheck()

    async def close(self) -> None:
        self._drop_pair()
        await self._replica.close()

    async def rest(self) -> None:
        self._drop_pair()
        await self._replica.rest()


class _Slices:
    """One range, copied slice by slice."""

    def __init__(self, source: RemoteSource, span: Span, deliver: Deliver) -> None:
        self._source = source
        self._span = span
        self._deliver = deliver
        self._requested = span.start
        self._present = Intervals(span.skip)
        self._arrived = Intervals(span.skip)
        self._news: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue()
        self._copies: deque[tuple[int, asyncio.Task[None]]] = deque()
        self._time = asyncio.get_running_loop().time
        self._ended = self._time()

    async def run(self) -> None:
        """Copy until everything before the current end of the span is on disk."""
        try:
            while not self._arrived.covers(self._span.start, self._span.end):
                self._ask()
                if (news := await self._news.get()) is None:
                    self._settle()
                else:
                    self._hand_on(*news)
        except BaseException:
            await _cancel(copy for _, copy in self._copies)
            raise
        if left := [copy for _, copy in self._copies]:
            await asyncio.wait(left, timeout=DRAIN_SECONDS)
        await _cancel(left)

    def _ask(self) -> None:
        while len(self._copies) < AHEAD and (missing := self._present.gaps(self._requested, self._span.end)):
            start, end = missing[0]
            self._requested = min(start + self._source.slice, end)
            copy = asyncio.create_task(self._source.copy(start, self._requested, self._on_stored))
            copy.add_done_callback(lambda _: self._news.put_nowait(None))
            self._copies.append((self._requested - start, copy))

    def _on_stored(self, start: int, end: int) -> None:
        self._news.put_nowait((start, end))

    def _settle(self) -> None:
        """Remove finished copies; adapt the length of the next slices to SLICE_SECONDS.

        :raises SourceError: when a copy has failed
        """
        while self._copies and self._copies[0][1].done():
            length, copy = self._copies.popleft()
            copy.result()
            now = self._time()
            moment = int(length * SLICE_SECONDS / max(now - self._ended, 1e-6))
            self._source.slice = max(FIRST, min(moment, GROWTH * max(length, FIRST), MOST))
            self._ended = now

    def _hand_on(self, start: int, end: int) -> None:
        end = min(end, self._span.end)
        if start < end:
            self._arrived.add(start, end)
            self._deliver(start, end, None)


async def _cancel(copies: Iterable[asyncio.Task[None]]) -> None:
    copies = list(copies)
    for copy in copies:
        copy.cancel()
    await asyncio.gather(*copies, return_exceptions=True)

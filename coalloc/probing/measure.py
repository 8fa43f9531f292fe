"""Measurements of pairs of servers, and of the rates at which each can send and receive in total, within limits."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

from coalloc.config import own_policy
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.remote_source import RemoteSource, Sink
from coalloc.engine.span import Span
from coalloc.errors import SourceError, Stalled, UsageError
from coalloc.history.links import EVERYBODY, MeasuredLink
from coalloc.probing.rounds import pairs, rounds
from coalloc.probing.samples import Flowed, Sample, peak, settled
from coalloc.probing.server import ProbedServer
from coalloc.util.addresses import AddressPolicy
from coalloc.util.concurrency import gather
from coalloc.util.dialer import DirectDialer

__all__ = ["ProbeLimits", "measure"]

GRACE = 15.0
"""Seconds beyond its time limit after which a measurement that has not ended is given up."""

ResultCallback = Callable[[MeasuredLink], None]


@dataclass(frozen=True)
class ProbeLimits:
    """The limits of one transfer, of which the first one reached ends it."""

    bytes: int = 64_000_000
    seconds: float = 5.0
    streams: int = 1


async def measure(
    sources: Sequence[str],
    sinks: Sequence[str] = (),
    limits: ProbeLimits = ProbeLimits(),
    peers: int | None = None,
    blast: bool = False,
    seed: int = 0,
    on_result: ResultCallback | None = None,
    delegate: frozenset[str] = frozenset(),
    policy: AddressPolicy | None = None,
) -> list[MeasuredLink]:
    """Measure the rates between servers by short third-party transfers.

    :param sources: URLs at GridFTP servers: of a file to send, or of a directory in which one is created and removed
    :param sinks: URLs at receiving servers, which write into the directory, or beside the file; default: `sources`
    :param peers: number of sinks per source, chosen at random; None for all
    :param blast: whether to measure also transfers from all measured peers to each server at once, and to all from it
    :param on_result: callback for each result as it arrives
    :param delegate: hosts that may get a limited proxy if they require one
    :param policy: the addresses that servers may have; None for the user's own policy
    :returns: one result for each pair, including failed ones; then the results from and to EVERYBODY
    :raises UsageError: when the URLs are invalid, or there is no pair
    """
    options = EngineOptions(
        DirectDialer(own_policy() if policy is None else policy), streams=limits.streams, delegate=delegate
    )
    ends = _ends([*sources, *sinks], options, limits.bytes)
    senders = list(dict.fromkeys(_key(url, ends) for url in sources))
    receivers = list(dict.fromkeys(_key(url, ends) for url in sinks)) or senders
    chosen = pairs(senders, receivers, peers, Random(seed))
    if not chosen:
        raise UsageError("there is no pair to measure", "give at least two servers")
    measuring = _Measuring(ends, options, limits, on_result or (lambda _: None))
    try:
        await measuring.open()
        for together in rounds(chosen):
            await gather(*(measuring.pair(*pair) for pair in together))
        if blast:
            for name in dict.fromkeys(name for pair in chosen for name in pair):
                await measuring.blast(name, chosen)
    finally:
        await asyncio.shield(asyncio.gather(*(end.close() for end in ends.values())))
    return measuring.results


def _ends(urls: Sequence[str], options: EngineOptions, size: int) -> dict[str, ProbedServer]:
    """Return the servers by key. :raises UsageError: when a server is named twice, with different paths"""
    ends: dict[str, ProbedServer] = {}
    for url in urls:
        end = ProbedServer(url, options, size)
        if ends.setdefault(end.key, end).url != url:
            raise UsageError(f"{end.key} is given twice, with different paths", "give only one of them")
    return ends


def _key(url: str, ends: dict[str, ProbedServer]) -> str:
    return next(key for key, end in ends.items() if end.url == url)


class _Measuring:
    """The measurements of one call of `measure`, and their results."""

    def __init__(
        self, ends: dict[str, ProbedServer], options: EngineOptions, limits: ProbeLimits, on_result: ResultCallback
    ) -> None:
        self.results: list[MeasuredLink] = []
        self._ends = ends
        self._options = options
        self._limits = limits
        self._on_result = on_result
        self._closed: dict[str, SourceError] = {}
        self._clock = time.time() - asyncio.get_running_loop().time()

    async def open(self) -> None:
        """Log in to all servers; measurements with a server whose login failed will fail for the same reason."""
        answers = await asyncio.gather(*(end.open() for end in self._ends.values()), return_exceptions=True)
        for key, answer in zip(self._ends, answers, strict=True):
            if isinstance(answer, SourceError):
                self._closed[key] = answer
            elif isinstance(answer, BaseException):
                raise answer

    async def pair(self, source: str, sink: str) -> None:
        """Measure one pair."""
        flows, error = await self._together([(source, sink)])
        self._note(source, sink, settled(flows[0].began, flows[0].samples), error)

    async def blast(self, name: str, chosen: Sequence[tuple[str, str]]) -> None:
        """Measure the total rate from all peers to a server, then from the server to all peers."""
        incoming = [pair for pair in chosen if pair[1] == name]
        outgoing = [pair for pair in chosen if pair[0] == name]
        if len(incoming) > 1:
            await self._blast(EVERYBODY, name, incoming)
        if len(outgoing) > 1:
            await self._blast(name, EVERYBODY, outgoing)

    async def _blast(self, source: str, sink: str, chosen: Sequence[tuple[str, str]]) -> None:
        flows, error = await self._together(chosen)
        samples = sorted(sample for flow in flows for sample in flow.samples)
        self._note(source, sink, peak(min(flow.began for flow in flows), samples), error)

    async def _together(self, chosen: Sequence[tuple[str, str]]) -> tuple[list["_Flow"], SourceError | None]:
        """Run flows at the same time, until the first one is done; return the flows, and the first error.

        They begin when all flows that can be opened are ready.
        """
        flows: list[_Flow] = []
        for source, sink in chosen:
            flows.append(_Flow(self._ends[source], self._ends[sink], self._options, self._limits, flows))
        try:
            # One by one, as Globus servers delay some of many simultaneous logins by 5 s.
            opened = [await self._tried(flow, flow.open) for flow in flows]
            ready = [flow for flow, error in zip(flows, opened, strict=True) if not error]
            ran = await asyncio.gather(*(self._tried(flow, flow.run) for flow in ready))
        finally:
            await asyncio.shield(asyncio.gather(*(flow.close() for flow in flows)))
        return flows, next(filter(None, [*opened, *ran]), None)

    async def _tried(self, flow: "_Flow", what: Callable[[], Awaitable[None]]) -> SourceError | None:
        """Open or run a flow (`what`); return the error, or None on success."""
        for end in (flow.source, flow.sink):
            if end.key in self._closed:
                return self._closed[end.key]
        try:
            await what()
        except SourceError as error:
            return error
        return None

    def _note(self, source: str, sink: str, flowed: Flowed | None, error: SourceError | None) -> None:
        """Record the result; bytes that arrived count even if an error followed."""
        streams = self._limits.streams
        if flowed and flowed.bytes:
            start, end = self._clock + flowed.start, self._clock + flowed.end
            measured = MeasuredLink(source, sink, start, max(end, start + 1e-6), flowed.bytes, streams)
        else:
            now = time.time()
            why = error.message if error else "no data arrived"
            measured = MeasuredLink(source, sink, now - 1e-3, now, 0, streams, "failed", why)
        self.results.append(measured)
        self._on_result(measured)


class _Flow:
    """A transfer from one server to another, until it reaches the limit of bytes or of time.

    :param group: the flows that run at the same time, including this one; when one is done, all end
    """

    def __init__(
        self,
        source: ProbedServer,
        sink: ProbedServer,
        options: EngineOptions,
        limits: ProbeLimits,
        group: Sequence["_Flow"],
    ) -> None:
        self.source = source
        self.sink = sink
        self.samples: list[Sample] = []
        self._options = options
        self._limits = limits
        self._group = group
        self._loop = asyncio.get_running_loop()
        self.began = self._loop.time()
        self._span = Span(0, 0)
        self._left = limits.bytes
        self._path = ""
        self._remote: RemoteSource | None = None

    async def open(self) -> None:
        """Log in to both servers and prepare a file to send. :raises SourceError: when that fails"""
        self._path = self.sink.scratch()
        self._remote = RemoteSource(await self.source.file(), Sink(self.sink.url, self._path), self._options)
        await self._remote.open()

    async def run(self) -> None:
        """Send until a limit is reached; send the file repeatedly if it is smaller than the limit of bytes.

        :raises SourceError: when that fails, or takes much longer than the time limit
        """
        assert self._remote is not None, "open() comes first"
        self.began = self._loop.time()
        over = self._loop.call_later(self._limits.seconds, self.stop)
        try:
            async with asyncio.timeout(self._limits.seconds + GRACE):
                while self._left > 0:
                    self._span = Span(0, min(self._left, self.source.size))
                    self._left -= self._span.end
                    await self._remote.fetch(self._span, self._arrived)
            for flow in self._group:
                flow.stop()
        except TimeoutError:
            ends = f"{self.source.key} to {self.sink.key}"
            raise Stalled(f"too few bytes arrived from {ends} in time", "try again later") from None
        finally:
            over.cancel()

    async def close(self) -> None:
        """Log out, and remove the written file."""
        if self._remote:
            await self._remote.close()
            await self.sink.forget(self._path)

    def stop(self) -> None:
        """Stop sending after the bytes on their way; may be called twice."""
        self._left = 0
        self._span.end = self._span.start

    def _arrived(self, start: int, end: int, _: memoryview | None) -> None:
        self.samples.append(Sample(self._loop.time(), end - start))

"""A simulated replica: an engine whose network is a list of rates, for an event loop with a virtual clock."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from zlib import adler32

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.span import Deliver, Span
from coalloc.errors import (
    ConnectionLost,
    NoFreeConnection,
    NoSuchFile,
    ReplicaChanged,
    ServerBusy,
    Unreachable,
    Unsupported,
)
from coalloc.model.checksums import Checksum
from coalloc.model.replicas import Stat
from coalloc.util.dialer import DirectDialer
from coalloc.util.intervals import Intervals

__all__ = ["Behaviour", "Bottleneck", "SimulatedSource"]

Rates = tuple[tuple[float, float], ...]
"""Pairs (start in seconds, bytes per second) in order, from 0 on; a rate of 0 is a stall."""


class Bottleneck:
    """A link shared by several sources, which passes their chunks one at a time, in order of arrival."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._free_at = 0.0

    def carry(self, nbytes: int, now: float) -> tuple[float, float]:
        """Pass a chunk that arrives now; return when it begins to pass and when it has passed."""
        begins = max(now, self._free_at)
        self._free_at = _through(self._rates, begins, nbytes)
        return begins, self._free_at


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a simulated source and its link; times are seconds of the virtual clock.

    `rates` are the rates of its own link; `behind` is a link shared with other sources. At `dies_at` all connections
    are cut, and new ones are refused until `returns_at`. `corrupts` are the offsets of bytes sent wrong. `claims_size`
    is a false size; `digests` are the checksums of the whole file, given when connecting. At `free_at` other transfers
    release the server. Until `busy_until` it asks clients to wait for `retry_after` seconds. `becomes` are pairs of a
    time and the version of the file that appears then. If `in_place`, a new version overwrites the old one; otherwise
    ranges in progress continue to read the old one. If `tagged`, versions have different validators; if `certain`, each
    answer shows its version. Groups of `disorder` chunks arrive in reverse order, as MODE E blocks may.
    """

    rates: Rates = ((0.0, 1e6),)
    behind: Bottleneck | None = None
    connect_seconds: float = 0.05
    setup_seconds: float = 0.02
    dies_at: float = float("inf")
    returns_at: float = float("inf")
    free_at: float = 0.0
    busy_until: float = 0.0
    retry_after: float | None = None
    missing: bool = False
    claims_size: int | None = None
    corrupts: frozenset[int] = frozenset()
    ranged: bool = True
    offers_checksum: bool = False
    digests: tuple[Checksum, ...] = ()
    becomes: tuple[tuple[float, bytes], ...] = field(default=(), repr=False)
    in_place: bool = False
    tagged: bool = True
    certain: bool = False
    chunk: int = 16 * 1024
    disorder: int = 1


class SimulatedSource(Source):
    """A source that delivers `content` with a given behaviour, and counts bytes sent and connections made."""

    def __init__(self, name: str, content: bytes, behaviour: Behaviour) -> None:
        super().__init__(f"sim://{name}/file", EngineOptions(DirectDialer()))
        self.behaviour = behaviour
        self.sent = 0
        self.opened = 0
        self.users = 0
        self._left_at: float | None = None
        later = (each for _, each in behaviour.becomes)
        self._versions = [_corrupted(each, behaviour.corrupts) for each in (content, *later)]
        self._seen: int | None = None

    async def open(self) -> Stat:
        self._free()
        self.opened += 1
        await asyncio.sleep(self.behaviour.connect_seconds)
        if asyncio.get_running_loop().time() < self.behaviour.busy_until:
            raise ServerBusy(f"{self.url} is busy", retry_after=self.behaviour.retry_after)
        self._alive("refused the connection", Unreachable)
        if self.behaviour.missing:
            raise NoSuchFile(f"{self.url}: no such file", "check the path")
        self._seen = self._version
        return self._stat()

    @property
    def _version(self) -> int:
        """The number of the current version."""
        since = [each for each, _ in self.behaviour.becomes]
        return sum(each <= asyncio.get_running_loop().time() for each in since)

    @property
    def _content(self) -> bytes:
        return self._versions[self._version]

    def _stat(self) -> Stat:
        size = len(self._content) if self.behaviour.claims_size is None else self.behaviour.claims_size
        tag = f"v{self._version}" if self.behaviour.tagged else None
        return Stat(size, tag, self.behaviour.digests, self.behaviour.ranged)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        self.users += 1
        assert self.users == 1, "a source is used by one task at a time"
        try:
            await self._fetch(span, deliver)
        finally:
            self.users -= 1

    async def _fetch(self, span: Span, deliver: Deliver) -> None:
        await asyncio.sleep(self.behaviour.setup_seconds)
        self._left_at = None
        if span.start and not self.behaviour.ranged:
            raise Unsupported(f"{self.url} ignores ranges", "use another replica")
        if self.behaviour.certain and self._version != self._seen:
            raise ReplicaChanged(f"{self.url} changed while it was fetched", "start again")
        content, admitted = self._content, span.start
        for at, end in self._chunks(span):
            if at >= span.end:
                continue
            if at >= admitted:
                admitted = await span.admitted(at)
            await self._wait_for(min(end, span.end) - at)
            self._alive("closed the connection", ConnectionLost)
            stop = min(end, span.end)
            if at < stop:
                self.sent += stop - at
                deliver(at, stop, memoryview(self._content if self.behaviour.in_place else content)[at:stop])

    def _chunks(self, span: Span) -> list[tuple[int, int]]:
        """Return the chunks of the missing bytes, in order of arrival."""
        length, disorder = self.behaviour.chunk, self.behaviour.disorder
        missing = Intervals(span.skip).gaps(span.start, span.end)
        chunks = [(at, min(at + length, end)) for start, end in missing for at in range(start, end, length)]
        groups = (chunks[i : i + disorder] for i in range(0, len(chunks), disorder))
        return [chunk for group in groups for chunk in reversed(group)]

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        await asyncio.sleep(self.behaviour.setup_seconds)
        if not self.behaviour.offers_checksum or algorithm != "adler32":
            return None
        return f"{adler32(self._content[start:end]):08x}"

    async def recheck(self) -> Stat | None:
        if self.behaviour.certain and not self.behaviour.in_place:
            return None
        await asyncio.sleep(self.behaviour.setup_seconds)
        self._alive("closed the connection", ConnectionLost)
        return self._stat()

    async def close(self) -> None:
        pass

    def _free(self) -> None:
        waits = self.behaviour.free_at - asyncio.get_running_loop().time()
        if waits > 0:
            raise NoFreeConnection(self.url, 1, lambda: asyncio.sleep(waits))

    def _alive(self, what: str, error: type[Unreachable] | type[ConnectionLost]) -> None:
        if self.behaviour.dies_at <= asyncio.get_running_loop().time() < self.behaviour.returns_at:
            raise error(f"{self.url} {what}", "wait")

    async def _wait_for(self, nbytes: int) -> None:
        """Sleep until the link has passed `nbytes`, or until the source dies."""
        loop = asyncio.get_running_loop()
        await self._sleep_until(_through(self.behaviour.rates, self._left_at or loop.time(), nbytes))
        if self.behaviour.behind:
            # The source's own link can carry the next chunk while this one passes the bottleneck.
            self._left_at, through = self.behaviour.behind.carry(nbytes, loop.time())
            await self._sleep_until(through)

    async def _sleep_until(self, due: float) -> None:
        now = asyncio.get_running_loop().time()
        due = min(due, self.behaviour.dies_at if now < self.behaviour.dies_at else float("inf"))
        await (asyncio.sleep(due - now) if due < float("inf") else asyncio.Event().wait())


def _corrupted(content: bytes, offsets: frozenset[int]) -> bytes:
    wrong = bytearray(content)
    for offset in offsets:
        wrong[offset] ^= 0xFF
    return bytes(wrong)


def _through(rates: Rates, now: float, nbytes: float) -> float:
    """Return when `nbytes` have passed at these rates, beginning at `now`; infinity if never."""
    for (start, rate), (stop, _) in pairwise([*rates, (float("inf"), 0.0)]):
        begin = max(start, now)
        if begin >= stop:
            continue
        if rate * (stop - begin) >= nbytes:
            return begin + nbytes / rate
        nbytes -= rate * (stop - begin) if rate else 0.0
    return float("inf")

"""Fetches from one source in a test: the delivered bytes."""

import asyncio
import random
import socket
from contextlib import asynccontextmanager, suppress

import pytest

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.span import Span
from coalloc.util.dialer import DirectDialer
from tests.support.listening import reserved
from tests.support.plain_ftp import PlainFTP
from tests.support.waiting import PATIENCE

__all__ = [
    "IPV6",
    "Collected",
    "CountingDialer",
    "cancelled",
    "collect",
    "impatient_until",
    "opened",
    "options",
    "random_file",
]


def _has_ipv6() -> bool:
    with suppress(OSError), reserved("::1"):
        return True
    return False


IPV6 = pytest.param("::1", marks=pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6"))
"""The loopback address, for tests that use several."""


class CountingDialer(DirectDialer):
    """A dialer that records its destinations."""

    def __init__(self) -> None:
        super().__init__()
        self.dialled: list[tuple[str, int]] = []

    async def dial(self, host: str, port: int, seconds: float) -> socket.socket:
        self.dialled.append((host, port))
        return await super().dial(host, port, seconds)


class Collected:
    """A receiver of an engine's bytes; it checks that they lie within the requested span."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.start = span.start
        self.bytes = bytearray(span.end - span.start)
        self.count = 0
        self.deliveries = 0

    def __call__(self, start: int, end: int, data: memoryview | None) -> None:
        assert self.span.start <= start
        assert end <= self.span.end
        assert data is not None
        assert len(data) == end - start
        self.bytes[start - self.start : end - self.start] = data
        self.count += end - start
        self.deliveries += 1


async def collect(source: Source, start: int, end: int) -> bytes:
    """Bytes [start, end) of an opened source."""
    span = Span(start, end)
    collected = Collected(span)
    await source.fetch(span, collected)
    assert collected.count >= end - start
    return bytes(collected.bytes)


def options(**changes) -> EngineOptions:
    """Return options for a test: direct; tests of patience give their own."""
    return EngineOptions(**{"dialer": DirectDialer(), "connect_seconds": PATIENCE, **changes})


def impatient_until(server: PlainFTP, seconds: float, **changes) -> EngineOptions:
    """Return options in which a server has this long to answer until pipelining is given up, and unlimited time
    afterwards.
    """
    chosen = options(connect_seconds=seconds, **changes)
    server.lost = lambda: object.__setattr__(chosen, "connect_seconds", PATIENCE)
    return chosen


@asynccontextmanager
async def opened(source: Source):
    """Open a source for the block, and close it after."""
    try:
        await source.open()
        yield source
    finally:
        await source.close()


async def cancelled(source, span):
    """Cancel a fetch at its first delivery."""
    offsets = []

    def deliver(start, end, data):
        offsets.append(start)
        task.cancel()

    task = asyncio.create_task(source.fetch(span, deliver))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(offsets) == 1


def random_file(path, size: int, seed: int = 1) -> bytes:
    """Write `size` unique bytes; return them."""
    content = random.Random(seed).randbytes(size)
    path.write_bytes(content)
    return content

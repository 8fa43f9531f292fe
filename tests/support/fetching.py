"""Helpers to fetch from one source in a test, and to check the delivered bytes."""

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
"""The IPv6 loopback address as a parameter of tests; skipped on machines without IPv6."""


class CountingDialer(DirectDialer):
    """A dialer that records the destinations of its connections in `dialled`."""

    def __init__(self) -> None:
        super().__init__()
        self.dialled: list[tuple[str, int]] = []

    async def dial(self, host: str, port: int, seconds: float, first: bytes = b"") -> socket.socket:
        self.dialled.append((host, port))
        return await super().dial(host, port, seconds, first)


class Collected:
    """A receiver of an engine's bytes. It checks that they are within the requested span."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.start = span.start
        self.bytes = bytearray()
        self.count = 0
        self.deliveries = 0

    def __call__(self, start: int, end: int, data: memoryview | None) -> None:
        assert self.span.start <= start
        assert end <= self.span.end
        assert data is not None
        assert len(data) == end - start
        self.bytes.extend(bytes(max(0, end - self.start - len(self.bytes))))
        self.bytes[start - self.start : end - self.start] = data
        self.count += end - start
        self.deliveries += 1


async def collect(source: Source, start: int, end: int) -> bytes:
    """Fetch bytes [start, end) from an opened source."""
    span = Span(start, end)
    collected = Collected(span)
    await source.fetch(span, collected)
    assert collected.count >= end - start
    return bytes(collected.bytes)


def options(**changes) -> EngineOptions:
    """Return engine options for a test: direct connections, and a time limit that slow machines do not reach."""
    return EngineOptions(**{"dialer": DirectDialer(), "connect_seconds": PATIENCE, **changes})


def impatient_until(server: PlainFTP, seconds: float, **changes) -> EngineOptions:
    """Return engine options with a short time limit for answers, which becomes long when `server` loses commands.

    So a test does not wait long until the engine gives up sending commands ahead.
    """
    chosen = options(connect_seconds=seconds, **changes)
    server.lost = lambda: object.__setattr__(chosen, "connect_seconds", PATIENCE)
    return chosen


@asynccontextmanager
async def opened(source: Source):
    """Open a source, and close it at the end of the `with` block."""
    try:
        await source.open()
        yield source
    finally:
        await source.close()


async def cancelled(source, span):
    """Cancel a fetch at its first delivery, and check that no other delivery follows."""
    offsets = []

    def deliver(start, end, data):
        offsets.append(start)
        task.cancel()

    task = asyncio.create_task(source.fetch(span, deliver))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(offsets) == 1


def random_file(path, size: int, seed: int = 1) -> bytes:
    """Write `size` random bytes to a file; return them."""
    content = random.Random(seed).randbytes(size)
    path.write_bytes(content)
    return content

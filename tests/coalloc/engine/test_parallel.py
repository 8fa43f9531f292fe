"""Several sessions as one source: how a range is dealt out, what one session's failure does to the others."""

import asyncio

import pytest

from coalloc.engine.base import Source, Span
from coalloc.engine.parallel import LARGEST, SMALLEST, Parallel
from coalloc.errors import ConnectionLost, ReplicaChanged, Unreachable
from coalloc.model import Stat
from tests.support.fetching import collect, opened, options

SIZE = 40_000_000
CHUNK = 500_000
STAT = Stat(SIZE)
CONTENT = bytes(range(250)) * (SIZE // 250)


class Session(Source):
    """Delivers CONTENT, pausing between chunks; `at` is where it begins to fail (`error`) or to say nothing."""

    def __init__(self, error: Exception | None = None, at: int | None = None, stat: Stat | Exception = STAT):
        super().__init__("x://host/file", options())
        self.error = error
        self.at = at
        self.stat = stat
        self.spans: list[tuple[int, int]] = []
        self.opened = self.closed = 0

    async def open(self) -> Stat:
        self.opened += 1
        if isinstance(self.stat, Exception):
            raise self.stat
        return self.stat

    async def fetch(self, span: Span, deliver) -> None:
        self.spans.append((span.start, span.end))
        at = span.start
        while at < span.end:
            await asyncio.sleep(0)
            if self.at is not None and at >= self.at:
                if self.error:
                    raise self.error
                await asyncio.Event().wait()
            end = min(at + CHUNK, span.end)
            deliver(at, memoryview(CONTENT)[at:end])
            at = end

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return f"{algorithm} of {start}-{end}"

    async def close(self) -> None:
        self.closed += 1


def parallel(*sessions: Session) -> Parallel:
    made = iter(sessions)
    return Parallel(lambda: next(made), len(sessions))


async def test_slices_are_dealt_front_to_back_and_all_sessions_work():
    sessions = [Session(), Session(), Session()]
    async with opened(parallel(*sessions)) as source:
        assert await collect(source, 3, SIZE) == CONTENT[3:]
    spans = sorted(span for session in sessions for span in session.spans)
    assert all(session.spans == sorted(session.spans) and len(session.spans) > 1 for session in sessions)
    assert [start for start, _ in spans] == [3, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == SIZE
    assert all(end - start <= LARGEST for start, end in spans)


async def test_a_small_range_needs_one_session_only():
    sessions = [Session(), Session()]
    async with opened(parallel(*sessions)) as source:
        await collect(source, 0, SMALLEST)
    assert [session.opened for session in sessions] == [1, 0]
    assert [session.closed for session in sessions] == [1, 1]


async def test_sessions_that_the_server_does_not_grant_are_done_without():
    refused = Session(stat=Unreachable("too many"))
    async with opened(parallel(Session(), refused, Session())) as source:
        for _ in range(2):
            assert await collect(source, 0, SIZE) == CONTENT
    assert refused.opened == 1


async def test_a_session_that_sees_another_file_is_not_mixed_in():
    async with opened(parallel(Session(), Session(stat=Stat(SIZE, "other")))) as source:
        with pytest.raises(ReplicaChanged):
            await collect(source, 0, SIZE)


async def test_one_failure_ends_all():
    delivered = []
    async with opened(parallel(Session(), Session(ConnectionLost("gone"), at=0), Session())) as source:
        with pytest.raises(ConnectionLost, match="gone"):
            await source.fetch(Span(0, SIZE), lambda offset, view: delivered.append(offset))
        assert len(delivered) < SIZE // CHUNK // 4  # the others have not gone on with what they had


async def test_a_cancelled_fetch_delivers_nothing_more_from_any_session():
    delivered = []

    def deliver(offset, view):
        delivered.append(offset)
        if len(delivered) == 3:
            task.cancel()

    async with opened(parallel(Session(), Session(), Session())) as source:
        task = asyncio.create_task(source.fetch(Span(0, SIZE), deliver))
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(delivered) == 3


async def test_a_lowered_end_is_not_held_up_by_slices_beyond_it():
    """The second session says nothing in its first slice; all before that is here, and nothing else is wanted."""
    silent = Session(at=0)
    async with opened(parallel(Session(), silent)) as source:
        span = Span(0, SIZE)
        received = set()

        def deliver(offset, view):
            assert offset + len(view) <= span.end
            received.update(range(offset, offset + len(view), CHUNK))
            if silent.spans:
                span.end = silent.spans[0][0]

        async with asyncio.timeout(10):
            await source.fetch(span, deliver)
        assert received >= set(range(0, span.end, CHUNK))
        assert 0 < span.end < SIZE


async def test_a_server_without_ranges_is_asked_once():
    sessions = [Session(stat=Stat(SIZE, ranged=False)), Session()]
    async with opened(parallel(*sessions)) as source:
        assert await collect(source, 0, SIZE) == CONTENT
    assert sessions[0].spans == [(0, SIZE)]
    assert sessions[1].spans == []


async def test_checksums_are_the_first_session_s():
    async with opened(parallel(Session(), Session())) as source:
        assert await source.checksum("md5", 1, 2) == "md5 of 1-2"

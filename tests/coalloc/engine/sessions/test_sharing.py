"""Ranges distributed to pipelined sessions, in virtual time: none waits for its next slice, none delays the end."""

import asyncio
from itertools import count

import pytest

from coalloc.engine.base import Source
from coalloc.engine.sessions.parallel import Parallel
from coalloc.engine.sessions.replica_session import ReplicaSession
from coalloc.engine.sessions.work import SessionWork
from coalloc.engine.span import RangePart, Span
from coalloc.errors import ConnectionLost, Unreachable
from coalloc.model.replicas import Stat
from coalloc.testing.virtual_clock import run
from coalloc.util.intervals import Intervals
from tests.support.fetching import Collected, opened, options

SIZE = 40_000_000
CHUNK = 16 * 1024
RTT = 0.16
CONTENT = bytes(range(250)) * (SIZE // 250)


class Far(Source):
    """A session that sends the requested ranges in order, from `RTT` after a request on, at `rate` bytes a second.

    At `slow_at` its rate falls to `then`, or it fails if that is None. Unwanted bytes are sent, too.
    """

    def __init__(self, rate: float, slow_at: float = float("inf"), then: float | None = 0.0, queues: bool = True):
        super().__init__("x://host/file", options())
        self.rate, self.slow_at, self.then = rate, slow_at, then
        self.keeps = queues
        self.turn = asyncio.Lock()
        self.done_at: float | None = None
        self.waited = 0.0
        self.sent = 0
        self.spans: list[tuple[int, int]] = []
        self.on_loan = False
        self.closed = 0

    queues = property(lambda self: self.keeps)

    async def open(self) -> Stat:
        await asyncio.sleep(2 * RTT)
        return Stat(SIZE, rtt=RTT)

    async def fetch(self, span: Span, deliver) -> None:
        loop = asyncio.get_running_loop()
        asked_at, start, end = loop.time(), span.start, span.end
        self.spans.append((start, end))
        async with self.turn:
            if self.done_at is not None:
                self.waited += max(0.0, asked_at + RTT - max(self.done_at, asked_at))
            await asyncio.sleep(max(0.0, asked_at + RTT - loop.time()))
            for at in range(start, end, CHUNK):
                await self.pace(min(CHUNK, end - at))
                if at < span.end:
                    until = min(at + CHUNK, span.end)
                    deliver(at, until, memoryview(CONTENT)[at:until])
                self.sent += min(CHUNK, end - at)
            self.done_at = loop.time()

    async def pace(self, nbytes: int) -> None:
        now = asyncio.get_running_loop().time()
        if now < self.slow_at:
            await asyncio.sleep(nbytes / self.rate)
        elif self.then is None:
            raise ConnectionLost("gone")
        else:
            await (asyncio.sleep(nbytes / self.then) if self.then else asyncio.Event().wait())

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return None

    async def recheck(self) -> Stat | None:
        return None

    async def close(self) -> None:
        self.closed += 1


def fetched(*make, at_delivery=lambda: None, skip=()):
    """Fetch all but skipped bytes with these sessions; return the seconds since the request, and the sessions."""
    sessions = []

    async def fetch():
        loop = asyncio.get_running_loop()

        def session(number):
            sessions.append(make[number]())
            return sessions[-1]

        collected = Collected(Span(0, SIZE, skip))

        def deliver(start, end, data):
            collected(start, end, data)
            at_delivery()

        async with opened(Parallel(session, len(make))) as source:
            began = loop.time()
            await source.fetch(collected.span, deliver)
            seconds = loop.time() - began
        for start, end in Intervals(skip).gaps(0, SIZE):
            assert collected.bytes[start:end] == CONTENT[start:end]
        assert collected.count == SIZE - Intervals(skip).total  # no byte came twice
        return seconds

    return run(fetch()), sessions


SETUP = 3 * RTT
"""Until the second session's first byte."""


def test_no_session_waits_and_all_end_together():
    rates = [4e6, 2e6, 1e6, 0.5e6]
    seconds, sessions = fetched(*(lambda rate=rate: Far(rate) for rate in rates))
    assert max(session.waited for session in sessions) < RTT  # at the start, when no rate is known
    assert seconds < SIZE / sum(rates) + SETUP + 2 * RTT
    assert sum(session.sent for session in sessions) < 1.02 * SIZE


@pytest.mark.parametrize("then", [20_000.0, 0.0, None], ids=["slow", "silent", "lost"])
def test_one_that_turns_slow_holds_nothing_up(then):
    seconds, sessions = fetched(lambda: Far(2e6), lambda: Far(2e6), lambda: Far(2e6, slow_at=3.0, then=then))
    assert seconds < 3.0 + (SIZE - 3.0 * 6e6) / 4e6 + SETUP + 4 * RTT
    assert sum(session.sent for session in sessions) < 1.03 * SIZE


class Thinking(Far):
    """A session whose server thinks for `thinks` seconds before each answer."""

    def __init__(self, thinks: float, queues: bool):
        super().__init__(2e6, queues=queues)
        self.thinks = thinks

    async def fetch(self, span: Span, deliver) -> None:
        async with self.turn:
            await asyncio.sleep(self.thinks)
        await super().fetch(span, deliver)


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize("number", [2, 4, 8])
@pytest.mark.parametrize("size", [600_000, 3_000_000])
def test_a_server_that_thinks_long_is_not_asked_again_and_again(queues, number, size):
    seconds, sessions = fetched(*[lambda: Thinking(3.0, queues)] * number, skip=((size, SIZE),))
    assert sum(session.sent for session in sessions) < 1.2 * size + (1 << 20)
    assert seconds < 40
    assert sum(len(session.spans) for session in sessions) < 40


def test_little_is_given_ahead():
    """Small slices allow a range to be shortened without wasted bytes."""
    _, sessions = fetched(*[lambda: Far(1e6)] * 4)
    assert all(end - start <= 512 * 1024 for session in sessions for start, end in session.spans)
    starts = [start for session in sessions for start, _ in session.spans]
    assert min(sessions[0].spans[-5:])[0] > SIZE / 2
    assert len(starts) > 80


@pytest.mark.parametrize(("lasts", "free"), [(10.0, True), (3 * RTT, True), (RTT, False), (0.0, False)])
def test_less_is_given_ahead_near_the_end(lasts, free):
    """All sessions end together; at this rate, the next slice would take two round trips."""
    work, part = SessionWork(Far(1e6), RTT), RangePart(Span(0, SIZE), 0, SIZE // 2)
    work.given(object(), part, 0.0)
    for step in range(4):
        work.delivered(part, step * 1_000_000, RTT + step)
    part.end = part.at + int(2.5 * RTT * 1e6)
    assert work.free(fair=int(lasts * 1e6), lasts=lasts) == free


def test_skipped_ranges_are_not_fetched():
    skip = [(1_000_000, 15_000_000), (15_500_000, 39_000_000)]
    _, sessions = fetched(*[lambda: Far(1e6)] * 4, skip=skip)
    assert sum(session.sent for session in sessions) == SIZE - 14_000_000 - 23_500_000
    assert all(session.sent for session in sessions)


def test_pipelined_sessions_help_one_without_a_queue():
    """A session gets one slice at a time, as each is expensive; the others take the rest."""
    seconds, sessions = fetched(lambda: Far(1e6, queues=False), lambda: Far(3e6), lambda: Far(4e6))
    assert len(sessions[0].spans) < 10
    assert seconds < SIZE / 8e6 + SETUP + 4 * RTT


def test_one_that_does_not_queue_and_turns_slow_is_helped_all_the_more():
    slow = Far(4e6, slow_at=2.0, then=100_000.0, queues=False)
    seconds, _ = fetched(lambda: slow, lambda: Far(2e6), lambda: Far(2e6))
    assert seconds < 2.0 + (SIZE - 2.0 * 8e6) / 4e6 + SETUP + 8 * RTT


@pytest.fixture
def slots_of_the_test(monkeypatch):
    """Let the test decide which sessions must give their slots back."""
    monkeypatch.setattr(ReplicaSession, "recalled", property(lambda session: session._source.on_loan))


@pytest.mark.usefixtures("slots_of_the_test")
def test_recalled_session_ends_with_its_delivered_bytes():
    lent = Far(2e6)
    delivered = count()

    def recall():
        if next(delivered) == 500:
            lent.on_loan = True

    _, (first, _) = fetched(lambda: Far(2e6), lambda: lent, at_delivery=recall)
    assert lent.closed == 2  # then, and with the source
    assert lent.sent < 0.25 * SIZE
    assert lent.sent == sum(end - start for start, end in lent.spans)
    assert first.sent + lent.sent == SIZE


def test_simultaneous_loss_of_all_sessions_is_reported():
    def make() -> Far:
        return Far(5e6, slow_at=1.0, then=None, queues=False)

    with pytest.raises(ConnectionLost, match="gone"):
        fetched(make, make, make)


@pytest.mark.parametrize("turns", range(8))
def test_loss_of_a_session_is_reported_while_another_fails_to_connect(turns):
    """A server that dies ends both in one turn of the event loop, in any order."""
    died = asyncio.Event()

    class Dies(Far):
        async def pace(self, nbytes: int) -> None:
            if self.done_at is None and self.sent >= 1_000_000:
                died.set()
                raise ConnectionLost("gone")
            await super().pace(nbytes)

    class Refused(Far):
        async def open(self) -> Stat:
            await died.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            raise Unreachable("refused")

    with pytest.raises(ConnectionLost, match="gone"):
        fetched(lambda: Dies(5e6, queues=False), lambda: Refused(5e6))


@pytest.mark.usefixtures("slots_of_the_test")
def test_one_of_simultaneously_recalled_sessions_stays():
    lent = [Far(2e6, queues=False) for _ in range(3)]
    delivered = count()

    def recall():
        if next(delivered) == 500:
            for each in lent:
                each.on_loan = True

    each_once = iter(lent)
    _, sessions = fetched(*[lambda: next(each_once)] * 3, at_delivery=recall)
    assert sorted(each.closed for each in sessions) == [1, 2, 2]  # two then, all with the source

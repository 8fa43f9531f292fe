"""Several sessions as one source: distribution of a range, and effects of one session's failure."""

import asyncio

import pytest

from coalloc.engine.base import Source
from coalloc.engine.sessions.parallel import Parallel
from coalloc.engine.sessions.route_meter import BEGINNING
from coalloc.engine.sessions.sharing import SMALLEST
from coalloc.engine.sessions.work import LONGEST
from coalloc.engine.span import Span
from coalloc.errors import ConnectionLost, NoSuchFile, ReplicaChanged, Unreachable
from coalloc.model.replicas import Stat
from coalloc.util.dialer import DirectDialer
from tests.support.fetching import Collected, collect, opened, options
from tests.support.waiting import PATIENCE, until

SIZE = 40_000_000
CHUNK = 500_000
STAT = Stat(SIZE)
CONTENT = bytes(range(250)) * (SIZE // 250)


class Session(Source):
    """A source that delivers CONTENT with pauses; from `at` on it fails (`error`) or sends nothing."""

    def __init__(
        self,
        error: Exception | None = None,
        at: int | None = None,
        stat: Stat | Exception = STAT,
        connects: asyncio.Event | None = None,
    ):
        super().__init__("x://host/file", options())
        self.error = error
        self.at = at
        self.stat = stat
        self.connects = connects
        self.spans: list[tuple[int, int]] = []
        self.opened = self.closed = 0
        self.lost: Exception | None = None

    async def open(self) -> Stat:
        self.opened += 1
        if self.connects:
            await self.connects.wait()
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
            deliver(at, end, memoryview(CONTENT)[at:end])
            at = end

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        if self.lost:
            raise self.lost
        return f"{algorithm} of {start}-{end}"

    async def recheck(self) -> Stat | None:
        if self.lost:
            raise self.lost
        return None

    async def close(self) -> None:
        self.closed += 1


def parallel(*sessions: Session) -> Parallel:
    made = iter(sessions)
    return Parallel(lambda _: next(made), len(sessions))


async def test_each_session_has_a_part_and_few_are_cut():
    sessions = [Session(), Session(), Session()]
    span = Span(3, SIZE)
    collected = Collected(span)
    async with opened(parallel(*sessions)) as source:
        await source.fetch(span, collected)
    assert collected.bytes == CONTENT[3:]
    assert collected.count == SIZE - 3  # no byte came twice
    parts = [session.spans[0] for session in sessions]
    assert [end for _, end in parts[:-1]] == [start for start, _ in parts[1:]]
    assert max(end - start for start, end in parts) - min(end - start for start, end in parts) <= 1
    assert all(len(session.spans) < 6 for session in sessions)


async def test_parts_of_a_long_range_are_not_too_long():
    session = Session(stat=Stat(10 * LONGEST))
    async with opened(parallel(session, Session(stat=session.stat))) as source:
        task = asyncio.create_task(source.fetch(Span(0, 10 * LONGEST), lambda start, end, data: None))
        await until(lambda: session.spans)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert session.spans[0] == (0, LONGEST)


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


async def test_other_sessions_fetch_the_rest_of_a_lost_session():
    lost = Session(ConnectionLost("gone"), at=0)
    async with opened(parallel(Session(), lost, Session())) as source:
        assert await collect(source, 0, SIZE) == CONTENT
    assert len(lost.spans) == 1


async def test_the_last_sessions_failure_comes_out():
    sessions = [Session(ConnectionLost("gone"), at=SIZE // 2) for _ in range(3)]
    async with opened(parallel(*sessions)) as source:
        with pytest.raises(ConnectionLost, match="gone"):
            await collect(source, 0, SIZE)


async def test_one_file_that_changed_ends_all():
    delivered = []
    async with opened(parallel(Session(), Session(ReplicaChanged("newer"), at=0), Session())) as source:
        with pytest.raises(ReplicaChanged, match="newer"):
            await source.fetch(Span(0, SIZE), lambda start, end, data: delivered.append(start))
        assert len(delivered) < SIZE // CHUNK // 4  # the others have not continued with theirs


async def test_a_cancelled_fetch_delivers_nothing_more_from_any_session():
    delivered = []

    def deliver(start, end, data):
        delivered.append(start)
        if len(delivered) == 3:
            task.cancel()

    async with opened(parallel(Session(), Session(), Session())) as source:
        task = asyncio.create_task(source.fetch(Span(0, SIZE), deliver))
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(delivered) == 3


async def test_a_lowered_end_is_not_held_up_by_slices_beyond_it():
    """The second session sends nothing in its first slice; all before it has arrived, and nothing else is wanted."""
    silent = Session(at=0)
    async with opened(parallel(Session(), silent)) as source:
        span = Span(0, SIZE)
        received = set()

        def deliver(start, end, data):
            assert end <= span.end
            received.update(range(start, end, CHUNK))
            if silent.spans:
                span.end = silent.spans[0][0]

        async with asyncio.timeout(PATIENCE):
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


async def test_one_session_is_given_all_at_once():
    only = Session()
    async with opened(parallel(only)) as source:
        assert await collect(source, 5, SIZE) == CONTENT[5:]
    assert only.spans == [(5, SIZE)]


async def widened(source, streams, connects, after=3):
    """Fetch everything, widened at the first delivery; further sessions take `after` longer. Return the offsets."""
    span, offsets = Span(0, SIZE), []
    collected = Collected(span)

    def deliver(start, end, data):
        collected(start, end, data)
        offsets.append(start)
        source.widen(streams)
        if len(offsets) == after:
            connects.set()

    await source.fetch(span, deliver)
    assert bytes(collected.bytes) == CONTENT
    assert collected.count == SIZE  # no byte came twice
    return offsets


async def test_widening_while_a_range_is_under_way():
    connects = asyncio.Event()
    first, second, third = sessions = [Session(), Session(connects=connects), Session(connects=connects)]
    made = iter(sessions)
    async with opened(Parallel(lambda _: next(made))) as source:
        offsets = await widened(source, 3, connects)
    assert offsets[:3] == [0, CHUNK, 2 * CHUNK]  # no gap while the others connect
    assert first.spans[0] == (0, SIZE)
    assert second.spans[0][0] < second.spans[0][1] <= third.spans[0][0] < third.spans[0][1]
    assert [session.opened for session in sessions] == [1, 1, 1]


async def test_widening_where_the_server_grants_no_more():
    connects = asyncio.Event()
    sessions = [Session(), Session(stat=Unreachable("full"), connects=connects)]
    made = iter(sessions)
    async with opened(Parallel(lambda _: next(made))) as source:
        await widened(source, 2, connects)
    assert sessions[0].spans == [(0, SIZE)]


async def test_a_session_that_is_late_for_one_range_is_there_for_the_next():
    connects = asyncio.Event()
    late = Session(connects=connects)
    async with opened(parallel(Session(), late)) as source:
        assert await collect(source, 0, SIZE) == CONTENT
        assert not late.spans
        connects.set()
        assert await collect(source, 0, SIZE) == CONTENT
    assert late.opened == 1
    assert late.spans


async def test_widening_between_ranges_and_to_fewer():
    sessions = [Session(), Session()]
    made = iter(sessions)
    async with opened(Parallel(lambda _: next(made))) as source:
        source.widen(2)
        source.widen(1)
        assert await collect(source, 0, SIZE) == CONTENT
    assert all(session.spans for session in sessions)


async def test_silent_session_loses_its_whole_range_to_another():
    """The second session says nothing: the first takes over all that it has."""
    slow = Session(at=SIZE // 4)
    async with opened(parallel(Session(), slow)) as source:
        received = []
        task = asyncio.create_task(source.fetch(Span(0, SIZE), lambda start, end, data: received.append(end - start)))
        await until(lambda: sum(received) == SIZE)
        await task


class OverRoute(DirectDialer):
    """A dialer over a named route."""

    def __init__(self, name: str, expected: float | None = None):
        super().__init__()
        self._name = name
        self._expected = expected

    def route(self, host: str) -> str:
        return self._name

    def expected(self, host: str) -> float | None:
        return self._expected


def over_routes(first: Session, second: Session, known: bool = False) -> Parallel:
    """A source with two routes; the first is expected to be faster if `known`."""
    made = iter([first, second])
    dialers = [OverRoute("none", 1.0 if known else None), OverRoute("b", 2.0 if known else None)]
    return Parallel(lambda _: next(made), 2, dialers)


async def test_the_route_that_is_ready_first_begins():
    connects = asyncio.Event()
    late, early = Session(connects=connects), Session()
    async with opened(over_routes(late, early)) as source:
        assert await collect(source, 0, SIZE) == CONTENT
        assert early.spans == [(0, SIZE)]
        connects.set()
        assert await collect(source, 0, SIZE) == CONTENT
        assert late.spans
        uses = {use.route: use for use in source.routes}
    assert uses["b"].bytes > uses["none"].bytes > 0
    assert uses["none"].bytes + uses["b"].bytes >= 2 * SIZE
    assert 0 < uses["b"].beginning - BEGINNING < CHUNK


async def test_the_route_that_is_known_to_be_faster_is_waited_for():
    connects = asyncio.Event()
    best, other = Session(connects=connects), Session()
    asyncio.get_running_loop().call_later(0.1, connects.set)
    async with opened(over_routes(best, other, known=True)) as source:
        await collect(source, 0, SMALLEST)
    assert best.spans
    assert not other.spans


@pytest.mark.parametrize("known", [True, False])
async def test_a_route_that_fails_is_done_without(known: bool):
    failing, other = Session(stat=Unreachable("closed")), Session()
    async with opened(over_routes(failing, other, known)) as source:
        assert await collect(source, 0, SIZE) == CONTENT
        assert [use.route for use in source.routes] == ["b"]


async def test_a_route_that_fails_later_is_not_asked_about_the_end():
    failing, other = Session(), Session()
    async with opened(over_routes(failing, other, known=True)) as source:
        await collect(source, 0, SIZE)
        failing.lost = ConnectionLost("the depot is gone")
        assert await source.checksum("md5", 0, 5) == "md5 of 0-5"
        assert await source.recheck() is None
        other.lost = Unreachable("so is the server")
        for question in (source.recheck(), source.checksum("md5", 0, 5)):
            with pytest.raises(ConnectionLost, match="the depot is gone"):
                await question


async def test_first_error_is_raised_if_all_routes_fail():
    source = over_routes(Session(stat=Unreachable("closed")), Session(stat=Unreachable("no depot")))
    with pytest.raises(Unreachable, match="closed"):
        await source.open()
    await source.close()


async def test_an_error_of_the_server_comes_out_at_once():
    silent = Session(connects=asyncio.Event())
    source = over_routes(Session(stat=NoSuchFile("no such file")), silent)
    with pytest.raises(NoSuchFile):
        await source.open()
    await source.close()


async def test_error_over_a_depot_does_not_end_the_direct_route():
    connects = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, connects.set)
    direct, depot = Session(connects=connects), Session(stat=NoSuchFile("the depot has led elsewhere"))
    async with opened(over_routes(direct, depot)) as source:
        assert await collect(source, 0, SIZE) == CONTENT


async def test_a_route_that_failed_is_raced_again():
    first, second = Session(stat=Unreachable("closed")), Session(stat=Unreachable("no depot"))
    source = over_routes(first, second)
    with pytest.raises(Unreachable):
        await source.open()
    second.stat = STAT
    assert await source.open() == STAT
    assert await collect(source, 0, SIZE) == CONTENT
    await source.close()
    first.stat, second.stat = STAT, Unreachable("gone")
    assert await source.open() == STAT
    assert await collect(source, 0, SIZE) == CONTENT
    await source.close()


async def test_a_source_without_depots_measures_no_route():
    async with opened(parallel(Session(), Session())) as source:
        await collect(source, 0, SIZE)
        assert source.routes == ()

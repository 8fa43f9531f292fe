"""A copy of a replica to another real server: ranges that it reports, sessions that are lost and reopened."""

import asyncio

from coalloc.engine.gridftp.remote_source import RemoteSource, Sink
from coalloc.engine.span import Span
from coalloc.util.intervals import Intervals
from tests.support.fetching import opened, options, random_file
from tests.support.waiting import until

SIZE = 100_000


async def test_a_pair_that_has_lost_one_end_is_made_anew_once_and_keeps_no_session_at_the_other(
    start_gridftp, tmp_path
):
    source, sink = start_gridftp(tmp_path / "source", "127.0.0.2"), start_gridftp(tmp_path / "sink", "127.0.0.3")
    content = random_file(source.root / "file", SIZE)
    async with opened(
        RemoteSource(source.url("file"), Sink(sink.url("out"), str(sink.root / "out")), options())
    ) as remote:
        before = len(source.sessions), len(sink.sessions)
        sink.end_sessions()
        assert await remote.checksum("adler32", 0, 1)  # meanwhile the loss is noticed
        halves = (0, SIZE // 2), (SIZE // 2, SIZE)
        await asyncio.gather(*(remote.copy(*half, lambda start, end: None) for half in halves))
        assert (sink.root / "out").read_bytes() == content
        await until(lambda: (len(source.sessions), len(sink.sessions)) == before)
    await until(lambda: not source.sessions + sink.sessions)


async def test_ranges_are_delivered_without_their_bytes(start_gridftp, tmp_path):
    source, sink = start_gridftp(tmp_path / "source", "127.0.0.2"), start_gridftp(tmp_path / "sink", "127.0.0.3")
    content, arrived = random_file(source.root / "file", SIZE), Intervals()

    def deliver(start, end, data):
        assert 10 <= start < end <= SIZE
        assert data is None
        arrived.add(start, end)

    async with opened(
        RemoteSource(source.url("file"), Sink(sink.url("out"), str(sink.root / "out")), options())
    ) as remote:
        await remote.fetch(Span(10, SIZE), deliver)
    assert list(arrived) == [(10, SIZE)]
    assert (sink.root / "out").read_bytes()[10:] == content[10:]


async def test_bytes_that_are_there_are_not_copied_again(start_gridftp, tmp_path):
    source, sink = start_gridftp(tmp_path / "source", "127.0.0.2"), start_gridftp(tmp_path / "sink", "127.0.0.3")
    content, arrived = random_file(source.root / "file", SIZE), Intervals()
    async with opened(
        RemoteSource(source.url("file"), Sink(sink.url("out"), str(sink.root / "out")), options())
    ) as remote:
        await remote.fetch(Span(10, SIZE, [(1000, 50_000)]), lambda start, end, _: arrived.add(start, end))
    assert list(arrived) == [(10, 1000), (50_000, SIZE)]
    there = (sink.root / "out").read_bytes()
    assert (there[10:1000], there[50_000:]) == (content[10:1000], content[50_000:])
    assert not any(there[1000:50_000])

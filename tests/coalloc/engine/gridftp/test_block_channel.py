"""Kept data connections with a real server: their number, and that every byte is correct."""

import asyncio
import logging
import socket

import pytest

from coalloc.engine import open_source
from coalloc.engine.gridftp import GridFTPFindings, GridFTPSource, block_channel, replies
from coalloc.engine.gridftp.blocks import BlockReader, EndOfData
from coalloc.engine.span import Span
from coalloc.errors import ConnectionLost, NoSuchFile, Unsupported
from tests.support.fetching import Collected, cancelled, collect, opened, options, random_file

SIZE = 6_000_001


@pytest.fixture
def content(gridftp_server):
    return random_file(gridftp_server.root / "file", SIZE)


@pytest.fixture(autouse=True)
def far(monkeypatch):
    """Treat every server as far away."""
    monkeypatch.setattr("coalloc.engine.gridftp.source.FAR", 0.0)


@pytest.fixture
def made(monkeypatch):
    """Return the data connections that servers have made to us."""
    connections, accept = [], block_channel.BlockChannel._accept

    async def accepted(channel, listener):
        connections.append(await accept(channel, listener))
        return connections[-1]

    monkeypatch.setattr(block_channel.BlockChannel, "_accept", accepted)
    return connections


def kept(server):
    """A session that keeps its connection from the start."""
    return GridFTPSource(server.url("file"), options(), GridFTPFindings(connects_back=True))


def several(server, streams=1):
    """A source as programs use it: one session, more when it is widened."""
    return open_source(server.url("file"), "auto", options(streams=streams))


async def test_ranges_one_after_the_other_and_at_once_share_a_connection(gridftp_server, content, made):
    ranges = [(0, 1), (SIZE - 1, SIZE), (17, 17), (1_000_003, 3_000_001), (0, SIZE), (5, 100_005)]
    async with opened(kept(gridftp_server)) as source:
        assert source.queues
        for start, end in ranges:
            assert await collect(source, start, end) == content[start:end]
        at_once = await asyncio.gather(*(collect(source, start, end) for start, end in ranges))
        assert at_once == [content[start:end] for start, end in ranges]
    assert len(made) == 1


async def test_ranges_that_are_asked_for_ahead_come_in_their_order(gridftp_server, content, made):
    seen = []
    async with opened(kept(gridftp_server)) as source:
        spans = [Span(start, start + 500_000) for start in (3_000_000, 0, 5_000_000)]
        await asyncio.gather(*(source.fetch(span, lambda start, end, data: seen.append(start)) for span in spans))
    assert [offset for offset in seen if offset in {span.start for span in spans}] == [3_000_000, 0, 5_000_000]
    assert len(made) == 1


@pytest.mark.parametrize("lowered_to", [1000, 1_000_000, 1_999_999])
async def test_little_that_is_not_wanted_is_skipped(gridftp_server, content, made, lowered_to):
    span = Span(999, 2_000_000)
    collected = Collected(span)

    def deliver(start, end, data):
        collected(start, end, data)
        span.end = min(span.end, max(end - 900_000, lowered_to))

    async with opened(kept(gridftp_server)) as source:
        await source.fetch(span, deliver)
        assert collected.bytes[: span.end - 999] == content[999 : span.end]
        assert await collect(source, 0, SIZE) == content
    assert len(made) <= 2


async def test_a_cancelled_range_costs_its_connection_only_if_much_is_left(gridftp_server, content, made):
    big = 200_000_000
    with (gridftp_server.root / "file").open("ab") as file:
        file.truncate(big)
    async with opened(kept(gridftp_server)) as source:
        for _ in range(3):
            await cancelled(source, Span(0, 300_000))
            assert await collect(source, 5, SIZE) == content[5:]
        assert len(made) == 1
        await cancelled(source, Span(0, big))
        assert await collect(source, 5, SIZE) == content[5:]
    assert len(made) == 2


async def test_one_range_fails_and_the_next_goes_on(gridftp_server, content, made):
    def fail(start, end, data):
        raise OSError("disk full")

    async with opened(kept(gridftp_server)) as source:
        failing = asyncio.create_task(source.fetch(Span(0, 100_000), fail))
        assert await collect(source, 5, SIZE) == content[5:]
        with pytest.raises(OSError, match="disk full"):
            await failing
    assert len(made) == 1


async def test_a_file_that_is_gone(gridftp_server, content):
    async with opened(kept(gridftp_server)) as source:
        await collect(source, 0, 10)
        (gridftp_server.root / "file").unlink()
        with pytest.raises(NoSuchFile):
            await collect(source, 0, 10)


async def test_closing_ends_what_is_under_way(gridftp_server, content):
    async with opened(kept(gridftp_server)) as source:
        gridftp_server.pause()
        fetching = [asyncio.create_task(collect(source, 0, SIZE)) for _ in range(2)]
        await asyncio.sleep(0.05)
        await source.close()
        for task in fetching:
            with pytest.raises(ConnectionLost):
                await task
        gridftp_server.resume()


async def test_widened_sessions_keep_their_connections_over_all_ranges(gridftp_server, content, made, monkeypatch):
    monkeypatch.setattr(block_channel, "SKIPPED", SIZE)  # otherwise one with much left at a range's end is replaced
    async with opened(several(gridftp_server)) as source:
        source.widen(3)
        for _ in range(8):
            assert await collect(source, 3, SIZE) == content[3:]
        before = len(made)
        assert before == 3
        span = Span(0, SIZE)
        collected = Collected(span)

        def deliver(start, end, data):
            collected(start, end, data)
            source.widen(5)

        await source.fetch(span, deliver)
        assert collected.bytes == content
        for _ in range(8):
            assert await collect(source, 3, SIZE) == content[3:]
    assert len(made) == 5


def refuse(monkeypatch):
    """A firewall that refuses the server's connections: here, a closed port."""

    def closed_port(host, port):
        with socket.create_server((host, 0)) as listener:
            return replies.port_command(host, listener.getsockname()[1])

    monkeypatch.setattr(block_channel, "port_command", closed_port)


def drop(monkeypatch):
    """A firewall that drops the server's connections: here, they are never accepted."""

    async def never(channel, listener):
        await asyncio.Event().wait()

    monkeypatch.setattr(block_channel, "CONNECT_BACK_SECONDS", 0.1)
    monkeypatch.setattr(block_channel.BlockChannel, "_accept", never)


def translate(monkeypatch):
    """Address translation between client and server."""
    monkeypatch.setattr(block_channel, "translated", lambda local, peer: True)


@pytest.mark.parametrize("prevent", [refuse, drop, translate])
async def test_one_stream_is_used_if_the_server_cannot_connect_back(gridftp_server, monkeypatch, caplog, prevent):
    caplog.set_level(logging.DEBUG, "coalloc")
    content = random_file(gridftp_server.root / "file", 5 * SIZE)
    prevent(monkeypatch)
    async with opened(several(gridftp_server)) as source:
        source.widen(3)
        for start in (0, 5):
            assert await collect(source, start, len(content)) == content[start:]
        await source.open()
        assert await collect(source, 1, len(content)) == content[1:]
    assert len([record for record in caplog.records if "cannot connect to this machine" in record.message]) <= 1


@pytest.mark.parametrize("prevent", [refuse, drop, translate])
async def test_source_with_several_streams_works_without_connections_back(
    gridftp_server, content, monkeypatch, prevent
):
    prevent(monkeypatch)
    known = GridFTPFindings()
    second = GridFTPSource(gridftp_server.url("file"), options(streams=2), known, 1)
    async with opened(second):
        assert second.queues
        at_once = await asyncio.gather(*(collect(second, start, SIZE) for start in (0, 5)))
        assert at_once == [content, content[5:]]
        assert known.connects_back is False
        assert not second.queues


@pytest.mark.parametrize("prevent", [refuse, drop, translate])
async def test_additional_session_fails_if_the_server_cannot_connect_back(
    gridftp_server, content, monkeypatch, prevent
):
    prevent(monkeypatch)
    known = GridFTPFindings()
    async with opened(GridFTPSource(gridftp_server.url("file"), options(), known, 1)) as helper:
        with pytest.raises(Unsupported, match="cannot connect to this machine"):
            await collect(helper, 0, SIZE)
    assert known.connects_back is False


async def test_one_that_was_not_reached_does_not_speak_for_others(gridftp_server, content, monkeypatch):
    drop(monkeypatch)
    known = GridFTPFindings(connects_back=True)
    async with opened(GridFTPSource(gridftp_server.url("file"), options(), known, 1)) as unlucky:
        with pytest.raises(Unsupported):
            await collect(unlucky, 0, SIZE)
    assert known.connects_back


async def test_a_server_that_keeps_no_connection(gridftp_server, content, monkeypatch):
    """The server closes the first connection after a range, as some do."""
    feed = BlockReader.feed

    def closing(reader, data):
        events = feed(reader, data)
        end = next((i for i, event in enumerate(events) if isinstance(event, EndOfData)), None)
        return events if end is None else [*events[:end], EndOfData(True)]

    monkeypatch.setattr(BlockReader, "feed", closing)
    known = GridFTPFindings()
    second = GridFTPSource(gridftp_server.url("file"), options(streams=2), known, 1)
    async with opened(second):
        at_once = await asyncio.gather(*(collect(second, start, SIZE) for start in (0, 5)))
    assert at_once == [content, content[5:]]
    assert known.connects_back is False


async def test_a_near_server_is_asked_for_a_new_connection_each_time(gridftp_server, content, made, monkeypatch):
    monkeypatch.setattr("coalloc.engine.gridftp.source.FAR", 60.0)
    async with opened(several(gridftp_server, streams=3)) as source:
        assert await collect(source, 0, SIZE) == content
    assert not made

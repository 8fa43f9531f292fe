"""Servers that only send whole files: they are read no faster than a rate limit allows, by every engine that can."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from coalloc.engine import open_source
from coalloc.engine.limits.admission import Admission
from coalloc.engine.span import PacedSpan, Span
from coalloc.errors import SourceError
from tests.support.fetching import options, random_file
from tests.support.nginx import Nginx
from tests.support.plain_ftp import PlainFTP, serve
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE, until

SIZE, PIECE = 3_000_001, 300_000


class Turns:
    """Turns of pieces that a test hands out."""

    def __init__(self):
        self.free = asyncio.Semaphore(0)

    async def wait(self, nbytes):
        assert 0 < nbytes <= PIECE
        await self.free.acquire()

    def let(self, number):
        for _ in range(number):
            self.free.release()


@pytest.fixture(params=["http", "https", "ftp"])
async def place(request, tmp_path, grid, monkeypatch):
    """A file, its content, and the kind of its server."""
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    root = tmp_path / "root"
    root.mkdir()
    content = random_file(root / "x", SIZE)
    async with AsyncExitStack() as stack:
        if request.param == "ftp":
            server = await stack.enter_async_context(serve(PlainFTP(content, features=("SIZE",), restarts=False)))
            yield server.url, content
        else:
            secure = [grid.localhost.certificate, grid.localhost.key] if request.param == "https" else None
            server = stack.enter_context(Nginx(root, tmp_path / "n", more="max_ranges 0;", certificate=secure))
            yield server.url("x"), content


@asynccontextmanager
async def reading(url, turns):
    """Fetch all of a file in these turns; yield the task and the bytes that have come."""
    source = open_source(url, "auto", options(admission=Admission(PIECE, turns.wait)))
    came = bytearray()

    def deliver(start, end, data):
        assert start == len(came)
        came.extend(data)

    assert not (await source.open()).ranged
    task = asyncio.create_task(source.fetch(PacedSpan(Span(0, SIZE), PIECE, turns.wait), deliver))
    try:
        yield task, came
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await source.close()


async def test_bytes_come_in_turns(place):
    url, content = place
    turns = Turns()
    async with reading(url, turns) as (task, came):
        await asyncio.sleep(0.1)
        assert not came
        for number in range(1, 4):
            turns.let(1)
            await until(lambda number=number: len(came) > (number - 1) * PIECE)
            await asyncio.sleep(0.1)
            assert len(came) <= (number + 1) * PIECE  # a last read may go beyond the turn
        turns.let(SIZE // PIECE)
        async with asyncio.timeout(PATIENCE):
            await task
        assert came == content


async def test_a_wait_for_a_turn_can_be_cancelled(place):
    url, _ = place
    turns = Turns()
    async with reading(url, turns) as (task, came):
        turns.let(1)
        await until(lambda: came)
        task.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({task})
        assert task.cancelled()
        before = len(came)
        turns.let(9)
        await asyncio.sleep(0.05)
        assert len(came) == before


async def test_bytes_of_a_slow_server_come_before_their_piece_is_full():
    content, more = bytes(range(256)) * (SIZE // 256) + bytes(SIZE % 256), asyncio.Event()

    async def serve(reader, writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if " /x " in head:
                writer.write(b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n")
                continue
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n".encode())
            if head.startswith("GET"):
                writer.write(content[: PIECE // 2])
                await more.wait()
                writer.write(content[PIECE // 2 :])

    turns = Turns()
    turns.let(SIZE // PIECE + 1)
    async with raw_server(serve) as port, reading(f"http://127.0.0.1:{port}/x", turns) as (task, came):
        await until(lambda: len(came) == PIECE // 2)
        more.set()
        async with asyncio.timeout(PATIENCE):
            await task
        assert came == content


async def test_a_server_that_breaks_off_is_noticed():
    content = bytes(SIZE)
    turns = Turns()
    async with serve(PlainFTP(content, features=("SIZE",), restarts=False)) as server:
        server.content = content[:PIECE]
        source = open_source(server.url, "auto", options())
        try:
            await source.open()
            task = asyncio.create_task(
                source.fetch(PacedSpan(Span(0, SIZE), PIECE, turns.wait), lambda start, end, data: None)
            )
            turns.let(20)
            with pytest.raises(SourceError):
                async with asyncio.timeout(PATIENCE):
                    await task
        finally:
            await source.close()

"""Kept HTTP connections to a real nginx, with pipelined requests: their number, and correct bytes."""

import asyncio
import socket
from contextlib import ExitStack, asynccontextmanager, closing, suppress

import pytest

from coalloc.engine import open_source
from coalloc.engine.http import HTTPFindings, HTTPSource, channel
from coalloc.engine.span import Span
from coalloc.errors import ConnectionLost, NoSuchFile, ServerBusy
from tests.support.fetching import Collected, CountingDialer, cancelled, collect, opened, options, random_file
from tests.support.nginx import Nginx

SIZE = 6_000_001
BIG = 200_000_000
RANGES = [(0, 1), (SIZE - 1, SIZE), (17, 17), (1_000_003, 3_000_001), (0, SIZE), (5, 100_005)]


@pytest.fixture(autouse=True)
def far(monkeypatch):
    """Treat every server as far away."""
    monkeypatch.setattr("coalloc.engine.http.source.FAR", 0.0)


@pytest.fixture
def content(tmp_path):
    (tmp_path / "export").mkdir()
    return random_file(tmp_path / "export" / "file", SIZE)


@pytest.fixture
def start(tmp_path):
    """A function that starts nginx on `tmp_path / "export"`, with more directives; it ends with the test."""
    with ExitStack() as stack:

        def start(more="", **keywords):
            return stack.enter_context(Nginx(tmp_path / "export", tmp_path / "run", more=more, **keywords))

        yield start


@pytest.fixture
def dialer():
    return CountingDialer()


@pytest.fixture
def made(dialer):
    """Return the connections that were made."""
    return dialer.dialled


@pytest.fixture
def asking_ahead(dialer):
    """A function that makes a session which does not wait for the findings of others."""
    return lambda server: HTTPSource(server.url("file"), options(dialer=dialer), number=1)


async def at_once(source, ranges):
    return await asyncio.gather(*(collect(source, start, end) for start, end in ranges))


def parts(content, ranges):
    return [content[start:end] for start, end in ranges]


async def test_ranges_one_after_the_other_and_at_once_share_a_connection(start, asking_ahead, content, made):
    async with opened(asking_ahead(start())) as source:
        assert source.queues
        for begin, end in RANGES:
            assert await collect(source, begin, end) == content[begin:end]
        assert await at_once(source, RANGES) == parts(content, RANGES)
    assert len(made) == 1


async def test_over_tls_too(start, asking_ahead, content, made, grid, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    server = start(certificate=(grid.localhost.certificate, grid.localhost.key))
    async with opened(asking_ahead(server)) as source:
        assert source.queues
        assert await at_once(source, RANGES) == parts(content, RANGES)
    assert len(made) == 1


async def test_ranges_that_are_asked_for_ahead_come_in_their_order(start, asking_ahead, content):
    seen = []
    async with opened(asking_ahead(start())) as source:
        spans = [Span(begin, begin + 500_000) for begin in (3_000_000, 0, 5_000_000)]
        await asyncio.gather(*(source.fetch(span, lambda start, end, data: seen.append(start)) for span in spans))
    assert [offset for offset in seen if offset in {span.start for span in spans}] == [3_000_000, 0, 5_000_000]


async def test_the_first_session_asks_ahead_when_another_one_has_shown_that_it_works(start, content):
    url, known = start().url("file"), HTTPFindings()
    async with (
        opened(HTTPSource(url, options(), known, 0)) as first,
        opened(HTTPSource(url, options(), known, 1)) as second,
    ):
        assert first.will_queue
        assert not first.queues
        await at_once(second, RANGES)
        assert first.queues


async def test_it_is_known_how_far_a_server_is_before_it_answers(monkeypatch):
    """The distance is known early, so that further connections open meanwhile."""
    connected, reached = asyncio.Event(), HTTPSource._reached
    monkeypatch.setattr(HTTPSource, "_reached", lambda source, rtt: (reached(source, rtt), connected.set()))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = HTTPSource(f"http://127.0.0.1:{listener.getsockname()[1]}/file", options())
        assert source.path_state is None
        opening = asyncio.create_task(source.open())
        await connected.wait()
        state = source.path_state
        assert state is not None
        assert state.rtt > 0
        assert not opening.done()
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await source.close()


async def test_a_server_that_ends_the_connection_now_and_then(start, asking_ahead, content, made):
    ranges = [(begin, begin + 100_000) for begin in range(0, 3_000_000, 100_000)]
    async with opened(asking_ahead(start("keepalive_requests 7;"))) as source:
        assert await at_once(source, ranges) == parts(content, ranges)
        assert await at_once(source, ranges) == parts(content, ranges)
        assert source.queues or source.will_queue  # the last connection may just have ended
    assert len(made) > 2


async def test_redirected_ranges_are_pipelined_at_the_redirect_target(start, asking_ahead, content, made, tmp_path):
    """Grid storage does this: one server knows the file, another one sends it."""
    led = "location / { if ($request_method = GET) { return 307 /real$uri; } }"
    server = start(f"{led} location /real/ {{ alias {tmp_path}/export/; }}")
    async with opened(asking_ahead(server)) as source:
        for _ in range(2):
            assert await at_once(source, RANGES) == parts(content, RANGES)
        assert source.queues
    assert len(made) == 2


@asynccontextmanager
async def serving(content, sends):
    """The URL of a server; `sends(start, end)` returns how many bytes of a range it sends, and whether it continues."""

    async def answer(reader, writer):
        with closing(writer), suppress(asyncio.IncompleteReadError):
            while request := (await reader.readuntil(b"\r\n\r\n")).decode():
                if request.startswith("HEAD"):
                    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nAccept-Ranges: bytes\r\n\r\n".encode())
                    continue
                start, end = map(int, request.split("bytes=")[1].split("\r\n")[0].split("-"))
                headers = f"Content-Length: {end + 1 - start}\r\nContent-Range: bytes {start}-{end}/{SIZE}"
                writer.write(f"HTTP/1.1 206 Partial\r\n{headers}\r\n\r\n".encode())
                sent, more = sends(start, end + 1)
                writer.write(content[start : start + sent])
                if not more:
                    break

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/file"


async def test_a_server_that_cuts_off_an_answer_after_others(content, made, dialer):
    """Bytes that it has sent are not requested again."""
    asked = []

    def sends(start, end):
        asked.append(start)
        return (50, False) if start == 200 else (end - start, True)

    ranges = [(0, 200), (200, 400), (400, 600)]
    async with serving(content, sends) as url, opened(HTTPSource(url, options(dialer=dialer), number=1)) as source:
        assert await at_once(source, ranges) == parts(content, ranges)
        assert source.queues
    assert asked == [0, 200, 250, 400]
    assert len(made) == 2


async def test_server_that_loses_pipelined_requests_gets_single_requests(content):
    """The server answers one request per connection, without a notice, and hangs up."""
    once = serving(content, lambda start, end: (end - start, False))
    async with once as url, opened(HTTPSource(url, options(), number=1)) as source:
        assert source.queues
        assert await at_once(source, RANGES) == parts(content, RANGES)
        assert not source.queues
        assert not source.will_queue


async def test_a_cancelled_range_costs_its_connection_only_if_much_is_left(
    start, asking_ahead, content, made, tmp_path
):
    with (tmp_path / "export" / "file").open("ab") as file:
        file.truncate(BIG)
    async with opened(asking_ahead(start())) as source:
        for _ in range(3):
            await cancelled(source, Span(0, 60_000))
            assert await collect(source, 5, SIZE) == content[5:]
        assert len(made) == 1
        await cancelled(source, Span(0, BIG))
        assert await collect(source, 5, SIZE) == content[5:]
    assert len(made) == 2


async def test_one_range_fails_and_the_next_goes_on(start, asking_ahead, content, made):
    def fail(start, end, data):
        raise OSError("disk full")

    async with opened(asking_ahead(start())) as source:
        failing = asyncio.create_task(source.fetch(Span(0, 100_000), fail))
        assert await collect(source, 5, SIZE) == content[5:]
        with pytest.raises(OSError, match="disk full"):
            await failing
    assert len(made) == 1


async def test_a_file_that_is_gone(start, asking_ahead, content, tmp_path):
    async with opened(asking_ahead(start())) as source:
        await collect(source, 0, 10)
        (tmp_path / "export" / "file").unlink()
        with pytest.raises(NoSuchFile):
            await collect(source, 0, 10)


async def test_a_server_that_becomes_busy_is_asked_no_more(start, asking_ahead, content, tmp_path, made):
    server = start(f"if (-f {tmp_path}/busy) {{ return 503; }} add_header Retry-After 120 always;")
    async with opened(asking_ahead(server)) as source:
        await collect(source, 0, 10)
        (tmp_path / "busy").touch()
        with pytest.raises(ServerBusy) as caught:
            await collect(source, 0, 10)
        assert caught.value.retry_after == 120
    assert len(made) == 1


async def test_closing_ends_what_is_under_way(start, asking_ahead, content, made):
    async with opened(asking_ahead(start())) as source:
        begun = asyncio.Event()
        spans = Span(0, SIZE), Span(1, SIZE)
        fetching = [asyncio.create_task(source.fetch(span, lambda start, end, data: begun.set())) for span in spans]
        await begun.wait()
        await source.close()
        for task in fetching:
            with pytest.raises(ConnectionLost):
                await task
    assert len(made) == 1


async def test_widened_sessions_keep_their_connections_over_all_ranges(start, content, dialer, made, monkeypatch):
    monkeypatch.setattr(channel, "SKIPPED", SIZE)  # otherwise one with much left at a range's end is replaced
    async with opened(open_source(start().url("file"), "auto", options(dialer=dialer))) as source:
        source.widen(3)
        for _ in range(4):
            span = Span(3, SIZE)
            collected = Collected(span)
            await source.fetch(span, collected)
            assert collected.bytes == content[3:]
    assert len(made) == 3

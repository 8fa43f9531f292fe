"""Servers that send too much, too little at a time, or invalid numbers: coget drops each, with a remedy."""

import asyncio
import itertools
import struct

import pytest

from coalloc.engine import open_source
from coalloc.engine.gridftp import GridFTPFindings, GridFTPSource
from coalloc.engine.span import Span
from coalloc.errors import LimitExceeded, NotThatProtocol, ServerSays, SourceError, Stalled, Unsupported
from tests.support.fetching import Collected, collect, opened, options
from tests.support.scripted import ftp_server, limited, raw_server, sent_back

NUMBERS = [
    "9" * 4301, "-5", "+5", "1e3", "0x10", "１２", "٣", "5.0", "1_0", "2²", str(2**63), str(2**64), "NaN", "Infinity",
]  # fmt: skip
"""Values that int() accepts although no file has them, or that fail with a ValueError."""


async def failure(url, **more):
    source = open_source(url, "auto", options(**more))

    async def fetch():
        stat = await source.open()
        await source.fetch(Span(0, stat.size), lambda start, end, data: None)

    with pytest.raises(SourceError) as caught:
        await fetch()
    await source.close()
    assert caught.value.remedy
    assert len(str(caught.value)) < 2000
    return caught.value


# Replies


async def endless_line(writer, _):
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_lines(writer, _):
    writer.write(b"211-Extensions\r\n")
    line = b" " + b"x" * 60_000 + b"\r\n"
    while True:
        writer.write(line)
        await writer.drain()


async def endless_preliminaries(writer, _):
    while True:
        writer.write(b"150 soon\r\n" * 1000)
        await writer.drain()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("verb", ["GREETING", "FEAT", "SIZE", "MLST"])
@pytest.mark.parametrize("answer", [endless_line, endless_lines, endless_preliminaries])
async def test_a_reply_without_end_takes_no_memory(verb, answer):
    async with ftp_server(**{verb: answer}) as url:
        output = await limited("asyncio.run(fetched(sys.argv[1]))", url)
    kind, message, remedy = output.split("|")
    assert kind.strip() in ("LimitExceeded", "NotThatProtocol")
    assert url.split("/")[2] in message
    assert "more than" in message or "the server said" in message
    assert remedy.strip()


async def test_a_reply_of_many_lines_that_ends_is_too_long_as_well():
    reply = b"211-Extensions\r\n" + (b" " + b"x" * 60_000 + b"\r\n") * 200 + b"211 End\r\n"
    async with ftp_server(FEAT=reply) as url:
        error = await failure(url)
    assert isinstance(error, NotThatProtocol)
    assert error.permanent


# Numbers


@pytest.mark.parametrize("number", NUMBERS)
async def test_sizes_that_are_none_by_size(number):
    async with ftp_server(SIZE=f"213 {number}\r\n".encode()) as url:
        assert isinstance(await failure(url), Unsupported)


@pytest.mark.parametrize("number", NUMBERS)
async def test_sizes_that_are_none_by_mlst(number):
    listed = f"250-status\r\n Type=file;Size={number};Modify=99999999999999; /file\r\n250 End\r\n"
    async with ftp_server(MLST=listed.encode(), SIZE=b"500 what?\r\n") as url:
        assert isinstance(await failure(url), Unsupported)


@pytest.mark.parametrize("address", ["９,９,9,9,9,9", "9" * 4301 + ",1,1,1,1,1", "1,2,3,4,999,1", "1,2,3,4,5"])
async def test_addresses_that_are_none(address):
    async with ftp_server(PASV=f"227 Entering ({address})\r\n".encode(), EPSV=b"229 (|||99999|)\r\n") as url:
        await failure(url)


def http(answer):
    """A server that answers every request with these bytes."""

    async def serve(reader, writer):
        while (await reader.read(65536)).endswith(b"\r\n\r\n"):
            writer.write(answer)
            await writer.drain()
            if b"Content-Length" not in answer:
                return

    return raw_server(serve)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "headers",
    [
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\n\r\n",
        "HTTP/1.1 206 Part\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/{}\r\n\r\nx",
        "HTTP/1.1 206 Part\r\nContent-Length: 1\r\nContent-Range: bytes 0-{}/100\r\n\r\nx",
        "HTTP/1.1 206 Part\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/100, bytes 0-0/{}\r\n\r\nx",
        "HTTP/1.1 206 Part\r\nContent-Length: 1, {}\r\nContent-Range: bytes 0-0/100\r\n\r\nx",
    ],
)
async def test_sizes_that_are_none_by_http(headers, number):
    async with http(headers.format(number).encode()) as port:
        error = await failure(f"http://127.0.0.1:{port}/file")
    assert not isinstance(error, Stalled)


@pytest.mark.parametrize("date", ["Fri, 31 Dec 99999999999999999999 23:59:59 GMT", "Fri, 99 Dec 1999 99:99:99 +9999"])
async def test_dates_that_are_none(date):
    async with http(f"HTTP/1.1 503 Busy\r\nRetry-After: {date}\r\nContent-Length: 0\r\n\r\n".encode()) as port:
        await failure(f"http://127.0.0.1:{port}/file")


@pytest.mark.parametrize("tag", [b'"\xff\xfe"', b'"\xc3\xa9"', b"\xe9", b'W/"\x80"'])
@pytest.mark.parametrize("name", [b"ETag", b"Last-Modified"])
async def test_validators_that_are_not_ascii_do_not_prevent_a_fetch(name, tag):
    async def serve(reader, writer):
        headers = b"Accept-Ranges: bytes\r\n" + name + b": " + tag + b"\r\n"
        while (request := await reader.read(65536)).endswith(b"\r\n\r\n"):
            if request.startswith(b"HEAD"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n" + headers + b"\r\n")
            else:
                there = b"Content-Length: 4\r\nContent-Range: bytes 0-3/4\r\n"
                writer.write(b"HTTP/1.1 206 Part\r\n" + there + headers + b"\r\nfour")

    async with (
        raw_server(serve) as port,
        opened(open_source(f"http://127.0.0.1:{port}/x", "auto", options())) as source,
    ):
        assert await collect(source, 0, 4) == b"four"


# HTTP answers without end


async def headers_without_end(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in itertools.count():
        writer.write(b"".join(b"X-%d-%d: y\r\n" % (number, each) for each in range(1000)))
        await writer.drain()


async def body_without_end(reader, writer):
    """Return an endless body: one of one byte by its header, and one in chunks."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(
        b"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-0/100\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    while True:
        writer.write(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
        await writer.drain()


async def trailers_without_end(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(
        b"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-0/100\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    )
    while True:
        writer.write(b"X-Trailer: y\r\n" * 10_000)
        await writer.drain()


async def chunk_size_without_end(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-0/100\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


@pytest.mark.parametrize("serve", [headers_without_end, body_without_end, trailers_without_end, chunk_size_without_end])
async def test_an_http_answer_without_end_takes_no_memory(serve):
    async with raw_server(serve) as port:
        output = await limited("asyncio.run(fetched(sys.argv[1]))", f"http://127.0.0.1:{port}/file")
    _, message, remedy = output.split("|")
    assert str(port) in message
    assert remedy.strip()


OPENED = """
async def opened(url):
    source = open_source(url, "auto", EngineOptions(DirectDialer(), connect_seconds=2.0))
    try:
        await source.open()
    except CoallocError as error:
        print_error(error)
    finally:
        await source.close()

asyncio.run(opened(sys.argv[1]))
"""


@pytest.mark.parametrize("method", [b"HEAD", b"GET"])
async def test_early_answers_without_end_take_no_longer_than_one_that_never_comes(method):
    async def serve(reader, writer):
        while (await reader.readuntil(b"\r\n\r\n")).split()[0] != method:
            writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 20)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with raw_server(serve) as port:
        output = await limited(OPENED, f"http://127.0.0.1:{port}/file", seconds=20)
    assert output.startswith("Stalled |"), output


# Blocks of MODE E

HEADER = struct.Struct("!BQQ")
EOF, EOD = 0x40, 0x08


def every_other_byte():
    return (b"".join(HEADER.pack(0, 1, at) + b"x" for at in range(k, k + 2000, 2)) for k in itertools.count(0, 2000))


def byte_by_byte():
    return (b"".join(HEADER.pack(0, 1, at) + b"x" for at in range(k, k + 1000)) for k in itertools.count(0, 1000))


def nothing():
    return itertools.repeat(HEADER.pack(0, 0, 0) * 1000)


def ends_of_file():
    return itertools.repeat(HEADER.pack(EOF, 0, 2**63) * 1000)


def the_same_again():
    return itertools.repeat(HEADER.pack(0, 65536, 0) + b"x" * 65536)


def outside():
    return itertools.repeat(HEADER.pack(0, 65536, 2**63) + b"x" * 65536)


def before_and_behind():
    return itertools.repeat(HEADER.pack(0, 65536, 990_000) + b"x" * 65536)


def a_block_without_end():
    return itertools.chain([HEADER.pack(0, 2**64 - 1, 0)], itertools.repeat(b"x" * 65536))


def scattered():
    return (HEADER.pack(0, 600, at) + b"x" * 600 for at in itertools.count(0, 1200))


def ends_of_data():
    return itertools.repeat(HEADER.pack(EOD, 0, 0) * 1000)


BLOCKS = [
    every_other_byte, byte_by_byte, nothing, ends_of_file, the_same_again, outside, before_and_behind,
    a_block_without_end, scattered, ends_of_data,
]  # fmt: skip


def sender(blocks):
    """A server that answers PORT and ERET, connects back and sends these blocks."""
    data = []

    async def port(writer, argument):
        data.append(await sent_back(argument))
        writer.write(b"200 ok\r\n")

    async def eret(writer, _):
        writer.write(b"150 here\r\n")
        await writer.drain()
        loop = asyncio.get_running_loop()
        with data[-1]:
            for some in blocks():
                await loop.sock_sendall(data[-1], some)

    return {"PORT": port, "ERET": eret, "SIZE": b"213 1000000000\r\n"}


FAR_AWAY = """
from coalloc.engine.gridftp import GridFTPSource, GridFTPFindings, source
source.FAR = 0.0

async def fetched_in_blocks(url):
    fetching = GridFTPSource(url, EngineOptions(DirectDialer()), GridFTPFindings(connects_back=True))
    try:
        await fetching.open()
        await fetching.fetch(Span(0, 1_000_000_000), lambda start, end, data: None)
    except CoallocError as error:
        print(error.permanent)
        print_error(error)
    finally:
        await fetching.close()

asyncio.run(fetched_in_blocks(sys.argv[1]))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("blocks", BLOCKS)
async def test_blocks_that_bring_nothing_make_the_source_be_left(blocks):
    async with ftp_server(**sender(blocks)) as url:
        output = await limited(FAR_AWAY, url)
    permanent, error = output.split("\n", 1)
    kind, _, remedy = error.split("|")
    assert remedy.strip()
    if blocks is not ends_of_data:  # they end the range early: that is retried a few times
        assert (kind.strip(), permanent) == ("LimitExceeded", "True")


async def test_blocks_as_servers_send_them_are_taken(monkeypatch):
    monkeypatch.setattr("coalloc.engine.gridftp.source.FAR", 0.0)
    content = bytes(range(256)) * 4000

    def blocks():
        sent = [HEADER.pack(0, 1000, at) + content[at : at + 1000] for at in range(0, len(content), 1000)]
        return [*sent[1:100:2], *sent[:100:2], *sent[100:], HEADER.pack(EOF | EOD, 0, 1)]

    answers = sender(blocks) | {"SIZE": f"213 {len(content)}\r\n".encode()}
    async with ftp_server(**answers) as url:
        source = GridFTPSource(url, options(), GridFTPFindings(connects_back=True))
        span = Span(0, len(content))
        collected = Collected(span)
        await source.open()
        await source.fetch(span, collected)
        await source.close()
    assert bytes(collected.bytes) == content


def test_the_error_is_one_of_the_server():
    assert issubclass(LimitExceeded, ServerSays)
    assert LimitExceeded.permanent

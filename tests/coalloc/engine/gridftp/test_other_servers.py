"""Servers of other vendors: fewer commands, other behaviour, or no FTP at all."""

import asyncio
import contextlib
import random
import socket

import pytest

from coalloc.api import storage
from coalloc.engine.gridftp import GridFTPSource
from coalloc.engine.span import Span
from coalloc.errors import (
    NotThatProtocol,
    PermissionRefused,
    ServerBusy,
    SourceError,
    Unreachable,
    Unsupported,
)
from tests.support.fetching import Collected, CountingDialer, collect, impatient_until, opened, options
from tests.support.listening import reserved
from tests.support.plain_ftp import PlainFTP, serve
from tests.support.scripted import ftp_server
from tests.support.waiting import PATIENCE

CONTENT = random.Random(5).randbytes(700_000)


@pytest.mark.parametrize(
    "habits",
    [
        {},
        {"features": ()},
        {"passive": False},
        {"passive_host": "0.0.0.0"},
        {"loses_pipelined": True},
        {"password": "s3cret"},
    ],
    ids=str,
)
async def test_ranges_by_restart(habits):
    async with serve(PlainFTP(CONTENT, **habits)) as server:
        url = server.url.replace("://", "://user:s3cret@")
        chosen = impatient_until(server, 1.5) if habits.get("loses_pipelined") else options()
        async with opened(GridFTPSource(url, chosen)) as source:
            assert (await source.open()).size == len(CONTENT)
            for start, end in [(0, len(CONTENT)), (5, 6), (300_000, 650_000)]:
                assert await collect(source, start, end) == CONTENT[start:end]
            assert await source.checksum("md5", 0, 5) is None


async def test_size_and_version_of_a_symbolic_link_are_those_of_its_file():
    """The replies of ProFTPD 1.3.8, whose MLST describes the link itself."""
    facts = "modify=20261127181259;perm=adfr;size=8;type=file;unique=FE00U9EE2FC;UNIX.mode=0777;"
    answers = {
        "FEAT": b"211-Features:\r\n MLST modify*;size*;type*;\r\n REST STREAM\r\n SIZE\r\n211 End\r\n",
        "MLST": f"250-Start of list for /file\r\n {facts} /file\r\n250 End of list\r\n".encode(),
        "SIZE": b"213 11\r\n",
        "MDTM": b"213 20261127190000\r\n",
    }
    async with ftp_server(**answers) as url, opened(GridFTPSource(url, options())) as source:
        stat = await source.open()
        assert (stat.size, stat.validator) == (11, "20261127190000")
    async with ftp_server(**answers) as url, await storage(url) as store:
        stat = await store.state("/file")
        assert (stat.size, stat.validator) == (11, "1795806000")


@pytest.mark.parametrize("epsv", [True, False])
@pytest.mark.parametrize("named", ["127.0.0.9", "10.0.0.5", "192.0.2.7"])
async def test_a_server_behind_address_translation_is_reached_at_its_own_address(named, epsv):
    dialer = CountingDialer()
    async with serve(PlainFTP(CONTENT, passive_host=named, extended=epsv)) as server:
        async with opened(GridFTPSource(server.url, options(dialer=dialer))) as source:
            for start, end in [(0, len(CONTENT)), (300_000, 650_000), (5, 6)]:
                assert await collect(source, start, end) == CONTENT[start:end]
        assert server.commands.count("PASV" if epsv else "EPSV") == 1
    assert {host for host, _ in dialer.dialled} == {"127.0.0.1"}


@pytest.mark.parametrize("epsv", [True, False])
async def test_a_server_leads_nowhere_else_and_the_remedy_names_the_host_that_it_wants(epsv):
    """The port that it names is open at another host only; that host must get no connection."""
    with reserved("127.0.0.1") as closed, socket.create_server(("127.0.0.9", closed.getsockname()[1])) as victim:
        port = victim.getsockname()[1]
        replies = {"PASV": f"227 Here (127,0,0,9,{port >> 8},{port & 255})\r\n".encode()}
        if epsv:
            replies["EPSV"] = f"229 Here (|||{port}|)\r\n".encode()
        async with ftp_server(**replies) as url, opened(GridFTPSource(url, options())) as source:
            with pytest.raises(PermissionRefused, match=r"another host, 127\.0\.0\.9") as caught:
                await source.fetch(Span(0, 10), lambda *_: None)
        assert "--data-host 127.0.0.9" in caught.value.remedy
        victim.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.accept()


class DataPortsClosed(CountingDialer):
    """A dialer that connects to all ports at first, and later only to one."""

    only: int | None = None

    async def dial(self, host, port, seconds, first=b""):
        if self.only in (None, port):
            return await super().dial(host, port, seconds, first)
        raise Unreachable(f"{host}:{port} does not answer", "")


async def test_a_server_behind_address_translation_that_did_answer_may_fail_for_a_while():
    dialer = DataPortsClosed()
    async with (
        serve(PlainFTP(CONTENT, passive_host="127.0.0.9")) as server,
        opened(GridFTPSource(server.url, options(dialer=dialer))) as source,
    ):
        assert await collect(source, 0, 5) == CONTENT[:5]
        dialer.only = server.port
        await source.open()
        with pytest.raises(Unreachable) as caught:
            await collect(source, 0, 5)
        assert not caught.value.permanent
        dialer.only = None
        assert await collect(source, 0, 5) == CONTENT[:5]


async def test_a_server_that_loses_commands_is_asked_one_by_one():
    async with serve(PlainFTP(CONTENT, loses_pipelined=True)) as server:
        async with opened(GridFTPSource(server.url, impatient_until(server, 0.5))) as source:
            assert await collect(source, 0, 5) == CONTENT[:5]
            assert server.commands.count("USER") == 2
            await source.open()  # learned facts are kept
        assert server.commands.count("USER") == 3


async def test_a_server_without_restart_sends_only_from_the_start():
    habits = PlainFTP(CONTENT, features=("SIZE",), restarts=False)
    async with serve(habits) as server, opened(GridFTPSource(server.url, options())) as source:
        assert not (await source.open()).ranged
        assert await collect(source, 0, len(CONTENT)) == CONTENT
        with pytest.raises(Unsupported):
            await source.fetch(Span(1, 5), lambda start, end, data: None)


async def test_a_range_lowered_while_its_connection_is_made():
    async with serve(PlainFTP(CONTENT)) as server, opened(GridFTPSource(server.url, options())) as source:
        span = Span(10, 500)
        collected = Collected(span)
        task = asyncio.create_task(source.fetch(span, collected))
        await asyncio.sleep(0)
        span.end = 10
        await task
        assert collected.count == 0
        assert await collect(source, 0, 500) == CONTENT[:500]


async def failure(url, **changes):
    source = GridFTPSource(url, options(**changes))
    with pytest.raises(SourceError) as caught:
        await source.open()
    await source.close()
    return caught.value


async def test_a_wrong_password_is_refused_and_not_shown():
    async with serve(PlainFTP(CONTENT, password="right")) as server:
        error = await failure(server.url.replace("://", "://user:wr0ng%40@"))
    assert isinstance(error, PermissionRefused)
    assert "wr0ng" not in f"{error}{error.remedy}{error!r}"


async def _fetched(url):
    async with opened(GridFTPSource(url, options())) as source:
        await collect(source, 0, 10)


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("GREETING", "421 busy with hush1234"),
        ("GREETING", "hush1234"),
        ("USER", "331 hush1234\r\n230 in\r\nhush1234"),
        ("PASS", "332 hush1234"),
        ("TYPE", "421 h%75sh1234"),
        ("SIZE", "213 hush1234"),
        ("PASV", "227 hush1234"),
        ("EPSV", "229 hush1234"),
        ("QUIT", "221 hush1234"),
    ],
)
async def test_a_password_that_a_reply_repeats_is_in_no_error(verb, said):
    answers = {"PASV": b"500 no\r\n"} if verb == "EPSV" else {}
    async with ftp_server(**answers, **{verb: f"{said}\r\n".encode()}) as url:
        with pytest.raises(SourceError) as caught:
            await _fetched(url.replace("://", "://ann:hush1234@"))
    told = f"{caught.value}{caught.value.remedy}{caught.value!r}"
    assert "hush1234" not in told
    assert "h%75sh1234" not in told


@contextlib.asynccontextmanager
async def says(greeting):
    """A server that sends `greeting` to each client, and waits; its URL."""

    async def accepted(reader, writer):
        async with asyncio.timeout(PATIENCE):
            writer.write(greeting)
            while await reader.readline():
                writer.write(b"" if greeting else b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        gone.set()

    gone = asyncio.Event()
    listener = await asyncio.start_server(accepted, "127.0.0.1")
    async with listener:
        yield f"ftp://127.0.0.1:{listener.sockets[0].getsockname()[1]}/file"
        await gone.wait()


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.0 200 OK\r\n", b"\x15\x03\x01\n", b""])
async def test_servers_of_other_protocols_fail_permanently(greeting):
    async with says(greeting) as url:
        error = await failure(url, connect_seconds=1.5)
    assert isinstance(error, NotThatProtocol)
    assert error.permanent
    assert url.split("/")[2] in str(error)


async def test_a_silent_server_may_be_overloaded(gridftp_server):
    gridftp_server.pause()
    error = await failure(gridftp_server.url("file"), connect_seconds=1.0)
    assert isinstance(error, NotThatProtocol)
    assert not error.permanent


async def test_a_full_server_is_asked_again_later():
    async with says(b"421 Too many connections\r\n") as url:
        error = await failure(url)
    assert type(error) is ServerBusy
    assert "Too many connections" in str(error)

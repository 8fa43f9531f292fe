"""The engine against real GridFTP servers: whole files, ranges, shortened and cancelled ones, failures."""

import asyncio
import hashlib
import os
import socket
import tempfile
import time
import zlib
from pathlib import Path

import pytest

from coalloc.engine.gridftp import GridFTPFindings, GridFTPSource
from coalloc.engine.span import Span
from coalloc.errors import (
    ConnectionLost,
    NoSuchFile,
    PermissionRefused,
    ReplicaChanged,
    SourceError,
    UnknownHost,
    Unreachable,
    Unsupported,
    UsageError,
)
from tests.support.fetching import IPV6, Collected, CountingDialer, collect, opened, options, random_file
from tests.support.scripted import ftp_server
from tests.support.waiting import PATIENCE

SIZE = 3_000_001


@pytest.fixture(params=["stream mode", "kept"])
def known(request, monkeypatch):
    """An engine with a new data connection for each range, and one with a kept connection, as for far servers."""
    if request.param == "stream mode":
        return GridFTPFindings()
    monkeypatch.setattr("coalloc.engine.gridftp.source.FAR", 0.0)
    return GridFTPFindings(connects_back=True)


@pytest.fixture
def content(gridftp_server):
    return random_file(gridftp_server.root / "file", SIZE)


def source_of(server, path="file", known=None, **changes):
    return GridFTPSource(server.url(path), options(**changes), known)


@pytest.mark.parametrize("host", ["127.0.0.2", IPV6])
async def test_whole_file_and_odd_ranges(start_gridftp, tmp_path, host, known):
    server = start_gridftp(tmp_path, host)
    content = random_file(tmp_path / "file", SIZE)
    async with opened(source_of(server, known=known)) as source:
        for start, end in [(0, SIZE), (0, 1), (SIZE - 1, SIZE), (1, 1_234_567), (999_999, 1_000_001), (0, SIZE)]:
            assert await collect(source, start, end) == content[start:end]


async def test_stat_returns_size_and_validator_of_the_current_file(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        before = await source.open()
        assert (before.size, before.ranged) == (SIZE, True)
        (gridftp_server.root / "file").write_bytes(b"other")
        after = await source.open()
    assert after.size == 5
    assert after.validator


async def test_the_real_server_takes_commands_in_one_flight(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        session = source._session
        for end in (10, SIZE):
            await collect(source, 0, end)
        assert source._session is session
        assert session.pipelined


async def test_a_data_connection_that_the_server_has_ended_is_made_again(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        await collect(source, 0, 10)
        prepared = await source._session.data._prepared[1].made()
        prepared.shutdown(socket.SHUT_RD)  # looks like a server's own value
        assert await collect(source, 5, SIZE) == content[5:]


async def test_an_empty_file(gridftp_server):
    (gridftp_server.root / "empty").touch()
    source = source_of(gridftp_server, "empty")
    async with opened(source):
        assert (await source.open()).size == 0
        assert await collect(source, 0, 0) == b""


@pytest.mark.parametrize("name", ["with space", "50%", "a#b?c=d", "semi;colon", "-dash", "end "])
async def test_names(gridftp_server, name):
    content = random_file(gridftp_server.root / name, 1000)
    async with opened(source_of(gridftp_server, name)) as source:
        assert await collect(source, 10, 1000) == content[10:]


async def test_a_name_that_the_server_mishears_is_no_other_file(gridftp_server):
    """The real server drops non-ASCII characters from a plain control connection: "data-ä" would become "data-"."""
    (gridftp_server.root / "data-").write_bytes(b"wrong")
    (gridftp_server.root / "data-ä").write_bytes(b"right")
    error = await failure(gridftp_server.url("data-ä"))
    assert isinstance(error, Unsupported)
    (gridftp_server.root / "data-").unlink()
    error = await failure(gridftp_server.url("data-ä"))
    assert isinstance(error, NoSuchFile)
    assert "gsiftp://" in error.remedy


async def test_a_path_below_the_login_directory(gridftp_server, content):
    url = f"ftp://{gridftp_server.host}:{gridftp_server.port}/~/file"
    async with opened(GridFTPSource(url, options())) as source:
        assert await collect(source, 0, 9) == content[:9]


@pytest.mark.parametrize("lowered_to", [1, 500_000, 1_500_000])
async def test_a_running_range_is_shortened(gridftp_server, content, known, lowered_to):
    async with opened(source_of(gridftp_server, known=known)) as source:
        span = Span(0, SIZE)
        collected = Collected(span)

        def deliver(start, end, data):
            collected(start, end, data)
            span.end = min(span.end, lowered_to)

        await source.fetch(span, deliver)
        assert collected.bytes[:lowered_to] == content[:lowered_to]
        assert await collect(source, 7, SIZE) == content[7:]  # the session is as good as new


async def test_a_cancelled_range_delivers_nothing_more(gridftp_server, content, known):
    async with opened(source_of(gridftp_server, known=known)) as source:
        delivered = []

        def deliver(start, end, data):
            delivered.append(start)
            task.cancel()

        for rounds in range(3):
            task = asyncio.create_task(source.fetch(Span(0, SIZE), deliver))
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(delivered) == rounds + 1
        assert await collect(source, 0, SIZE) == content


async def test_cancelled_at_any_moment_it_stays_usable(gridftp_server, content, known):
    async with opened(source_of(gridftp_server, known=known)) as source:
        for rounds in range(12):
            task = asyncio.create_task(source.fetch(Span(0, SIZE), lambda start, end, data: None))
            for _ in range(rounds):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await collect(source, rounds, rounds + 5000) == content[rounds : rounds + 5000]


async def test_fetch_raises_the_error_of_deliver(gridftp_server, content, known):
    def deliver(start, end, data):
        raise OSError("disk full")

    async with opened(source_of(gridftp_server, known=known)) as source:
        with pytest.raises(OSError, match="disk full"):
            await source.fetch(Span(0, SIZE), deliver)
        assert await collect(source, 0, 100) == content[:100]


async def test_beyond_the_end_of_the_file_is_an_error(gridftp_server, content, known):
    """The server answers 226 there."""
    async with opened(source_of(gridftp_server, known=known)) as source:
        with pytest.raises(ConnectionLost, match=f"at byte {SIZE} of {SIZE - 5}-{SIZE + 5}"):
            await source.fetch(Span(SIZE - 5, SIZE + 5), lambda start, end, data: None)
        assert await collect(source, 0, 100) == content[:100]


async def test_a_killed_server(gridftp_server, known):
    size = 200_000_000  # more than sockets hold
    with (gridftp_server.root / "file").open("wb") as file:
        file.truncate(size)
    async with opened(source_of(gridftp_server, known=known)) as source:
        with pytest.raises(ConnectionLost) as caught:
            await source.fetch(Span(0, size), lambda start, end, data: gridftp_server.kill())
        assert not caught.value.permanent
        assert gridftp_server.url("file") in str(caught.value)
        with pytest.raises(Unreachable):
            await source.open()


async def test_an_idle_session_that_was_ended_is_made_again(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        gridftp_server.end_sessions()
        assert await collect(source, 0, 100) == content[:100]


async def test_a_file_that_changed_is_not_mixed_in(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        gridftp_server.end_sessions()
        (gridftp_server.root / "file").write_bytes(b"other")
        with pytest.raises(ReplicaChanged):
            await collect(source, 0, 100)


async def test_a_server_that_stops_answering(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        await collect(source, 0, 10)
        await collect(source, 0, 10)  # the address for the next range is here already
        gridftp_server.pause()
        for _ in range(2):
            with pytest.raises(TimeoutError):  # no time-out of the engine's own while data are awaited
                async with asyncio.timeout(0.2):
                    await source.fetch(Span(0, SIZE), lambda start, end, data: None)
        source.options = options(connect_seconds=0.6)
        with pytest.raises(SourceError) as caught:
            await source.open()
        assert not caught.value.permanent
        source.options = options()
        gridftp_server.resume()
        await source.open()
        assert await collect(source, 0, SIZE) == content


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        ("adler32", lambda data: f"{zlib.adler32(data):08x}"),
        ("md5", lambda data: hashlib.md5(data).hexdigest()),
        ("sha256", lambda data: hashlib.sha256(data).hexdigest()),
        ("crc32", lambda data: None),
    ],
)
async def test_checksums(gridftp_server, content, algorithm, digest):
    async with opened(source_of(gridftp_server)) as source:
        assert await source.checksum(algorithm, 5, 1_000_000) == digest(content[5:1_000_000])


async def test_a_brief_checksum_takes_no_session_of_its_own(gridftp_server, content):
    digest = hashlib.md5(content[:1000]).hexdigest()
    async with opened(source_of(gridftp_server)) as source:
        session = source._session
        assert await source.checksum("md5", 0, 1000) == digest
        assert await collect(source, 5, SIZE) == content[5:]
        asked = asyncio.create_task(source.checksum("md5", 0, 1000))
        await asyncio.sleep(0)
        assert await collect(source, 0, SIZE) == content  # starts before the answer has come
        assert await asked == digest
        assert source._session is session
        assert source._aside is None


async def test_a_checksum_after_the_server_has_ended_the_idle_session(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        gridftp_server.end_sessions()
        assert await source.checksum("md5", 0, 1000) == hashlib.md5(content[:1000]).hexdigest()


async def test_a_checksum_beside_a_fetch(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        span = Span(0, SIZE)
        asked = []

        def deliver(start, end, data):
            if not asked:
                asked.append(asyncio.create_task(source.checksum("md5", 0, SIZE)))

        await source.fetch(span, deliver)
        assert await asked[0] == hashlib.md5(content).hexdigest()


async def test_close_twice_and_unopened(gridftp_server, content):
    source = source_of(gridftp_server)
    await source.close()
    await source.open()
    await source.close()
    await source.close()


async def failure(url, **changes):
    source = GridFTPSource(url, options(**changes))
    with pytest.raises(SourceError) as caught:
        await source.open()
    await source.close()
    assert caught.value.remedy
    return caught.value


async def test_no_such_file(gridftp_server):
    error = await failure(gridftp_server.url("missing"))
    assert isinstance(error, NoSuchFile)
    assert "missing" in str(error)


async def test_a_directory_is_no_file(gridftp_server):
    (gridftp_server.root / "folder").mkdir()
    error = await failure(gridftp_server.url("folder"))
    assert isinstance(error, NoSuchFile)
    assert "is a directory" in str(error)


@pytest.fixture
def open_folder():
    """A directory that other users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


async def test_a_file_that_may_not_be_read(start_gridftp, open_folder):
    as_nobody = ["-anonymous-user", "nobody", "-anonymous-group", "nogroup"] if os.geteuid() == 0 else []
    server = start_gridftp(open_folder, options=as_nobody)
    (server.root / "secret").write_bytes(b"secret")
    (server.root / "secret").chmod(0)
    async with opened(source_of(server, "secret")) as source:
        with pytest.raises(PermissionRefused):
            await source.fetch(Span(0, 6), lambda start, end, data: None)


async def test_refused_connection_and_unknown_host(gridftp_server):
    gridftp_server.close()
    assert type(await failure(gridftp_server.url("file"))) is Unreachable
    assert type(await failure("ftp://no-such-host.invalid/file")) is UnknownHost


async def test_data_from_a_third_host_only_where_allowed(start_gridftp, tmp_path, known):
    server = start_gridftp(tmp_path, "127.0.0.2", options=["-data-interface", "127.0.0.5"])
    content = random_file(tmp_path / "file", 1000)
    dialer = CountingDialer()
    async with opened(source_of(server, dialer=dialer)) as source:
        assert await collect(source, 0, 10) == content[:10]
    assert {host for host, _ in dialer.dialled} == {"127.0.0.2"}, "it listens at its own address, too"
    allowed = frozenset({"127.0.0.5"})
    async with opened(source_of(server, known=known, data_hosts=allowed)) as source:
        assert await collect(source, 0, 1000) == content


@pytest.mark.parametrize(
    "url", ["ftp://", "ftp:///file", "ftp://host", "ftp://host:port/x", "http://h/x", "ftp://[::1/x"]
)
def test_urls_that_make_no_sense(url):
    with pytest.raises(UsageError):
        GridFTPSource(url, options())


async def test_after_a_brief_range_at_the_end_of_the_file_checksum_and_version_are_known_without_further_questions(
    gridftp_server, content
):
    async with opened(source_of(gridftp_server)) as source:
        await collect(source, SIZE - 1000, SIZE)
        commands = _commands_of(source)
        assert await source.checksum("adler32", SIZE - 1000, SIZE) == f"{zlib.adler32(content[-1000:]):08x}"
        assert (await source.recheck()).size == SIZE
        assert not commands
        await source.checksum("adler32", SIZE - 1000, SIZE)
        await source.recheck()
        assert commands == ["CKSM", "MLST", "SIZE", "MDTM"]


async def test_the_version_is_asked_for_if_other_ranges_were_fetched_meanwhile(gridftp_server, content):
    known = GridFTPFindings()
    async with (
        opened(source_of(gridftp_server, known=known)) as source,
        opened(source_of(gridftp_server, known=known)) as other,
    ):
        await collect(source, SIZE - 1000, SIZE)
        await collect(other, 0, 1000)
        commands = _commands_of(source)
        await source.recheck()
        assert commands == ["MLST", "SIZE", "MDTM"]


async def test_a_change_after_the_first_half_is_noticed_although_the_version_was_asked_for_with_the_second(
    gridftp_server, content
):
    async with opened(source_of(gridftp_server)) as source:
        before = await source.open()
        await collect(source, 0, SIZE - 1000)
        os.utime(gridftp_server.root / "file", (1, 1))
        await collect(source, SIZE - 1000, SIZE)
        assert (await source.recheck()).validator != before.validator


async def test_a_fetch_that_was_cancelled_leaves_no_old_answer_about_the_version(gridftp_server, content):
    async with opened(source_of(gridftp_server)) as source:
        await collect(source, SIZE - 1000, SIZE)
        fetching = asyncio.create_task(source.fetch(Span(SIZE - 10, SIZE), lambda *_: None))
        await asyncio.sleep(0)
        fetching.cancel()
        await asyncio.wait([fetching])
        os.utime(gridftp_server.root / "file", (1, 1))
        before = source._agreed.validator
        assert (await source.recheck()).validator != before


async def test_a_transfer_that_takes_longer_than_a_connection_may_keeps_its_session(gridftp_server):
    size = 40 << 20
    random_file(gridftp_server.root / "large", size)
    async with opened(source_of(gridftp_server, "large")) as source:
        session = source._session
        arrived = 0

        def deliver(start: int, end: int, _: object) -> None:
            nonlocal arrived
            arrived += end - start
            session.control.seconds = 0.1
            time.sleep(0.01)  # at most 1 MiB each

        await source.fetch(Span(0, size), deliver)
        assert arrived == size
        session.control.seconds = PATIENCE
        assert len(await collect(source, 5, 10)) == 5
        assert source._session is session


async def test_a_fetch_that_is_cancelled_while_it_is_requested_leaves_no_server_waiting():
    requested = asyncio.Event()

    async def rest(writer: asyncio.StreamWriter, argument: str) -> None:
        if argument != "1":
            requested.set()
            await asyncio.Event().wait()
        writer.write(b"350 ok\r\n")

    with socket.create_server(("127.0.0.1", 0)) as data:
        port = data.getsockname()[1]
        where = f"227 Entering Passive Mode (127,0,0,1,{port >> 8},{port & 255})\r\n".encode()
        replies = {"FEAT": b"211 no features\r\n", "PASV": where, "REST": rest}
        async with ftp_server(**replies) as url, opened(GridFTPSource(url, options())) as source:
            fetching = asyncio.create_task(source.fetch(Span(5, 10), lambda *_: None))
            await requested.wait()
            fetching.cancel()
            await asyncio.wait([fetching])
            assert not source._session.usable


async def test_the_reason_of_a_server_that_refuses_and_closes_its_port_is_kept():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    where = f"227 Entering Passive Mode (127,0,0,1,{port >> 8},{port & 255})\r\n".encode()
    replies = {"PASV": where, "ERET": b"550 Permission denied\r\n"}
    async with ftp_server(**replies) as url, opened(GridFTPSource(url, options())) as source:
        with pytest.raises(PermissionRefused, match="550 Permission denied"):
            await source.fetch(Span(0, 10), lambda *_: None)


def _commands_of(source):
    """Return a list that receives the verbs that the source's session sends from now on."""
    control, verbs = source._session.control, []
    send = control.send

    def note(command, *rest, **more):
        verbs.append(command.split()[0])
        send(command, *rest, **more)

    control.send = note
    return verbs

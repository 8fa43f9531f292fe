"""One suite that every engine passes, on real servers: the promises of `coalloc/engine/base.py`."""

import asyncio
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import ANY
from urllib.parse import quote, urlsplit

import fsspec
import pytest

from coalloc.engine import open_source
from coalloc.engine.base import Source
from coalloc.engine.limits.server_slots import Slots
from coalloc.engine.span import Span
from coalloc.errors import (
    ConnectionLost,
    NoSuchFile,
    SourceError,
    UnknownHost,
    Unreachable,
    Unsupported,
    UsageError,
)
from tests.support.apache import Apache
from tests.support.fetching import Collected, collect, opened, options
from tests.support.gridftp import GridFTPServer
from tests.support.gsi import Authority
from tests.support.listening import connections
from tests.support.nginx import Nginx
from tests.support.s3 import use_s3
from tests.support.vsftpd import Vsftpd
from tests.support.waiting import until

SIZE = 5_000_011
BIG = 200_000_000  # more than sockets and pipes hold, also those of four streams
WITH_SERVER = (
    "gridftp",
    "gridftp-streams",
    "gridftp-far",
    "gridftp-capped",
    "gsiftp",
    "gsiftp-far",
    "globus-url-copy",
    "globus-url-copy-gsiftp",
    "http",
    "http-streams",
    "http-far",
    "https",
    "https-far",
    "dav",
    "s3",
    "s3-far",
    "ftps",
    "ftpes-streams",
)
WITHOUT = ("file", "memory")
NAMED = pytest.mark.parametrize("setup", [each for each in WITH_SERVER if not each.startswith("s3")], indirect=True)
"""The engines whose URLs name the server."""


@cache
def unique(name: str, size: int) -> bytes:
    """Return content that belongs to a name; most tests use the same."""
    return Random(name).randbytes(size)


@dataclass
class Setup:
    """An engine, and a directory of its server.

    :param url: a function that returns the URL of a file in the directory
    """

    url: Callable[[str], str]
    folder: Path
    engine: str = "auto"
    streams: int = 1

    def source(self, name: str) -> Source:
        return self.at(self.url(name))

    def at(self, url: str) -> Source:
        return open_source(url, self.engine, options(streams=self.streams))

    def put(self, name: str, content: bytes) -> None:
        """Make a file in the directory."""
        (self.folder / name).write_bytes(content)

    def random(self, name: str, size: int) -> bytes:
        """Make a file with unique content; return it."""
        content = unique(name, size)
        self.put(name, content)
        return content

    def big(self) -> None:
        """Make a file of zeros, called "big", that does not fit into a socket or pipe."""
        with (self.folder / "big").open("wb") as file:
            file.truncate(BIG)


@dataclass
class Capped(Setup):
    """The native engine where each connection needs one of two slots."""

    slots: Path = Path()

    def at(self, url: str) -> Source:
        return open_source(url, "gridftp", options(slots=Slots(self.slots, 2)))


class Memory(Setup):
    """Files in the memory of this process."""

    def put(self, name: str, content: bytes) -> None:
        fsspec.filesystem("memory").pipe_file(f"{self.folder}/{name}", content)

    def big(self) -> None:
        self.put("big", bytes(BIG))


class Mortal(NamedTuple):
    """An engine with a server that no other test uses; `start` starts a killed one again at the same port."""

    setup: Setup
    kill: Callable[[], None]
    start: Callable[[], None]


Server = GridFTPServer | Nginx | Apache | Vsftpd


def serve(kind: str, folder: Path, grid: Authority, port: int = 0) -> Server:
    """Start a server of a kind, at a free port unless one is given."""
    root, run = folder / "export", folder / f"run-{port}"
    if kind == "gridftp":
        return GridFTPServer(root, port=port)
    if kind == "gsiftp":
        return GridFTPServer(root, port=port, env=grid.server_env(grid.localhost), anonymous=False)
    if kind == "dav":
        return Apache(root, run, port=port)
    certificate = (grid.localhost.certificate, grid.localhost.key)
    if kind in ("ftps", "ftpes"):
        return Vsftpd(root, run, certificate, implicit=kind == "ftps", port=port)
    return Nginx(root, run, port=port, certificate=certificate if kind == "https" else ())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, grid: Authority) -> Iterator[Callable[[str], Server]]:
    """A function that starts a server of a kind, one for all tests."""
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(serve(kind, tmp_path_factory.mktemp(kind), grid)))


@pytest.fixture(params=WITH_SERVER + WITHOUT)
def setup(request: pytest.FixtureRequest, running: Callable[[str], Server], tmp_path: Path) -> Iterator[Setup]:
    """Return every engine. One that cannot run fails in CI, and is never skipped silently."""
    if request.param == "file":
        yield Setup(lambda name: f"file://{tmp_path}/{quote(name)}", tmp_path)
    elif request.param == "memory":
        yield Memory(lambda name: f"memory:/{tmp_path}/{name}", tmp_path)
        fsspec.filesystem("memory").rm(str(tmp_path), recursive=True)
    else:
        yield served(request, running(kind_of(request.param)))


@pytest.fixture(params=WITH_SERVER)
def mortal(request: pytest.FixtureRequest, grid: Authority, tmp_path: Path) -> Iterator[Mortal]:
    """Return every engine that needs a server, with a server that may die."""
    kind = kind_of(request.param)
    with ExitStack() as stack:
        server = serve(kind, tmp_path, grid)
        stack.enter_context(server)

        def start() -> None:
            stack.enter_context(serve(kind, tmp_path, grid, server.port))

        yield Mortal(served(request, server), server.kill, start)


def kind_of(name: str) -> str:
    """Return the kind of server that a form of an engine needs."""
    if name.startswith("globus"):
        return "gsiftp" if name.endswith("gsiftp") else "gridftp"
    return name.partition("-")[0]


def served(request: pytest.FixtureRequest, server: Server) -> Setup:
    """Return a form of an engine, with a directory of this server that no other test uses."""
    form, kind, tmp_path = request.param, kind_of(request.param), request.getfixturevalue("tmp_path")
    if kind == "gsiftp":
        request.getfixturevalue("as_alice")
    if kind in ("https", "ftps", "ftpes"):
        grid = request.getfixturevalue("grid")
        request.getfixturevalue("monkeypatch").setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    if form.startswith("globus") and not shutil.which("globus-url-copy"):
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("globus-url-copy is not installed: apt-get install globus-gass-copy-progs")
    folder = server.root / tmp_path.name
    folder.mkdir()
    if kind == "s3":
        use_s3(request.getfixturevalue("monkeypatch"), server.url(""))

    def url(name: str) -> str:
        path = f"{folder.name}/{name}"
        if kind == "s3":
            return f"s3://{path}"
        return server.url(path, "gsiftp") if kind == "gsiftp" else server.url(path)

    if form.endswith("capped"):
        return Capped(url, folder, slots=tmp_path / "slots")
    engine = "globus-url-copy" if form.startswith("globus") else "auto"
    return Setup(url, folder, engine, several_far(request))


def several_far(request: pytest.FixtureRequest) -> int:
    """Return how many streams to use; with a far server, requests are pipelined on kept connections."""
    if request.param.endswith("far"):
        for engine in ("gridftp", "http"):
            request.getfixturevalue("monkeypatch").setattr(f"coalloc.engine.{engine}.source.FAR", 0.0)
    return 4 if request.param.endswith(("far", "streams")) else 1


@pytest.fixture
def content(setup: Setup) -> bytes:
    return setup.random("data.bin", SIZE)


async def test_the_size_and_the_whole_file(setup, content):
    async with opened(setup.source("data.bin")) as source:
        assert (await source.open()).size == SIZE
        assert await collect(source, 0, SIZE) == content


@pytest.mark.parametrize("size", [0, 1])
async def test_files_of_next_to_nothing(setup, size):
    expected = setup.random("tiny", size)
    async with opened(setup.source("tiny")) as source:
        assert (await source.open()).size == size
        assert await collect(source, 0, size) == expected


async def test_many_ranges_on_one_source(setup, content):
    ranges = [(0, 1), (1, 2), (4095, 8193), (SIZE - 1, SIZE), (1_000_003, 3_000_001), (17, 17), (0, 100_000)]
    async with opened(setup.source("data.bin")) as source:
        for start, end in ranges:
            assert await collect(source, start, end) == content[start:end]


async def test_the_validator_stays_while_the_file_does(setup, content):
    async with opened(setup.source("data.bin")) as source:
        before = await source.open()
        assert before.validator
        assert await source.open() == before._replace(rtt=ANY)


@pytest.mark.parametrize("setup", ["gridftp", "gsiftp", "http", "https"], indirect=True)
async def test_open_measures_the_round_trip_time(setup, content):
    async with opened(setup.source("data.bin")) as source:
        assert (await source.open()).rtt > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lowered_to", [1000, 20_000_000])
async def test_a_range_is_shortened_while_it_runs(setup, lowered_to):
    """The end is lowered to the start, which is below the arrived bytes, and to a later place."""
    setup.big()
    span = Span(1000, BIG)
    collected = Collected(span)

    def deliver(start: int, end: int, data: memoryview | None) -> None:
        collected(start, end, data)
        span.end = min(span.end, lowered_to)

    async with opened(setup.source("big")) as source:
        await source.fetch(span, deliver)
        assert collected.count >= lowered_to - 1000
        assert collected.deliveries == 1 or lowered_to > 1000
        assert await collect(source, 5, 1005) == bytes(1000)


@pytest.mark.sampled(2)
async def test_a_range_is_widened_while_it_runs(setup):
    """Engines that cannot shorten a range continue, and nothing is lost."""
    expected = setup.random("wide", 20_000_000)
    span = Span(3, len(expected))
    collected = Collected(span)

    def deliver(start: int, end: int, data: memoryview | None) -> None:
        collected(start, end, data)
        source.widen(3)

    async with opened(setup.source("wide")) as source:
        source.widen(2)
        await source.fetch(span, deliver)
        assert collected.bytes == expected[3:]
        assert len(await cancelled_at_once(source, len(expected))) == 1
        assert await collect(source, 5, 4_000_005) == expected[5:4_000_005]


async def cancelled_at_once(source: Source, size: int = BIG) -> list[int]:
    """Return the offsets that are delivered although the first delivery cancels the fetch."""
    offsets = []

    def deliver(start: int, end: int, data: memoryview | None) -> None:
        offsets.append(start)
        task.cancel()

    task = asyncio.create_task(source.fetch(Span(0, size), deliver))
    with pytest.raises(asyncio.CancelledError):
        await task
    return offsets


@pytest.mark.sampled(2)
async def test_a_cancelled_range_delivers_nothing_more(setup):
    setup.big()
    async with opened(setup.source("big")) as source:
        for _ in range(3):
            assert len(await cancelled_at_once(source)) == 1
            assert await collect(source, 7, 1007) == bytes(1000)


async def test_cancelled_at_any_moment_it_stays_usable(setup, content):
    async with opened(setup.source("data.bin")) as source:
        for rounds in range(8):
            task = asyncio.create_task(source.fetch(Span(0, SIZE), lambda start, end, data: None))
            for _ in range(rounds):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await collect(source, rounds, rounds + 500) == content[rounds : rounds + 500]


async def test_an_error_of_deliver_comes_out(setup, content):
    error = OSError("disk full")

    def deliver(start: int, end: int, data: memoryview | None) -> None:
        raise error

    async with opened(setup.source("data.bin")) as source:
        with pytest.raises(OSError, match="disk full") as caught:
            await source.fetch(Span(0, SIZE), deliver)
        assert caught.value is error
        assert await collect(source, 0, 10) == content[:10]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["with spaces and #1 100%.bin", "plus+and&.bin", "%41?[x]*'\"(;)"])
async def test_names(setup, name):
    expected = setup.random(name, 1000)
    setup.put("A", b"not this one")
    async with opened(setup.source(name)) as source:
        assert await collect(source, 0, 1000) == expected


async def test_names_beyond_ascii(setup):
    """Globus servers drop non-ASCII characters from names over ftp://, so the engine refuses."""
    expected = setup.random("data-ä-文", 1000)
    setup.put("data--", b"not this one")
    if setup.url("x").startswith("ftp:"):
        with pytest.raises((Unsupported, UsageError)) as caught:
            await setup.source("data-ä-文").open()
        assert "gsiftp://" in caught.value.remedy
    else:
        async with opened(setup.source("data-ä-文")) as source:
            assert await collect(source, 0, 1000) == expected


async def failure(source: Source) -> SourceError:
    """Return the error of `open`, which must name its subject and a remedy."""
    with pytest.raises(SourceError) as caught:
        await source.open()
    await source.close()
    assert caught.value.remedy
    return caught.value


async def test_a_file_that_is_not_there(setup, content):
    error = await failure(setup.source("nowhere"))
    assert type(error) is NoSuchFile
    assert "nowhere" in error.message


async def test_checksums_are_right_or_none(setup, content):
    async with opened(setup.source("data.bin")) as source:
        whole = await source.checksum("md5", 0, SIZE)
        part = await source.checksum("adler32", 1000, 2000)
    assert whole in (None, hashlib.md5(content).hexdigest())
    assert part in (None, f"{zlib.adler32(content[1000:2000]):08x}")


async def test_closing_twice(setup, content):
    source = setup.source("data.bin")
    await source.close()
    await source.open()
    await source.close()
    await source.close()


async def test_at_rest_it_has_no_connection_and_is_used_again(setup, content):
    source, port = setup.source("data.bin"), urlsplit(setup.url("data.bin")).port
    async with opened(source):
        for start in (0, 1000):
            assert await collect(source, start, SIZE) == content[start:]
            await source.rest()
            await source.rest()
            assert port is None or await until(lambda: not connections(port))
        assert (await source.open()).size == SIZE
        assert await collect(source, 0, SIZE) == content


@pytest.mark.parametrize("large", [True, False])
async def test_question_asked_before_a_rest_is_answered(setup, content, large):
    start = 0 if large else SIZE - 1000
    async with opened(setup.source("data.bin")) as source:
        wanted = await source.checksum("adler32", start, SIZE)
        asking = asyncio.create_task(source.checksum("adler32", start, SIZE))
        await asyncio.sleep(0)
        await source.rest()
        assert await asking == wanted
        assert await source.checksum("adler32", start, SIZE) == wanted


@pytest.mark.sampled(2)
async def test_a_server_that_dies_and_comes_back(mortal):
    setup = mortal.setup
    setup.big()

    def deliver(start: int, end: int, data: memoryview | None) -> None:
        mortal.kill()

    source = setup.source("big")
    await source.open()
    with pytest.raises(SourceError) as caught:
        await source.fetch(Span(0, BIG), deliver)
    assert type(caught.value) in (ConnectionLost, Unreachable)
    assert not caught.value.permanent
    error = await failure(source)
    assert type(error) is Unreachable
    mortal.start()
    await source.open()
    assert await collect(source, 5, 1005) == bytes(1000)
    await source.close()


@NAMED
async def test_hosts_that_cannot_be_had(setup):
    scheme = setup.url("x").partition(":")[0]
    error = await failure(setup.at(f"{scheme}://no-such-host.invalid/x"))
    assert type(error) is UnknownHost
    assert "no-such-host.invalid" in error.message
    error = await failure(setup.at(f"{scheme}://127.0.0.1:1/x"))
    assert type(error) is Unreachable
    assert "127.0.0.1:1" in error.message

"""One suite that every engine passes, on real servers: what `coalloc/engine/base.py` promises."""

import asyncio
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from coalloc.engine import open_source
from coalloc.engine.base import Source, Span
from coalloc.errors import ConnectionLost, NoSuchFile, SourceError, UnknownHost, Unreachable
from tests.support.fetching import Collected, collect, opened, options, random_file
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx

SIZE = 5_000_011
BIG = 300_000_000
ENGINES = (
    "gridftp",
    "gridftp-modee",
    "gridftp-ipv6",
    "gsiftp",
    "globus-url-copy",
    "globus-url-copy-sessions",
    "http",
    "https",
    "http-sessions",
    "bridge",
)


@dataclass
class Setup:
    """An engine with a server of its own: `root` is what it serves."""

    root: Path
    url: Callable[[str], str]
    engine: str = "auto"
    streams: int = 1
    kill: Callable[[], None] | None = None

    def source(self, name: str) -> Source:
        return self.at(self.url(name))

    def at(self, url: str) -> Source:
        return open_source(url, self.engine, options(streams=self.streams))


@pytest.fixture(params=ENGINES)
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setup]:
    with ExitStack() as stack:
        yield BUILDERS[request.param.partition("-")[0]](request, tmp_path / "export", stack)


def gridftp(request: pytest.FixtureRequest, root: Path, stack: ExitStack) -> Setup:
    server = stack.enter_context(GridFTPServer(root, "::1" if request.param.endswith("ipv6") else "127.0.0.1"))
    return Setup(root, server.url, streams=4 if request.param.endswith("modee") else 1, kill=server.kill)


def gsiftp(request: pytest.FixtureRequest, root: Path, stack: ExitStack) -> Setup:
    request.getfixturevalue("as_alice")
    server = request.getfixturevalue("gsi_server")
    return Setup(root, lambda name: server.url(name, "gsiftp").replace("127.0.0.1", "localhost"), kill=server.kill)


def globus(request: pytest.FixtureRequest, root: Path, stack: ExitStack) -> Setup:
    if not shutil.which("globus-url-copy"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("apt-get install globus-gass-copy-progs")
    server = stack.enter_context(GridFTPServer(root))
    streams = 3 if request.param.endswith("sessions") else 1
    return Setup(root, server.url, "globus-url-copy", streams, server.kill)


def http(request: pytest.FixtureRequest, root: Path, stack: ExitStack) -> Setup:
    server = stack.enter_context(Nginx(root, root.parent / "nginx"))
    return Setup(root, server.url, streams=3 if request.param.endswith("sessions") else 1, kill=server.kill)


def https(request: pytest.FixtureRequest, root: Path, stack: ExitStack) -> Setup:
    grid = request.getfixturevalue("grid")
    host = grid.localhost
    authority = next(Path(grid.client_env(request.getfixturevalue("alice_proxy"))["X509_CERT_DIR"]).glob("*.0"))
    request.getfixturevalue("monkeypatch").setenv("SSL_CERT_FILE", str(authority))
    server = stack.enter_context(Nginx(root, root.parent / "nginx", certificate=(host.certificate, host.key)))
    return Setup(root, server.url, kill=server.kill)


def bridge(request: pytest.FixtureRequest, root: Path, stack: ExitStack) -> Setup:
    root.mkdir()
    return Setup(root, lambda name: f"file://{root}/{name}")


BUILDERS = {
    "gridftp": gridftp,
    "gsiftp": gsiftp,
    "globus": globus,
    "http": http,
    "https": https,
    "bridge": bridge,
}


@pytest.fixture
def content(setup: Setup) -> bytes:
    return random_file(setup.root / "data.bin", SIZE)


async def test_the_size_and_the_whole_file(setup, content):
    async with opened(setup.source("data.bin")) as source:
        assert (await source.open()).size == SIZE
        assert await collect(source, 0, SIZE) == content


@pytest.mark.parametrize("size", [0, 1])
async def test_files_of_next_to_nothing(setup, size):
    expected = random_file(setup.root / "tiny", size)
    source = setup.source("tiny")
    try:
        assert (await source.open()).size == size
        assert await collect(source, 0, size) == expected
    finally:
        await source.close()


async def test_many_ranges_on_one_source(setup, content):
    ranges = [(0, 1), (1, 2), (4095, 8193), (SIZE - 1, SIZE), (1_000_003, 3_000_001), (17, 17), (0, 100_000)]
    async with opened(setup.source("data.bin")) as source:
        for start, end in ranges:
            assert await collect(source, start, end) == content[start:end]


async def test_a_range_is_shortened_while_it_runs(setup):
    sparse(setup.root / "big", BIG)
    span = Span(1000, BIG)
    reached = []

    def deliver(offset: int, view: memoryview) -> None:
        assert offset + len(view) <= span.end
        reached.append(offset + len(view))
        if span.end == BIG:
            span.end = 50_000_000 if reached[-1] < 50_000_000 else span.start

    async with opened(setup.source("big")) as source:
        await source.fetch(span, deliver)
        assert span.end < BIG
        assert len(await collect(source, 5, 1005)) == 1000


async def test_a_range_is_given_up_below_what_has_arrived(setup):
    sparse(setup.root / "big", BIG)
    span = Span(0, BIG)

    def deliver(offset: int, view: memoryview) -> None:
        assert span.end == BIG, "nothing is delivered after the end was lowered"
        span.end = 0

    async with opened(setup.source("big")) as source:
        await source.fetch(span, deliver)
        assert len(await collect(source, 5, 1005)) == 1000


async def test_cancelling_leaves_it_usable(setup, content):
    sparse(setup.root / "big", BIG)
    async with opened(setup.source("big")) as source:
        for _ in range(3):
            began = asyncio.Event()
            span, later = Span(0, BIG), []

            def deliver(offset: int, view: memoryview, began=began, later=later) -> None:
                later.append(offset)
                began.set()

            task = asyncio.create_task(source.fetch(span, deliver))
            await began.wait()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            count = len(later)
            assert len(await collect(source, 7, 1007)) == 1000
            assert len(later) == count, "nothing is delivered after cancelling"


async def test_an_error_of_deliver_comes_out(setup, content):
    class FullError(Exception):
        pass

    def deliver(offset: int, view: memoryview) -> None:
        raise FullError

    async with opened(setup.source("data.bin")) as source:
        with pytest.raises(FullError):
            await source.fetch(Span(0, SIZE), deliver)
        assert await collect(source, 0, 10) == content[:10]


@pytest.mark.parametrize("name", ["with spaces and #1 100%.bin", "plus+and&.bin"])
async def test_names(setup, name):
    expected = random_file(setup.root / name, 1000)
    async with opened(setup.source(name)) as source:
        assert await collect(source, 0, 1000) == expected


async def test_a_file_that_is_not_there(setup, content):
    with pytest.raises(NoSuchFile) as caught:
        await setup.source("nowhere").open()
    assert caught.value.permanent
    assert "nowhere" in caught.value.message
    assert caught.value.remedy


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


async def test_a_server_that_dies(setup):
    if setup.kill is None:
        assert setup.url("x").startswith("file:")  # a local file has no server
        return
    sparse(setup.root / "big", BIG)
    killed = False

    def deliver(offset: int, view: memoryview) -> None:
        nonlocal killed
        if not killed:
            killed = True
            setup.kill()

    source = setup.source("big")
    await source.open()
    with pytest.raises(SourceError) as caught:
        await source.fetch(Span(0, BIG), deliver)
    assert isinstance(caught.value, ConnectionLost | Unreachable)
    assert not caught.value.permanent
    with pytest.raises(SourceError):
        await source.open()
    await source.close()


async def test_hosts_that_cannot_be_had(setup):
    scheme = setup.url("x").partition(":")[0]
    if scheme == "file":
        return
    with pytest.raises(UnknownHost) as caught:
        await setup.at(f"{scheme}://no-such-host.invalid/x").open()
    assert "no-such-host.invalid" in caught.value.message
    with pytest.raises(Unreachable):
        await setup.at(f"{scheme}://127.0.0.1:9/x").open()


async def test_nothing_outside_of_the_range(setup, content):
    collected = Collected(Span(100, 200))
    async with opened(setup.source("data.bin")) as source:
        await source.fetch(collected.span, collected)
    assert bytes(collected.bytes) == content[100:200]


def sparse(path: Path, size: int) -> None:
    """A large file that costs nothing."""
    with path.open("wb") as file:
        file.truncate(size)

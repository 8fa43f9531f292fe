"""Spare sources: real servers that are not needed any more lose their clients while the fetch continues elsewhere."""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from zlib import adler32

import pytest

from coalloc.download.to_disk import Download, DownloadSettings
from coalloc.engine import open_source
from coalloc.engine.base import Admission
from coalloc.engine.limits.server_slots import Slots
from coalloc.model.checksums import Checksum
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.schedule.policies import make
from tests.support.fetching import options, random_file
from tests.support.gridftp import GridFTPServer
from tests.support.listening import connections
from tests.support.nginx import Nginx
from tests.support.plain_ftp import PlainFTP, serve
from tests.support.waiting import PATIENCE, until

SIZE = 6_000_001
KINDS = ["gridftp", "http", "ftp"]


class Gate:
    """A gate for the bytes of one server, closed at first; other servers may send as soon as one waits at it."""

    def __init__(self) -> None:
        self._open, self._reached = asyncio.Event(), asyncio.Event()
        self.open = self._open.set
        self.admission = Admission(1 << 30, self._wait)
        self.others = Admission(1 << 30, lambda _: self._reached.wait())

    async def _wait(self, _: int) -> None:
        self._reached.set()
        await self._open.wait()


class Case:
    """A file at servers of one kind, of which the one called `gated` delivers nothing before its gate is open.

    :param held: the others deliver nothing before it was asked for something, or they might have all of it by then
    """

    def __init__(self, root: Path, strategy: str, gated: int = 0, held: bool = False) -> None:
        self.content = random_file(root / "file", SIZE)
        self.slots = Slots(root.parent / "slots", 1)
        self.servers: list = []
        self.gate = Gate()
        self.target = root.parent / "here"
        self._gated, self._held = gated, held
        self._wishes = DownloadSettings(make(strategy))

    def fetch(self, *urls: str, checksum: Checksum | None = None) -> "asyncio.Task":
        self.ports = [urlsplit(url).port for url in urls]
        self.places = [f"{urlsplit(url).hostname}:{urlsplit(url).port}" for url in urls]
        each = options(slots=self.slots)
        gated = replace(each, admission=self.gate.admission)
        other = replace(each, admission=self.gate.others) if self._held else each
        sources = [open_source(url, "auto", gated if i == self._gated else other) for i, url in enumerate(urls)]
        checksums = (checksum,) if checksum else ()
        file = ReplicaSet("file", tuple(map(Replica, urls)), checksums=checksums)
        estimates = [Estimate(rate=1e6)] * len(urls)
        return asyncio.create_task(Download(file, sources, estimates, self.target, self._wishes).run())

    def standing(self) -> list[int]:
        return [connections(port) for port in self.ports]

    def began(self) -> bool:
        """Return whether some bytes are on disk."""
        data = self.target.with_name("here.coget") / "data"
        return data.exists() and data.stat().st_blocks > 0

    async def free(self, source: int) -> bool:
        """Return whether another transfer gets a slot of its server."""
        lease = self.slots.take(self.places[source])
        if lease:
            lease.release()
        return lease is not None


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


async def started(kind: str, case: Case, root: Path, stack: AsyncExitStack) -> list[str]:
    """Three servers of one kind, and the URLs of the file there."""
    if kind == "ftp":
        case.servers = [await stack.enter_async_context(serve(PlainFTP(case.content))) for _ in range(3)]
        return [server.url for server in case.servers]
    sync = stack.enter_context(ExitStack())
    for i in (2, 3, 4):
        made = GridFTPServer(root, f"127.0.0.{i}") if kind == "gridftp" else Nginx(root, root.parent / f"nginx{i}")
        case.servers.append(sync.enter_context(made))
    return [server.url("file") for server in case.servers]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["brute", "conservative", "single"])
async def test_connections_and_slots_are_free_before_the_transfer_is_over(stack, tmp_path, kind, strategy):
    root = tmp_path / "export"
    root.mkdir()
    case = Case(root, strategy, held=True)
    async with asyncio.timeout(PATIENCE):
        fetching = case.fetch(*await started(kind, case, root, stack))
        left = [2] if strategy == "single" else [1, 2]  # one is in reserve
        await until(lambda: case.standing()[0] > 0)
        for source in left:
            await until(lambda source=source: case.free(source))
            await until(lambda source=source: case.standing()[source] == 0)
        assert not fetching.done()
        assert case.standing()[0] > 0
        assert not await case.free(0)
        assert strategy != "single" or not await case.free(1)
        if kind == "ftp":
            await until(lambda: all("QUIT" in case.servers[source].commands for source in left))
        case.gate.open()
        report = await fetching
    assert case.target.read_bytes() == case.content
    assert {source.outcome for source in report.sources} <= {"ok", "slow", "unused"}
    assert [await case.free(source) for source in range(3)] == [True] * 3
    if kind == "gridftp":
        assert report.basis == "agree"  # a closed source still confirms the bytes of others


@pytest.mark.parametrize("kind", ["gridftp", "http"])
async def test_a_spare_source_comes_back_when_another_one_fails(stack, tmp_path, kind):
    root = tmp_path / "export"
    root.mkdir()
    case = Case(root, "brute")
    async with asyncio.timeout(PATIENCE):
        fetching = case.fetch(*await started(kind, case, root, stack))
        for source in (1, 2):
            await until(lambda source=source: case.began() and case.standing()[source] == 0)
            await until(lambda source=source: case.free(source))
        case.servers[0].kill()
        case.gate.open()
        report = await fetching
    assert case.target.read_bytes() == case.content
    assert report.sources[0].bytes == 0
    assert report.sources[1].bytes + report.sources[2].bytes == SIZE


async def test_a_source_in_reserve_makes_room_for_others(stack, tmp_path):
    """Another transfer waits for its server; a third source replaces it when needed."""
    root = tmp_path / "export"
    root.mkdir()
    case = Case(root, "single")
    async with asyncio.timeout(PATIENCE):
        fetching = case.fetch(*await started("gridftp", case, root, stack))
        await until(lambda: case.standing()[0] and case.standing()[1] and not case.standing()[2])
        other = await case.slots.wait(case.places[1])
        await until(lambda: not case.standing()[1])
        case.servers[0].kill()
        case.gate.open()
        report = await fetching
    other.release()
    assert case.target.read_bytes() == case.content
    assert [source.bytes for source in report.sources] == [0, 0, SIZE]


async def test_a_source_that_is_found_wrong_is_left_while_others_deliver_again(stack, tmp_path):
    root, wrong = tmp_path / "export", tmp_path / "wrong"
    for folder in (root, wrong):
        folder.mkdir()
    case = Case(root, "single", gated=1)
    (wrong / "file").write_bytes(b"\1" * SIZE)
    servers = [stack.enter_context(GridFTPServer(at, f"127.0.0.{i}")) for i, at in ((2, wrong), (3, root))]
    async with asyncio.timeout(PATIENCE):
        known = Checksum("adler32", f"{adler32(case.content):08x}")
        fetching = case.fetch(*[server.url("file") for server in servers], checksum=known)
        await until(lambda: not servers[0].sessions and case.began())
        assert await case.free(0)
        assert not fetching.done()
        case.gate.open()
        report = await fetching
    assert case.target.read_bytes() == case.content
    assert [source.outcome for source in report.sources] == ["corrupt", "ok"]

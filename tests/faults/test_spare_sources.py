"""Real servers that are not needed any more see their clients leave while the file is still fetched from others."""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from coalloc.download import Download, Wishes
from coalloc.engine import open_source
from coalloc.engine.base import Admission
from coalloc.engine.slots import Slots
from coalloc.model import Checksum, Estimate, Replica, ReplicaSet
from coalloc.schedule.policies import make
from tests.support.connections import connections
from tests.support.fetching import options, random_file
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.plain_ftp import PlainFTP, serve
from tests.support.waiting import PATIENCE, until

SIZE = 6_000_001
KINDS = ["gridftp", "http", "ftp"]


class Gate:
    """Leave to move bytes, for nobody until it is open."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self.open = self._open.set
        self.admission = Admission(1 << 30, lambda _: self._open.wait())


class Case:
    """A file at three servers of one kind; the first of them delivers nothing before its gate is open."""

    def __init__(self, root: Path, strategy: str, most: int | None = None) -> None:
        self.content = random_file(root / "file", SIZE)
        self.slots = Slots(root.parent / "slots", 1)
        self.servers: list = []
        self.gate = Gate()
        self.target = root.parent / "here"
        self._wishes = Wishes(make(strategy), most=most)

    def fetch(self, *urls: str, checksum: Checksum | None = None) -> "asyncio.Task":
        self.ports = [urlsplit(url).port for url in urls]
        self.places = [f"{urlsplit(url).hostname}:{urlsplit(url).port}" for url in urls]
        each = options(slots=self.slots)
        limited = [replace(each, admission=self.gate.admission), *[each] * (len(urls) - 1)]
        sources = [open_source(url, "auto", one) for url, one in zip(urls, limited, strict=True)]
        checksums = (checksum,) if checksum else ()
        file = ReplicaSet("file", tuple(map(Replica, urls)), checksums=checksums)
        estimates = [Estimate(rate=1e6)] * len(urls)
        return asyncio.create_task(Download(file, sources, estimates, self.target, self._wishes).run())

    def standing(self) -> list[int]:
        return [connections(port) for port in self.ports]

    async def free(self, source: int) -> bool:
        """Whether others get a slot of its server."""
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["brute", "conservative", "single"])
async def test_connections_and_slots_are_free_before_the_transfer_is_over(stack, tmp_path, kind, strategy):
    root = tmp_path / "export"
    root.mkdir()
    case = Case(root, strategy)
    async with asyncio.timeout(PATIENCE):
        fetching = case.fetch(*await started(kind, case, root, stack))
        left = [2] if strategy == "single" else [1, 2]  # one stands by
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
        assert report.basis == "agree"  # who has left still confirms what others delivered


@pytest.mark.parametrize("kind", ["gridftp", "http"])
async def test_a_spare_source_comes_back_when_another_one_fails(stack, tmp_path, kind):
    root = tmp_path / "export"
    root.mkdir()
    case = Case(root, "brute")
    async with asyncio.timeout(PATIENCE):
        fetching = case.fetch(*await started(kind, case, root, stack))
        for source in (1, 2):
            await until(lambda source=source: case.standing()[source] == 0 and case.target.with_name("here.coget").exists())
            await until(lambda source=source: case.free(source))
        case.servers[0].kill()
        case.gate.open()
        report = await fetching
    assert case.target.read_bytes() == case.content
    assert report.sources[0].bytes == 0
    assert report.sources[1].bytes + report.sources[2].bytes == SIZE


async def test_a_source_that_is_found_wrong_is_left_alone(stack, tmp_path):
    """Not only at the end: what it delivered is fetched from others first."""
    good, bad = tmp_path / "export", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    case = Case(good, "adaptive")
    wrong = bytearray(case.content)
    wrong[:: 50_000] = bytes(len(wrong[:: 50_000]))
    (bad / "file").write_bytes(wrong)
    servers = [stack.enter_context(GridFTPServer(root, f"127.0.0.{i}")) for i, root in ((2, good), (3, bad), (4, good))]
    async with asyncio.timeout(PATIENCE):
        known = Checksum("adler32", __import__("zlib").adler32(case.content).to_bytes(4).hex())
        case.gate.open()
        report = await case.fetch(*[server.url("file") for server in servers], checksum=known)
    assert case.target.read_bytes() == case.content
    assert report.verified

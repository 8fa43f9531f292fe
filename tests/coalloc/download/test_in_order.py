"""A file read in order while it arrives, from real servers: every byte once, none unnoticed that is wrong."""

import asyncio
import hashlib
import os
import zlib
from contextlib import ExitStack, aclosing, suppress

import pytest

from coalloc import api
from coalloc.download import in_order
from coalloc.download.in_order import InOrderDownload, InOrderSettings
from coalloc.errors import TransferFailed, UsageError, VerificationError
from coalloc.model.checksums import SUSPECTED, PieceHashes
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

SIZE = 24 << 20
SILENT = ("-disable-command-list", "CKSM")
"""A server without checksums."""


@pytest.fixture
def servers(start_gridftp, tmp_path):
    return [start_gridftp(tmp_path / f"server{number}", f"127.0.0.{2 + number}") for number in range(3)]


@pytest.fixture
def web(tmp_path):
    with ExitStack() as stack:
        yield [stack.enter_context(Nginx(tmp_path / f"web{i}", tmp_path / f"run{i}")) for i in range(2)]


def put(servers, size=SIZE):
    content = random_file(servers[0].root / "file", size)
    for server in servers[1:]:
        (server.root / "file").write_bytes(content)
    return content


def request(servers, **options):
    return api.Request(tuple(server.url("file") for server in servers), **options)


async def read(wanted, taken=None, meanwhile=lambda: None, **options) -> bytes:
    """Read a file; keep in `taken` what is read, and call `meanwhile` when a third is there."""
    taken, called = bytearray() if taken is None else taken, False
    async with asyncio.timeout(PATIENCE), aclosing(api.stream(wanted, **options)) as chunks:
        async for chunk in chunks:
            taken += chunk
            if not called and len(taken) > SIZE // 3:
                meanwhile()
                called = True
    return bytes(taken)


@pytest.mark.parametrize("size", [0, 1, 300_000, SIZE])
async def test_all_bytes_come_in_order_from_all_servers(servers, web, size, monkeypatch):
    monkeypatch.setattr(in_order, "ROOM", 4 << 20)
    content = put([*servers, *web], size)
    results = api.Results()
    assert await read(request([*servers, *web]), results=results) == content
    (report,) = results.done
    assert report.size == sum(source.bytes for source in report.sources) == size
    assert report.checksum.value == f"{zlib.adler32(content):08x}"


async def test_a_slow_reader_is_not_overrun(web, monkeypatch):
    monkeypatch.setattr(in_order, "ROOM", 1 << 20)
    content, ahead = put(web), []
    taken = 0

    def watch(snapshot):
        ahead.append(snapshot.done_bytes - taken)

    async with aclosing(api.stream(request(web), watch)) as chunks:
        async for chunk in chunks:
            assert chunk == content[taken : taken + len(chunk)]
            taken += len(chunk)
            await asyncio.sleep(0.02)
    assert taken == SIZE
    assert 0 < max(ahead) <= 1 << 20


async def test_a_reader_that_stops_ends_the_transfer(web, monkeypatch):
    monkeypatch.setattr(in_order, "ROOM", 1 << 20)
    put(web)
    results = api.Results()
    async with aclosing(api.stream(request(web), results=results)) as chunks:
        async for _ in chunks:
            break
    assert results.unfinished
    assert len(asyncio.all_tasks()) == 1


async def taken(data: memoryview) -> None:
    """Take bytes, and forget them."""


def known(servers, content, **more) -> ReplicaSet:
    return ReplicaSet("file", tuple(Replica(server.url("file")) for server in servers), size=len(content), **more)


def hashes(content: bytes, length: int) -> PieceHashes:
    parts = [content[at : at + length] for at in range(0, len(content), length)]
    return PieceHashes("sha256", length, tuple(hashlib.sha256(part).hexdigest() for part in parts))


async def test_wrong_pieces_never_reach_the_reader(web, servers, monkeypatch):
    monkeypatch.setattr(in_order, "ROOM", 4 << 20)
    everyone = [*web, servers[0]]
    content = put(everyone)
    (web[1].root / "file").write_bytes(os.urandom(SIZE))
    results = api.Results()
    file = known(everyone, content, pieces=hashes(content, 1 << 20))
    assert await read(api.Request((), file=file), results=results) == content
    (report,) = results.done
    assert report.basis == "given"
    certain = [source for source in report.sources if source.outcome == "corrupt" and source.error != SUSPECTED]
    assert {source.url for source in certain} <= {web[1].url("file")}


async def test_if_all_replicas_are_wrong_nothing_wrong_is_read(web):
    content, taken = put(web), bytearray()
    for number, server in enumerate(web):
        changed = bytearray(content)
        changed[SIZE // 2 + number] ^= 1
        (server.root / "file").write_bytes(changed)
    file = known(web, content, pieces=hashes(content, 1 << 20))
    with pytest.raises(VerificationError):
        await read(api.Request((), file=file), taken=taken)
    assert len(taken) <= SIZE // 2
    assert taken == content[: len(taken)]


async def test_pieces_that_need_too_much_memory_are_refused(web):
    content = put(web, 1000)
    pieces = PieceHashes("sha256", 1 << 30, (hashlib.sha256(content).hexdigest(),))
    with pytest.raises(UsageError, match="too much to be held in memory"):
        await read(api.Request((), file=known(web, content, pieces=pieces)))


async def test_a_wrong_checksum_of_the_whole_is_told_at_the_end(web):
    content, taken = put(web), bytearray()
    assert await read(request(web, checksum=f"md5:{hashlib.md5(content).hexdigest()}")) == content
    with pytest.raises(VerificationError, match="was read, but it is wrong"):
        await read(request(web, checksum=f"md5:{'0' * 32}"), taken)
    assert taken == content


@pytest.mark.usefixtures("late_answers")
async def test_two_replicas_that_differ_are_noticed(servers):
    content = put(servers)
    other = bytearray(content)
    other[-1000] ^= 1
    (servers[1].root / "file").write_bytes(other)
    with pytest.raises(VerificationError):
        await read(request(servers[:2]))


def test_a_replica_that_answers_late_and_has_another_size_is_noticed():
    """All bytes are read before it answers. In virtual time."""
    content = bytes(50_000)
    late = Behaviour(((0.0, 1e9),), connect_seconds=0.3, claims_size=50_001)
    sources = [SimulatedSource("a", content, Behaviour(((0.0, 1e9),))), SimulatedSource("b", content, late)]
    file = ReplicaSet("file", tuple(Replica(source.url) for source in sources))

    async def take(data: memoryview) -> None:
        assert data == content[: len(data)]

    async def download() -> None:
        await InOrderDownload(file, sources, [Estimate()] * 2, take, InOrderSettings()).run()

    with pytest.raises(VerificationError):
        run(download())


def test_when_all_servers_die_it_says_to_read_again():
    """Servers are tried for minutes, so this is in virtual time."""
    content = bytes(500_000)
    dying = Behaviour(((0.0, 1e5),), dies_at=1.0)
    sources = [SimulatedSource(name, content, dying) for name in "ab"]
    file = ReplicaSet("file", tuple(Replica(source.url) for source in sources))

    async def download() -> None:
        await InOrderDownload(file, sources, [Estimate()] * 2, taken, InOrderSettings()).run()

    with pytest.raises(TransferFailed) as failed:
        run(download())
    assert failed.value.remedy == "discard what was read, and read it again"


async def test_of_three_replicas_none_that_differs_is_read_unnoticed(servers):
    content = put(servers)
    (servers[1].root / "file").write_bytes(os.urandom(SIZE))
    with suppress(VerificationError):  # if bytes of that replica were read
        assert await read(request(servers)) == content


@pytest.mark.parametrize("which", ["ftp", "http"])
async def test_a_server_that_dies_in_the_middle_costs_time_but_no_bytes(servers, web, which, monkeypatch):
    monkeypatch.setattr(in_order, "ROOM", 1 << 20)
    chosen = servers if which == "ftp" else web
    content = put(chosen)
    assert await read(request(chosen), meanwhile=chosen[0].kill) == content


async def test_the_last_bytes_of_a_dead_server_are_compared_with_another_one(start_gridftp, tmp_path, monkeypatch):
    """The server that is left has other bytes, and there are no checksums. No mixture of both is taken for the file."""
    monkeypatch.setattr(in_order, "ROOM", 1 << 20)
    servers = [start_gridftp(tmp_path / f"s{i}", f"127.0.0.{2 + i}", options=SILENT) for i in range(2)]
    put(servers)
    other = os.urandom(SIZE)
    (servers[1].root / "file").write_bytes(other)
    taken = bytearray()
    with suppress(VerificationError, TransferFailed):
        await read(request(servers), taken, servers[0].kill)
        assert taken == other  # it may have sent everything, if the first one was slow
    assert len(taken) == SIZE


async def test_a_replica_that_is_replaced_meanwhile_is_noticed(web, monkeypatch):
    monkeypatch.setattr(in_order, "ROOM", 1 << 20)
    put(web)
    taken, new = bytearray(), web[0].root / "new"

    def replace():
        new.write_bytes(os.urandom(SIZE))
        os.utime(new, (1e9, 1e9))  # nginx tells versions apart by size and second
        new.replace(web[0].root / "file")

    with pytest.raises((VerificationError, TransferFailed)):
        await read(request(web[:1]), taken, replace)
    assert len(taken) < SIZE


@pytest.mark.parametrize("options", [{"strategy": "brute"}, {"staging": ()}])
async def test_options_that_need_a_file_are_refused(web, options):
    put(web, 1000)
    with pytest.raises(UsageError) as refused:
        await read(request(web, **options))
    assert "-o NAME" in refused.value.remedy


async def test_only_one_file_can_be_read(web, tmp_path):
    put(web, 1000)
    document = tmp_path / "two.meta4"
    url = web[0].url("file")
    files = "".join(f'<file name="{name}"><size>1000</size><url>{url}</url></file>' for name in "ab")
    document.write_text(f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{files}</metalink>')
    with pytest.raises(UsageError, match="only one file"):
        await read(api.Request((str(document),)))

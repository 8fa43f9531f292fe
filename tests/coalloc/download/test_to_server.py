"""One file from several real servers to another one: complete, verified, adaptive; failing ends, wrong replicas."""

import asyncio
import hashlib
import os
import zlib
from contextlib import closing

import pytest

from coalloc import api
from coalloc.errors import CoallocError, NoSpace, NothingToFetchFrom, SourceError, TransferFailed, VerificationError
from tests.support.fetching import random_file
from tests.support.mounts import small_tmpfs
from tests.support.scripted import ftp_server
from tests.support.waiting import PATIENCE

SIZE = 64 << 20


@pytest.fixture
def sources(start_gridftp, tmp_path):
    return [start_gridftp(tmp_path / f"source{number}", f"127.0.0.{2 + number}") for number in range(3)]


@pytest.fixture
def sink(start_gridftp, tmp_path):
    return start_gridftp(tmp_path / "sink", "127.0.0.9")


@pytest.fixture
def content(sources):
    content = random_file(sources[0].root / "file", SIZE)
    for source in sources[1:]:
        (source.root / "file").write_bytes(content)
    return content


async def copy(sources, sink, **options):
    return await api.copy([source.url("file") for source in sources], sink.url("out"), **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("strategy", ["adaptive", "brute", "conservative", "aggressive", "single"])
async def test_one_file_from_three_servers(sources, sink, content, strategy):
    (sink.root / "out").write_bytes(b"before")
    shown = []
    report = await copy(sources, sink, strategy=strategy, watch=shown.append)
    assert (sink.root / "out").read_bytes() == content
    assert names(sink.root) == ["out"]
    assert sum(source.bytes for source in report.sources) == report.size == SIZE
    assert report.checksum.value == f"{zlib.adler32(content):08x}"
    ready = [source.url for source in report.sources if source.ready_seconds is not None]
    assert report.verified or (len(ready) == 1 and strategy != "brute")  # no other source has answered before the end
    assert report.strategy == strategy
    busy = sum(source.bytes > 0 for source in report.sources)
    assert busy == {"single": 1, "brute": 3}.get(strategy, busy)
    assert shown[-1].phase == "done"


@pytest.mark.parametrize("size", [0, 1, 300_000])
async def test_small_files(sources, sink, size):
    contents = [random_file(source.root / "file", size) for source in sources]
    assert contents[0] == contents[1]
    report = await copy(sources, sink)
    assert (sink.root / "out").read_bytes() == contents[0]
    assert report.compared  # with the sources that have answered by then


async def test_an_expected_checksum_decides(sources, sink, content):
    digest = hashlib.sha256(content).hexdigest()
    assert (await copy(sources, sink, checksums=[f"sha256:{digest}"])).verified
    (sink.root / "out").unlink()
    with pytest.raises(VerificationError):
        await copy(sources, sink, checksums=[f"sha256:{'0' * 64}"])
    assert names(sink.root) == []


async def test_a_replica_with_other_bytes_is_found_by_the_expected_checksum_and_done_without(sources, sink, content):
    (sources[1].root / "file").write_bytes(os.urandom(SIZE))
    # Brute: each source has its share, even a late one.
    report = await copy(sources, sink, strategy="brute", checksums=[f"md5:{hashlib.md5(content).hexdigest()}"])
    assert (sink.root / "out").read_bytes() == content
    assert report.verified
    assert [source.outcome for source in report.sources].count("corrupt") == 1
    assert report.sources[1].outcome == "corrupt"


async def test_replicas_that_differ_are_not_mixed(sources, sink, content):
    (sources[1].root / "file").write_bytes(os.urandom(SIZE))
    with pytest.raises(VerificationError, match="different files"):
        await copy(sources, sink, strategy="brute")
    assert names(sink.root) == []


async def test_replicas_of_other_sizes_are_left_out_where_the_size_is_known(sources, sink, content):
    (sources[1].root / "file").write_bytes(content[:1000])
    report = await copy(sources, sink, size=SIZE)
    assert (sink.root / "out").read_bytes() == content
    assert report.sources[1].bytes == 0


async def wait_for_some(sink):
    async with asyncio.timeout(PATIENCE):
        while not any(path.stat().st_size for path in sink.root.iterdir()):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)


def hole(server, size):
    (server.root / "file").touch()
    os.truncate(server.root / "file", size)


async def test_a_source_that_dies_is_done_without(sources, sink):
    size = 2 << 30
    for source in sources:
        hole(source, size)
    copying = asyncio.create_task(copy(sources, sink))
    await wait_for_some(sink)
    sources[0].kill()
    report = await copying
    assert report.verified
    assert sum(source.bytes for source in report.sources) == size
    assert report.sources[0].error


async def test_a_source_that_stands_still_is_relieved(sources, sink):
    size = 2 << 30
    for source in sources:
        hole(source, size)
    copying = asyncio.create_task(copy(sources, sink))
    await wait_for_some(sink)
    sources[0].pause()
    try:
        report = await copying
    finally:
        sources[0].resume()
    assert report.verified
    assert sum(source.bytes for source in report.sources) == size


async def test_proxies_that_are_named_outright(start_gridftp, tmp_path, grid, alice, monkeypatch):
    env = grid.server_env(grid.localhost)
    ends = [start_gridftp(tmp_path / name, env=env, anonymous=False) for name in ("one", "two", "sink")]
    contents = [random_file(end.root / "file", SIZE) for end in ends[:2]]
    monkeypatch.setenv("X509_CERT_DIR", str(grid.trusted))
    monkeypatch.setenv("X509_USER_PROXY", str(tmp_path / "none"))
    urls = [end.url("file", "gsiftp") for end in ends[:2]]
    proxies = alice.proxy().certificate, alice.proxy().certificate
    report = await api.copy(urls, ends[2].url("out", "gsiftp"), proxies=proxies)
    assert (ends[2].root / "out").read_bytes() == contents[0]
    assert not any(source.error for source in report.sources)


async def test_a_sink_that_dies_ends_the_copy(sources, sink):
    for source in sources:
        hole(source, 64 << 30)
    copying = asyncio.create_task(copy(sources, sink))
    await wait_for_some(sink)
    sink.kill()
    with pytest.raises(CoallocError) as raised:
        await copying
    assert isinstance(raised.value, TransferFailed | NothingToFetchFrom)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_sink_that_refuses_the_login_is_blamed_and_no_source(sources, count):
    for source in sources[:count]:
        random_file(source.root / "file", 1000)
    async with ftp_server(PASS=b"530 Login incorrect.\r\n") as sink:
        with pytest.raises(CoallocError) as raised:
            await api.copy([source.url("file") for source in sources[:count]], sink)
    errors = raised.value.causes or [raised.value]
    assert [isinstance(each, SourceError) and (each.at_source, each.at_destination) for each in errors] == [
        (False, True)
    ] * count


async def test_a_copy_that_is_cancelled_leaves_nothing_behind(sources, sink):
    for source in sources:
        hole(source, 64 << 30)
    results = api.Results()
    copying = asyncio.create_task(copy(sources, sink, results=results))
    await wait_for_some(sink)
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert results.unfinished.size == 64 << 30
    assert names(sink.root) == []


async def test_a_sink_that_is_full(sources, start_gridftp, tmp_path, content):
    with small_tmpfs(tmp_path / "small", 1 << 20) as small, closing(start_gridftp(small, "127.0.0.8")) as sink:
        with pytest.raises(NoSpace):
            await copy(sources, sink)
        assert names(small) == []


async def test_missing_file_at_every_source_is_an_error(sources, sink):
    with pytest.raises(NothingToFetchFrom):
        await copy(sources, sink)

"""Collections of many files from real servers, direct and relayed: complete and verified or absent, no leftovers."""

import asyncio
import os
from contextlib import closing, suppress
from pathlib import Path

import pytest

from coalloc import api
from coalloc.collect import methods
from coalloc.collect.methods import Method
from coalloc.collect.methods.actions import Send
from coalloc.collect.methods.events import Arrived
from coalloc.collect.runtime import channels
from coalloc.errors import (
    CoallocError,
    NoSpace,
    Stalled,
    TransferFailed,
    UsageError,
)
from coalloc.planner.documents.scenario import Scenario
from coalloc.planner.network import Host, Link, LinkKey, Network
from tests.coalloc.collect.conftest import SIZES
from tests.support.fetching import random_file
from tests.support.mounts import small_tmpfs
from tests.support.relaying import Relay

pytestmark = pytest.mark.usefixtures("history", "relay")


def sources(servers):
    a, b, _ = servers
    return (*(a.url(f"{name}.a") for name in SIZES), f"{b.url('run')}/")


def found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def leftovers(servers):
    """Return staged pieces and temporary files."""
    return [path for server in servers for path in server.root.rglob("*coget*")]


async def collect(servers, to, method="relay", **wishes):
    via = (servers[2].url("lent"),)
    return await api.collect(api.CollectRequest(sources(servers), to, via, method), **wishes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", [*methods.METHODS, Relay.name])
async def test_files_and_directories_are_collected(servers, sink, content, place, method):
    to, folder = place
    views = []
    report = await collect(servers, to, method, watch=views.append)
    assert found(folder) == content
    assert {file.name: file.size for file in report.files} == {name: len(data) for name, data in content.items()}
    assert all(file.verified and file.outcome == "collected" for file in report.files)
    assert report.method == method
    assert report.rationale
    assert leftovers([*servers, sink]) == []
    assert views[-1].phase == "done"
    assert views[-1].done_bytes == report.size == sum(map(len, content.values()))
    if method == "relay":
        assert report.staged_bytes == report.size
        assert all(label(servers[2]) in (pair.source, pair.sink) for pair in report.pairs)


async def test_files_at_the_destination_are_not_collected_again(servers, content, place):
    to, folder = place
    await collect(servers, to, "all-at-once")
    (folder / "large.a").write_bytes(b"x" * len(content["large.a"]))
    report = await collect(servers, to, "all-at-once")
    assert {file.name for file in report.files if file.outcome == "collected"} == {"large.a"}
    assert report.there_bytes == report.size - len(content["large.a"])
    assert found(folder) == content


async def test_a_host_in_between_dies(servers, sink, content, place, relay):
    to, folder = place
    via = servers[2]
    arrived = []

    def happened(event, ended):
        arrived.extend(send for send in ended if isinstance(event, Arrived))
        if len(arrived) == 5:
            via.kill()

    relay.happened = staticmethod(happened)
    report = await collect(servers, to)
    assert found(folder) == content
    assert list(report.gone) == [label(via)]
    assert all(file.verified for file in report.files)
    assert leftovers([*servers[:2], sink]) == []
    assert [each.where.startswith(label(via)) for each in report.left] == [True]


def label(server):
    return f"ftp://{server.host}:{server.port}"


def better_over(via, servers, destination):
    """Return a network on which everything should go over one host."""
    fast, slow = 500_000_000, 1_000_000
    hosts = [Host("v"), Host("d"), *(Host(str(number)) for number in range(len(servers)))]
    links = [Link(LinkKey("v", "d"), fast)]
    for number in range(len(servers)):
        links += [Link(LinkKey(str(number), "v"), fast), Link(LinkKey(str(number), "d"), slow)]
    urls = {"v": via.url("lent"), **{str(number): label(server) for number, server in enumerate(servers)}}
    if destination:
        urls["d"] = label(destination)
    return Scenario(Network.of(tuple(hosts), tuple(links)), urls=urls)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", methods.METHODS)
async def test_every_method_gets_over_a_host_in_between_that_dies(servers, sink, content, place, method, monkeypatch):
    to, folder = place
    *_, via = servers
    arrived, handle = [], Method.handle

    def handled(self, event):
        if isinstance(event, Arrived) and self.ledger.running[event.hop].sink == label(via):
            arrived.append(event)
        if len(arrived) == 3:
            via.kill()
        return handle(self, event)

    monkeypatch.setattr(Method, "handle", handled)
    network = better_over(via, servers[:2], sink if "://" in to else None)
    report = await api.collect(api.CollectRequest(sources(servers), to, method=method), network=network)
    assert found(folder) == content
    assert all(file.verified for file in report.files)
    assert leftovers([*servers[:2], sink]) == []
    assert report.direct_seconds > report.planned_seconds
    if method in ("adaptive", "best-path", "path-sync", "path-delay"):
        assert report.staged_bytes


async def test_a_host_in_between_loses_its_sessions(servers, sink, content, place, relay):
    to, folder = place
    arrived = []

    def happened(event, ended):
        arrived.extend(send for send in ended if isinstance(event, Arrived))
        if len(arrived) == 5:
            servers[2].end_sessions()

    relay.happened = staticmethod(happened)
    report = await collect(servers, to)
    assert found(folder) == content
    assert not report.gone
    assert leftovers([*servers, sink]) == []


async def test_a_host_in_between_is_full(servers, start_gridftp, tmp_path, sink, content, place):
    to, folder = place
    with small_tmpfs(tmp_path / "small", 1 << 20) as small, closing(start_gridftp(small, "127.0.0.8")) as full:
        (small / "lent").mkdir()
        report = await collect([*servers[:2], full], to)
        assert found(small) == {}
    assert found(folder) == content
    assert all(file.verified for file in report.files)
    assert leftovers([*servers, sink]) == []


async def test_a_host_in_between_lends_no_directory(servers, sink, content, place):
    to, folder = place
    (servers[2].root / "lent").rmdir()
    report = await collect(servers, to)
    assert found(folder) == content
    assert report.staged_bytes == 0


async def test_a_destination_that_is_full(servers, start_gridftp, tmp_path, content):
    with small_tmpfs(tmp_path / "small", 1 << 20) as small, closing(start_gridftp(small, "127.0.0.8")) as full:
        results = api.Results()
        with pytest.raises(NoSpace):
            await collect(servers, full.url("out"), "all-at-once", results=results)
        assert set(found(small / "out").items()) <= set(content.items() | {("x", b"")})
        assert leftovers([*servers, full]) == []
    assert results.unfinished.files


def spoil(root, piece, content):
    """Flip a byte of a staged piece. Meanwhile the server may delete others, which have arrived."""
    right = content[piece.file][: piece.end]
    for staged in root.rglob(".coget-staging-*/*"):
        with suppress(FileNotFoundError), staged.open("r+b") as file:
            if file.read()[piece.start :] == right[piece.start :]:
                file.seek(piece.end - 1)
                file.write(bytes([right[-1] ^ 1]))
                return
    raise AssertionError(f"{piece} is not staged")


async def test_a_staged_piece_that_is_corrupted_is_noticed_and_mended(servers, sink, content, place, relay):
    to, folder = place
    spoiled: list[Send] = []

    def happened(event, ended):
        for send in ended:
            if isinstance(event, Arrived) and send.sink == label(servers[2]) and not spoiled and send.piece.start:
                spoil(servers[2].root, send.piece, content)
                spoiled.append(send)

    relay.happened = staticmethod(happened)
    report = await collect(servers, to)
    assert spoiled
    assert found(folder) == content
    assert report.mended_bytes == spoiled[0].piece.size
    assert leftovers([*servers, sink]) == []


async def test_no_file_has_its_name_before_it_is_whole(servers, content, place):
    to, folder = place
    seen = set()

    def watch(view):
        for name in content:
            if (folder / name).exists():
                seen.add(name)
                assert (folder / name).read_bytes() == content[name]

    await collect(servers, to, watch=watch)
    assert seen == set(content)


async def test_an_interruption_leaves_nothing_at_servers_and_the_next_run_goes_on(servers, sink, content, place, relay):
    to, folder = place
    arrived = []

    def happened(event, ended):
        arrived.extend(send for send in ended if isinstance(event, Arrived))
        if len(arrived) == 7:
            collecting.cancel()

    relay.happened = staticmethod(happened)
    results = api.Results()
    collecting = asyncio.create_task(collect(servers, to, results=results))
    with pytest.raises(asyncio.CancelledError):
        await collecting
    assert any(file.outcome == "missing" for file in results.unfinished.files)
    assert leftovers([*servers, sink]) == []
    relay.happened = staticmethod(lambda event, ended: None)
    await collect(servers, to)
    assert found(folder) == content


async def test_an_origin_dies(servers, sink, content, place, relay):
    to, folder = place
    arrived = []

    def happened(event, ended):
        arrived.extend(send for send in ended if isinstance(event, Arrived))
        if len(arrived) == 2:
            servers[1].kill()

    relay.happened = staticmethod(happened)
    results = api.Results()
    with pytest.raises(TransferFailed):
        await collect(servers, to, "relay", results=results)
    report = results.unfinished
    whole = {file.name for file in report.files if file.outcome == "collected"}
    assert label(servers[1]) in report.gone
    named = {name: data for name, data in found(folder).items() if "coget" not in name}
    assert named == {name: content[name] for name in whole}
    assert leftovers([servers[0], servers[2], sink]) == []


async def test_a_file_that_changes_meanwhile_is_not_mixed(servers, sink, content, place, relay):
    to, folder = place
    versions = []

    def happened(event, ended):
        versions.append(os.urandom(1000))
        with (servers[0].root / "large.a").open("r+b") as file:
            file.write(versions[-1] * (SIZES["large"] // 1000))

    relay.happened = staticmethod(happened)
    await collect(servers, to)
    got = found(folder)
    begin = got["large.a"][:1000]
    assert begin in versions  # the last one may have been written when all had arrived
    assert got == content | {"large.a": begin * (SIZES["large"] // 1000)}


async def test_a_server_that_stands_still_for_a_while(servers, content, tmp_path, relay, monkeypatch):
    arrived, usual = [], channels.STALL_SECONDS

    def happened(event, ended):
        before = len(arrived)
        arrived.extend(send for send in ended if isinstance(event, Arrived))
        if before < 5 <= len(arrived):
            monkeypatch.setattr(channels, "STALL_SECONDS", 0.3)
            servers[2].pause()
            asyncio.get_running_loop().call_later(5.0, go_on)  # if no data were under way

    def go_on():
        monkeypatch.setattr(channels, "STALL_SECONDS", usual)
        servers[2].resume()

    def stalled(*words):
        go_on()
        return Stalled(*words)

    monkeypatch.setattr(channels, "Stalled", stalled)  # to learn of it

    relay.happened = staticmethod(happened)
    report = await collect(servers, str(tmp_path / "out"))
    assert found(tmp_path / "out") == content
    assert not report.gone
    assert leftovers(servers) == []


@pytest.mark.parametrize("place", ["here", "server"])
async def test_with_certificates(start_gridftp, tmp_path, grid, as_alice, place):
    env = grid.server_env(grid.localhost)
    a, b, via = (start_gridftp(tmp_path / name, env=env, anonymous=False) for name in ("a", "b", "via"))
    contents = {name: random_file(a.root / name, size) for name, size in SIZES.items()}
    to, folder = (str(tmp_path / "out"), tmp_path / "out") if place == "here" else (b.url("o", "gsiftp"), b.root / "o")
    urls = tuple(a.url(name, "gsiftp") for name in contents)
    report = await api.collect(api.CollectRequest(urls, to, (via.url("", "gsiftp"),), "relay"))
    assert found(folder) == contents
    assert report.staged_bytes == report.size
    assert leftovers([a, via]) == []


async def test_a_server_that_is_its_own_destination(servers, content):
    a = servers[0]
    report = await api.collect(api.CollectRequest(sources(servers), a.url("out")))
    assert found(a.root / "out") == content
    assert all(file.verified for file in report.files)


async def test_replicas_of_a_metalink_are_one_file(servers, content, tmp_path):
    a, b, _ = servers
    (b.root / "large.a").write_bytes(content["large.a"])
    document = tmp_path / "large.meta4"
    document.write_text(
        '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="large.a">'
        f"<url>{a.url('large.a')}</url><url>{b.url('large.a')}</url></file></metalink>"
    )
    await api.collect(api.CollectRequest((str(document), a.url("one.a")), str(tmp_path / "out")))
    assert found(tmp_path / "out") == {name: content[name] for name in ("large.a", "one.a")}


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("{a}/one.a", "{b}/run/deep/one", "{a}/one.a"), UsageError, "would both become one.a"),
        (("sftp://a.example/x",), UsageError, "does not support its scheme"),
        (("{b}/run",), UsageError, "is a directory"),
        (("{b}/nothing",), CoallocError, "nothing"),
        (("{b}/none/",), CoallocError, "none"),
        ((), UsageError, "no source was given"),
    ],
)
async def test_invalid_requests_are_refused_with_the_reason(servers, content, tmp_path, words, error, message):
    (servers[1].root / "none").mkdir()
    names = {"a": servers[0].url("").rstrip("/"), "b": servers[1].url("").rstrip("/")}
    with pytest.raises(error, match=message) as raised:
        await api.collect(api.CollectRequest(tuple(word.format(**names) for word in words), str(tmp_path / "out")))
    assert raised.value.remedy


async def test_a_method_that_is_unknown(servers, content, tmp_path):
    with pytest.raises(UsageError, match="unknown method"):
        await collect(servers, str(tmp_path / "out"), "magic")


async def test_dead_server_fails_the_collection(servers, content, tmp_path):
    servers[1].kill()
    with pytest.raises(CoallocError):
        await collect(servers, str(tmp_path / "out"), "all-at-once")

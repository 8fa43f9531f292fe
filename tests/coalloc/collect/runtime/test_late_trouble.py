"""Failures after all but the last steps: collections end with a reason, and no file is truncated."""

import asyncio
import os

import pytest

from coalloc import api
from coalloc.collect.runtime.carrier import Carrier
from coalloc.collect.runtime.checking import ChecksumVerdict
from coalloc.collect.runtime.finishing import Finisher
from coalloc.collect.runtime.runner import CollectRunner
from coalloc.errors import FilesFailed, TransferFailed, Unreachable
from tests.support.fetching import random_file
from tests.support.waiting import PATIENCE

SIZE = 9_000_000
LIMIT_SECONDS = PATIENCE


@pytest.fixture(autouse=True)
def history(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))


@pytest.fixture
def servers(start_gridftp, tmp_path):
    """Two servers, one of them with two files and one empty."""
    made = [start_gridftp(tmp_path / name, f"127.0.0.{number}") for number, name in enumerate(("a", "b"), 2)]
    for name in ("one", "two"):
        random_file(made[0].root / name, SIZE)
    return made


def dies_before(fetch, server, monkeypatch):
    """Kill a server just before a given fetch of a piece."""
    began, real = [], Carrier.fetch

    async def dying(self, *piece):
        began.append(piece)
        if len(began) == fetch:
            server.kill()
        await real(self, *piece)

    monkeypatch.setattr(Carrier, "fetch", dying)


async def collect(server, to, results=None):
    urls = tuple(server.url(name) for name in ("one", "two"))
    async with asyncio.timeout(LIMIT_SECONDS):
        return await api.collect(api.CollectRequest(urls, to, method="all-at-once"), results=results)


@pytest.mark.parametrize("place", ["here", "server"])
async def test_the_origin_dies_while_a_file_is_mended(servers, tmp_path, monkeypatch, place):
    async def wrong(self, item, pieces, others=False):
        return ChecksumVerdict(None, False, ((0, item.size),))

    monkeypatch.setattr(Finisher, "_check", wrong)
    dies_before(1, servers[0], monkeypatch)
    results = api.Results()
    with pytest.raises((FilesFailed, TransferFailed)):
        await collect(servers[0], str(tmp_path / "out") if place == "here" else servers[1].url("out"), results)
    assert len(results.unfinished.gone) == 1
    assert not list(servers[1].root.rglob("*coget*"))


async def test_a_server_dies_that_is_its_own_destination(servers, monkeypatch):
    dies_before(2, servers[0], monkeypatch)
    results = api.Results()
    with pytest.raises(Unreachable):
        await collect(servers[0], servers[0].url("out"), results)
    assert [file.outcome for file in results.unfinished.files] == ["collected", "missing"]


async def test_a_longer_file_that_takes_the_place_of_one_is_not_cut_off(servers, monkeypatch):
    verify = Finisher._check

    async def replaced(self, item, pieces, others=False):
        if item.name == "one":
            (servers[0].root / "new").write_bytes((servers[0].root / "one").read_bytes() + b"more")
            (servers[0].root / "new").replace(servers[0].root / "one")
        return await verify(self, item, pieces, others)

    monkeypatch.setattr(Finisher, "_check", replaced)
    with pytest.raises(FilesFailed, match="one changed"):
        await collect(servers[0], servers[1].url("out"))
    assert [path.name for path in (servers[1].root / "out").iterdir()] == ["two"]


@pytest.mark.parametrize("place", ["here", "server"])
async def test_a_file_that_became_shorter_since_it_was_listed_is_not_asked_for_again_and_again(
    servers, tmp_path, monkeypatch, place
):
    begun = Carrier.begin

    def shortened(self, *hop):
        os.truncate(servers[0].root / "one", SIZE // 2)
        return begun(self, *hop)

    monkeypatch.setattr(Carrier, "begin", shortened)
    results = api.Results()
    with pytest.raises(FilesFailed, match="cannot fetch one"):
        await collect(servers[0], str(tmp_path / "out") if place == "here" else servers[1].url("out"), results)
    assert {file.name: file.outcome for file in results.unfinished.files}["one"] == "missing"


async def test_a_file_that_is_whole_when_all_is_over_does_not_get_its_name(servers, tmp_path, monkeypatch):
    deliver, delivered, finished = asyncio.get_running_loop().create_future(), CollectRunner._delivered, []

    def held(self, send):
        if send.piece.file == "one":
            delivered(self, send)
        else:
            deliver.set_result(lambda: delivered(self, send))

    async def finish(self, item, pieces, began):
        finished.append(item.name)
        collecting.cancel()
        try:
            await asyncio.Event().wait()
        finally:
            (await deliver)()

    monkeypatch.setattr(CollectRunner, "_delivered", held)
    monkeypatch.setattr(Finisher, "finish", finish)
    collecting = asyncio.create_task(collect(servers[0], str(tmp_path / "out")))
    with pytest.raises(asyncio.CancelledError):
        await collecting
    assert finished == ["one"]

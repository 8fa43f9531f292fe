"""A queue between two real servers, one of which gives up its sessions."""

import asyncio
from random import Random

import pytest

from coalloc.collect.methods.actions import Piece
from coalloc.collect.runtime.channels import ServerPair
from coalloc.collect.runtime.hop import Hop
from coalloc.collect.runtime.hop_queue import HopQueue
from coalloc.collect.runtime.link_waits import LinkWaits
from coalloc.collect.runtime.server import CollectServer
from coalloc.errors import Unreachable
from tests.support.fetching import options, random_file
from tests.support.waiting import PATIENCE, until

SIZE = 100_000


@pytest.fixture
def ends(start_gridftp, tmp_path):
    return start_gridftp(tmp_path / "source", "127.0.0.2"), start_gridftp(tmp_path / "sink", "127.0.0.3")


async def test_a_pair_that_has_lost_one_end_keeps_no_session_at_the_other(ends):
    source, sink = ends
    content = random_file(source.root / "file", SIZE)
    pairs = []

    async def connect():
        source, sink = (CollectServer(end.host, end.url(""), options()) for end in ends)
        pairs.append(await ServerPair.open(source, sink, LinkWaits(lambda held: None)))
        return pairs[-1]

    async def moved(name):
        to = str(sink.root / name)
        hop = Hop(Piece(name, 0, SIZE), ("a", "b"), (f"{source.root}/file", lambda: to), ready, lambda _: None)
        queue.begin(hop)
        await hop.ended.wait()
        assert hop.error is None
        assert (sink.root / name).read_bytes() == content

    queue = HopQueue(connect, pytest.fail, pytest.fail, Random(0))
    await moved("one")
    sink.end_sessions()
    await until(lambda: not pairs[0].usable)
    await moved("two")
    assert len(pairs) == 2
    await until(lambda: len(source.sessions) == len(sink.sessions) == 1)
    await queue.close()
    await until(lambda: not source.sessions + sink.sessions)


async def test_it_ends_even_if_an_error_takes_the_place_of_the_cancellation():
    began = asyncio.Event()

    async def connect():
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unreachable("the server is gone") from None

    queue = HopQueue(connect, pytest.fail, pytest.fail, Random(0))
    hop = Hop(Piece("one", 0, SIZE), ("a", "b"), ("/one", lambda: "/one"), ready, lambda _: None)
    queue.begin(hop)
    await began.wait()
    async with asyncio.timeout(PATIENCE):
        await queue.close()
    assert hop.over


async def ready():
    pass

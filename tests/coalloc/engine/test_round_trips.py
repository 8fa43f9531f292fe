"""The cost of a far server: round trips to the size, to the first byte, and from one range to the next.

Each number is the least that the protocol allows with one session, or is explained in docs/explanation/distance.md.
"""

import asyncio
from dataclasses import dataclass

import pytest

from coalloc.engine import open_source
from coalloc.engine.base import Source
from coalloc.engine.http import HTTPSource
from coalloc.engine.span import Span
from tests.support.distance import Distance
from tests.support.fetching import Collected, impatient_until, opened, options, random_file
from tests.support.nginx import Nginx
from tests.support.plain_ftp import PlainFTP, serve

SIZE = 300_000
PART = SIZE // 3


@dataclass
class Counted:
    """Round trips until `open` was done, and until the first byte of each range."""

    opened: int
    waits: list[int]


async def count(url: str, rest: bool = False) -> Counted:
    """Fetch a file in three ranges from far away, with or without pauses between them."""
    async with Distance() as far, opened(open_source(url, "auto", options(dialer=far))) as source:
        counted = Counted(far.trips, [])
        for start in range(0, SIZE, PART):
            if rest:
                await far.rest()
            counted.waits.append(await wait(source, Span(start, start + PART), far))
    return counted


async def wait(source: Source, span: Span, far: Distance) -> int:
    """Return the round trips from the request of a range to its first byte."""
    collected, arrived = Collected(span), []
    asked = far.trips

    def deliver(start: int, end: int, data: memoryview | None) -> None:
        collected(start, end, data)
        arrived.append(far.trips)

    await source.fetch(span, deliver)
    assert collected.count == PART
    return arrived[0] - asked


async def test_gridftp(gridftp_server):
    """Connect; log in, ask for the size and where to connect; connect there; ask for the range."""
    random_file(gridftp_server.root / "file", SIZE)
    assert await count(gridftp_server.url("file")) == Counted(2, [2, 2, 2])


async def test_gridftp_after_a_rest(gridftp_server):
    """The data connection is there before it is needed."""
    random_file(gridftp_server.root / "file", SIZE)
    assert (await count(gridftp_server.url("file"), rest=True)).waits == [1, 1, 1]


@pytest.mark.parametrize(("tls", "opened"), [("TLSv1.2", 4), ("TLSv1.3", 3)])
async def test_gsiftp(start_gridftp, tmp_path, grid, as_alice, tls, opened):
    """Like gridftp, plus TLS: its last message goes out together with the next commands."""
    server = start_gridftp(tmp_path, env=grid.server_env(grid.localhost, tls), anonymous=False)
    random_file(tmp_path / "file", SIZE)
    assert await count(server.url("file", "gsiftp")) == Counted(opened, [2, 2, 2])


async def test_http(tmp_path):
    """Connect; ask for the size; ask for the range. The connection is kept."""
    with Nginx(tmp_path / "export", tmp_path / "nginx") as server:
        random_file(server.root / "file", SIZE)
        assert await count(server.url("file")) == Counted(2, [1, 1, 1])


@pytest.mark.parametrize(("tls", "opened"), [("TLSv1.2", 4), ("TLSv1.3", 3)])
async def test_https(tmp_path, grid, monkeypatch, tls, opened):
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    keys = (grid.localhost.certificate, grid.localhost.key)
    with Nginx(tmp_path / "export", tmp_path / "nginx", certificate=keys, more=f"ssl_protocols {tls};") as server:
        random_file(server.root / "file", SIZE)
        assert await count(server.url("file")) == Counted(opened, [1, 1, 1])


async def test_http_asked_ahead(tmp_path, monkeypatch):
    """No round trip passes between pipelined requests."""
    monkeypatch.setattr("coalloc.engine.http.source.FAR", 0.0)
    arrived = []
    with Nginx(tmp_path / "export", tmp_path / "nginx") as server:
        random_file(server.root / "file", SIZE)
        async with Distance() as far, opened(HTTPSource(server.url("file"), options(dialer=far), number=1)) as source:
            asked = far.trips
            await asyncio.gather(
                *(
                    source.fetch(Span(start, start + PART), lambda start, end, data: arrived.append(far.trips))
                    for start in range(0, SIZE, PART)
                )
            )
    assert set(arrived) == {asked + 1}


async def test_a_server_that_takes_one_command_at_a_time():
    """The server loses commands after PASS, so after a first attempt each command has its own round trip."""
    async with serve(PlainFTP(bytes(SIZE), loses_pipelined=True)) as server, Distance() as far:
        source = open_source(server.url, "auto", impatient_until(server, 1.0, dialer=far))
        async with opened(source):
            asked_twice = far.trips
            await source.open()
            assert far.trips - asked_twice == 9

"""Measurements between real servers: bounded, stored nowhere here, and without a trace at the servers."""

import os

import pytest

from coalloc.errors import UsageError
from coalloc.history.links import EVERYBODY
from coalloc.probing import ProbeLimits, measure

SMALL = ProbeLimits(bytes=4_000_000, seconds=5.0)


@pytest.fixture
def servers(start_gridftp, tmp_path):
    return [start_gridftp(tmp_path / f"server{n}", host=f"127.0.0.{n}") for n in (2, 3, 4)]


def key(server):
    return server.url("").partition("//")[0] + f"//{server.host}:{server.port}"


def left(servers):
    return sorted(path.name for server in servers for path in server.root.rglob("*"))


async def test_every_pair_is_measured_and_nothing_stays_at_the_servers(servers):
    results = []
    found = await measure([server.url("") for server in servers], limits=SMALL, on_result=results.append)
    keys = [key(server) for server in servers]
    assert sorted((each.source, each.sink) for each in found) == sorted((a, b) for a in keys for b in keys if a != b)
    assert all(each.outcome == "ok" and each.rate > 0 and 0 < each.bytes <= SMALL.bytes for each in found)
    assert results == found
    assert left(servers) == []


async def test_a_file_is_sent_as_often_as_it_takes_and_stays(servers):
    (servers[0].root / "small").write_bytes(bytes(300_000))
    (measured,) = await measure([servers[0].url("small")], [servers[1].url("")], SMALL)
    assert (measured.outcome, 300_000 < measured.bytes <= SMALL.bytes) == ("ok", True)
    assert left(servers) == ["small"]


async def test_long_measurements_end_at_the_time_limit(servers):
    huge = ProbeLimits(bytes=1 << 50, seconds=0.5)
    (servers[0].root / "huge").touch()
    os.truncate(servers[0].root / "huge", 1 << 40)
    (measured,) = await measure([servers[0].url("huge")], [servers[1].url("")], huge)
    assert measured.outcome == "ok"
    assert measured.bytes < 1 << 40
    assert left(servers) == ["huge"]


async def test_blast_measures_each_server_from_all_and_to_all(servers):
    found = await measure([server.url("") for server in servers], limits=SMALL, blast=True)
    blasts = {(each.source, each.sink): each for each in found if EVERYBODY in (each.source, each.sink)}
    keys = [key(server) for server in servers]
    assert set(blasts) == {pair for each in keys for pair in ((EVERYBODY, each), (each, EVERYBODY))}
    assert all(each.outcome == "ok" and each.bytes <= 2 * SMALL.bytes for each in blasts.values())
    assert left(servers) == []


async def test_a_server_that_is_down_fails_its_own_pairs_only(servers):
    servers[2].kill()
    found = await measure([server.url("") for server in servers], limits=SMALL)
    down = key(servers[2])
    for each in found:
        assert each.outcome == ("failed" if down in (each.source, each.sink) else "ok")
    assert "refused the connection" in next(each.error for each in found if each.source == down)
    assert left(servers) == []


async def test_unwritable_folder_is_reported(start_gridftp, tmp_path, servers):
    there = start_gridftp(tmp_path / "closed", "127.0.0.5", options=["-restrict-paths", f"R{tmp_path}"])
    found = await measure([servers[0].url(""), there.url("")], limits=SMALL)
    assert {each.outcome for each in found} == {"failed"}
    made = next(each for each in found if each.source == key(there))
    assert "cannot create a file for the measurement" in made.error


async def test_a_file_without_a_byte_measures_nothing(servers):
    (servers[0].root / "empty").touch()
    (measured,) = await measure([servers[0].url("empty")], [servers[1].url("")], SMALL)
    assert (measured.outcome, "is empty" in measured.error) == ("failed", True)


async def test_peers_are_chosen_by_chance_and_again_by_the_same_seed(servers):
    urls = [server.url("") for server in servers]
    first, again = [
        [(each.source, each.sink) for each in await measure(urls, limits=SMALL, peers=1, seed=3)] for _ in range(2)
    ]
    assert sorted(first) == sorted(again)
    assert sorted(source for source, _ in first) == sorted(map(key, servers))


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["ftp://a.example/x"], "no pair"),
        (["ftp://a.example/x", "ftp://a.example/y"], "given twice"),
        (["ftp://a.example/x", "http://b.example/x"], "does not name a file on a GridFTP server"),
    ],
)
async def test_invalid_sources_are_refused_before_any_connection(sources, message):
    with pytest.raises(UsageError, match=message):
        await measure(sources)

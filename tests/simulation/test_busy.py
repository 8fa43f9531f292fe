"""Whole downloads in virtual time from servers that are busy, or that others of this machine keep busy."""

import asyncio

import numpy as np
import pytest

from coalloc.download.to_disk import Download, DownloadSettings
from coalloc.errors import NothingToFetchFrom, ServerBusy
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.model.reports import Results
from coalloc.schedule.pauses import TRIES
from coalloc.schedule.policies import NAMES, make
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run

SIZE = 3_000_000
DATA = np.random.default_rng(7).bytes(SIZE)
NEVER = 1e4


def server(**more) -> Behaviour:
    return Behaviour(rates=((0.0, 1e6),), **more)


@pytest.fixture
def fetch(tmp_path):
    """A function that downloads from servers with these behaviours; returns the report, the sources, and all output."""

    def fetch(*behaviours, strategy="adaptive", most=None, results=None):
        sources = [SimulatedSource(f"s{i}", DATA, behaviour) for i, behaviour in enumerate(behaviours)]
        shown, target = [], tmp_path / "file.bin"

        async def main():
            file = ReplicaSet(target.name, tuple(Replica(source.url) for source in sources))
            estimates = [Estimate()] * len(sources)
            wishes = DownloadSettings(make(strategy), most=most)
            async with asyncio.timeout(NEVER / 2):
                download = Download(file, sources, estimates, target, wishes, shown.append, seed=1)
                with (results or Results()).of(download.report):
                    return await download.run()

        report = run(main())
        assert target.read_bytes() == DATA
        return report, sources, shown

    return fetch


@pytest.mark.parametrize("strategy", NAMES)
def test_source_without_a_free_connection_does_not_delay_others(fetch, strategy):
    report, sources, shown = fetch(server(), server(free_at=NEVER), server(), strategy=strategy)
    assert report.seconds < (2.5 if strategy != "single" else 4.0)
    assert sources[1].opened == 0
    assert report.sources[1].outcome == "unused"
    assert "waiting for a free connection" in report.sources[1].error
    assert any(snapshot.sources[1].state == "waiting" for snapshot in shown)


@pytest.mark.parametrize("strategy", ["adaptive", "conservative", "aggressive"])
def test_it_takes_part_once_it_has_one(fetch, strategy):
    report, sources, _ = fetch(server(), server(free_at=0.5), strategy=strategy)
    assert sources[1].sent > SIZE / 10
    assert report.sources[1].outcome == "ok"
    assert report.sources[1].error is None


@pytest.mark.parametrize("strategy", NAMES)
def test_download_without_a_free_connection_waits_and_reports_it(fetch, strategy):
    report, _, shown = fetch(server(free_at=1000), server(free_at=1500), strategy=strategy)
    assert 1000 < report.seconds < 1010
    assert [source.state for source in shown[1].sources] == ["waiting", "waiting"]
    assert "waiting for a free connection to sim://s0/file" in shown[1].sources[0].error


def test_waiting_is_no_failure(fetch):
    results = Results()
    with pytest.raises(TimeoutError):
        fetch(server(free_at=2 * NEVER), results=results)
    (source,) = results.unfinished.sources
    assert source.outcome == "unused"
    assert "waiting for a free connection" in source.error


def test_another_source_takes_the_place_of_one_that_waits(fetch):
    report, sources, _ = fetch(server(free_at=1.0), server(), server(), most=1)
    assert report.sources[1].bytes == SIZE
    assert sources[2].opened == 0, "one at a time"
    report, sources, _ = fetch(server(dies_at=0.5, returns_at=0.6), server(), most=1, strategy="brute")
    assert report.seconds < 4


@pytest.mark.parametrize("strategy", NAMES)
def test_a_busy_server_is_not_asked_before_its_time(fetch, strategy):
    report, sources, shown = fetch(server(), server(busy_until=50.0, retry_after=50.0), strategy=strategy)
    assert report.seconds < 4
    assert sources[1].opened == 1
    assert "busy" in report.sources[1].error
    assert any(snapshot.sources[1].state == "pausing" for snapshot in shown)


def test_it_takes_part_when_its_time_has_come(fetch):
    report, sources, _ = fetch(server(), server(busy_until=1.0, retry_after=1.0))
    assert sources[1].opened == 2
    assert report.sources[1].outcome == "ok"


def test_busy_servers_are_asked_again_in_time(fetch):
    behaviours = server(busy_until=70.0, retry_after=60.0), server(busy_until=200.0, retry_after=200.0)
    report, sources, shown = fetch(*behaviours)
    assert 120 < report.seconds < 160
    assert [source.opened for source in sources] == [3, 1]
    assert [source.state for source in shown[1].sources] == ["pausing", "pausing"]


@pytest.mark.parametrize("sources", [1, 2])
def test_permanently_busy_server_is_given_up(fetch, sources):
    results = Results()
    with pytest.raises((ServerBusy, NothingToFetchFrom), match="busy") as caught:
        fetch(*[server(busy_until=NEVER)] * sources, results=results)
    assert caught.value.status == 3
    assert results.unfinished.seconds < 60
    with pytest.raises((ServerBusy, NothingToFetchFrom)):
        fetch(*[server(busy_until=NEVER, retry_after=9999.0)] * sources, results=results)
    assert (TRIES - 1) * 300 <= results.unfinished.seconds < (TRIES - 1) * 400


@pytest.mark.parametrize("strategy", NAMES)
@pytest.mark.parametrize("ranged", [True, False])
def test_one_that_waits_for_a_connection_is_no_reason_to_do_without_another(fetch, strategy, ranged):
    """The fast source dies, and the slow one would be dropped, or supports no ranges; the third may wait forever."""
    slow = Behaviour(rates=((0.0, 1e5),), ranged=ranged)
    report, *_ = fetch(Behaviour(rates=((0.0, 3e6),), dies_at=0.5), slow, server(free_at=NEVER), strategy=strategy)
    assert report.seconds < 100

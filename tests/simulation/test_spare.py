"""Whole downloads in virtual time with few connections to each server: finished ones let others in, and all end."""

import asyncio
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.download.to_disk import Download, DownloadSettings
from coalloc.engine.base import EngineOptions
from coalloc.engine.limits.server_slots import Slots
from coalloc.engine.sessions.replica_session import ReplicaSession
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.schedule.policies import NAMES, make
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run
from coalloc.util.dialer import DirectDialer
from tests.support.effort import effort

SIZE = 3_000_000
DATA = np.random.default_rng(7).bytes(SIZE)
LONGEST = 400.0
"""Virtual seconds within which any of these downloads ends."""


class Connected(SimulatedSource):
    """A source that records when it is connected: from `open`, or a later call that has to connect, until `close`."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.times: list[list[float]] = []

    def _connect(self) -> None:
        if not self.times or len(self.times[-1]) == 2:
            self.times.append([asyncio.get_running_loop().time()])

    async def open(self):
        self._connect()
        return await super().open()

    async def fetch(self, span, deliver):
        self._connect()
        await super().fetch(span, deliver)

    async def recheck(self):
        self._connect()
        return await super().recheck()

    async def close(self) -> None:
        if self.times and len(self.times[-1]) == 1:
            self.times[-1].append(asyncio.get_running_loop().time())


def download(folder: Path, servers: list[tuple[str, Behaviour]], strategy: str, slots: int, most: int | None = None):
    """Return the report and the sources of one download, with `slots` connections to each server."""
    counted = Slots(folder / "slots", slots)
    target = folder / "file"
    options = EngineOptions(DirectDialer(), slots=counted)

    async def main():
        sources = [Connected(name, DATA, behaviour) for name, behaviour in servers]
        for source in sources:
            source.options = options
        file = ReplicaSet("file", tuple(Replica(f"{source.url}{i}") for i, source in enumerate(sources)))
        wishes = DownloadSettings(make(strategy), most=most)
        each = [ReplicaSession(source) for source in sources]
        async with asyncio.timeout(LONGEST):
            return await Download(file, each, [Estimate()] * len(each), target, wishes).run(), sources

    report, sources = run(main())
    assert target.read_bytes() == DATA
    assert not list(counted.folder.iterdir()), "a slot is kept"
    for name in {name for name, _ in servers}:
        assert (
            most_at_once(
                [each for source, (at, _) in zip(sources, servers, strict=True) if at == name for each in source.times]
            )
            <= slots
        )
    return report, sources


def most_at_once(times: list[list[float]]) -> int:
    """Return how many of these periods overlap; one may begin as another one ends."""
    changes = sorted([(begin, 1) for begin, _ in times] + [(end, -1) for _, end in times], key=lambda each: each)
    count = highest = 0
    for _, change in changes:
        count += change
        highest = max(highest, count)
    return highest


def server(rate: float = 1e6, **more) -> Behaviour:
    return Behaviour(rates=((0.0, rate),), **more)


@pytest.mark.parametrize("strategy", ["brute", "conservative", "history"])
def test_finished_source_frees_its_connection_for_another_at_the_same_server(tmp_path, strategy):
    servers = [("a", server()), ("b", server(1e4)), ("a", server())]
    _, sources = download(tmp_path, servers, strategy, 1)
    first, slow, second = (source.times for source in sources)
    assert first[0][1] < second[0][1] <= slow[0][1]


@pytest.mark.parametrize("strategy", NAMES)
def test_lost_source_is_asked_at_the_end_although_another_took_its_connection(tmp_path, strategy):
    servers = [("a", server(dies_at=1.0, returns_at=1.1)), ("a", server())]
    report, _ = download(tmp_path, servers, strategy, 1)
    assert report.seconds < 60


RATES = st.sampled_from([2e4, 2e5, 1e6, 5e6])
TIMES = st.sampled_from([0.3, 1.0, 3.0, float("inf")])


@st.composite
def behaviours(draw) -> Behaviour:
    dies = draw(TIMES)
    rates = ((0.0, draw(RATES)), (draw(st.sampled_from([0.5, 2.0, 5.0])), draw(RATES)))
    return Behaviour(
        rates=rates,
        connect_seconds=draw(st.sampled_from([0.01, 0.2, 2.0])),
        setup_seconds=draw(st.sampled_from([0.01, 0.1])),
        dies_at=dies,
        returns_at=dies + draw(st.sampled_from([0.1, 1.0, 20.0])),
        busy_until=draw(st.sampled_from([0.0, 0.0, 1.0])),
        ranged=draw(st.sampled_from([True, True, True, False])),
        offers_checksum=draw(st.booleans()),
        certain=draw(st.booleans()),
    )


@pytest.mark.long
@settings(max_examples=effort(15, 1000))
@given(
    strategy=st.sampled_from(NAMES),
    servers=st.lists(st.tuples(st.sampled_from("ab"), behaviours()), min_size=1, max_size=5),
    slots=st.integers(1, 3),
    most=st.none() | st.integers(1, 3),
)
def test_every_run_ends_and_keeps_no_connection(strategy, servers, slots, most):
    with tempfile.TemporaryDirectory() as folder:
        download(Path(folder), [*servers, ("c", server(2e5))], strategy, slots, most)

"""Reading at a promised rate: whole downloads in virtual time, over networks that differ, change and fail."""

import asyncio
from math import exp
from random import Random
from typing import NamedTuple

import pytest

from coalloc.download import in_order
from coalloc.download.in_order import InOrderDownload, InOrderSettings
from coalloc.errors import RateRefused
from coalloc.guarantees.reading_pace import ReadingPace
from coalloc.model.forecasts import Estimate
from coalloc.model.promises import ReadingRate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.model.reports import TransferReport
from coalloc.testing.simulated import Behaviour, Bottleneck, SimulatedSource
from coalloc.testing.virtual_clock import run
from tests.support.effort import effort

kB = 1000
SIZE = 4000 * kB
CONTENT = Random(3).randbytes(SIZE)
LARGE = in_order.ROOM
"""The buffer of programs: it has room for the whole file."""


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch):
    """Let the buffer outlast ten seconds of any rate."""
    monkeypatch.setattr(in_order, "ROOM", 10 * kB)


class Read(NamedTuple):
    """The bytes that a reader got, the times at which it had how many, and the report, or the refusal."""

    taken: bytes
    times: list[tuple[float, int]]
    report: TransferReport | None
    refusal: RateRefused | None
    sources: list[SimulatedSource]


def steady(rate, **more):
    return Behaviour(((0.0, rate),), chunk=2 * kB, **more)


def read(rate, *behaviours, share=0.95, size=SIZE, slowly=0.0) -> Read:
    """Read a file at a rate from sources that behave so. :param slowly: seconds that the reader takes for each part"""

    async def reading():
        sources = [SimulatedSource(f"s{i}", CONTENT[:size], each) for i, each in enumerate(behaviours)]
        file = ReplicaSet("file", tuple(Replica(source.url) for source in sources))
        taken, times, loop = bytearray(), [], asyncio.get_running_loop()

        async def take(data):
            taken.extend(data)
            times.append((loop.time(), len(taken)))
            await asyncio.sleep(slowly)

        settings = InOrderSettings(reading=ReadingRate(rate, share))
        fetch = InOrderDownload(file, sources, [Estimate()] * len(sources), take, settings)
        try:
            return Read(bytes(taken), times, await fetch.run(), None, sources)._replace(taken=bytes(taken))
        except RateRefused as error:
            return Read(bytes(taken), times, None, error, sources)

    return run(reading())


def test_a_rate_that_one_source_can_keep_is_kept_with_that_one():
    got = read(100 * kB, steady(30 * kB), steady(150 * kB), steady(40 * kB))
    assert got.taken == CONTENT
    assert (got.report.reading.missed, got.report.reading.kept) == (0, True)
    began = got.times[0][0]
    assert 4 <= began <= 12
    assert got.times[-1][0] - began == pytest.approx(40, rel=0.02)
    for at, count in got.times:
        assert count <= 100 * kB * (at - began + 0.1)
    others = got.sources[0].sent + got.sources[2].sent
    assert others < 12 * 100 * kB  # only while they were measured


def test_a_rate_that_only_several_can_keep_is_kept_with_these():
    got = read(100 * kB, steady(70 * kB), steady(70 * kB))
    assert got.taken == CONTENT
    assert got.report.reading.kept
    assert min(source.sent for source in got.sources) > len(CONTENT) / 4


def test_a_buffer_for_all_of_the_file_lets_no_source_fetch_so_much_that_the_reader_waits(monkeypatch):
    monkeypatch.setattr(in_order, "ROOM", LARGE)
    got = read(160 * kB, steady(115 * kB), steady(108 * kB))
    assert got.taken == CONTENT
    assert got.report.reading.missed == 0


def test_sources_that_share_a_link_are_not_added_up():
    link = Bottleneck(((0.0, 110 * kB),))
    shared = [steady(100 * kB, behind=link) for _ in range(3)]
    assert read(90 * kB, *shared).report.reading.kept
    refused = read(180 * kB, *shared)
    assert refused.refusal is not None
    assert refused.taken == b""


def test_a_rate_that_cannot_be_kept_is_refused_before_the_first_byte_and_what_is_offered_is_kept():
    got = read(200 * kB, steady(70 * kB), steady(60 * kB))
    assert got.taken == b""
    assert (got.refusal.status, got.refusal.transient) == (9, False)
    assert "200 kB/s in 95 % of the seconds" in got.refusal.message
    offered = float(got.refusal.remedy.split("'")[1].split()[0]) * kB
    assert 60 * kB < offered <= 130 * kB * 1.5
    assert read(offered, steady(70 * kB), steady(60 * kB)).report.reading.kept


def test_a_source_that_dies_is_replaced_before_the_buffer_is_empty():
    got = read(100 * kB, steady(300 * kB, dies_at=25.0), steady(150 * kB))
    assert got.taken == CONTENT
    assert got.report.reading.missed == 0


def test_a_rate_that_falls_is_announced_and_the_report_says_that_it_was_not_kept():
    falling = Behaviour(((0.0, 150 * kB), (20.0, 50 * kB)))
    got = read(100 * kB, falling)
    reading = got.report.reading
    assert got.taken == CONTENT
    assert not reading.kept
    assert reading.missed > 10
    assert reading.warnings
    first_missed = next(at for (at, _), (later, _) in zip(got.times, got.times[1:], strict=False) if later - at > 0.2)
    assert first_missed > 20
    assert (reading.warnings[0].chance or 0) < 0.9


def test_time_that_is_lost_is_made_up_unless_the_reader_lost_it():
    pace = ReadingPace(100.0, 0.0)
    pace.give(10, 0.0, 0.001)
    pace.give(10, 0.15, 0.151)  # 0.05 s late, but not because of the reader
    assert pace.wait(0.2) == pytest.approx(0.0)
    pace.give(10, 0.2, 1.2)  # the reader takes a second for what it should take in a tenth
    assert pace.wait(1.2) == pytest.approx(0.0)
    assert pace.result(2.0) == (2, 0)


def test_a_slow_reader_misses_nothing():
    got = read(100 * kB, steady(200 * kB), slowly=0.2)
    assert got.taken == CONTENT
    assert got.report.reading.missed == 0


def test_a_file_that_is_here_at_once_is_promised_at_once():
    got = read(100 * kB, steady(50_000 * kB), size=30 * kB)
    assert got.taken == CONTENT[: 30 * kB]
    assert got.report.reading.kept
    assert got.times[0][0] < 1


def test_an_empty_file_is_read_at_any_rate():
    assert read(100 * kB, steady(50 * kB), size=0).report.reading.kept


def varying(chance: Random, mean: float, spread: float, memory: float):
    """Return a source whose rate varies around a mean, as a random walk that returns to it, in steps of 0.5 s."""
    level, rates = 0.0, []
    for step in range(800):
        rates.append((0.5 * step, mean * exp(spread * level)))
        level = memory * level + (1 - memory**2) ** 0.5 * chance.gauss(0, 1)
    return Behaviour(tuple(rates), chunk=2 * kB)


@pytest.mark.long
@pytest.mark.parametrize("room", [10 * kB, LARGE], ids=["small", "large"])
def test_nine_of_ten_promises_are_kept_on_random_networks(room, monkeypatch):
    monkeypatch.setattr(in_order, "ROOM", room)
    promised = kept = 0
    for seed in range(effort(5, 200)):
        chance = Random(seed)
        number, spread = chance.randint(1, 3), chance.choice([0.05, 0.2, 0.4])
        behaviours = [
            varying(chance, 100 * kB * exp(chance.gauss(0, 0.3)), spread, chance.choice([0.5, 0.9, 0.98]))
            for _ in range(number)
        ]
        got = read(chance.uniform(20, 120) * number**0.5 * kB, *behaviours)
        if got.report:
            assert got.taken == CONTENT
            promised, kept = promised + 1, kept + got.report.reading.kept
    assert promised >= effort(2, 60)
    assert kept >= 0.9 * promised

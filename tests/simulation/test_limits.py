"""Whole downloads in virtual time from servers with rate limits: no piece is requested without permission."""

import asyncio

import numpy as np
import pytest

from coalloc.download.report import source_reports
from coalloc.engine.base import Admission
from coalloc.model.forecasts import Estimate
from coalloc.schedule.policies import NAMES
from coalloc.testing.simulated import Behaviour
from tests.support.simulation import Result, simulate

SIZE = 20_000_000
DATA = np.random.default_rng(7).bytes(SIZE)
FAST = Behaviour(rates=((0.0, 50e6),))


class Limit:
    """A limit in bytes per second, as the broker enforces it: first come, first served.

    :param until: what others have leave for already
    """

    def __init__(self, rate: float, until: float = 0.0) -> None:
        self._rate = rate
        self._until = until
        self.admission = Admission(int(rate), self._wait)
        self.given: list[tuple[float, int]] = []

    async def _wait(self, count: int) -> None:
        now = asyncio.get_running_loop().time()
        start = max(self._until, now)
        self._until = start + count / self._rate
        await asyncio.sleep(start - now)
        self.given.append((start, count))


def untroubled(result: Result) -> bool:
    """Check that everything is here, no source was dropped, and none reconnected."""
    sources = result.scheduler.state.sources
    failed = [copy.ending for source in sources for copy in source.ended if copy.ending in ("failed", "stalled")]
    opened = [source.opened for source in result.sources]
    return result.content == DATA and not result.error and not failed and set(opened) == {1}


@pytest.mark.parametrize("strategy", NAMES)
def test_no_piece_is_sent_without_permission(strategy):
    limit = Limit(2e6)
    result = simulate(DATA, [FAST], strategy, admissions=[limit.admission])
    assert untroubled(result)
    assert sum(count for _, count in limit.given) == result.sent == SIZE
    assert max(count for _, count in limit.given) <= 2_000_000
    assert 9.0 <= result.seconds < 9.5  # the last of ten pieces begins after nine seconds


@pytest.mark.parametrize("sources", [2, 5])
def test_sources_that_share_a_limit_reach_it_together(sources):
    limit = Limit(2e6)
    result = simulate(DATA, [FAST] * sources, admissions=[limit.admission] * sources)
    assert untroubled(result)
    assert result.sent <= sum(count for _, count in limit.given) <= 1.2 * SIZE
    assert 9.0 <= result.seconds < 11.5


@pytest.mark.parametrize("rate", [0.2e6, 1e6, 5e6])
@pytest.mark.parametrize("known", [True, False])
def test_other_source_delivers_the_bytes_that_a_limited_one_may_not(rate, known):
    limit, other = Limit(rate), Behaviour(rates=((0.0, 10e6),))
    estimates = [Estimate(rate=rate), Estimate(rate=10e6)] if known else None
    result = simulate(DATA, [FAST, other], estimates=estimates, admissions=[limit.admission, None])
    assert untroubled(result)
    assert result.seconds < 1.1 * SIZE / 10e6 + 0.3
    reports = source_reports(result.scheduler.state, ["limited", "other"], {}, 0.0, result.seconds)
    assert {report.outcome for report in reports} == {"ok"}


def test_source_waiting_for_permission_does_not_count_as_stalled():
    limit = Limit(1e6, until=100.0)
    result = simulate(DATA, [FAST, FAST], admissions=[limit.admission] * 2)
    assert untroubled(result)
    assert result.seconds < 125.0
    assert all((source.setup_seconds or 0.0) < 0.1 for source in result.scheduler.state.sources)


def test_source_silent_with_permission_counts_as_stalled():
    limit, stalls = Limit(2e6), Behaviour(rates=((0.0, 50e6), (4.5, 0.0)))
    result = simulate(DATA, [stalls, Behaviour(connect_seconds=30.0, rates=FAST.rates)], admissions=[limit.admission])
    first, second = result.scheduler.state.sources
    assert (result.content, result.error) == (DATA, None)
    stalled = first.ended[0]
    assert stalled.ending == "stalled"
    assert stalled.over_at == pytest.approx(8.05, abs=0.3)  # the sixth piece had permission at 5.05
    assert second.bytes > SIZE / 3


def test_a_limit_that_does_not_bind_costs_next_to_nothing():
    free = simulate(DATA, [FAST, FAST])
    held = simulate(DATA, [FAST, FAST], admissions=[Limit(1e9).admission] * 2)
    assert untroubled(held)
    assert held.seconds <= free.seconds + FAST.setup_seconds  # of one more request at most


def test_source_without_ranges_is_read_as_fast_as_permitted():
    limit = Limit(2e6)
    result = simulate(DATA, [Behaviour(ranged=False, rates=FAST.rates)], admissions=[limit.admission])
    assert untroubled(result)
    assert max(count for _, count in limit.given) <= 2_000_000
    assert 9.0 <= result.seconds <= 10.0 + SIZE / 50e6

"""The outlook of a running transfer: how many sources a deadline needs, warnings, and errors that are learnt."""

import json
from math import isfinite

import pytest

from coalloc.download.outlook import Outlook, promised, refused
from coalloc.errors import DeadlineRefused
from coalloc.guarantees.deadline import paths_of
from coalloc.guarantees.finish import FinishErrors
from coalloc.model.forecasts import Estimate
from coalloc.model.promises import Deadline
from coalloc.schedule.state import State

MB = 1_000_000
CLOCK = 1_800_000_000.0
KNOWN = Estimate(0.1, 1.0 * MB, bounds=(0.9 * MB, 1.1 * MB))


class Transfer:
    """A transfer in virtual time: each source in use delivers bytes at its rate, looked at every second."""

    def __init__(self, size: int, seconds: float | None, sources: int = 2, most: int = 64) -> None:
        self.state = State(size, [KNOWN] * sources)
        deadline = None if seconds is None else Deadline(CLOCK + seconds)
        self.outlook = Outlook({}, deadline, most, CLOCK)
        self.now = 0.0
        self.used = min(most, self.outlook.begin(size, [KNOWN] * sources, "x", self.now, CLOCK))

    def run(self, seconds: int, *rates: float) -> int:
        """Let time pass; return the number of sources wanted at the end."""
        for _ in range(seconds):
            for source in self.state.sources:
                source.status = "fetching" if source.index < self.used else "spare"
            for source, rate in zip(self.state.sources[: self.used], rates, strict=False):
                done = self.state.final.total
                self.state.final.add(done, min(self.state.size, done + int(rate)))
                source.bytes += self.state.final.total - done
            self.now += 1.0
            self.used = self.outlook.look(self.state, self.now, CLOCK + self.now)
        return self.used


def test_one_source_is_enough_while_there_is_time():
    transfer = Transfer(100 * MB, 300)
    assert transfer.used == 1
    assert transfer.run(20, 1.0 * MB) == 1


def test_a_slow_source_gets_help_and_the_help_is_released_when_it_is_fast_again():
    transfer = Transfer(200 * MB, 240)
    assert transfer.run(10, 1.0 * MB) == 1
    assert transfer.run(20, 0.05 * MB, 1.0 * MB) == 2
    assert transfer.run(30, 4.0 * MB, 1.0 * MB) == 1


def test_sources_do_not_come_and_go():
    """Three steady sources, of which one and a half are needed."""
    transfer, changes, last = Transfer(300 * MB, 200, sources=3), 0, 0
    for _ in range(195):
        used = transfer.run(1, MB, MB, MB)
        changes += used != last
        last = used
    assert changes <= 2 * 3 + 2
    assert transfer.state.complete


def test_a_pause_of_a_source_does_not_forget_what_all_carried():
    transfer = Transfer(1000 * MB, None)
    transfer.run(20, MB, MB)
    first, second = transfer.state.sources
    bounds = []
    for status in ("idle", "fetching", "idle"):
        first.status, second.status = status, "fetching"
        transfer.now += 1
        done = transfer.state.final.total
        transfer.state.final.add(done, done + 2 * MB)
        transfer.outlook.look(transfer.state, transfer.now, CLOCK + transfer.now)
        bounds.append(transfer.outlook._total.forecast(10))
    assert all(bounds)
    assert transfer.outlook._used == (0, 1)


def test_no_more_sources_are_counted_on_than_may_be_used():
    transfer = Transfer(200 * MB, 150, sources=6, most=2)
    assert transfer.run(5, MB, MB) >= 2
    assert transfer.outlook.view is not None
    assert transfer.outlook.view.chance == pytest.approx(1.0, abs=0.2)
    promising = Outlook({}, Deadline(CLOCK + 60), 2, CLOCK)
    with pytest.raises(DeadlineRefused):
        promising.begin(200 * MB, [KNOWN] * 2, "x", 0.0, CLOCK)


def test_a_source_that_waits_for_a_connection_is_not_counted():
    transfer = Transfer(100 * MB, 200)
    transfer.run(3, MB)
    transfer.state.sources[0].status = "waiting"
    transfer.state.sources[1].status = "spare"
    transfer.now += 1
    assert transfer.outlook.look(transfer.state, transfer.now, CLOCK + transfer.now) >= 1


def test_the_source_that_carries_the_transfer_stays():
    """The preferred source is connected again and does not deliver yet; the other one delivers."""
    transfer = Transfer(200 * MB, 400)
    transfer.run(5, MB)
    first, second = transfer.state.sources
    for _ in range(30):
        first.status, second.status = "connecting", "fetching"
        done = transfer.state.final.total
        transfer.state.final.add(done, done + MB)
        second.bytes += MB
        transfer.now += 1
        wanted = transfer.outlook.look(transfer.state, transfer.now, CLOCK + transfer.now)
        assert wanted >= 1
    order = sorted(transfer.state.sources, key=lambda source: source.status != "fetching")
    assert order[0] is second


def test_a_standstill_teaches_nothing_and_breaks_nothing():
    transfer = Transfer(2 * MB, None, sources=1)
    transfer.run(1, 1.2 * MB)
    transfer.run(60, 0.0)
    transfer.run(1, 0.8 * MB)
    assert transfer.state.complete
    learnt = transfer.outlook.errors(transfer.now)
    assert all(isfinite(each.error) for each in learnt)


def test_a_warning_comes_when_the_chance_stays_low_and_only_once():
    transfer = Transfer(200 * MB, 300, sources=1)
    transfer.run(5, MB)
    assert transfer.outlook.warnings == []
    transfer.run(60, 0.1 * MB)
    assert 1 <= len(transfer.outlook.warnings) <= 2
    json.dumps([each.later for each in transfer.outlook.warnings], allow_nan=False)


def test_a_forecast_without_end_names_no_time():
    transfer = Transfer(10_000 * MB, 20_000, sources=1)
    transfer.run(5, MB)
    transfer.run(200, 1.0)
    assert transfer.outlook.view is not None
    assert transfer.outlook.view.later is None or transfer.outlook.view.later < CLOCK + 4e8


def test_the_time_to_verify_is_part_of_the_promise():
    paths, errors = paths_of([Estimate(0.0, 1000.0 * MB, bounds=(999.0 * MB, 1001.0 * MB))]), FinishErrors()
    view, _ = promised(Deadline(CLOCK + 12), 10_000 * MB, paths, errors, CLOCK)
    assert view.chance is not None
    assert view.chance < 0.05
    assert "use --by" in refused("x", view).remedy

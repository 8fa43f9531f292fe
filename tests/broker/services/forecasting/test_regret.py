"""The best plan in hindsight. Pure."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from broker.services.forecasting.regret import Able, hindsight

MB = 1_000_000
STARTS, RATES = some.floats(0, 100), some.floats(1e3, 1e9)
FAILS = some.builds(Able, STARTS, RATES, some.integers(0, 10**10), some.none())
NEVER_FAILS = some.builds(Able, STARTS, RATES, some.just(math.inf), some.none())
SIZES = some.integers(1000, 10**11)


def test_two_sources_of_which_one_was_thought_too_fast():
    known = hindsight(100 * MB, [Able(0.0, 6 * MB, planned=50 * MB), Able(0.0, 4 * MB, planned=50 * MB)])
    assert known.best == pytest.approx(10)
    assert known.shares == pytest.approx([60 * MB, 40 * MB])
    assert (known.planned, known.waits) == (12.5, 1)
    assert known.single == pytest.approx(100 / 6)


def test_a_source_that_begins_when_all_is_done_gets_nothing():
    known = hindsight(10 * MB, [Able(1.0, 10 * MB), Able(2.5, 100 * MB)])
    assert (known.best, known.shares, known.single) == (2.0, [10 * MB, 0.0], 2.0)


def test_a_source_that_failed_gives_no_more_than_it_gave():
    known = hindsight(10 * MB, [Able(0.0, 10 * MB, most=2 * MB, planned=5 * MB), Able(0.0, 1 * MB, planned=5 * MB)])
    assert known.best == pytest.approx(8)
    assert known.shares == pytest.approx([2 * MB, 8 * MB])
    assert (known.planned, known.waits) == (None, None)
    assert known.single == pytest.approx(10)


def test_sources_that_cannot_deliver_everything_have_no_hindsight():
    assert hindsight(10 * MB, [Able(0.0, 10 * MB, most=2 * MB), None]) is None
    assert hindsight(1, []) is None


@pytest.mark.parametrize("shares", [(None, None), (4, None), (4, 5)])
def test_shares_that_are_not_of_the_whole_file_are_no_plan(shares):
    first, second = (Able(0.0, 1.0, planned=share) for share in shares)
    assert hindsight(10, [first, second]).planned is None


def test_a_plan_with_an_unknown_source_has_no_planned_time():
    assert hindsight(10, [Able(0.0, 1.0, planned=5), None]).planned is None
    assert hindsight(10, [Able(0.0, 1.0, planned=10), None]).planned == 10


@given(SIZES, some.lists(FAILS | NEVER_FAILS, max_size=6), NEVER_FAILS)
@example(1720, [Able(4.0, 7796617.0, 1720)], Able(5.0, 1000.0))
@example(1109, [Able(4.0, 1353.0, 1109)], Able(5.0, 1000.0))
def test_the_best_shares_bring_all_and_end_together(size, sources, sure):
    sources.append(sure)
    known = hindsight(size, sources)
    assert sum(known.shares) == pytest.approx(size, rel=1e-6)
    for able, share in zip(sources, known.shares, strict=True):
        ends = able.start + share / able.rate
        assert ends == pytest.approx(known.best, rel=1e-6) or share == able.most or able.start >= known.best
    assert known.best <= known.single * (1 + 1e-9)


@given(some.lists(NEVER_FAILS, min_size=1, max_size=6), some.data())
def test_no_plan_is_better_than_the_best(sources, data):
    shares = [data.draw(some.integers(0, 10**10)) for _ in sources]
    size = sum(shares)
    if size:
        known = hindsight(size, [able._replace(planned=share) for able, share in zip(sources, shares, strict=True)])
        assert known.planned >= known.best * (1 - 1e-9)
        ends = [able.start + share / able.rate for able, share in zip(sources, shares, strict=True) if share]
        assert known.planned == max(ends)


@given(some.lists(some.tuples(some.floats(0, 50), some.floats(0.1, 50), some.integers(1, 10**10)), min_size=1))
def test_the_actual_time_is_never_better_than_the_best(done):
    """Sources that delivered this many bytes in this many seconds, with or without pauses: their rates are means."""
    sources = [Able(start, count / flowed) for start, flowed, count in done]
    actual = max(start + flowed for start, flowed, _ in done)
    assert hindsight(sum(count for *_, count in done), sources).best <= actual * (1 + 1e-9)

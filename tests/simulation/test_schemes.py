"""Every scheme downloads every file on any network, as long as one honest source works."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.errors import TransferFailed
from coalloc.model.forecasts import Estimate
from coalloc.schedule.policies import NAMES
from coalloc.testing.simulated import Behaviour
from tests.support.effort import effort
from tests.support.simulation import simulate

MB = 1_000_000


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def steady(rate: float, **more) -> Behaviour:
    return Behaviour(rates=((0.0, rate),), **more)


rates = st.lists(st.tuples(st.floats(0.1, 20), st.sampled_from([0.0, 2e4, 1e5, 1e6, 5e6, 2e7])), max_size=4).map(
    lambda changes: ((0.0, 1e6), *sorted(changes))
)
behaviours = st.builds(
    Behaviour,
    rates=rates,
    connect_seconds=st.floats(0.001, 3),
    setup_seconds=st.floats(0.001, 0.5),
    dies_at=st.one_of(st.just(float("inf")), st.floats(0, 10)),
    returns_at=st.one_of(st.just(float("inf")), st.floats(0, 20)),
    missing=st.booleans(),
    claims_size=st.sampled_from([None, None, None, 7]),
    ranged=st.sampled_from([True, True, True, False]),
    chunk=st.sampled_from([1000, 16 * 1024, 100_000]),
    disorder=st.sampled_from([1, 1, 4]),
)


@settings(max_examples=effort(15, 60))
@given(
    strategy=st.sampled_from(NAMES),
    size=st.sampled_from([0, 1, 1000, 300_000, 3 * MB]),
    others=st.lists(behaviours, max_size=4),
    place=st.integers(0, 4),
    seed=st.integers(0, 5),
)
def test_one_honest_source_is_enough(strategy, size, others, place, seed):
    data = content(size, seed)
    crowd = [*others[:place], steady(5e5, chunk=16 * 1024), *others[place:]]
    result = simulate(data, crowd, strategy)
    assert result.error is None
    assert result.content == data
    assert sum(result.shares) == size


@pytest.mark.parametrize("strategy", NAMES)
def test_no_source_left_is_an_error_that_names_the_reason(strategy):
    dying = steady(1e6, dies_at=1.0)
    result = simulate(content(3 * MB), [dying, dying], strategy)
    assert isinstance(result.error, TransferFailed)
    assert "refused the connection" in result.error.message


@pytest.mark.parametrize("strategy", NAMES)
def test_a_source_that_comes_back_is_used_again(strategy):
    data = content(3 * MB)
    result = simulate(data, [steady(1e6, dies_at=1.0, returns_at=4.0)], strategy)
    assert result.error is None
    assert result.content == data


@pytest.mark.parametrize("strategy", NAMES)
def test_a_lone_stalled_source_is_connected_anew(strategy):
    data = content(2 * MB)
    result = simulate(data, [Behaviour(rates=((0.0, 1e6), (1.0, 0.0), (30.0, 1e6)))], strategy)
    assert result.error is None
    assert result.content == data


@pytest.mark.parametrize("strategy", NAMES)
def test_bytes_already_present_are_not_fetched_again(strategy):
    data = content(3 * MB)
    missing = [(100, 2000), (MB, 2 * MB)]
    result = simulate(data, [steady(1e6), steady(5e5)], strategy, missing=missing)
    assert result.content == data
    assert result.sent <= MB + 1900 + 200_000


@pytest.mark.parametrize("strategy", NAMES)
def test_a_lone_source_without_ranges_sends_it_all(strategy):
    data = content(3 * MB)
    for missing in (None, [(100, 2000), (MB, 2 * MB)]):
        result = simulate(data, [steady(1e6, ranged=False)], strategy, missing=missing)
        assert result.error is None
        assert result.content == data
        assert result.sent <= len(data)


@pytest.mark.parametrize("strategy", NAMES)
def test_blocks_that_come_out_of_order_are_neither_lost_nor_fetched_again(strategy):
    data = content(6 * MB)
    crowd = [
        Behaviour(rates=((0.0, 2e6), (0.8, 2e5)), disorder=8),
        steady(1e6, dies_at=0.7, disorder=8),
        steady(5e5, disorder=8),
    ]
    result = simulate(data, crowd, strategy)
    assert result.content == data
    assert sum(result.shares) == len(data)
    assert result.sent <= 1.02 * len(data)


def test_brute_gives_equal_shares():
    result = simulate(content(9 * MB), [steady(3e6), steady(2e6), steady(1e6)], "brute")
    assert result.shares == [3 * MB] * 3


def test_history_gives_shares_by_forecast_and_the_median_to_the_unknown():
    estimates = [Estimate(rate=4e6), Estimate(rate=2e6), Estimate(rate=1e6), Estimate()]
    result = simulate(content(9 * MB), [steady(1e6)] * 4, "history", estimates=estimates)
    assert result.shares == [4 * MB, 2 * MB, 1 * MB, 2 * MB]


def test_single_uses_the_best_by_forecast():
    estimates = [Estimate(rate=1e6), Estimate(rate=4e6)]
    result = simulate(content(MB), [steady(1e6), steady(1e6)], "single", estimates=estimates)
    assert result.shares == [0, MB]


def test_conservative_gives_equal_blocks_to_idle_sources():
    result = simulate(content(10 * MB), [steady(4e6), steady(1e6)], "conservative", blocks=10)
    assert result.shares == [8 * MB, 2 * MB]
    assert [len(source.ended) for source in result.scheduler.state.sources] == [8, 2]


def test_aggressive_doubles_the_fast_and_drops_the_hopeless():
    crowd = [steady(4e6), steady(2e6), steady(1e5, chunk=10_000)]
    result = simulate(content(30 * MB), crowd, "aggressive", blocks=30)
    ranges = [len(source.ended) for source in result.scheduler.state.sources]
    assert ranges[2] == 1
    assert result.shares[0] > result.shares[1]
    assert ranges[0] < result.shares[0] / MB


def test_most_limits_how_many_are_used_and_spares_replace_the_dead():
    data = content(4 * MB)
    crowd = [steady(1e6), steady(1e6, dies_at=0.5), steady(1e6), steady(1e6)]
    result = simulate(data, crowd, most=2)
    assert result.content == data
    assert result.shares[2] > 0
    assert result.shares[3] == 0

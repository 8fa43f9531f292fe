"""Sums give the same results as `metrics` on the rows that they are sums of."""

from statistics import median, median_high, median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.metrics import bounds, scores
from predictors.observation import Rates
from predictors.tally import ACCURACY, LEAST, Tally, middle

RATE = st.floats(1e3, 1e10)
SAID = st.builds(
    lambda p50, low, high: Rates(p50 * low, p50, p50 * high), RATE, st.floats(0.01, 1.0), st.floats(1.0, 100.0)
)
ROWS = st.lists(st.tuples(SAID, RATE | st.sampled_from([1e6, 1.1e6, 2e6])), min_size=1, max_size=40)


def tally(rows):
    return Tally.total(Tally.of(rates, actual) for rates, actual in rows)


def within(read: float, true: float) -> bool:
    """Compare within the promised accuracy, twice: a median of an even number is the mean of two."""
    return abs(read - true) <= ACCURACY * abs(true) * (1 + 1e-9) + LEAST


@given(ROWS)
def test_sums_agree_with_metrics_of_the_rows(rows):
    actual = [rate for _, rate in rows]
    true, sums = scores([rates.p50 for rates, _ in rows], actual), tally(rows)
    assert (sums.transfers, sums.share_close) == (true.pairs, true.close)
    assert sums.rmsre == pytest.approx(true.rmsre, rel=1e-4, abs=2e-3)
    assert sums.log_error == pytest.approx(true.log_error, abs=1e-6)
    low = bounds([rates.p10 for rates, _ in rows], actual)
    outside = sum(rate < rates.p10 for rates, rate in rows) + sum(rate > rates.p90 for rates, rate in rows)
    assert sums.below / sums.transfers == low.missed
    assert sums.coverage == pytest.approx(1 - outside / len(rows))


@given(ROWS)
def test_a_median_that_is_read_is_within_its_bound(rows):
    errors = [rates.p50 / actual - 1 for rates, actual in rows]
    if max(map(abs, errors)) < 1000:
        sums = tally(rows)
        assert within(sums.mdape, median(map(abs, errors)))
        largest = max(abs(sorted(errors)[len(errors) // 2]), abs(sorted(errors)[(len(errors) - 1) // 2]))
        assert abs(sums.bias - 1 - median(errors)) <= ACCURACY * largest * (1 + 1e-9) + LEAST


@given(ROWS, st.randoms())
def test_sums_are_the_same_in_any_order_and_what_is_taken_back_leaves_no_trace(rows, random):
    whole = tally(rows)
    random.shuffle(rows)
    cut = random.randrange(len(rows) + 1)
    first, second = tally(rows[:cut]), tally(rows[cut:])
    assert Tally.total([first, second]) == Tally.total([second, first]) == whole
    assert Tally.total([whole], less=[second]) == first
    assert Tally.total([whole], less=[whole]) == Tally()


def test_nonsensical_rates_are_counted():
    least, most = 5e-324, 1.7e308
    for rates, actual in (
        (Rates(least, 1.0, most), 1.0),
        (Rates(least, least, least), most),
        (Rates(1, most, most), 1e-3),
    ):
        assert Tally.of(rates, actual).transfers == 1


@given(st.lists(st.integers(-5, 5), min_size=1))
def test_the_middle_of_counts_is_that_of_the_values(values):
    counts = {value: values.count(value) for value in range(-6, 7)}
    assert middle(counts) == (median_low(values), median_high(values))


def test_empty_tally_has_no_median():
    with pytest.raises(ValueError, match="no median"):
        middle({})
    with pytest.raises(ValueError, match="no median"):
        _ = Tally().mdape

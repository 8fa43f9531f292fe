"""Better, or lucky: the sign test and the rank sum test, against published values and other implementations."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from hypothesis import strategies as st

from broker.models.scores import IN_CHARGE, ForecasterRecord, ScoreKey, recorded
from broker.reports.significance import (
    FEWEST,
    contests,
    duels,
    holm,
    median_interval,
    quantile,
    shifted,
    sign_test,
)
from predictors.tally import Tally

DAYS = some.lists(some.floats(0, 3), min_size=1, max_size=7)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_sign_test_is_the_exact_binomial_one(won, lost):
    from scipy.stats import binomtest  # takes half a second

    expected = binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert sign_test(won, lost) == pytest.approx(expected)
    assert sign_test(won, lost) == sign_test(lost, won)


def test_thousands_of_weeks_are_no_trouble():
    from scipy.stats import binomtest  # takes half a second

    assert sign_test(4900, 5100) == pytest.approx(binomtest(4900, 10_000).pvalue)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_makes_a_chance_smaller_nor_changes_the_order(chances):
    adjusted = holm(chances)
    assert all(chance <= other <= 1 for chance, other in zip(chances, adjusted, strict=True))
    assert sorted(adjusted) == [adjusted[i] for i in sorted(range(len(chances)), key=lambda i: chances[i])]
    if chances:
        assert min(adjusted) == min(1.0, len(chances) * min(chances))


def weeks(
    errors: dict[str, float], count: int, pair: int = 1, noise: float = 0.0, seed: int = 1
) -> list[ForecasterRecord]:
    """Return the errors of forecasters on a pair over this many weeks of ten transfers."""
    chance = Random(seed + pair)
    tallies = {
        ScoreKey(week, pair, size, name): Tally(5, absolute_log_errors=5 * (error + chance.gauss(0, noise)))
        for week in range(count)
        for size in (1, 2)
        for name, error in {**errors, IN_CHARGE: 0.0}.items()
    }
    return recorded(tallies)


def test_a_forecaster_that_is_always_nearer_wins():
    found = duels([*weeks({"hedge": 0.2, "last": 0.1, "kernel": 0.3}, 20)], lambda record: record.pair_id)
    by_name = {duel.forecaster: duel for duel in found[1]}
    assert set(by_name) == {"hedge", "last", "kernel"}
    assert (by_name["last"].won, by_name["last"].lost, by_name["kernel"].lost) == (20, 0, 20)
    assert by_name["last"].p == pytest.approx(2 * 2 * 0.5**20)
    (won,) = contests(found)
    assert (won.best, won.rival, won.won, won.lost, won.transfers) == ("last", "hedge", 20, 0, 200)


def test_the_hedge_is_compared_with_the_next_if_it_is_nearest():
    (won,) = contests(duels(weeks({"hedge": 0.1, "last": 0.2, "kernel": 0.3}, 10), lambda record: record.pair_id))
    assert (won.best, won.rival, won.won, won.lost) == ("hedge", "last", 10, 0)


def test_few_weeks_give_no_p_value():
    (won,) = contests(duels(weeks({"hedge": 0.2, "last": 0.1}, FEWEST - 1), lambda record: record.pair_id))
    assert won.p is None
    (won,) = contests(duels(weeks({"hedge": 0.2, "last": 0.1}, FEWEST), lambda record: record.pair_id))
    assert won.p == pytest.approx(2 * 0.5**FEWEST)


def test_among_many_pairs_without_any_difference_hardly_ever_one_is_found():
    false = 0
    for seed in range(40):
        records = [
            record
            for pair in range(20)
            for record in weeks({"hedge": 1.0, "last": 1.0}, 10, pair, noise=0.1, seed=100 * seed)
        ]
        found = contests(duels(records, lambda record: record.pair_id))
        false += any(each.p is not None and each.p < 0.05 for each in found)
    assert false <= 6  # 5 % of 40, and chance


@given(before=DAYS, after=DAYS)
@settings(max_examples=60, deadline=None)
def test_without_equal_values_it_agrees_with_scipy(before, after):
    from scipy.stats import mannwhitneyu  # takes half a second

    if len({*before, *after}) == len(before) + len(after):
        theirs = mannwhitneyu(after, before, alternative="greater", method="exact").pvalue
        assert shifted(before, after) == pytest.approx(theirs)


@given(before=DAYS, after=DAYS)
@example(before=[0.0], after=[5e-324])
@settings(max_examples=60, deadline=None)
def test_it_is_a_probability_that_no_order_and_no_scale_changes(before, after):
    p = shifted(before, after)
    assert 0 < p <= 1
    assert shifted(sorted(before), after[::-1]) == p
    # Exact for each of them; a quarter of the least float would be zero.
    assert shifted([each * 4 for each in before], [each * 4 for each in after]) == p


def test_constant_values_have_a_p_value_of_one():
    assert shifted([1.0] * 7, [1.0] * 7) == 1.0


def test_the_least_of_two_weeks():
    assert shifted([0.1 * i for i in range(7)], [1 + 0.1 * i for i in range(7)]) == pytest.approx(1 / 3432)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (9, 8)])
def test_incomparable_samples_are_refused(sizes):
    with pytest.raises(ValueError, match="cannot be compared"):
        shifted([1.0] * sizes[0], [1.0] * sizes[1])


@given(st.integers(FEWEST, 60))
def test_the_interval_of_a_median_holds_the_values_the_sign_test_accepts(count):
    values = [float(each) for each in range(count)]
    low, high = median_interval(values, [1.0] * count)
    kept = [each for each in values if sign_test(int(each), count - int(each)) >= 0.05]
    assert (low, high) == (kept[0] - 1, kept[-1])


@given(st.lists(st.tuples(st.floats(-9, 9), st.integers(1, 4)), min_size=1, max_size=20), st.floats(0.01, 1))
def test_a_weighted_value_counts_like_several(weighted, share):
    repeated = [value for value, times in weighted for _ in range(times)]
    values, weights = [value for value, _ in weighted], [float(times) for _, times in weighted]
    assert quantile(values, weights, share) == quantile(repeated, [1.0] * len(repeated), share)


def test_unequal_weights_widen_an_interval():
    values = [float(each) for each in range(30)]
    narrow, wide = median_interval(values, [1.0] * 30), median_interval(values, [20.0, *[1.0] * 29])
    assert narrow == (9.0, 20.0)
    assert wide is None  # as of four values
    assert median_interval([*values, *values], [1.0] * 30 + [3.0] * 30)[1] >= narrow[1] - 1


def test_an_interval_of_thousands_of_values_is_computed():
    low, high = median_interval([float(each) for each in range(100_000)], [1.0] * 100_000)
    assert 45_000 < low < 49_000 < 51_000 < high < 55_000


@pytest.mark.parametrize("count", [0, 1, FEWEST - 1])
def test_few_values_have_no_interval(count):
    assert median_interval([1.0] * count, [1.0] * count) is None


def test_no_values_have_no_quantile():
    with pytest.raises(ValueError, match="no quantile"):
        quantile([], [], 0.5)

"""Storage and lookup of many transfers, against plain lists."""

from math import ceil, inf, nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from predictors.models.neighbourhood import Nearness, Neighbourhood
from predictors.models.past import Features

ALIKE = Nearness(*[inf] * len(Nearness._fields))
"""Scales with which all transfers are equally near."""
NOTHING = Features(*[0.0] * len(Features._fields))


@given(st.lists(st.sampled_from([1.0, 2.0, 3.5, 7.0]) | st.floats(0, 10), min_size=1, max_size=60))
def test_quantiles_and_the_mean_are_those_of_a_list(values):
    assume(
        len(values) % 10
    )  # a tenth of them would be a whole number, and the sum of their weights just above or below
    kept = Neighbourhood(ALIKE, 100)
    for i, value in enumerate(values):
        kept.learn(value, float(i), NOTHING)
    low, mean, high = kept.expected(NOTHING, 1e9)
    least, most = (sorted(values)[ceil(share * len(values)) - 1] for share in (0.1, 0.9))
    assert (low, high) == (least, most)
    assert mean == pytest.approx(min(max(sum(values) / len(values), least), most))


def test_full_store_keeps_some_old_and_most_of_the_newest_transfers():
    kept = Neighbourhood(ALIKE, 100)
    for i in range(1000):
        kept.learn(float(i), float(i), NOTHING)
    found = kept.quantiles(NOTHING, 1e9, [(i + 0.5) / 100 for i in range(100)])
    assert len(set(found)) == 100
    assert found[-1] == 999.0
    assert sum(value < 900 for value in found) > 20
    assert sum(value >= 950 for value in found) > 30


def test_transfers_that_had_not_ended_are_not_known():
    kept = Neighbourhood(ALIKE, 100)
    assert kept.expected(NOTHING, 0.0) is None
    kept.learn(1.0, 10.0, NOTHING)
    kept.learn(2.0, 20.0, NOTHING)
    assert kept.expected(NOTHING, 9.0) is None
    assert kept.expected(NOTHING, 10.0) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("which", Features._fields)
def test_nearer_transfers_count_more_in_each_known_feature(which):
    kept = Neighbourhood(Nearness(*[1.0] * len(Nearness._fields))._replace(age=inf, late=inf), 100)
    for value in (1.0, 5.0):
        kept.learn(value, value, NOTHING._replace(**{which: value}))
    (_, near_one, _), (_, near_five, _) = (kept.expected(NOTHING._replace(**{which: at}), 9.0) for at in (1.0, 5.0))
    assert near_one < 3.0 < near_five


def test_unknown_features_do_not_affect_the_expected_rate():
    """A path without ended transfers, and an unknown size."""
    kept = Neighbourhood(Nearness(*[1.0] * len(Nearness._fields))._replace(age=inf, late=inf), 100)
    for value in (1.0, 5.0):
        kept.learn(value, value, NOTHING._replace(size=value, rate=value))
    _, mean, _ = kept.expected(Features(nan, 0.0, 0.0, *[nan] * 5), 9.0)
    assert mean == pytest.approx(3.0)

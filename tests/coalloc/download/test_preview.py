"""The forecast of a plan: duration and uncertainty."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.download.preview import preview
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet, Stat
from coalloc.schedule.policies import make

SIZE = 1_000_000_000
QUANTILES = st.tuples(st.floats(1e5, 1e7), st.floats(1e7, 1e8), st.floats(1e8, 1e9))


def _plan(strategy, *rates, setups=None):
    """:param rates: of each source p10, p50 and p90; or None"""
    setups = setups or [0.5] * len(rates)
    file = ReplicaSet("x", tuple(Replica(f"ftp://{i}/x") for i in range(len(rates))))
    known = zip(setups, rates, strict=True)
    estimates = [Estimate(setup, r[1], "", (r[0], r[2])) if r else Estimate(setup) for setup, r in known]
    return preview(file, estimates, make(strategy), {i: Stat(SIZE) for i in range(len(rates))})


def test_bounds_of_one_source_are_those_of_its_rate():
    low, high = _plan("single", (50e6, 80e6, 100e6)).bounds
    assert low == pytest.approx(0.5 + SIZE / 100e6, rel=0.05)
    assert high == pytest.approx(0.5 + SIZE / 50e6, rel=0.05)


def test_adaptive_plan_has_a_tighter_upper_bound_than_a_fixed_one():
    sources = [(20e6, 80e6, 160e6)] * 4
    fixed, moving = _plan("history", *sources).bounds, _plan("adaptive", *sources).bounds
    assert moving[1] < fixed[1]


@given(st.lists(QUANTILES, min_size=1, max_size=4), st.sampled_from(["single", "brute", "history", "adaptive"]))
def test_plan_has_a_lower_and_an_upper_bound(sources, strategy):
    low, high = _plan(strategy, *sources).bounds
    assert 0 < low < high


@pytest.mark.parametrize("strategy", ["adaptive", "history"])
def test_expected_duration_lies_within_its_bounds_despite_unequal_setup_times(strategy):
    plan = _plan(strategy, *[(90e6, 100e6, 110e6)] * 4, setups=[0.1, 3.0, 3.0, 3.0])
    assert plan.bounds[0] < plan.seconds < plan.bounds[1]


def test_plan_without_forecasts_has_no_duration():
    assert _plan("adaptive", None, None).bounds is None
    assert _plan("adaptive", None, None).seconds is None

"""Tests of the rule by which a transfer with a deadline uses as few sources as suffice."""

from math import exp, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.deadline import PathRate, finish, spares_needed
from coalloc.guarantees.finish import FinishErrors
from coalloc.guarantees.windows import RateWindows

ERRORS = FinishErrors()
PATHS = st.lists(st.builds(PathRate, st.floats(1, 1e9), st.floats(0.02, 2), st.floats(0, 60)), min_size=1, max_size=6)


def test_several_sources_end_together_and_vary_less_than_one() -> None:
    one, two = PathRate(1e6, 0.4), PathRate(1e6, 0.4)
    assert finish(10e6, [one]).seconds == pytest.approx(10)
    assert finish(10e6, [one, two]).seconds == pytest.approx(5)
    assert finish(10e6, [one, two]).spread == pytest.approx(0.4 / 2**0.5)


def test_a_source_counts_from_the_end_of_its_set_up() -> None:
    near, far = PathRate(1e6, 0.1), PathRate(1e6, 0.1, setup=4.0)
    assert finish(10e6, [near, far]).seconds == pytest.approx(7)
    assert finish(3e6, [near, far]).seconds == pytest.approx(3)
    assert finish(2e6, [far]).seconds == pytest.approx(6)


def test_no_source_never_ends_except_without_bytes() -> None:
    assert finish(1.0, []).seconds == inf
    assert finish(0.0, []).seconds == 0.0
    assert spares_needed(1e6, 10.0, [], [PathRate(0.0, 0.5)], 0.95, ERRORS, 1.0) == 1


def test_spares_rest_while_there_is_time_and_all_work_when_there_is_none() -> None:
    used, spares = [PathRate(1e6, 0.2)], [PathRate(1e6, 0.2), PathRate(5e6, 0.2)]
    assert spares_needed(10e6, 60.0, used, spares, 0.95, ERRORS, 1.0) == 0
    assert spares_needed(60e6, 8.5, used, spares, 0.95, ERRORS, 1.0) == 2
    assert spares_needed(60e6, 0.0, used, spares, 0.95, ERRORS, 1.0) == 2


def test_no_spare_is_kept_that_is_known_to_be_useless_later() -> None:
    """A spare source that needs long to begin is used earlier than one that begins at once."""
    used, left, seconds = [PathRate(1e6, 0.2)], 40e6, 32.0
    quick, slow = PathRate(1e6, 0.2), PathRate(1e6, 0.2, setup=20.0)
    assert spares_needed(left, seconds, used, [quick], 0.95, ERRORS, 1.0) == 0
    assert spares_needed(left, seconds, used, [slow], 0.95, ERRORS, 1.0) == 1


@given(PATHS, st.floats(0, 1e12), st.floats(1, 1e5))
def test_more_sources_are_never_slower(paths: list[PathRate], left: float, rate: float) -> None:
    more = [*paths, PathRate(rate, 0.3, setup=1.0)]
    assert finish(left, more).seconds <= finish(left, paths).seconds * (1 + 1e-9)


@given(PATHS, PATHS, st.floats(0, 1e12), st.floats(-10, 1e6), st.floats(0.5, 0.999))
def test_the_number_of_spares_is_possible(
    used: list[PathRate], spares: list[PathRate], left: float, seconds: float, sure: float
) -> None:
    number = spares_needed(left, seconds, used, spares, sure, ERRORS, 1.0)
    assert 0 <= number <= len(spares)
    assert spares_needed(left, seconds, used, spares, min(0.9995, sure + 0.3), ERRORS, 1.0) >= number


class Path:
    """A path in virtual time: its rate in each second varies around a level that wanders."""

    def __init__(self, chance: Random, mean: float) -> None:
        self._chance = chance
        self._mean = mean
        self._wander = 0.0

    def rate(self) -> float:
        self._wander = 0.95 * self._wander + self._chance.gauss(0, 0.08)
        return self._mean * exp(self._wander + self._chance.gauss(0, 0.3))


def transfer(chance: Random, tightness: float) -> tuple[bool, float]:
    """Return whether a transfer over a free path and one to be spared is in time, and the spared path's share.

    :param tightness: the file's size, in units of what the free path carries before the deadline on average
    """
    deadline, free, spared = 120, Path(chance, 1e6), Path(chance, 1e6)
    for _ in range(60):
        free.rate(), spared.rate()
    size = left = tightness * deadline * 1e6
    windows, both, taken = RateWindows(), False, 0.0
    for second in range(deadline):
        windows.add(size - left if not both else 0.0, float(second))
        if not both:
            used = [PathRate(*(windows.forecast(deadline - second) or (1e6, 0.35)))]
            both = spares_needed(left, deadline - second, used, [PathRate(1e6, 0.35, 1.0)], 0.95, ERRORS, 1.0) > 0
        amounts = free.rate(), spared.rate() if both else 0.0
        taken += min(amounts[1], max(0.0, left - amounts[0]))
        left -= sum(amounts)
        if left <= 0:
            return True, taken / size
    return False, taken / size


@pytest.mark.parametrize(("tightness", "most"), [(0.6, 0.03), (0.8, 0.15), (1.1, 0.4)])
def test_deadlines_are_kept_as_often_as_promised_and_the_spared_source_sends_little(
    tightness: float, most: float
) -> None:
    ended = [transfer(Random(seed), tightness) for seed in range(200)]
    assert sum(in_time for in_time, _ in ended) / len(ended) >= 0.95
    assert sum(share for _, share in ended) / len(ended) <= most

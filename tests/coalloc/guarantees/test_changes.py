"""Tests of the test of whether a rate has changed."""

from math import exp
from random import Random

import pytest

from coalloc.guarantees.changes import REFERENCE, ChangeTest

STATED = 2e-3


def rates(chance: Random, number: int, correlation: float, skewed: bool):
    level = 0.0
    for _ in range(number):
        noise = chance.expovariate(1) - 1 if skewed else chance.gauss(0, 1)
        level = correlation * level + noise
        yield 1e6 * exp(0.3 * level)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_false_alarms_are_as_rare_as_stated(correlation: float, skewed: bool):
    tested = alarms = 0
    for seed in range(20):
        test = ChangeTest(STATED)
        found = [test.add(rate) for rate in rates(Random(seed), 1500, correlation, skewed)]
        alarms += sum(found)
        tested += len(found) - REFERENCE * (1 + sum(found))
    assert 0.3 * STATED * tested < alarms < 1.6 * STATED * tested


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_change_is_found_within_some_windows(factor: float):
    found = 0
    for seed in range(40):
        test = ChangeTest(1e-4)
        for number, rate in enumerate(rates(Random(seed), REFERENCE + 45, 0.5, skewed=False)):
            alarm = test.add(rate * (factor if number >= REFERENCE + 20 else 1))
            found += alarm and number >= REFERENCE + 20
    assert found >= 36


def test_a_steady_rate_and_a_pause_raise_no_alarm_and_an_end_does():
    test = ChangeTest()
    assert not any(test.add(1e6) for _ in range(3 * REFERENCE))
    assert not test.add(0.0)
    assert not any(test.add(1e6) for _ in range(REFERENCE))
    assert any(test.add(0.0) for _ in range(10))
    assert not any(ChangeTest().add(0.0) for _ in range(3 * REFERENCE))

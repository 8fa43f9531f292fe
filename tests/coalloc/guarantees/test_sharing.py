"""Tests of how paths are found that share a bottleneck."""

from itertools import pairwise
from math import exp, pi, sin
from random import Random

import pytest

from coalloc.guarantees.samples import PathSamples
from coalloc.guarantees.sharing import chance_of_coincidence, shared_groups

DAY = 200


class Walk:
    """A rate whose logarithm wanders around its mean, with noise."""

    def __init__(self, chance: Random, wander: float = 0.9) -> None:
        self._chance, self._wander, self._level = chance, wander, 0.0

    def next(self) -> float:
        self._level = self._wander * self._level + self._chance.gauss(0, 0.15)
        return exp(self._level + self._chance.gauss(0, 0.15))


def independent(chance: Random, windows: int, daily: float = 0.0) -> tuple[list[float], list[float]]:
    """Return the rates of two paths of which each has its own traffic, and both the same time of day."""
    first, second = Walk(chance), Walk(chance)
    hours = [exp(daily * sin(2 * pi * window / DAY)) for window in range(windows)]
    return [first.next() * hour for hour in hours], [second.next() * hour for hour in hours]


def sharing(chance: Random, windows: int, ours: bool) -> tuple[list[float], list[float]]:
    """Return the rates of two paths over one link: traffic of others slows both, or ours is divided between them."""
    link, first, second = Walk(chance), Walk(chance), Walk(chance)
    rates = []
    for _ in range(windows):
        total, a, b = link.next(), first.next(), second.next()
        rates.append((total * a / (a + b), total * b / (a + b)) if ours else (total * a**0.5, total * b**0.5))
    return [a for a, _ in rates], [b for _, b in rates]


def changes(rates: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(rates)]


def chances(make, number: int) -> list[float]:
    return [chance_of_coincidence(*map(changes, make(Random(seed)))) for seed in range(number)]


@pytest.mark.parametrize("daily", [0.0, 1.0])
def test_independent_paths_are_said_to_share_as_seldom_as_stated(daily: float):
    found = chances(lambda chance: independent(chance, 240, daily), 150)
    assert sum(each < 0.05 for each in found) <= 14  # 7.5 are expected
    assert sum(each < 0.01 for each in found) <= 5


@pytest.mark.parametrize("ours", [False, True])
def test_paths_over_one_link_are_found(ours: bool):
    found = chances(lambda chance: sharing(chance, 240, ours), 30)
    assert sum(each < 0.01 for each in found) >= 27


def test_nothing_is_said_of_few_windows_or_of_steady_ones():
    rates = [float(number % 7) for number in range(40)]
    assert chance_of_coincidence(rates, rates) == 1.0
    assert chance_of_coincidence([0.0] * 100, [0.0] * 100) == 1.0


def path_of(rates: list[float], limited: bool = False) -> PathSamples:
    samples = PathSamples(1.0)
    samples.add(0, 0.0)
    for number, rate in enumerate(rates):
        samples.add(rate, number + 1.0, limited)
    return samples


def test_paths_are_grouped_by_what_is_found_and_what_is_known():
    chance = Random(3)
    a, b = sharing(chance, 300, ours=False)
    c, d = independent(chance, 300)
    paths = {"a": path_of(a), "b": path_of(b), "c": path_of(c), "d": path_of(d)}
    assert set(shared_groups(paths, 1.0)) == {frozenset("ab"), frozenset("c"), frozenset("d")}
    assert set(shared_groups(paths, 1.0, known=["bc", "x"])) == {frozenset("abc"), frozenset("d")}
    assert shared_groups({}, 1.0) == []


def test_windows_that_we_limited_say_nothing():
    a, _ = independent(Random(4), 300)
    paths = {"a": path_of(a, limited=True), "b": path_of(a)}
    assert len(shared_groups(paths, 1.0)) == 2

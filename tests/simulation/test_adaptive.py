"""The adaptive scheme against the ideal: all sources are busy until the last byte."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from coalloc.model.forecasts import Estimate
from coalloc.testing.simulated import Behaviour
from tests.support.effort import effort
from tests.support.seeds import tries
from tests.support.simulation import simulate

MB = 1_000_000
SIZE = 40 * MB
CONTENT = np.random.default_rng(3).bytes(SIZE)


def steady(rate: float, **more) -> Behaviour:
    return Behaviour(rates=((0.0, rate),), chunk=16 * 1024, **more)


def changing(*rates: tuple[float, float], **more) -> Behaviour:
    return Behaviour(rates=rates, chunk=16 * 1024, **more)


def ideal(behaviours: list[Behaviour]) -> float:
    """Return the seconds in which the sources together can send the file, with connecting and one set-up."""
    low, high = 0.0, 1e4
    while high - low > 1e-4:
        middle = (low + high) / 2
        sent = sum(_sent(b, b.connect_seconds + b.setup_seconds, min(middle, b.dies_at)) for b in behaviours)
        low, high = (middle, high) if sent < SIZE else (low, middle)
    return high


def _sent(behaviour: Behaviour, begin: float, until: float) -> float:
    steps = [*behaviour.rates, (float("inf"), 0.0)]
    spans = ((max(a, begin), min(b, until), rate) for (a, rate), (b, _) in pairwise(steps))
    return sum(max(0.0, stop - start) * rate for start, stop, rate in spans)


SCENARIOS = {
    "hetero": ([steady(r) for r in (4e6, 2e6, 1e6, 5e5)], 1.03),
    "strag": ([steady(r) for r in (4e6, 2e6, 1e6, 2e4)], 1.03),
    "slow": ([changing((0, 4e6), (2.8, 4e5)), *(steady(r) for r in (2e6, 1e6, 5e5))], 1.03),
    "late": ([changing((0, 4e6), (4.9, 4e5)), *(steady(r) for r in (2e6, 1e6, 5e5))], 1.06),
    "recover": ([changing((0, 4e6), (2, 4e5), (4, 4e6)), *(steady(r) for r in (2e6, 1e6, 5e5))], 1.04),
    "kill": ([steady(4e6, dies_at=2.8), *(steady(r) for r in (2e6, 1e6, 5e5))], 1.04),
    "hole": ([changing((0, 4e6), (2.8, 0)), *(steady(r) for r in (2e6, 1e6, 5e5))], 1.05),
    "far": (
        [
            steady(4e6, connect_seconds=0.1, setup_seconds=0.04),
            steady(2e6, connect_seconds=0.4, setup_seconds=0.16),
            steady(1e6, connect_seconds=0.8, setup_seconds=0.32),
        ],
        1.05,
    ),
    "many": ([steady(1e5 * (i + 1)) for i in range(16)], 1.04),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("informed", [False, True], ids=["unknown", "forecast"])
def test_near_the_ideal(name, informed):
    behaviours, bound = SCENARIOS[name]
    estimates = [Estimate(b.setup_seconds, b.rates[0][1]) if informed else Estimate() for b in behaviours]
    result = simulate(CONTENT, behaviours, estimates=estimates)
    assert result.content == CONTENT
    assert result.seconds / ideal(behaviours) <= bound
    assert result.sent - SIZE <= 0.01 * SIZE


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("size", [70_000, 600_000])
@pytest.mark.parametrize("first_byte", [0.3, 3.0])
@pytest.mark.parametrize("rate", [1e5, 1e7])
def test_servers_that_think_long_are_waited_for(number, size, first_byte, rate):
    """A request without an answer is not given up for another one, which would have to wait as long."""
    slow = Behaviour(((0.0, rate),), connect_seconds=0.02, setup_seconds=first_byte)
    result = simulate(CONTENT[:size], [slow] * number, limit=1000)
    assert result.error is None
    assert result.seconds < 2 * (2 * first_byte + size / rate)
    assert result.sent <= 1.1 * size


@pytest.mark.long
@pytest.mark.seeded
def test_any_servers_deliver_a_small_file():
    for attempt in tries(effort(100, 5000)):
        with attempt as seed:
            chance = Random(seed)
            size = int(10 ** chance.uniform(3.5, 6.5))
            behaviours = []
            for _ in range(chance.randint(1, 6)):
                first_byte = 10 ** chance.uniform(-3, 0.7)
                behaviours.append(
                    Behaviour(
                        ((0.0, 10 ** chance.uniform(4.5, 7.5)),),
                        connect_seconds=first_byte * chance.choice([0.01, 0.1, 1]),
                        setup_seconds=first_byte,
                        chunk=int(10 ** chance.uniform(3, 5.3)),
                        disorder=chance.choice([1, 1, 4]),
                    )
                )
            content = chance.randbytes(size)
            result = simulate(content, behaviours, limit=1000)
            assert result.error is None
            assert result.content == content
            assert result.sent <= 1.1 * size + (64 << 10)

"""Generated logs of transfers: rates that stay, walk, drift and alternate, with bursts, heavy tails and overlaps."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from predictors.observation import Observation

__all__ = ["generated_log"]

BEGIN = 1.6e9
"""Start of the first transfer, in seconds since the epoch."""
DAY = 86400.0
Chance = np.random.Generator
Levels = Callable[[Chance, int, float], np.ndarray]
"""Function of the random numbers, the number of transfers and the mean gap (s), to logarithms of rates."""


def generated_log(seed: int, count: int = 2500) -> list[Observation]:
    """Return `count` transfers of one path, whose rates follow one to three random processes, and noise."""
    chance = np.random.default_rng([22, seed])
    gap = 10 ** chance.uniform(0, 3.5)
    logs = np.full(count, math.log(10 ** chance.uniform(5, 9)))
    for name in chance.choice(list(PROCESSES), size=chance.integers(1, 4), replace=False):
        logs += PROCESSES[name](chance, count, gap)
    logs += np.clip(_noise(chance, count), -6, 6)
    sizes, slope = np.full(count, 10 ** chance.uniform(6, 9.5)), 0.0
    if chance.random() < 0.5:
        sizes *= np.exp(chance.normal(0, chance.uniform(0.3, 2), count))
        slope = chance.choice([0.0, chance.uniform(0, 0.6)])
    rates = np.exp(np.clip(logs, math.log(1e3), math.log(1e11))) * (sizes / np.median(sizes)) ** slope
    seconds = sizes / rates + chance.choice([0.0, 0.0, chance.uniform(0, 0.5)])
    waits = gap * chance.exponential(size=count) + (0.0 if chance.random() < 0.5 else seconds)
    starts = BEGIN + np.cumsum(waits) - waits
    return [
        Observation("ftp://a", start, start + each, int(size) + 1)
        for start, each, size in zip(starts, seconds, sizes, strict=True)
    ]


def _noise(chance: Chance, count: int) -> np.ndarray:
    scale, kind = 10 ** chance.uniform(-2, -0.3), chance.integers(3)
    if kind == 0:
        return chance.normal(0, scale, count)
    if kind == 1:
        return scale * chance.standard_t(chance.uniform(1.5, 4), count)
    return -scale * chance.exponential(1.0, count) * (1 + 3 * (chance.random(count) < 0.05))


def _regimes(chance: Chance, count: int, gap: float) -> np.ndarray:
    changes = np.cumsum(chance.random(count) < 1 / chance.uniform(30, 800))
    return chance.normal(0, chance.uniform(0.2, 1.5), changes[-1] + 1)[changes]


def _walk(chance: Chance, count: int, gap: float) -> np.ndarray:
    return np.cumsum(chance.normal(0, 10 ** chance.uniform(-2.5, -0.7), count))


def _two_states(leave: float, come_back: float, height: float, chance: Chance, count: int) -> np.ndarray:
    state, states = 0, []
    for draw in chance.random(count):
        state = int(draw < leave) if not state else int(draw >= come_back)
        states.append(state)
    return height * np.array(states)


def _bursts(chance: Chance, count: int, gap: float) -> np.ndarray:
    return _two_states(1 / chance.uniform(5, 200), 1 / chance.uniform(1, 20), -chance.uniform(0.4, 3), chance, count)


def _alternating(chance: Chance, count: int, gap: float) -> np.ndarray:
    leave = chance.uniform(0.02, 0.95)
    return _two_states(leave, leave, chance.uniform(0.5, 2.5), chance, count)


def _drift(chance: Chance, count: int, gap: float) -> np.ndarray:
    return np.linspace(0, chance.normal(0, 2), count)


def _autoregressive(chance: Chance, count: int, gap: float) -> np.ndarray:
    memory, value, values = chance.uniform(0.3, 0.99), 0.0, []
    for each in chance.normal(0, chance.uniform(0.05, 0.6), count):
        value = memory * value + math.sqrt(1 - memory * memory) * each
        values.append(value)
    return np.array(values)


def _daily(chance: Chance, count: int, gap: float) -> np.ndarray:
    return chance.uniform(0.1, 1) * np.sin(2 * np.pi * np.arange(count) * gap / DAY)


def _calm(chance: Chance, count: int, gap: float) -> np.ndarray:
    return np.zeros(count)


PROCESSES: Mapping[str, Levels] = {
    "alternating": _alternating,
    "autoregressive": _autoregressive,
    "bursts": _bursts,
    "calm": _calm,
    "daily": _daily,
    "drift": _drift,
    "regimes": _regimes,
    "walk": _walk,
}

"""Finish times and deadlines on published traces: `python -m tests.benchmarks.deadlines [finish] [spare] [warnings]`.

All transfers are simulated on bandwidths of ../shared/data, with the product's decisions. Series are divided by name:
the errors of one half are the only ones known for the other half, then the halves are exchanged. Nothing is learnt
from a transfer before it has ended. Intervals are exact binomial ones of 95 %.
"""

import csv
import gzip
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from coalloc.download.outlook import RELEASES
from coalloc.guarantees.deadline import PathRate, finish, spares_needed
from coalloc.guarantees.finish import FinishErrors, FinishForecast
from coalloc.guarantees.windows import RateWindows

DATA = Path(__file__).parents[3] / "shared" / "data" / "bandwidth"
FINISHES = {
    "puffer": (1.0, (10, 60, 300, 3600)),
    "oboe": (4.0, (10, 60)),
    "hsdpa": (1.0, (10, 60)),
    "uk_backbone": (300.0, (3600, 14400)),
}
"""Seconds of a window for each set, and the expected durations of transfers."""
KNOWN = 512
"""Windows before a transfer that are known, if there are so many."""
QUANTILES = np.linspace(0.005, 0.995, 100)
LEAST = 10
"""Minimum number of windows before the first transfer."""
OWN = 200
DEADLINE, TIGHTNESS, TRIALS = 300, (0.7, 0.9, 1.1, 1.3), 250
RISK = 0.7
WAIT = 5
"""Seconds between two looks, more than the product's, which takes longer to simulate."""


class Series:
    """A bandwidth over time, in megabytes per second, constant between two samples.

    :param window: seconds of a window; times are in windows from here on
    """

    def __init__(self, times: NDArray[np.float64], rates: NDArray[np.float64], window: float) -> None:
        edges = np.arange(times[0], times[-1], window)
        moved = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
        self.moved = np.interp(edges, times, moved)
        self.length = len(edges) - 1

    def known(self, at: int) -> RateWindows:
        """Return the windows before a time."""
        windows, first = RateWindows(), max(0, at - KNOWN)
        for edge in range(first, at + 1):
            windows.add(self.moved[edge] - self.moved[first], float(edge))
        return windows

    def end(self, at: int, size: float) -> float:
        """Return the time at which `size` bytes have come since `at`; infinity if the series ends before."""
        target = self.moved[at] + size
        after = int(np.searchsorted(self.moved, target))
        if after >= len(self.moved):
            return inf
        before = self.moved[after - 1]
        return float(after - 1 + (target - before) / (self.moved[after] - before))


@cache
def halves(name: str, window: float) -> tuple[list[Series], list[Series]]:
    """Return the two halves of a set: every second series; the one of uk_backbone is cut in two."""
    if not DATA.exists():
        sys.exit(f"{DATA} is not there: nothing can be measured")
    found: dict[str, list[tuple[float, float]]] = {}
    with gzip.open(DATA / f"{name}.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if "series" in row:
                found.setdefault(row["series"], []).append((float(row["t"]), float(row["mbps"]) / 8))
            else:
                at = datetime.fromisoformat(row["time_count"]).timestamp()
                found.setdefault(name, []).append((at, float(row["bits"])))
    if name == "uk_backbone":  # the traffic; what is free of 1.25 times its maximum is our own construction
        rows = found[name]
        most = 1.25 * max(rate for _, rate in rows)
        rows = [(at, most - rate) for at, rate in rows]
        found = {"a": rows[: len(rows) // 2], "b": rows[len(rows) // 2 :]}
    made = [
        Series(np.array([at for at, _ in rows]), np.array([rate for _, rate in rows]), window)
        for rows in found.values()
    ]
    return made[::2], made[1::2]


def finishes(series: Series, expected: float) -> Iterator[tuple[FinishForecast, float]]:
    """Yield consecutive transfers: the forecast at the start of each, and its actual duration in windows."""
    at = max(LEAST, min(30, series.length // 5))
    while at < series.length:
        windows = series.known(at)
        rate, spread = windows.forecast(expected) or (0.0, 0.0)
        if rate <= 0:
            at += 1
            continue
        ended = series.end(at, rate * expected)
        if ended == inf:
            return
        yield FinishForecast(expected, spread), ended - at
        at = max(at + 1, int(ended))


def errors_of(half: int) -> NDArray[np.float64]:
    """Return quantiles of the errors in one half of all sets but uk_backbone; each set and duration counts the same."""
    found = []
    for name, (window, durations) in FINISHES.items():
        if name != "uk_backbone":
            for duration in durations:
                errors = [
                    forecast.error(actual)
                    for series in halves(name, window)[half]
                    for forecast, actual in finishes(series, duration / window)
                ]
                found.append(np.quantile(errors, QUANTILES))
    return np.quantile(np.concatenate(found), QUANTILES)


def show_finishes() -> None:
    """Print how often T95 held for each set and duration, and how much longer than the median it was."""
    print("Share of transfers that ended by T95, in %; median of T95 / T50; the same for T99")
    both = [errors_of(half) for half in (0, 1)]
    print("errors of all:", ", ".join(f"{each:.2f}" for each in np.quantile(np.concatenate(both), QUANTILES)))
    for name, (window, durations) in FINISHES.items():
        for duration in durations:
            kept: dict[float, list[bool]] = {0.95: [], 0.99: []}
            ratios: dict[float, list[float]] = {0.95: [], 0.99: []}
            for half in (0, 1):
                for series in halves(name, window)[half]:
                    _follow(series, duration / window, both[1 - half], kept, ratios)
            cells = [f"{binomial(kept[level])}  {median(ratios[level]):.2f}" for level in kept]
            print(f"  {name:12} {duration:6} s  n {len(kept[0.95]):6}  {'   '.join(cells)}", flush=True)


def _follow(
    series: Series,
    expected: float,
    prior: Sequence[float],
    kept: Mapping[float, list[bool]],
    ratios: Mapping[float, list[float]],
) -> None:
    own: list[float] = []
    known = FinishErrors(own, prior)
    for number, (forecast, actual) in enumerate(finishes(series, expected)):
        if number < 50 or number % 10 == 0:  # a new one for each would take minutes
            known = FinishErrors(own[-OWN:], prior)
        for level in kept:
            bound = forecast.within(level, known)
            kept[level].append(actual <= bound)
            ratios[level].append(bound / forecast.within(0.5, known))
        own.append(forecast.error(actual))


class Trial(NamedTuple):
    """A transfer with a deadline over a free path, and one to be spared.

    :param spared: bytes from the spared path, as a part of the size
    :param least: the same, if the future had been known
    :param chances: the probabilities shown at each minute
    """

    in_time: bool
    feasible: bool
    spared: float
    least: float
    chances: list[float]


def trials(tightness: float, sure: float, half: int, prior: Sequence[float], spare: bool = True) -> Iterator[Trial]:
    """Yield transfers on pairs of series of one half of Puffer that are admitted.

    :param tightness: size, in units of what the free path is expected to carry by the deadline
    :param spare: whether the second path may be used at all
    """
    chance, errors = Random(7), FinishErrors((), prior)
    series = halves("puffer", 1.0)[half]
    for _ in range(TRIALS // 2):
        free, other = chance.sample(series, 2)
        at = chance.randrange(60, min(free.length, other.length) - 2 * DEADLINE)
        paths = [_path(each.known(at), DEADLINE) for each in (free, other)]
        size = tightness * paths[0].rate * DEADLINE
        used = paths if spare else paths[:1]
        if finish(size, used).chance(DEADLINE, errors) >= sure:
            yield _carried_out(free, other, at, size, sure, errors, spare)


def _path(windows: RateWindows, seconds: float) -> PathRate:
    rate, spread = windows.forecast(seconds) or (0.0, 1.0)
    return PathRate(max(rate, 1e-6), spread)


def _carried_out(
    free: Series, other: Series, at: int, size: float, sure: float, errors: FinishErrors, spare: bool
) -> Trial:
    known = free.known(at), other.known(at)
    begins = [series.moved[at] for series in (free, other)]
    left, taken, both, before, in_time = size, 0.0, False, False, False
    releases, chances = 0, []
    for second in range(DEADLINE):
        if second % WAIT == 0:
            ahead = DEADLINE - second
            first, extra = _path(known[0], ahead), _path(known[1], ahead)
            if spare and not both:
                both, before = spares_needed(left, ahead, [first], [extra], sure, errors, WAIT) > 0, False
            elif spare and releases < RELEASES:  # as `Outlook` does
                enough = finish(left, [first]).chance(ahead, errors) >= sure
                releases, both = (releases + 1, False) if enough and before else (releases, True)
                before = enough
            if second % 60 == 0 and second:
                chances.append(finish(left, [first, extra] if spare else [first]).chance(ahead, errors))
        now = at + second
        amounts = [free.moved[now + 1] - free.moved[now], other.moved[now + 1] - other.moved[now] if both else 0.0]
        taken += max(0.0, min(amounts[1], left - amounts[0]))
        left -= sum(amounts)
        if left <= 0:
            in_time = True
            break
        for windows, series, begin in zip(known, (free, other), begins, strict=True):
            windows.add(series.moved[now + 1] - begin, float(now + 1))
    until = at + DEADLINE
    alone, more = free.moved[until] - begins[0], other.moved[until] - begins[1]
    least = max(0.0, size - alone) / size
    return Trial(in_time, alone + more >= size, taken / size, min(least, 1.0), chances)


def show_sparing() -> None:
    """Print how often deadlines held, and how much the spared path sent, for each size and probability."""
    print(f"\nDeadline of {DEADLINE} s over two paths (puffer); one is to be spared")
    print("  size  sure    n   in time %            bytes from the spared path, %; clairvoyant")
    both = [errors_of(half) for half in (0, 1)]
    for sure in (0.95, 0.99):
        for tightness in TIGHTNESS:
            ended = [each for half in (0, 1) for each in trials(tightness, sure, half, both[1 - half])]
            spared, least = (100 * float(np.mean([getattr(each, of) for each in ended])) for of in ("spared", "least"))
            share = binomial([each.in_time for each in ended])
            print(f"  {tightness:4} {sure:5} {len(ended):5}   {share}   {spared:5.1f}  {least:5.1f}", flush=True)


def show_warnings() -> None:
    """Print how often deadlines held, by the probability that was shown at minutes 1 to 4."""
    print("\nProbability shown, and deadlines kept; one path, and two")
    both = [errors_of(half) for half in (0, 1)]
    grades = (0.0, 0.05, 0.3, 0.5, 0.7, 0.9, 0.95, 1.01)
    for spare in (False, True):
        shown: list[tuple[float, bool]] = []
        broken = announced = alarms = 0
        for half in (0, 1):
            for tightness in (0.7, 0.9) if not spare else (1.1, 1.3):
                for trial in trials(tightness, 0.8, half, both[1 - half], spare):
                    shown += [(chance, trial.in_time) for chance in trial.chances]
                    warned = any(chance < RISK for chance in trial.chances)
                    broken += not trial.in_time
                    announced += warned and not trial.in_time
                    alarms += warned
        for low, high in pairwise(grades):
            kept = [in_time for chance, in_time in shown if low <= chance < high]
            if kept:
                print(f"  {low:4.2f} to {min(high, 1):4.2f}  {binomial(kept)}  of {len(kept)}")
        print(f"  {broken} broken, {announced} of them announced; {alarms} warnings", flush=True)


def binomial(kept: Sequence[bool]) -> str:
    """Return a share in percent, and its exact binomial interval of 95 %."""
    count, total = sum(kept), len(kept)
    low = beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return f"{100 * count / total:5.1f} [{100 * low:4.1f}, {100 * high:5.1f}]"


PARTS: Mapping[str, Callable[[], None]] = {"finish": show_finishes, "spare": show_sparing, "warnings": show_warnings}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()

"""Paths whose cross traffic comes from published traces.

A path has 100 Mbit/s. Its cross traffic has a given mean, and the shape of a trace: mean (1 + k (trace / its mean -
1)), between 0 and the capacity. Each sample of a trace counts as one second, so that each window has another rate.
"""

import csv
import gzip
import sys
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, chain
from math import inf
from pathlib import Path
from statistics import fmean, pstdev

__all__ = ["KNOWN", "CrossedPath", "crossed", "series", "shaped"]

DATA = Path(__file__).parents[4] / "shared" / "data" / "bandwidth"
CAPACITY = 100.0
KNOWN = 500
"""Windows that are known before an experiment begins: N in the paper."""
LONG = {"puffer": 1, "hsdpa": 7, "oboe": 30}
"""Number of consecutive series that are joined to one that is long enough."""


class CrossedPath:
    """The rate that is left on a path, in bytes per second, constant for a second at a time.

    :param rates: rate in each second before the experiment and during it
    :param offset: share of a second by which the changes of the rate follow the beginnings of windows
    """

    def __init__(self, rates: list[float], offset: float) -> None:
        self.past, self.rates = rates[:KNOWN], rates[KNOWN:]
        self._edges = [number + offset for number in range(len(self.rates))]
        first = self.past[-1]
        self._moved = list(accumulate(self.rates, initial=first * offset))
        self._first = first

    def end(self, begin: float, size: float) -> float:
        """Return the second at which so many bytes have been sent that begin at `begin`."""
        return self._when(self.moved(begin) + size)

    def moved(self, now: float) -> float:
        """Return the bytes that the path could have sent by then."""
        after = bisect_right(self._edges, now)
        if not after:
            return self._first * now
        return self._moved[after - 1] + (now - self._edges[after - 1]) * self.rates[after - 1]

    def _when(self, moved: float) -> float:
        after = bisect_right(self._moved, moved)
        if not after:
            return moved / self._first
        if after > len(self.rates):
            return inf
        rate = self.rates[after - 1]
        return self._edges[after - 1] + (moved - self._moved[after - 1]) / rate if rate else self._edges[after]

    def of_window(self, number: int) -> float:
        """Return the mean rate in a window of a second."""
        return self.moved(number + 1.0) - self.moved(float(number))


@cache
def series(name: str) -> list[list[float]]:
    """Return the series of a set, each relative to its own mean; short ones are joined."""
    if not DATA.exists():
        sys.exit(f"{DATA} is not there: nothing can be measured")
    found: dict[str, list[float]] = {}
    with gzip.open(DATA / f"{name}.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["series"], []).append(float(row["mbps"]))
    means = [(values, fmean(values)) for values in found.values()]
    relative = [[each / mean for each in values] for values, mean in means if mean]
    joined = LONG[name]
    starts = range(0, len(relative) - joined + 1, joined)
    return [list(chain.from_iterable(relative[at : at + joined])) for at in starts]


def crossed(shape: Sequence[float], seconds: int, mean: float, deviation: float | None, offset: float) -> CrossedPath:
    """Return a path whose cross traffic has the shape of a trace.

    :param shape: `KNOWN` samples of the trace before the experiment, and `seconds` during it
    :param mean: mean of the cross traffic, in Mbit/s
    :param deviation: its standard deviation, in Mbit/s; None for as much, relative to the mean, as the trace has
    """
    part = shape[: KNOWN + seconds]
    level = fmean(part)
    factor = 1.0 if deviation is None else deviation / mean / (pstdev(part) / level)
    cross = [mean * (1 + factor * (each / level - 1)) for each in part]
    return CrossedPath([(CAPACITY - min(CAPACITY, max(0.0, each))) * 1e6 / 8 for each in cross], offset)


def shaped(shape: Sequence[float], seconds: int, mean: float, offset: float) -> CrossedPath:
    """Return a path whose rate has the shape of a trace, and this mean in Mbit/s."""
    part = shape[: KNOWN + seconds]
    level = fmean(part)
    return CrossedPath([mean * each / level * 1e6 / 8 for each in part], offset)

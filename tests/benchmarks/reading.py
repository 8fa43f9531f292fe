"""Files read at a promised rate, on published traces: `python -m tests.benchmarks.reading [--number N] [--prior]`.

Whole downloads run in virtual time, with the product's decisions; only the sources are simulated. Each replays a series
of ../shared/data from a random moment on, scaled to a mean of 100 kB/s. Series are divided by name: the errors of one
half are the only ones known for the other half, then the halves are exchanged. A clairvoyant would refuse what it
cannot keep with the same buffer, and nothing else. Intervals are exact binomial ones of 95 %.
"""

import argparse
import asyncio
from collections.abc import Sequence
from itertools import product
from math import inf
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalloc.download import in_order, reading_outlook
from coalloc.download.in_order import OUTLASTS, InOrderDownload, InOrderSettings
from coalloc.download.reading_outlook import PATIENCE
from coalloc.errors import RateRefused
from coalloc.guarantees.first_seconds import ReadingErrors, forecast_from_mean
from coalloc.model.forecasts import Estimate
from coalloc.model.promises import RateReport, ReadingRate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run
from tests.benchmarks.deadlines import QUANTILES, Series, binomial, halves

TRACES = ("puffer", "hsdpa", "oboe")
MEAN = 100e3
SECONDS = 60
"""Seconds for which each file is read."""
PARTS = 0.1, 1.1
"""Requested rates, as parts of what the paths carry together on average."""
MEASURED, DURATIONS = (4, 10), (20, 60, 120)
"""Seconds that are known, and those that follow, of the forecasts whose errors are known beforehand."""
CHUNK = 8192
SHARE = 0.95


class Case(NamedTuple):
    """A request, and the rates of its paths in each second."""

    rate: float
    paths: list[list[float]]

    @property
    def feasible(self) -> bool:
        """Return whether someone who knows the future could keep the rate, from the latest moment of a promise on."""
        room, ahead, missed = OUTLASTS * self.rate, 0.0, 0
        together = [sum(each) for each in zip(*self.paths, strict=True)]
        for second in range(int(PATIENCE) + SECONDS):
            ahead = min(room, ahead + together[second])
            if second >= PATIENCE:
                missed += ahead < self.rate
                ahead = max(0.0, ahead - self.rate)
        return missed <= (1 - SHARE) * SECONDS


def cases(trace: str, half: int, number: int) -> list[Case]:
    """Return random requests over one to three paths of one half of the series."""
    chance = Random(f"{trace} {half}")
    longest = int(PATIENCE) + 2 * SECONDS
    known = [each for each in halves(trace, 1.0)[half] if each.length > longest and each.moved[-1] > 0]
    return [_case(known, chance, longest) for _ in range(number)]


def prior_of(half: int, number: int = 100) -> list[float]:
    """Return quantiles of the errors of forecasts from the first seconds, in one half. Each kind counts the same."""
    found = []
    for trace in TRACES:
        paths = [np.sum(case.paths, axis=0) for case in cases(trace, half, number)]
        for known, seconds in product(MEASURED, DURATIONS):
            errors = [_error(together[: known + seconds], known) for together in paths]
            found.append(np.quantile(errors, QUANTILES))
    return np.quantile(found, QUANTILES).tolist()


def _error(rates: NDArray[np.float64], known: int) -> float:
    """Return the error of the forecast after so many seconds, for a reader that must never miss a byte."""
    forecast = forecast_from_mean(rates[:known].tolist(), 1.0, len(rates) - known)
    assert forecast is not None
    low, high = 0.0, 3 * float(rates.mean())
    for _ in range(12):
        middle = (low + high) / 2
        if _bears(rates, middle, known):
            low = middle
        else:
            high = middle
    seconds = len(rates) - known
    return forecast.error(low - min(OUTLASTS * low, float(rates[:known].sum())) / seconds)


def _bears(rates: NDArray[np.float64], rate: float, known: int) -> bool:
    """Return whether a reader that begins when so many seconds are known never misses a byte at this rate."""
    ahead = min(OUTLASTS * rate, float(rates[:known].sum()))
    for came in rates[known:]:
        ahead = min(OUTLASTS * rate, ahead + came) - rate
        if ahead < 0:
            return False
    return True


def _case(known: Sequence[Series], chance: Random, longest: int) -> Case:
    paths = []
    for _ in range(chance.randint(1, 3)):
        series = chance.choice(known)
        at = chance.randrange(series.length - longest)
        rates = np.diff(series.moved[at : at + longest + 1])
        paths.append(list(rates * MEAN / max(1e-9, rates.mean())))
    return Case(chance.uniform(*PARTS) * MEAN * len(paths), paths)


async def read(case: Case) -> RateReport | None:
    """Read a file; return the report of its promise, None if it was refused."""
    content = bytes(int(case.rate * SECONDS))
    sources = [
        SimulatedSource(
            f"s{number}", content, Behaviour(tuple((float(at), rate) for at, rate in enumerate(path)), chunk=CHUNK)
        )
        for number, path in enumerate(case.paths)
    ]

    async def take(data: memoryview) -> None:
        """Take bytes, and forget them."""

    file = ReplicaSet("file", tuple(Replica(source.url) for source in sources))
    settings = InOrderSettings(reading=ReadingRate(case.rate, SHARE), keep_checksums=False)
    download = InOrderDownload(file, sources, [Estimate()] * len(sources), take, settings)
    try:
        async with asyncio.timeout(inf):
            return (await download.run()).reading
    except RateRefused:
        return None


def main() -> None:
    """Print a row for each trace, or the errors that the product knows beforehand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--prior", action="store_true")
    given = parser.parse_args()
    priors = [prior_of(half) for half in (0, 1)]
    if given.prior:
        print(", ".join(f"{each:.2f}" for each in np.quantile(priors, QUANTILES)))
        return
    in_order.ROOM = 1
    print(f"{SECONDS} s at a rate in {100 * SHARE:g} % of the seconds; {given.number} random requests for each trace")
    print("trace    promised  kept, %                refused, of those that could be kept, %")
    for trace in TRACES:
        made: list[tuple[bool, RateReport | None]] = []
        for half in (0, 1):
            reading_outlook.ERRORS = ReadingErrors(priors[1 - half])
            made += [(case.feasible, run(read(case))) for case in cases(trace, half, given.number // 2)]
        promised = [report.kept for _, report in made if report]
        refused = [report is None for feasible, report in made if feasible]
        print(f"{trace:8s} {len(promised):8d}  {binomial(promised)}    {binomial(refused)}", flush=True)


if __name__ == "__main__":
    main()

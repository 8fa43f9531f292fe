"""The worth of forecasts for unused servers: `python -m tests.benchmarks.new_sites [matrix] [traces] [hpss]`.

`matrix`: rates between 63 regions of three clouds, in a random order. Thirteen regions, and a fifth of the other
links, are never learned, but forecast at the end; five times. `hpss`: each of the four file systems of SLAC's log is
left out once; its transfers are forecast from those of the others that had ended by then, from 40 % of the log on.
`traces`: each trace is a new source; the first 50 values of earlier traces are known, then also
its own first values.
"""

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import exp, log
from random import Random
from statistics import fmean, median

from broker.services.network.places import kilometres
from coalloc.history.formats import read_log
from predictors.evaluate import replay
from predictors.experience import telling
from predictors.hedge import Hedge
from predictors.metrics import bounds, scores
from predictors.models.hierarchy import Distance, Hierarchy
from predictors.observation import Observation, Query, Rates, query_of
from tests.benchmarks.forecasts import DATA
from tests.benchmarks.old_rates import MATRIX
from tests.benchmarks.regions import REGIONS

SEEDS = range(5)
NEW_REGIONS, LEFT_OUT = 13, 0.2
SIZE = 10**10
LEARNED = 0.4
OWN, LEARNED_OF_EACH = (0, 1, 5, 20), 50
Judged = list[tuple[Rates, float]]
"""Forecasts and the actual rates."""


def line(name: str, judged: Judged) -> str:
    """Return the line of a table."""
    actual = [rate for _, rate in judged]
    points = scores([rates.p50 for rates, _ in judged], actual)
    low = bounds([rates.p10 for rates, _ in judged], actual)
    above = fmean(rate > rates.p90 for rates, rate in judged)
    width = exp(median(log(rates.p90 / rates.p10) for rates, _ in judged))
    errors = f"{points.mdape:.0%} | {points.log_error:.2f} | {points.close:.0%}"
    return f"| {name} | {len(judged)} | {errors} | {low.missed:.1%} | {above:.1%} | {width:.1f} |"


HEADER = (
    "| new | forecasts | MdAPE | mean log error | within 15 % | below p10 | above p90 | p90 / p10 |\n"
    + "|---" * 8
    + "|"
)


def kilometres_apart(source: str, sink: str) -> float | None:
    """Return the distance of two regions, from the names of their hosts."""
    return kilometres(_coordinates(source), _coordinates(sink))


def _coordinates(host: str) -> tuple[float, float]:
    place, cloud, _ = host.split(".")
    return REGIONS[f"{cloud}:{place}"]


def _in_one_domain(region: str) -> str:
    cloud, place = region.split(":")
    return f"{place}.{cloud}.example"


def _on_its_own(region: str) -> str:
    return region.replace(":", "-")


def matrix() -> None:
    """Print the errors for new links and regions of the matrix, by what is known of the regions."""
    with gzip.open(MATRIX, "rt") as lines:
        rows = [(row["src_region"], row["dst_region"], row["throughput_received"]) for row in csv.DictReader(lines)]
    rates = {(source, sink): float(rate) / 8 for source, sink, rate in rows if source != sink and float(rate or 0)}
    known: Mapping[str, tuple[Callable[[str], str], Distance]] = {
        "neither": (_on_its_own, lambda source, sink: None),
        "cloud": (_in_one_domain, lambda source, sink: None),
        "cloud and distance": (_in_one_domain, kilometres_apart),
    }
    for name, (host, distance) in known.items():
        found: defaultdict[str, Judged] = defaultdict(list)
        for seed in SEEDS:
            for new, rate_pair in _without_regions(rates, seed, host, distance):
                found[new].append(rate_pair)
        for new, judged in found.items():
            print(line(f"{new}; known: {name}", judged), flush=True)


def _without_regions(
    rates: Mapping[tuple[str, str], float], seed: int, host: Callable[[str], str], distance: Distance
) -> Iterable[tuple[str, tuple[Rates, float]]]:
    chance, forecaster = Random(seed), Hierarchy(distance)
    regions = sorted({source for source, _ in rates})
    new = set(chance.sample(regions, NEW_REGIONS))
    order = list(rates)
    chance.shuffle(order)
    asked = [pair for pair in order if new & set(pair) or chance.random() < LEFT_OUT]
    left = set(asked)
    for number, (source, sink) in enumerate(pair for pair in order if pair not in left):
        at, busy = 60.0 * number, SIZE / rates[source, sink]
        forecaster.learn(Observation(host(source), at, at + 60.0, SIZE, busy, sink=host(sink)))
    for source, sink in asked:
        forecast = forecaster.forecast(Query(host(source), 60.0 * len(order), SIZE, host(sink)))
        assert forecast.rates, "some links are known"
        yield forecast.new, (forecast.rates, rates[source, sink])


def hpss() -> None:
    """Print the errors for each file system of the log, without its transfers."""
    log_ = read_log(DATA / "transfers" / "hpss_slac.csv.gz").observations
    for direction in ("write", "read"):
        transfers = [each for each in log_ if each.direction == direction]
        systems = sorted({each.source + each.sink for each in transfers})
        every: Judged = []
        for system in systems:
            judged = _without_system(transfers, system)
            every += judged
            print(line(f"{direction}s, {system}", judged), flush=True)
        print(line(f"{direction}s", every), flush=True)


def _without_system(transfers: list[Observation], system: str) -> Judged:
    judged, forecaster = [], LeavesOut(system)
    for number, (each, forecast) in enumerate(replay(transfers, forecaster)):
        asked = number >= LEARNED * len(transfers) and each.source + each.sink == system
        if asked and forecast.rates and (rate := telling(each)):
            judged.append((forecast.rates, rate))
    return judged


class LeavesOut(Hierarchy):
    """The hierarchy, without learning the transfers of one file system."""

    def __init__(self, system: str) -> None:
        super().__init__()
        self._system = system

    def learn(self, observation: Observation, reporter: str = "") -> None:
        if observation.source + observation.sink != self._system:
            super().learn(observation, reporter)


def traces() -> None:
    """Print the errors of the first forecasts for new traces."""
    for name in ("hsdpa", "oboe", "puffer"):
        observations = read_log(DATA / "bandwidth" / f"{name}.csv.gz").observations
        by_source: defaultdict[str, list[Observation]] = defaultdict(list)
        for each in observations:
            by_source[each.source].append(each)
        series = list(by_source.values())
        Random(name).shuffle(series)
        found: defaultdict[int, Judged] = defaultdict(list)
        everywhere = Hierarchy()
        for number, one in enumerate(series):
            own, moved = Hedge(), [_later(each, 1e6 * number) for each in one]
            for count, each in enumerate(moved[: OWN[-1] + 1]):
                forecast = own.forecast(query_of(each))
                rates = (forecast if forecast.rates else everywhere.forecast(query_of(each))).rates
                if count in OWN and number >= 5 and rates and (rate := telling(each)):
                    found[count].append((rates, rate))
                own.learn(each)
            for each in moved[:LEARNED_OF_EACH]:
                everywhere.learn(each)
        for count in OWN:
            print(line(f"{name}, {count} own transfers", found[count]), flush=True)


def _later(observation: Observation, seconds: float) -> Observation:
    return replace(observation, start=observation.start + seconds, end=observation.end + seconds)


if __name__ == "__main__":
    print(HEADER)
    for part in sys.argv[1:] or ("matrix", "traces", "hpss"):
        {"matrix": matrix, "traces": traces, "hpss": hpss}[part]()

"""Admission of streams on published traces: `python -m tests.benchmarks.admission [prior] [contracts] [speed]`.

All contracts are simulated on bandwidths of ../shared/data, with the product's decisions. Series are divided by name:
the errors of one half are the only ones known for the other half, then the halves are exchanged. Nothing is learnt from
a contract before it has ended. Intervals are exact binomial ones of 95 %, from contracts that do not overlap.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, product
from math import exp
from random import Random
from statistics import median
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalloc.guarantees.admission import CONFIDENCE, AdmittedStream, RateRequest, admit
from coalloc.guarantees.contracts import KNOWN, Contract, ContractErrors, contract_rate, forecast_rate
from coalloc.guarantees.groups import PathGroup, joint_rates
from coalloc.guarantees.samples import PathSamples, WindowRate
from coalloc.guarantees.streams import Stream
from tests.benchmarks.deadlines import QUANTILES, Series, binomial, halves


class Kind(NamedTuple):
    """A kind of contract on one set of traces.

    :param base: seconds between two samples of the traces
    :param apart: contracts from the start of one to the start of the next
    """

    traces: str
    paths: int
    base: float
    window: float
    seconds: float
    apart: int = 1

    @property
    def number(self) -> int:
        """Number of windows of a contract."""
        return round(self.seconds / self.window)


PROBABILITIES = (0.9, 0.95, 0.99)
LENGTHS = ((60.0, 4), (200.0, 1), (600.0, 1))
PUFFER = [Kind("puffer", 2, 2.0, window, *length) for window, length in product((2.0, 10.0), LENGTHS)]
OTHERS = [
    Kind("puffer", 1, 2.0, 2.0, 600.0),
    Kind("puffer", 1, 2.0, 10.0, 600.0),
    Kind("oboe", 2, 4.0, 4.0, 80.0),
    Kind("hsdpa", 2, 1.0, 1.0, 100.0),
    Kind("uk_backbone", 1, 300.0, 300.0, 14400.0),
]
SEEDS = (1, 2, 3)
REQUESTS = 3
"""Random requests for each contract, between these parts of the mean rate that the paths had."""
RANGE = 0.05, 1.1


class Case(NamedTuple):
    """The start of a contract, and what came.

    :param groups: the paths, with their past
    :param known: rates of all paths together in the past windows
    :param ahead: rates of each path in the windows of the contract
    """

    groups: list[PathGroup]
    known: list[float]
    ahead: list[NDArray[np.float64]]

    def possible(self, paths: Sequence[int], probability: float) -> float:
        """Return the highest rate that a contract over some of the paths could have had."""
        return contract_rate(list(sum(self.ahead[each] for each in paths)), probability)


def cases(kind: Kind, half: int, seed: int) -> Iterator[Iterator[Case]]:
    """Yield, for each path or pair of paths, its consecutive contracts."""
    series = list(halves(kind.traces, kind.base)[half])
    Random(seed).shuffle(series)
    for start in range(0, len(series) - kind.paths + 1, kind.paths):
        yield _consecutive(kind, series[start : start + kind.paths])


def _consecutive(kind: Kind, series: Sequence[Series]) -> Iterator[Case]:
    length = min(each.length for each in series)
    parts, steps = round(kind.window / kind.base), round(kind.seconds / kind.base)
    rates = [np.diff(each.moved[: length + 1]) / kind.base for each in series]
    samples = [PathSamples(kind.base) for _ in series]
    groups = [PathGroup(str(number), [each]) for number, each in enumerate(samples)]
    begun, at = 0, max(10 * parts, min(KNOWN, length // 3)) // parts * parts
    while at + steps <= length:
        for path, own in zip(samples, rates, strict=True):
            for step in range(begun, at):
                if not step:
                    path.add(0.0, 0.0)
                path.add(own[step] * kind.base, (step + 1) * kind.base)
        ahead = [own[at : at + steps].reshape(-1, parts).mean(axis=1) for own in rates]
        yield Case(groups, joint_rates(groups, kind.window)[-KNOWN:], ahead)
        begun, at = at, at + kind.apart * steps


@cache
def prior_of(half: int) -> tuple[float, ...]:
    """Return quantiles of the errors in one half, which are known for contracts on the other half.

    Each kind of contract counts the same; uk_backbone takes no part.
    """
    found: dict[tuple[Kind, float], list[float]] = {}
    for kind in [*PUFFER, *OTHERS]:
        if kind.traces != "uk_backbone":
            for case in chain.from_iterable(cases(kind, half, SEEDS[0])):
                for probability in PROBABILITIES:
                    forecast = forecast_rate(case.known, probability, kind.number)
                    if forecast and forecast.rate:
                        possible = case.possible(range(kind.paths), probability)
                        found.setdefault((kind, probability), []).append(forecast.error(possible))
    return tuple(np.quantile([np.quantile(each, QUANTILES) for each in found.values()], QUANTILES).tolist())


class Tally:
    """Results of one method: contracts at the highest rate that it promises, and random requests.

    :ivar kept: whether each contract at the highest promised rate was kept
    :ivar met: whether each admitted random request was kept
    """

    def __init__(self) -> None:
        self.kept: list[bool] = []
        self.met: list[bool] = []
        self.feasible = self.refused = 0

    def promise(self, rate: float, possible: float, requests: Sequence[float]) -> None:
        """Count a method that promises so much."""
        self.kept.append(rate <= possible)
        for request in requests:
            self.request(request <= rate, request <= possible, request <= possible)

    def request(self, admitted: bool, kept: bool, feasible: bool) -> None:
        """Count a random request."""
        self.feasible += feasible
        self.refused += feasible and not admitted
        if admitted:
            self.met.append(kept)

    def line(self) -> str:
        """Return the shares in percent: kept, random ones kept, feasible ones refused."""
        if not self.feasible:
            return f"{100 * np.mean(self.kept):5.1f}"
        refused = 100 * self.refused / self.feasible
        return f"{100 * np.mean(self.kept):5.1f} {100 * np.mean(self.met or [True]):5.1f} {refused:5.1f}"


METHODS = ("coget", "lower bounds", "percentile", "mean")
"""The product, if each contract shows what it could have had, and if a kept one shows no more than that; the others.

Random requests are not admitted once more for the second.
"""


def follow(kind: Kind, seed: int) -> dict[float, dict[str, Tally]]:
    """Return the results of all methods for one kind of contract, by its share of windows."""
    tallies = {probability: {name: Tally() for name in METHODS} for probability in PROBABILITIES}
    chance = Random(seed)
    for half in (0, 1):
        for contracts in cases(kind, half, seed):
            known = {(each, name): ContractErrors((), prior_of(1 - half)) for each in tallies for name in METHODS[:2]}
            for case in contracts:
                requests = [chance.uniform(*RANGE) * float(np.mean(case.known)) for _ in range(REQUESTS)]
                for probability, of in tallies.items():
                    possible = case.possible(range(kind.paths), probability)
                    of["percentile"].promise(contract_rate(case.known, probability), possible, requests)
                    of["mean"].promise(float(np.mean(case.known)), possible, requests)
                    for name in METHODS[:2]:
                        errors = known[probability, name]
                        known[probability, name] = _carried_out(kind, probability, case, errors, requests, name, of)
    return tallies


def _carried_out(
    kind: Kind,
    probability: float,
    case: Case,
    errors: ContractErrors,
    requests: Sequence[float],
    name: str,
    tallies: Mapping[str, Tally],
) -> ContractErrors:
    """Carry out a contract at the highest promised rate, admit requests, and return the errors with those of it."""
    forecast = forecast_rate(case.known, probability, kind.number)
    assert forecast is not None
    promised = forecast.promise(CONFIDENCE, errors)
    tallies[name].kept.append(promised <= case.possible(range(kind.paths), probability))
    for group in case.groups:
        group.errors = errors
    for rate in requests if name == METHODS[0] else ():
        _request(kind, case, Stream("s", rate, probability, kind.window), tallies[name])
    rates = sum(case.ahead).tolist()
    if name == "lower bounds":
        windows = [WindowRate(min(rate, promised), limited=rate >= promised) for rate in rates]
    else:
        windows = [WindowRate(rate) for rate in rates]
    contract = Contract(Stream("s", promised, probability, kind.window), 0.0, kind.seconds, forecast)
    return errors.learn(contract.result(windows, now=kind.seconds))


def _request(kind: Kind, case: Case, stream: Stream, tally: Tally) -> None:
    everything = range(kind.paths)
    (outcome,) = admit([RateRequest(stream, kind.seconds)], case.groups)
    admitted = isinstance(outcome, AdmittedStream)
    used = [int(name) for name in outcome.parts] if admitted else everything
    kept = stream.rate <= case.possible(used, stream.probability)
    tally.request(admitted, kept, stream.rate <= case.possible(everything, stream.probability))


def show_prior() -> None:
    """Print the quantiles of all errors, which the product knows beforehand."""
    both = np.quantile(np.concatenate([prior_of(0), prior_of(1)]), QUANTILES)
    print("errors of all:", ", ".join(f"{each:.2f}" for each in both))


def show_contracts() -> None:
    """Print how often contracts were kept, and how many feasible requests were refused."""
    print("Kept at the highest promised rate, %; random requests kept, %; feasible random requests refused, %")
    print("A clairvoyant has 100, 100 and 0 in each line")
    for kind in [*PUFFER, *OTHERS]:
        print(*lines_of(kind), sep="\n", flush=True)


def lines_of(kind: Kind) -> list[str]:
    """Return the results for one kind of contract, a line for each share of windows."""
    runs, lines = [follow(kind, seed) for seed in SEEDS[: 1 if kind.paths == 1 else None]], []
    for probability, tallies in runs[0].items():
        kept = [100 * float(np.mean(run[probability]["coget"].kept)) for run in runs]
        number, share = len(tallies["coget"].kept), binomial(tallies["coget"].kept)
        line = (
            f"{kind.traces} x{kind.paths}, {kind.window:g} s, {kind.seconds:g} s, {100 * probability:g} %, n {number}"
        )
        methods = [f"{name} {tallies[name].line()}" for name in METHODS]
        lines.append(" | ".join([f"{line} {share} seeds {min(kept):.1f}-{max(kept):.1f}", *methods]))
    return lines


def show_speed() -> None:
    """Print the time in which 100 streams are admitted to 8 paths, with nothing computed before."""
    chance = Random(1)
    groups = []
    for number in range(8):
        path = PathSamples(1.0)
        path.add(0.0, 0.0)
        for second in range(2000):
            path.add(1e7 * exp(chance.gauss(0, 0.3)), second + 1.0)
        groups.append(PathGroup(str(number), [path]))
    kinds = list(product((0.9, 0.95, 0.99), (1.0, 2.0, 10.0)))
    requests = [
        RateRequest(Stream(str(number), chance.uniform(1e5, 6e5), *kinds[number % len(kinds)]), 600.0)
        for number in range(100)
    ]
    taken = []
    for _ in range(7):
        begun = process_time()
        outcomes = admit(requests, groups)
        taken.append(process_time() - begun)
    admitted = sum(isinstance(each, AdmittedStream) for each in outcomes)
    print(
        f"{admitted} of 100 streams of 9 kinds admitted to 8 paths in {1000 * median(taken):.1f} ms of processor time"
    )


PARTS: Mapping[str, Callable[[], None]] = {"prior": show_prior, "contracts": show_contracts, "speed": show_speed}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()

"""Accuracy and speed of forecasts: `python -m tests.benchmarks.forecasts [accuracy] [speed] [generated]`.

Accuracy is measured on the published data in ../shared/data: each set is replayed, a forecaster learns each transfer
when it ends, and the last 60 % are scored. No parameter is tuned on that part. Speed is measured on random series,
compiled with numba where a line does not say "plain". `generated` compares the hedge with its best expert on generated
logs (`generated_logs.py`), from the thousandth transfer on; it takes a quarter of an hour.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from coalloc.history.formats import read_log
from predictors.bank import CONSTANT, MEMBERS, Layout
from predictors.compiled import compiled
from predictors.evaluate import Evaluation, evaluate, replay
from predictors.experience import telling
from predictors.hedge import Hedge
from predictors.metrics import scores
from predictors.models.state import Member
from predictors.observation import Observation, Query, query_of
from predictors.registry import make
from predictors.selection import account_of, step
from predictors.selection import replay as replay_all
from tests.benchmarks.generated_logs import generated_log

DATA = Path(__file__).parents[3] / "shared" / "data"
SETS = {
    "HPSS writes": ("transfers/hpss_slac", "write"),
    "HPSS reads": ("transfers/hpss_slac", "read"),
    "hsdpa": ("bandwidth/hsdpa", "read"),
    "oboe": ("bandwidth/oboe", "read"),
    "uk": ("bandwidth/uk_backbone", "read"),
    "puffer": ("bandwidth/puffer", "read"),
}
COMPARED = ("hedge", "kernel", "hierarchy", "least MAE", "percentile")
SINGLES = (
    "last",
    "running mean",
    "mean of 25",
    "median of 25",
    "smoothing 0.20",
    "smoothing 0.75",
    "AR(1)",
    "AR(5)",
    "Holt",
)
GENERATED = range(1000, 1200)
"""Seeds; the hedge was made with others."""
FIRST = 1000
"""Index of the first forecast that is judged on a generated log."""
SERIES = 200
ROWS = 10_000_000
SOME = 1_000_000


def accuracy() -> None:
    """Print a table for each set: the compared forecasters, and the best single member of the bank."""
    if not DATA.exists():
        sys.exit(f"{DATA} is not there: accuracy cannot be measured")
    for name, (path, direction) in SETS.items():
        observations = [each for each in read_log(DATA / f"{path}.csv.gz").observations if each.direction == direction]
        print(f"{name}: {len(observations)} transfers")
        print("  forecaster              MdAPE  RMSRE  within 15 %  below p10  worst 500  p10 / rate")
        for forecaster in COMPARED:
            _print(evaluate(observations, make(forecaster, fast=True)))
        _print(_best_single(observations), "best single: ")


def _best_single(observations: list[Observation]) -> Evaluation:
    return min((evaluate(observations, make(name, fast=True)) for name in SINGLES), key=lambda each: each.points.mdape)


def _print(found: Evaluation, before: str = "") -> None:
    points, low = found.points, found.low
    print(
        f"  {before + found.forecaster:<24}{points.mdape:6.1%} {points.rmsre:6.2f} {points.close:12.0%} "
        f"{low.missed:10.1%} {low.worst:10.0%} {low.sharpness:11.2f}",
        flush=True,
    )


def generated() -> None:
    """Print how far the hedge is behind the best of its experts, on generated logs."""
    behind = []
    for seed in GENERATED:
        behind.append(_behind_best(generated_log(seed)))
        print(f"seed {seed}: MdAPE {behind[-1][0]:.3f}, log error {behind[-1][1]:.3f} of the best expert's", flush=True)
    for name, column in zip(("MdAPE", "log error"), zip(*behind, strict=True), strict=True):
        ordered = sorted(column)
        print(
            f"{name} / best expert's: at most 1.03 on {sum(each <= 1.03 for each in ordered) / len(ordered):.0%} of "
            f"{len(ordered)} logs (wanted: 95 %), median {ordered[len(ordered) // 2]:.3f}, "
            f"95th percentile {ordered[int(0.95 * len(ordered))]:.3f}, worst {ordered[-1]:.3f} (wanted: 1.05)"
        )


def _behind_best(observations: list[Observation]) -> tuple[float, float]:
    """Return MdAPE and mean log error of the hedge, each divided by that of the expert with the least."""
    hedge = Hedge(fast=True)
    said, actual = [], []
    for each, forecast in replay(observations, hedge):
        among = [forecast, *(expert.forecast(query_of(each)) for expert in hedge.experts)]
        if (rate := telling(each)) and all(one.rates for one in among):
            said.append([one.rates.p50 for one in among])
            actual.append(rate)
    own, *experts = (scores(column, actual[FIRST:]) for column in zip(*said[FIRST:], strict=True))
    return own.mdape / min(each.mdape for each in experts), own.log_error / min(each.log_error for each in experts)


def speed() -> None:
    """Print the number of learned transfers per second, and the time of single forecasts."""
    print(f"full bank, {len(MEMBERS)} members: {SOME / _bank_seconds():,.0f} observations/s (wanted: 200,000)")
    for members, wanted, rows in ((CONSTANT, 1, ROWS), (MEMBERS, 45, SOME)):
        seconds = _replay_seconds(members, rows) * ROWS / rows
        print(
            f"{ROWS:,} rows, {len(members)} members: {seconds:.2f} s (wanted: {wanted}; {rows:,} measured)", flush=True
        )
    for name, wanted in (("least MAE", 100), ("kernel", 1000), ("hedge", 1000)):
        for fast in (True, False):
            how = "compiled" if fast else "plain"
            print(
                f"one forecast, {name}, {how}: {_forecast_seconds(name, fast) * 1e6:.0f} us (wanted: {wanted})",
                flush=True,
            )
    both = [_least(lambda code=code: _run(code)) for code in ("pass", "import predictors.registry")]
    print(f"import of predictors.registry: {both[1] - both[0]:.3f} s (wanted: 0.3)")


def _bank_seconds() -> float:
    layout = Layout()
    kinds, firsts = np.frombuffer(layout.kinds, np.int64), np.frombuffer(layout.firsts, np.int64)
    row, account = np.array(layout.empty), np.array(account_of(len(MEMBERS), 0))
    learn = compiled(step)
    values = np.random.default_rng(1).lognormal(15, 1, SOME)
    from numba import njit

    @njit
    def all_of(kinds, firsts, row, account, values):
        for i in range(len(values)):
            learn(kinds, firsts, row, 0, account, 0, values[i], 60.0 * i)

    all_of(kinds, firsts, row, account, values[:10])
    began = time.perf_counter()
    all_of(kinds, firsts, row, account, values)
    return time.perf_counter() - began


def _replay_seconds(members: tuple[Member, ...], rows: int) -> float:
    layout, chance = Layout(members), np.random.default_rng(2)
    kinds, firsts = np.frombuffer(layout.kinds, np.int64), np.frombuffer(layout.firsts, np.int64)
    starts = np.cumsum(chance.exponential(1.0, rows))
    ends = starts + chance.lognormal(3, 1, rows)
    values, series = chance.lognormal(15, 1, rows), chance.integers(0, SERIES, rows)
    by_start, by_end, into = np.arange(rows), np.argsort(ends), np.empty(rows)
    run = compiled(replay_all)
    for count in (10, rows):
        states = np.tile(np.array(layout.empty), SERIES)
        accounts = np.tile(account_of(len(members), 0), SERIES)
        began = time.perf_counter()
        part = by_end[by_end < count]
        run(kinds, firsts, states, accounts, series, starts, ends, values, by_start[:count], part, into)
        seconds = time.perf_counter() - began
    return seconds


def _forecast_seconds(name: str, fast: bool) -> float:
    forecaster, chance = make(name, fast), np.random.default_rng(3)
    for i, value in enumerate(chance.lognormal(15, 1, 2500)):
        forecaster.learn(Observation("ftp://a", 60.0 * i, 60.0 * i + 1e9 / value, 10**9))
    query = Query("ftp://a", 60.0 * 1e6, 10**9)
    return _least(lambda: [forecaster.forecast(query) for _ in range(20)]) / 20


def _least(work: Callable[[], object], times: int = 7) -> float:
    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return min(once() for _ in range(times))


def _run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["speed", "accuracy"]
    if "speed" in wanted:
        speed()
    if "accuracy" in wanted:
        accuracy()
    if "generated" in wanted:
        generated()

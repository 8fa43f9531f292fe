"""The tables of IQ-Paths, section VI, with the paper's rows beside ours; and how far ours are from their goals."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.streams.experiments import EXPERIMENTS, FRAMES, SHORTAGE, Experiment
from tests.benchmarks.streams.rivals import POLICIES, PathGuarantees
from tests.benchmarks.streams.simulation import Deliveries, simulate
from tests.benchmarks.streams.traces import KNOWN, CrossedPath, crossed, series, shaped

__all__ = ["SECONDS", "paths_of", "show_tables"]

SECONDS = 120
RUNS = {"puffer": 5, "hsdpa": 3, "oboe": 4}
BEGINS = {"puffer": 2000, "hsdpa": 0, "oboe": 0}
"""Sample of a trace at which the first experiments begin; the pauses of blocked paths were chosen on earlier ones."""
OFFSETS = (0.37, 0.71, 0.13)
COMPARED = ("round robin", "PGOS")
CLAIRVOYANT = "clairvoyant (fluid)"
PAPER: Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]] = {
    "III": {
        "Atom": {
            "WFQ": (0.846, 0.672, 1.5524, 0.3863, 5.0),
            "MSFQ": (2.789, 2.744, 3.2111, 0.3273, 2.0),
            "PGOS": (3.236, 3.216, 3.2487, 0.015, 1.4),
            "OptSched": (3.24, 3.239, 3.2489, 0.0058, 1.2),
        },
        "Bond1": {
            "WFQ": (5.768, 4.569, 10.5843, 2.6348, 5.0),
            "MSFQ": (19.248, 18.946, 22.13, 2.2321, 2.0),
            "PGOS": (22.068, 21.959, 22.1476, 0.079, 1.4),
            "OptSched": (22.138, 22.139, 22.1477, 0.0273, 1.3),
        },
        "Bond2": {
            "WFQ": (18.297, 14.486, 33.7021, 8.3949, 5.0),
            "MSFQ": (52.446, 51.76, 59.0786, 8.0397, 2.0),
            "PGOS": (45.782, 45.038, 59.0588, 9.5765, 1.5),
            "OptSched": (45.757, 45.019, 59.0583, 9.5587, 1.5),
        },
    },
    "IV": {
        "DT1": {
            "GridFTP": (31.431, None, 33.9411, 1.4297, None),
            "PGOS": (33.869, None, 34.5505, 0.404, None),
        },
        "DT2": {
            "GridFTP": (23.282, None, 25.1415, 1.059, None),
            "PGOS": (25.094, None, 25.599, 0.2993, None),
        },
        "DT3": {
            "GridFTP": (69.393, None, 75.4246, 3.177, None),
            "PGOS": (65.287, None, 74.3577, 4.7668, None),
        },
    },
    "V": {
        "Base": {
            "MSFQ": (0.81722, None, 1.3693, None, None),
            "PGOS": (1.2026, None, 1.4761, None, None),
        },
        "Enhanced": {
            "MSFQ": (6.525, None, 10.769, None, None),
            "PGOS": (6.2931, None, 10.391, None, None),
        },
    },
}
"""The paper's 5th and 1st percentile, mean and standard deviation in Mbit/s, and jitter in milliseconds."""


@dataclass
class Runs:
    """The runs of an experiment.

    :ivar totals: Mbit/s that all paths together had, in each window
    :ivar rates: Mbit/s in each window, by schedule and stream
    :ivar shifted: the same in seconds that begin in the middle of windows
    :ivar jitters: milliseconds, by schedule and stream
    """

    experiment: Experiment
    totals: list[NDArray[np.float64]] = field(default_factory=list)
    rates: dict[tuple[str, str], list[NDArray[np.float64]]] = field(default_factory=dict)
    shifted: dict[tuple[str, str], list[NDArray[np.float64]]] = field(default_factory=dict)
    jitters: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, schedule: str, deliveries: Mapping[str, Deliveries]) -> None:
        for name, stream in deliveries.items():
            self.rates.setdefault((schedule, name), []).append(stream.rates(SECONDS))
            self.shifted.setdefault((schedule, name), []).append(stream.rates(SECONDS, shift=0.5))
            if stream.feed.paced:
                self.jitters.setdefault((schedule, name), []).append(stream.jitter())

    def add_clairvoyant(self, paths: Mapping[str, CrossedPath], run: int) -> None:
        """Add what is possible if nothing is lost, in the order of precedence, of what has arrived."""
        feeds = self.experiment.feeds
        edges = np.arange(SECONDS * FRAMES + 1) / FRAMES
        moved = np.array([sum(path.moved(edge) for path in paths.values()) for edge in edges]) * 8e-6
        self.totals.append(np.diff(moved[::FRAMES]))
        rates = np.zeros((len(feeds), SECONDS))
        frames = [feed.frames(SECONDS, run) for feed in feeds]
        waiting = [0.0] * len(feeds)
        for tick, left in enumerate(np.diff(moved)):
            for number, feed in enumerate(feeds):
                if feed.paced:
                    waiting[number] += frames[number][tick] * feed.packet * 8e-6
                elif tick % FRAMES == 0:
                    waiting[number] = feed.guaranteed or inf
                served = min(left, waiting[number])
                waiting[number] -= served
                left -= served
                rates[number, tick // FRAMES] += served
        for feed, rate in zip(feeds, rates, strict=True):
            self.rates.setdefault((CLAIRVOYANT, feed.name), []).append(rate)

    def of(self, schedule: str, name: str) -> NDArray[np.float64]:
        return np.concatenate(self.rates[schedule, name])


def paths_of(experiment: Experiment, trace: str, run: int, full: bool) -> dict[str, CrossedPath]:
    """Return the paths of a run: each run has another pair of series, or a later part of them."""
    shapes = series(trace)
    pairs = len(shapes) // 2
    begin = BEGINS[trace] + run // pairs * (KNOWN + SECONDS)
    found = {}
    for number, name in enumerate("AB"):
        shape = shapes[2 * (run % pairs) + number][begin:]
        deviation = None if full else experiment.deviations[number]
        found[name] = crossed(shape, SECONDS, experiment.means[number], deviation, OFFSETS[number])
    return found


def _run(experiment: Experiment, trace: str, full: bool) -> Runs:
    found = Runs(experiment)
    for run in range(RUNS[trace]):
        _add(found, paths_of(experiment, trace, run, full), run, POLICIES if trace == "puffer" else COMPARED)
    return found


def _add(found: Runs, paths: Mapping[str, CrossedPath], run: int, schedules: Iterable[str] = tuple(POLICIES)) -> None:
    feeds = found.experiment.feeds
    found.add_clairvoyant(paths, run)
    for schedule in schedules:
        used = dict(list(paths.items())[:1]) if schedule.startswith("WFQ") else paths
        found.add(schedule, simulate(POLICIES[schedule](feeds, list(used)), feeds, used, SECONDS, run))


def show_tables() -> None:
    """Print all tables as Markdown."""
    _show_right_path()
    goals = [goal for number in PAPER for goal in _show_experiment(number)]
    print("\n## Goals\n")
    print("| experiment | stream | feasible, % | 5 % / target | shifted | std / round robin | best effort / possible |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(goals))
    _show_shortage()


def _show_experiment(number: str) -> list[str]:
    """Print the table of an experiment, and return the lines of the table of goals."""
    experiment = EXPERIMENTS[number]
    goals = []
    for full in (False, True) if experiment.full else (False,):
        for trace in RUNS:
            runs = _run(experiment, trace, full)
            goals += _goals(runs, f"{number}, {trace}{', full' if full else ''}")
            if trace == "puffer":
                _show(number, runs, full)
    return goals


def _show(number: str, runs: Runs, full: bool) -> None:
    print(f"\n## Table {number}: {runs.experiment.title}{', full variation' if full else ''}\n")
    print("| stream | schedule | 5 % | 1 % | mean | std | jitter, ms |\n|---|---|---|---|---|---|---|")
    for feed in runs.experiment.feeds:
        for schedule, values in ({} if full else PAPER[number][feed.name]).items():
            print(f"| {feed.name} | paper: {schedule} | {' | '.join(map(_cell, values))} |")
        for schedule in (*POLICIES, CLAIRVOYANT):
            rates = runs.of(schedule, feed.name)
            jitter = runs.jitters.get((schedule, feed.name))
            values = [*np.quantile(rates, [0.05, 0.01]), rates.mean(), rates.std(), np.mean(jitter) if jitter else None]
            print(f"| {feed.name} | {schedule} | {' | '.join(map(_cell, values))} |", flush=True)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _goals(runs: Runs, label: str) -> Iterator[str]:
    """Yield a line for each guaranteed stream; a window is feasible if the clairvoyant schedule keeps it."""
    rest = runs.experiment.feeds[-1].name
    share = runs.of("PGOS", rest).sum() / runs.of(CLAIRVOYANT, rest).sum()
    for feed in runs.experiment.feeds[:-1]:
        rates, shifted = runs.of("PGOS", feed.name), np.concatenate(runs.shifted["PGOS", feed.name])
        target = feed.guaranteed or 1.0
        feasible = runs.of(CLAIRVOYANT, feed.name) >= 0.999 * target
        low, low_of_shifted = np.quantile(rates[feasible], 0.05) / target, np.quantile(shifted, 0.05) / target
        spread = rates.std() / runs.of("round robin", feed.name).std()
        cells = f"{100 * feasible.mean():.1f} | {low:.3f} | {low_of_shifted:.3f} | {spread:.2f} | {share:.3f}"
        yield f"| {label} | {feed.name} | {cells} |"


def _show_right_path() -> None:
    """Print table II: two streams on the path with the higher mean, and on the steadier one."""
    experiment = EXPERIMENTS["II"]
    print(f"\n## Table II: {experiment.title}\n")
    print("| stream | path | mean of the path | 5 % | 1 % | windows kept, % | jitter, ms | chosen in |")
    print("|---|---|---|---|---|---|---|---|")
    found: dict[tuple[str, str], list[Deliveries]] = {}
    means: dict[str, list[float]] = {}
    chosen: Counter[tuple[str, str]] = Counter()
    for run in range(RUNS["puffer"]):
        paths = paths_of(experiment, "puffer", run, full=False)
        policy = PathGuarantees(experiment.feeds, list(paths))
        policy.learn({name: path.past for name, path in paths.items()}, 0.0)
        chosen.update((placement.stream.name, path) for placement in policy.placements for path in placement.packets)
        for name, path in paths.items():
            means.setdefault(name, []).append(8e-6 * path.moved(SECONDS) / SECONDS)
            policy = PathGuarantees(experiment.feeds, [name])
            for stream, each in simulate(policy, experiment.feeds, {name: path}, SECONDS, run).items():
                found.setdefault((stream, name), []).append(each)
    for (stream, name), runs in found.items():
        rates = np.concatenate([deliveries.rates(SECONDS) for deliveries in runs])
        kept = 100 * (rates >= 0.999 * runs[0].feed.target).mean()
        low, lowest = np.quantile(rates, [0.05, 0.01])
        jitter = np.mean([deliveries.jitter() for deliveries in runs])
        share = f"{chosen[stream, name]} of {RUNS['puffer']}"
        print(
            f"| {stream} | {name} | {np.mean(means[name]):.1f} | {low:.3f} | {lowest:.3f} | {kept:.1f} | {jitter:.2f} "
            f"| {share} |"
        )


def _show_shortage() -> None:
    """Print how often two streams of 15 and 25 % of the mean of three paths had their rate, without any admission."""
    runs = Runs(SHORTAGE)
    shapes = series("puffer")
    for run in range(RUNS["puffer"]):
        paths = {
            name: shaped(shapes[3 * run + number][BEGINS["puffer"] :], SECONDS, 50.0, OFFSETS[number])
            for number, name in enumerate("ABC")
        }
        _add(runs, paths, run)
    print("\n## Three paths that are puffer's traces\n")
    print("| schedule | stream 1 | stream 2 | best effort, % of all |\n|---|---|---|---|")
    total = np.concatenate(runs.totals).sum()
    for schedule in (*POLICIES, CLAIRVOYANT):
        kept = [
            100 * (runs.of(schedule, feed.name) >= 0.999 * (feed.guaranteed or 0)).mean() for feed in SHORTAGE.feeds[:2]
        ]
        rest = 100 * runs.of(schedule, SHORTAGE.feeds[2].name).sum() / total
        print(f"| {schedule} | {kept[0]:.1f} | {kept[1]:.1f} | {rest:.1f} |")

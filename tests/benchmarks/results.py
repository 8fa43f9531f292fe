"""The results of a scenario: the runs of all rivals compared with the ideal, as table cells and as JSON. Pure."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.race import Copy, Run, Sample
from tests.benchmarks.scenarios import SCENARIOS, named

__all__ = ["COLUMNS", "LIMIT", "SHOWN", "Result", "beside", "checked", "read", "rows", "typical", "write"]

SHOWN = "coget"
"""Name of the rival whose runs are drawn."""
BELIEVED = 0.02
"""Largest accepted relative difference between a source's rate alone and its scheduled rate."""
COLUMNS = ("program", "seconds", "time / ideal", "duplicated", "CPU s/GB", "waited", "")
LIMIT = 4
"""Time limit of a run, as a multiple of the ideal."""


@dataclass(frozen=True, slots=True)
class Result:
    """The results of one scenario with one congestion control.

    :param ideal: ideal time in seconds
    :param size: size of the file in bytes
    :param alone: by source, its measured rate when it sent alone, divided by its scheduled rate
    :param timeline: the events in the network: seconds after the start, and a description
    :param runs: by rival, its run of each round
    :param repeated: number of runs that were repeated, because the testbed could not keep up
    :param version: commit of the code; empty if it was changed since
    :param machine: speed of the machine before the runs, see `tests.benchmarks.machine`
    """

    scenario: str
    congestion: str
    ideal: float
    size: int
    alone: Mapping[str, float] = field(default_factory=dict)
    timeline: Sequence[tuple[float, str]] = ()
    runs: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    repeated: int = 0
    version: str = ""
    machine: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        variants = named(self.scenario).congestion
        return f"{self.scenario} ({self.congestion})" if len(variants) > 1 else self.scenario

    def ratio(self, rival: str) -> float:
        """Return the median of time / ideal (in `rerun`: of bytes moved / size of the file); failures are infinite."""
        return median(_ratio(self, run) for run in self.runs[rival])


def checked(result: Result) -> str:
    """Return a sentence with the rates of the sources alone, and whether they make the ideal uncertain."""
    if not result.alone:
        return ""
    text = "rates of single sources, relative to the schedule: " + ", ".join(
        f"{host} {part:.3f}" for host, part in result.alone.items()
    )
    doubtful = any(abs(part - 1) > BELIEVED for part in result.alone.values())
    return f"{text}: the ideal is uncertain" if doubtful else text


def beside(result: Result) -> str:
    """Return a sentence that compares coget with the extra rivals of the scenario; empty if it has none."""
    found = []
    for rival in named(result.scenario).extra:
        if rival in result.runs and SHOWN in result.runs:
            own, other = result.ratio(SHOWN), result.ratio(rival)
            gap = (own - other) * result.ideal
            found.append(f"compared with {rival}, coget takes {own / other:.3f} times as long ({gap:+.2f} s)")
    return "; ".join(found)


def goal_is_missed(result: Result) -> bool:
    """Return whether coget did not reach the goal of the scenario, or has no run that counts."""
    scenario, ours = SCENARIOS[result.scenario], result.ratio(SHOWN) if SHOWN in result.runs else math.inf
    limits = [scenario.most]
    limits += [
        result.ratio(rival) * scenario.most_of_extra + scenario.more_than_extra / result.ideal
        for rival in scenario.extra
        if rival in result.runs
    ]
    peers = [result.ratio(rival) for rival in result.runs if not rival.startswith(SHOWN)]
    return ours == math.inf or ours > min(limits) or (scenario.fastest and ours >= min(peers, default=math.inf))


def rows(result: Result) -> list[tuple[str, ...]]:
    """Return the cells of a table, one row per rival, in the order of COLUMNS."""
    return [(rival, *_cells(result, runs)) for rival, runs in result.runs.items()]


def _cells(result: Result, runs: Sequence[Run]) -> tuple[str, ...]:
    done = [run for run in runs if run.outcome == "ok"]
    bad = [run for run in runs if run.outcome != "ok"]
    remark = f"{len(bad)} of {len(runs)} {_remark(result, bad[0])}" if bad else ""
    if len(bad) * 2 >= len(runs):
        return ("", f"> {LIMIT}" if bad[0].outcome == "late" else bad[0].outcome, "", "", "", remark)
    ratios = [_ratio(result, run) for run in done]
    return (
        f"{median(run.seconds for run in done):.2f}",
        f"{median(ratios):.3f} [{min(ratios):.3f}-{max(ratios):.3f}]",
        f"{100 * (median(run.moved for run in done) / result.size - 1):.2f} %",
        f"{median(run.cpu for run in done) / result.size * 1e9:.2f}",
        f"{100 * median(run.waited / run.seconds for run in done):.0f} %",
        remark,
    )


def _remark(result: Result, run: Run) -> str:
    if run.outcome == "late":
        return f"ended when {run.moved / result.size:.0%} had gone over the wire"
    return f"{run.outcome}: {run.said.splitlines()[0][:80]}" if run.said else run.outcome


def _ratio(result: Result, run: Run) -> float:
    if run.outcome != "ok":
        return math.inf
    return run.moved / result.size if named(result.scenario).rerun else run.seconds / result.ideal


def typical(runs: Sequence[Run]) -> Run | None:
    """Return the successful run with the median time; None if there is none."""
    done = sorted((run for run in runs if run.outcome == "ok"), key=lambda run: run.seconds)
    return done[(len(done) - 1) // 2] if done else None


def write(path: Path, results: Sequence[Result]) -> None:
    """Store results in a file, with the samples and copies of only one typical run of coget each.

    Results of other scenarios in the file are kept.
    """
    results = [_trimmed(result) for result in results]
    kept = {result.title: result for result in (read(path) if path.exists() else [])}
    kept |= {result.title: result for result in results}
    order = {name: number for number, name in enumerate(SCENARIOS)}
    chosen = sorted(kept.values(), key=lambda result: (order.get(result.scenario, len(order)), result.title))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in chosen], separators=(",", ":")) + "\n")


def read(path: Path) -> list[Result]:
    """Return the results in a file that `write` made."""
    return [_result(document) for document in json.loads(path.read_text())]


def _trimmed(result: Result) -> Result:
    shown = typical(result.runs.get(SHOWN, ()))
    runs = {
        rival: [_to_milliseconds(run) if run is shown else replace(run, samples=(), copies={}) for run in own]
        for rival, own in result.runs.items()
    }
    return replace(result, runs=runs)


def _to_milliseconds(run: Run) -> Run:
    """Return a run whose samples have times in whole milliseconds, which is enough to draw them."""
    return replace(run, samples=tuple(replace(each, seconds=round(each.seconds, 3)) for each in run.samples))


def _result(document: dict[str, Any]) -> Result:
    runs = {rival: [_run(run) for run in kept] for rival, kept in document.pop("runs").items()}
    return Result(**document, runs=runs)


def _run(document: dict[str, Any]) -> Run:
    samples = tuple(Sample(**sample) for sample in document.pop("samples"))
    copies = {host: [Copy(**copy) for copy in own] for host, own in document.pop("copies").items()}
    return Run(**document, samples=samples, copies=copies)

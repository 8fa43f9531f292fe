"""The paper's figures as tables: one per figure, in Markdown, which is readable on a terminal, too.

docs/explanation/paper.md explains the cells; `tests.benchmarks.paper.measures` computes them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.paper.experiments import EXPERIMENTS, SIZES, Experiment, Scheme
from tests.benchmarks.paper.measures import Measure, Record, Records

__all__ = ["BANDWIDTHS", "BLOCKS", "LARGE", "WAITS", "Results", "tables"]

LARGE = max(SIZES)
"""The size that also runs in virtual time."""
BANDWIDTHS = {
    "4": "isi+ufl-anl",
    "5": "isi+bu-ufl",
    "6": "lbl+ufl-anl",
    "7": "anl+isi-ufl",
    "8": "anl+isi+bu-ufl",
    "9a": "lbl+lbl-anl",
    "9b": "isi+isi-ufl",
}
"""Experiment whose schemes are compared, by figure."""
BLOCKS = {"10a, d": "isi+ufl-anl", "10b, e": "lbl+isi-anl", "10c, f": "lbl+isi+ufl-anl"}
"""Experiment whose block counts are compared, by figure."""
WAITS = {"11a": "anl+isi-ufl", "11b": "lbl+ufl-anl"}
"""Experiment in which the faster server waits, by figure."""
NONE = "–"


@dataclass(frozen=True, slots=True)
class Results:
    """The records of the runs on the testbed, and of those in virtual time."""

    real: Sequence[Record]
    virtual: Sequence[Record]

    def of(self, name: str) -> tuple[Experiment, Records, Records]:
        """Return an experiment, its records of real runs, and those in virtual time."""
        experiment = EXPERIMENTS[name]
        return experiment, Records(experiment, self.real), Records(experiment, self.virtual)


def tables(results: Results) -> dict[str, str]:
    """Return the table of each figure; figures without runs are left out."""
    ran = {record.experiment for record in results.real}
    shown = [(BANDWIDTHS, _bandwidths), (BLOCKS, _blocks), (WAITS, _waits)]
    return {
        figure: "\n".join(made(*results.of(name)))
        for figures, made in shown
        for figure, name in figures.items()
        if name in ran
    }


def _bandwidths(experiment: Experiment, real: Records, virtual: Records) -> Iterator[str]:
    """Yield the rows of a table of bandwidths in MB/s, with the gains over the best single server."""

    def cell(records: Records, scheme: str, size: int) -> str:
        gain = records.gain(scheme, size)
        return f"{_shown(records.bandwidth(scheme, size))} ({gain.mean:.2f}x)" if gain.count else NONE

    schemes = [scheme for scheme in experiment.schemes if scheme.blocks in (None, 5)]
    return _table(schemes, real, virtual, cell)


def _blocks(experiment: Experiment, real: Records, virtual: Records) -> Iterator[str]:
    """Yield the rows of a table of bandwidths in MB/s, by block count."""

    def cell(records: Records, scheme: str, size: int) -> str:
        return _shown(records.bandwidth(scheme, size))

    return _table(_balanced(experiment), real, virtual, cell)


def _waits(experiment: Experiment, real: Records, virtual: Records) -> Iterator[str]:
    """Yield the rows of a table of the faster server's idle shares, with the number of runs in which it waited."""

    def cell(records: Records, scheme: str, size: int) -> str:
        idle, runs = records.idle(scheme, size), records.bandwidth(scheme, size).count
        return f"{_percent(idle)} ({idle.count} of {runs})"

    yield from _table(_balanced(experiment), real, virtual, cell)
    for strategy in ("conservative", "aggressive", "adaptive"):
        shares = [*(real.idle_of_all(strategy, size) for size in SIZES), virtual.idle_of_all(strategy, LARGE)]
        yield _row([f"{strategy}, all runs", *map(_percent, shares)])


def _balanced(experiment: Experiment) -> list[Scheme]:
    return [scheme for scheme in experiment.coallocated if scheme.blocks or scheme.strategy == "adaptive"]


def _table(
    schemes: Iterable[Scheme], real: Records, virtual: Records, cell: Callable[[Records, str, int], str]
) -> Iterator[str]:
    yield _row(["", *(f"{size} MB" for size in SIZES), f"{LARGE} MB, virtual time"])
    yield _row(["---"] * (len(SIZES) + 2))
    for scheme in schemes:
        name = scheme.name
        yield _row([name, *(cell(real, name, size) for size in SIZES), cell(virtual, name, LARGE)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(share: Measure) -> str:
    return f"{_shown(share, 100, 1)} %" if share.count else NONE


def _shown(measure: Measure, factor: float = 1, digits: int = 2) -> str:
    """Format a mean with its 95 % range, if it has one."""
    if not measure.count:
        return NONE
    mean = f"{factor * measure.mean:.{digits}f}"
    return f"{mean} ± {factor * measure.margin:.{digits}f}" if measure.count > 1 else mean

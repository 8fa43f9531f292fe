"""The values of the paper's figures, computed from runs: bandwidth, gain, idle share, each with its 95 % range. Pure.

`tests.benchmarks.paper.experiments` defines the experiments. Records come from real runs
(`tests.benchmarks.paper.network`) or simulated ones (`tests.benchmarks.paper.virtual`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean, stdev

from tests.benchmarks.paper.experiments import Experiment

__all__ = ["Measure", "Record", "Records", "measure"]

STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Half width of the 95 % range of a mean in standard errors, by the number of runs (Student's t)."""


@dataclass(frozen=True, slots=True)
class Record:
    """One run: a scheme fetched a file in the weather of a seed.

    :param size: size of the file in the paper, in MB
    :param bandwidth: MB/s
    :param seconds: duration of the whole download
    :param delivered: by server, the second of its last byte; None if it delivered nothing
    """

    experiment: str
    scheme: str
    size: int
    seed: int
    bandwidth: float
    seconds: float
    delivered: Mapping[str, float | None]

    def waited(self, faster: str) -> float | None:
        """Return the share of the duration in which a server waited for others; None for the last server."""
        own, last = self.delivered[faster] or 0.0, max(second or 0.0 for second in self.delivered.values())
        return (last - own) / self.seconds if own < last else None


@dataclass(frozen=True, slots=True)
class Measure:
    """A mean over `count` runs, with half the width of its 95 % range; NaN if runs are too few."""

    mean: float
    margin: float
    count: int


def measure(values: Sequence[float]) -> Measure:
    """Return the mean and its 95 % range."""
    count = len(values)
    # With more than ten runs, the factor for ten is used, which makes the range slightly too wide.
    margin = STUDENT[min(count, max(STUDENT))] * stdev(values) / count**0.5 if count > 1 else nan
    return Measure(fmean(values) if values else nan, margin, count)


class Records:
    """All runs of one experiment."""

    def __init__(self, experiment: Experiment, records: Iterable[Record]) -> None:
        self._experiment = experiment
        self._runs = [record for record in records if record.experiment == experiment.name]

    def bandwidth(self, scheme: str, size: int) -> Measure:
        """Return the bandwidth in MB/s."""
        return measure([run.bandwidth for run in self._of(scheme, size)])

    def best(self, size: int) -> str:
        """Return the single server with the highest mean bandwidth."""
        found = {single.name: self.bandwidth(single.name, size) for single in self._experiment.singles}
        return max(found, key=lambda name: (found[name].count > 0, found[name].mean))

    def gain(self, scheme: str, size: int) -> Measure:
        """Return the bandwidth, divided by that of the best single server in the same weather."""
        best = {run.seed: run.bandwidth for run in self._of(self.best(size), size)}
        return measure([run.bandwidth / best[run.seed] for run in self._of(scheme, size) if run.seed in best])

    def idle(self, scheme: str, size: int) -> Measure:
        """Return the idle share of the faster server (section 4.3.4), over runs in which it did not finish last."""
        return measure([wait for run in self._of(scheme, size) if (wait := self._wait(run)) is not None])

    def idle_of_all(self, strategy: str, size: int) -> Measure:
        """Return the idle share of the faster server over all runs of a strategy; it is 0 in runs without a wait."""
        names = [scheme.name for scheme in self._experiment.coallocated if scheme.strategy == strategy]
        return measure([self._wait(run) or 0.0 for name in names for run in self._of(name, size)])

    def _wait(self, run: Record) -> float | None:
        return run.waited(self._experiment.servers[0])

    def _of(self, scheme: str, size: int) -> list[Record]:
        return [run for run in self._runs if (run.scheme, run.size) == (scheme, size)]

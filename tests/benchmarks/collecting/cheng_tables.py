"""Cheng's figures 5 to 7 as tables, beside the values in the paper's text."""

from collections.abc import Callable, Sequence
from statistics import median, quantiles

from tests.benchmarks.collecting.cheng import COMMON, DIRECT, SENDERS, SHOWN, TABLED_METHODS, UNEVEN, UNITS, Case, Run
from tests.benchmarks.collecting.results import mean, table

__all__ = ["PAPER", "Runs", "tables"]

BASE, OURS = "all-at-once", "path-sync-95"
COMPARED = ("best-path", "path-sync-100", "path-delay", "adaptive")
LETTER = ("path-sync-95, no access", "path-delay, no access")
PAPER = {("direct", 24): "1.9", ("direct", 120): "3.7", ("best-path", 120): "1.7"}
"""Makespans divided by that of PathSync95, from the paper's text."""
NONE = ""


class Runs:
    """All runs, by their cases.

    `seeds` are those of networks with all methods, `many` those of all networks.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {run.case._replace(probes=0): run for run in runs}
        self.seeds = sorted({run.case.seed for run in runs if run.case.method == "adaptive"})
        self.many = sorted({run.case.seed for run in runs})
        self.loads = sorted({run.case.load for run in runs})

    def of(self, method: str, load: int, unevenness: float = 0.0, senders: int = 0) -> list[Run]:
        """Return the run of each seed that has one."""
        cases = (Case(method, load, seed, unevenness, senders, 0) for seed in self.seeds)
        return [self._runs[case] for case in cases if case in self._runs]

    def ratios(self, method: str, over: str, load: int, unevenness: float = 0.0, senders: int = 0) -> list[float]:
        """Return, for each scenario, the makespan of `method` divided by that of `over`."""
        kind = load, unevenness, senders
        pairs = zip(self.of(method, *kind), self.of(over, *kind), strict=True)
        return [run.seconds / base.seconds for run, base in pairs]

    def compared(self, first: Case, second: Case) -> list[float]:
        """Return the makespan of a case divided by that of another, for each network that has both."""
        found = ([case._replace(seed=seed, probes=0) for case in (first, second)] for seed in self.many)
        return [
            self._runs[one].seconds / self._runs[two].seconds
            for one, two in found
            if one in self._runs and two in self._runs
        ]


def tables(runs: Runs) -> dict[str, str]:
    """Return the tables by figure."""
    return {
        "figure 5a": _direct(runs),
        "figure 5b": _makespans(runs),
        "uneven": _uneven(runs),
        "crowded": _crowded(runs),
        "figure 6": _each(runs, (*COMPARED[:1], OURS, *COMPARED[1:], *LETTER), lambda run: run.storage),
        "figure 7": _each(runs, (*DIRECT, "best-path", OURS, *COMPARED[1:]), lambda run: run.background),
        "letter": _letter(runs),
        "networks": _networks(runs),
        "sensitive": _sensitive(runs),
    }


def _direct(runs: Runs) -> str:
    head = ["flows", "all-at-once, s", *(f"{name} / all-at-once" for name in DIRECT if name != BASE)]
    rows = [
        [
            str(load),
            mean([run.seconds for run in runs.of(BASE, load)], 0),
            *(mean(runs.ratios(name, BASE, load)) for name in DIRECT if name != BASE),
        ]
        for load in runs.loads
    ]
    return table(head, rows)


def _makespans(runs: Runs) -> str:
    head = ["flows", "PathSync95, s", "direct / PathSync95", "paper", "best path / PathSync95", "paper"]
    head += [f"{name} / PathSync95" for name in COMPARED[1:]]
    rows = [
        [
            str(load),
            mean([run.seconds for run in runs.of(OURS, load)], 0),
            mean(runs.ratios(BASE, OURS, load)),
            PAPER.get(("direct", load), NONE),
            mean(runs.ratios("best-path", OURS, load)),
            PAPER.get(("best-path", load), NONE),
            *(mean(runs.ratios(name, OURS, load)) for name in COMPARED[1:]),
        ]
        for load in runs.loads
    ]
    return table(head, rows)


def _uneven(runs: Runs) -> str:
    """Return the table of makespans with uneven TCP."""
    head = ["flows", "PathSync95 / with even TCP", "direct / PathSync95"]
    others = (*COMPARED, "path-sync-80")
    head += [f"{name} / PathSync95" for name in others]
    rows = []
    for load in (load for load in SHOWN if load in runs.loads):
        pairs = zip(runs.of(OURS, load, UNEVEN), runs.of(OURS, load), strict=True)
        slower = [run.seconds / even.seconds for run, even in pairs]
        found = (mean(runs.ratios(name, OURS, load, UNEVEN)) for name in (BASE, *others))
        rows.append([str(load), mean(slower), *found])
    return table(head, rows)


def _crowded(runs: Runs) -> str:
    """Return the table for background traffic that few stub domains send, whose links slow it down."""
    loads = [load for load in (min(SHOWN), max(SHOWN)) if load in runs.loads]
    head = ["stub domains that send", *(f"direct / PathSync95 at {load}" for load in loads)]
    rows = [
        [str(senders or "all"), *(mean(runs.ratios(BASE, OURS, load, senders=senders)) for load in loads)]
        for senders in (*SENDERS, 0)
    ]
    return table(head, rows)


def _letter(runs: Runs) -> str:
    """Return makespans of plans with the paper's exact model, divided by those with access links as limits."""
    names = {"path-sync-95, no access": OURS, "path-delay, no access": "path-delay"}
    head = ["flows", *(f"{ours}: without access / with" for ours in names.values())]
    rows = [[str(load), *(mean(runs.ratios(name, ours, load)) for name, ours in names.items())] for load in runs.loads]
    return table(head, rows)


def _networks(runs: Runs) -> str:
    """Return the table of makespans at the highest load in many networks."""
    load = max(SHOWN)
    rows = []
    for name in (name for name in COMMON if name != OURS):
        found = runs.compared(Case(name, load, 0), Case(OURS, load, 0))
        if len(found) > 1:
            low, *_, high = quantiles(found, n=10)
            rows.append([name, str(len(found)), mean(found), f"{median(found):.2f}", f"{low:.2f} to {high:.2f}"])
    return table(["method", "networks", "makespan / PathSync95", "median", "eight in ten networks"], rows)


def _sensitive(runs: Runs) -> str:
    """Return the table of makespans with other measurements and data units, divided by those with the usual ones."""
    load = SHOWN[1]
    plain = Case(OURS, load, 0)
    changes = {f"measured with {told} flows": plain._replace(told=told) for told in (min(SHOWN), max(SHOWN))}
    changes |= {f"data units of {unit // 1024} KB": plain._replace(unit=unit) for unit in UNITS}
    rows = []
    for name, case in changes.items():
        found = [runs.compared(case._replace(method=each), plain._replace(method=each)) for each in TABLED_METHODS]
        cells = (f"{mean(ratios)} ({max(ratios, default=0.0):.2f})" for ratios in found)
        rows.append([name, str(len(found[0])), *cells])
    return table(["change", "networks", *TABLED_METHODS], rows)


def _each(runs: Runs, methods: Sequence[str], value: Callable[[Run], float]) -> str:
    head = ["flows", *methods]
    rows = [
        [str(load), *(mean([value(run) for run in runs.of(name, load)], 3) for name in methods)] for load in runs.loads
    ]
    return table(head, rows)

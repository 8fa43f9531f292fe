"""Pictures of the collecting benchmarks, as SVG. Needs matplotlib (extra `bench`)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.collecting import cheng, cheng_tables, confluence_tables
from tests.benchmarks.collecting.confluence import MIDDLE, SIZES
from tests.benchmarks.paper.measures import measure
from tests.benchmarks.plots import save

__all__ = ["draw_gains", "draw_loads"]

SHOWN = ("all-at-once", "best-path", "path-sync-100", "path-sync-95", "path-delay", "adaptive")


def draw_loads(runs: cheng_tables.Runs, path: Path) -> None:
    """Draw Cheng's figures 5 (b), 6 and 7: values by number of background flows, with the 95 % range over scenarios."""
    panels: Mapping[str, Callable[[cheng.Run], float]] = {
        "makespan, s": lambda run: run.seconds,
        "storage / storage of direct": lambda run: run.storage,
        "others' throughput / throughput alone": lambda run: run.background,
    }
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "coget", "font.size": 8}):
        figure = Figure(figsize=(9.6, 3.2), layout="constrained")
        for axes, (label, value) in zip(figure.subplots(1, 3), panels.items(), strict=True):
            for name in SHOWN:
                found = [measure([value(run) for run in runs.of(name, load)]) for load in runs.loads]
                margins = [each.margin if each.count > 1 else 0.0 for each in found]
                axes.errorbar(runs.loads, [each.mean for each in found], margins, label=name, linewidth=1, capsize=2)
            axes.set_xlabel("background flows")
            axes.set_ylabel(label)
        figure.axes[0].set_yscale("log")
        figure.axes[0].legend(fontsize=6)
        save(figure, path)


def draw_gains(runs: confluence_tables.Runs, path: Path) -> None:
    """Draw Confluence's figure 9: the share of sinks whose gain is at most x."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "coget", "font.size": 8}):
        figure = Figure(figsize=(4.8, 3.2), layout="constrained")
        axes = figure.subplots()
        for n in SIZES:
            _steps(axes, runs.gains(runs.cases("planetlab", n)), f"n = {n}")
        _steps(axes, runs.gains(runs.cases("cloud", MIDDLE)), f"n = {MIDDLE}, cloud")
        axes.set_xlabel("time saved over the direct transfer, %")
        axes.set_ylabel("sinks that save at most x, %")
        axes.legend(fontsize=6)
        save(figure, path)


def _steps(axes: Axes, gains: Sequence[float], label: str) -> None:
    if gains:
        ordered = sorted(gains)
        axes.step(
            [100 * gain for gain in ordered], [100 * i / len(gains) for i in range(1, len(gains) + 1)], label=label
        )

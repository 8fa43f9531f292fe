"""Two pictures of runs with the largest file. Needs matplotlib (extra `bench`).

They show the gains of the schemes (figures 4 to 9), and how long the faster server waits (figure 11).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tests.benchmarks.paper.measures import Measure, Records
from tests.benchmarks.paper.tables import BANDWIDTHS, LARGE, WAITS, Results
from tests.benchmarks.plots import save

__all__ = ["draw_gains", "draw_waits"]

GAINERS = ("brute", "history", "conservative-5", "aggressive-5", "adaptive")
WAITERS = (*(f"{name}-{k}" for name in ("conservative", "aggressive") for k in (5, 10, 15)), "adaptive")


def draw_gains(results: Results, path: Path) -> None:
    """Draw each scheme's bandwidth, divided by that of the best single server, as SVG."""
    groups = {f"figure {figure}\n{name}": results.of(name)[1] for figure, name in BANDWIDTHS.items()}
    with _figure(path, "gain over the best single server") as axes:
        _draw_bars(axes, groups, GAINERS, lambda records, scheme: records.gain(scheme, LARGE))
        axes.axhline(1, color="black", linewidth=0.8)


def draw_waits(results: Results, path: Path) -> None:
    """Draw the idle share of the faster server, in real runs and in virtual time, as SVG."""
    groups = {}
    for figure, name in WAITS.items():
        _, real, virtual = results.of(name)
        groups |= {f"figure {figure}\n{name}": real, f"figure {figure}\nin virtual time": virtual}
    with _figure(path, "idle share of the faster server, %") as axes:
        _draw_bars(axes, groups, WAITERS, _percent_idle)


def _percent_idle(records: Records, scheme: str) -> Measure:
    idle = records.idle(scheme, LARGE)
    return Measure(100 * idle.mean, 100 * idle.margin, idle.count)


@contextmanager
def _figure(path: Path, label: str) -> Iterator[Axes]:
    # With a fixed salt, the same results always give the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "coget", "font.size": 8}):
        figure = Figure(figsize=(7.2, 3.0), layout="constrained")
        axes = figure.subplots()
        yield axes
        axes.set_ylabel(label)
        bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
        axes.set_ylim(0, 1.6 * max(bar.get_height() for bar in bars))  # error bars of two runs may be huge
        axes.legend(loc="upper right", ncols=4, fontsize=6)
        save(figure, path)


def _draw_bars(
    axes: Axes, groups: Mapping[str, Records], schemes: Sequence[str], value: Callable[[Records, str], Measure]
) -> None:
    """Draw a group of bars for each entry of `groups`, one bar per scheme."""
    width = 0.8 / len(schemes)
    for number, scheme in enumerate(schemes):
        measures = [value(records, scheme) for records in groups.values()]
        places = [group + (number + 0.5) * width - 0.4 for group in range(len(groups))]
        heights = [measure.mean if measure.count else 0.0 for measure in measures]
        margins = [measure.margin if measure.count > 1 else 0.0 for measure in measures]
        axes.bar(places, heights, width, yerr=margins, error_kw={"elinewidth": 0.6}, label=scheme)
    axes.set_xticks(range(len(groups)), list(groups))

"""The picture of a plan: its network above, with the plan's limits in red; the bytes on each link over time below.

Each link has a row, each file a colour.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coalloc.display.pictures.bars import Bar
from coalloc.errors import SinkError, UsageError
from coalloc.planner.network import Network
from coalloc.planner.results import TransferPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "gantt", "rows"]

HOST, LEAST = 0.7, 4.0
"""Height of a host in a column of hosts, and minimum height of the network, in inches."""
ROW = 0.22
"""Height of a row of bars in inches."""
FEWEST, MOST = 4, 40
"""Minimum and maximum number of rows of bars for which there is room."""
NAMED = 10
"""Maximum number of files named in the legend."""
MOMENT = 1e-6
"""Gaps of at most so many seconds are not drawn."""
Row = tuple[str, str]


def draw(path: Path, network: Network, plan: TransferPlan, bars: Sequence[Bar]) -> None:
    """Write a picture, in the format given by the path's suffix: SVG, PNG, PDF.

    :raises UsageError: when matplotlib is not installed
    :raises SinkError: when the file cannot be written
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise UsageError("pictures need matplotlib", "run: pip install 'coget[plots]'") from None
    # The fixed salt makes pictures of the same plan identical.
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "coget",
        "font.size": 8,
        "font.family": "sans-serif",
    }
    with rc_context(style):
        figure = _figure(network, plan, bars)
        metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
        try:
            figure.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise SinkError(f"cannot write to {path}: {error.strerror}", "choose another file") from None


def _figure(network: Network, plan: TransferPlan, bars: Sequence[Bar]) -> "Figure":
    from matplotlib.figure import Figure

    from coalloc.display.pictures.graph import graph, placed

    where = placed(network, plan)
    tallest = max(Counter(x for x, _ in where.values()).values(), default=1)
    heights = [max(LEAST, HOST * tallest), 0.6 + ROW * max(FEWEST, min(MOST, len(rows(bars))))]
    figure = Figure(figsize=(10, 0.4 + sum(heights)), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=heights)
    figure.suptitle(plan.reason[:1].upper() + plan.reason[1:], wrap=True)
    graph(above, network, plan, where)
    gantt(below, bars, FEWEST, MOST)
    return figure


def rows(bars: Sequence[Bar]) -> list[Row]:
    """Return one row per pair of hosts, in the order in which bytes reach them."""
    first: dict[Row, float] = {}
    for bar in bars:
        pair = bar.source, bar.sink
        first[pair] = min(bar.start, first.get(pair, bar.start))
    return sorted(first, key=lambda pair: (first[pair], pair))


def gantt(axes: "Axes", bars: Sequence[Bar], fewest: int, most: int) -> None:
    """Draw the bars, in `fewest` to `most` rows; of more rows, only those with the most bytes are drawn."""
    from matplotlib import colormaps

    shown = _shown(bars, most)
    files = sorted({bar.file for bar in bars})
    colours = colormaps["tab10" if len(files) <= NAMED else "turbo"]
    colour = {file: colours(i) if len(files) <= NAMED else colours(i / len(files)) for i, file in enumerate(files)}
    by_pair: dict[Row, list[Bar]] = defaultdict(list)
    for bar in bars:
        by_pair[bar.source, bar.sink].append(bar)
    for line, pair in enumerate(shown):
        lanes = _side_by_side(by_pair[pair])
        for number, lane in enumerate(lanes):
            where = line - 0.4 + 0.8 * number / len(lanes), 0.8 / len(lanes)
            spans = [(bar.start, bar.end - bar.start) for bar in lane]
            axes.broken_barh(spans, where, facecolors=[colour[bar.file] for bar in lane], linewidth=0)
    for file in files[:NAMED]:
        axes.barh(0, 0, color=colour[file], label=file)
    axes.set_yticks(range(len(shown)), [f"{source} → {sink}" for source, sink in shown])
    axes.set_ylim(max(len(shown), fewest) - 0.4, -0.6)
    axes.set_xlabel("seconds")
    axes.set_xlim(left=0)
    if files:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _shown(bars: Sequence[Bar], most: int) -> list[Row]:
    found = rows(bars)
    if len(found) <= most:
        return found
    weight: dict[Row, int] = dict.fromkeys(found, 0)
    for bar in bars:
        weight[bar.source, bar.sink] += bar.bytes
    chosen = set(sorted(found, key=lambda pair: -weight[pair])[:most])
    return [pair for pair in found if pair in chosen]


def _side_by_side(bars: Sequence[Bar]) -> list[list[Bar]]:
    """Distribute bars to lanes without overlaps; join bars of the same file that follow each other in a lane."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.file)):
        free = next((lane for lane in lanes if lane[-1].end <= bar.start + MOMENT), None)
        if free is None:
            lanes.append([bar])
        elif free[-1].file == bar.file and free[-1].end >= bar.start - MOMENT:
            free[-1] = free[-1]._replace(end=bar.end, bytes=free[-1].bytes + bar.bytes)
        else:
            free.append(bar)
    return lanes

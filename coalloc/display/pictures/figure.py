"""The picture of a plan: above, its network, with the plan's limits in red; below, the bytes on each link over time."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coalloc.display.pictures.bars import Bar
from coalloc.errors import SinkError, UsageError
from coalloc.planner.network import Network
from coalloc.planner.plan import TransferPlan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

HOST, LEAST = 0.7, 4.0
"""Inches of a host in a column of hosts, and least inches of the network."""
ROW = 0.22
"""Inches of a row of bars."""
FEWEST, MOST = 4, 40
"""Least and most rows of bars that a picture has room for."""


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
            raise SinkError(f"{path} cannot be written: {error.strerror}", "name another file") from None


def _figure(network: Network, plan: TransferPlan, bars: Sequence[Bar]) -> "Figure":
    from matplotlib.figure import Figure

    from coalloc.display.pictures.gantt import gantt, rows
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

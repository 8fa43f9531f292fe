"""The picture of a plan: its network above, with what limits it in red; below, when bytes go over which link."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coalloc.errors import SinkError, UsageError
from coalloc.pictures.bars import Bar
from coalloc.planner.network import Network
from coalloc.planner.plan import TransferPlan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

HOST, LEAST = 0.7, 4.0
"""Inches of a host among those above each other, and of the network at least."""
ROW = 0.22
"""Inches of a line of bars."""
FEWEST, MOST = 4, 40
"""Lines of bars that a picture has room for."""


def draw(path: Path, network: Network, plan: TransferPlan, bars: Sequence[Bar]) -> None:
    """Write a picture, in the format that the path's suffix says: SVG, PNG, PDF.

    :raises UsageError: when matplotlib is not there
    :raises SinkError: when the file cannot be written
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise UsageError("pictures need matplotlib", "run: pip install 'coget[plots]'") from None
    # The salt: else each picture of the same plan would differ.
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

    from coalloc.pictures.gantt import gantt, rows
    from coalloc.pictures.graph import graph, placed

    where = placed(network, plan)
    tallest = max(Counter(x for x, _ in where.values()).values(), default=1)
    heights = [max(LEAST, HOST * tallest), 0.6 + ROW * max(FEWEST, min(MOST, len(rows(bars))))]
    figure = Figure(figsize=(10, 0.4 + sum(heights)), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=heights)
    figure.suptitle(plan.reason[:1].upper() + plan.reason[1:], wrap=True)
    graph(above, network, plan, where)
    gantt(below, bars, FEWEST, MOST)
    return figure

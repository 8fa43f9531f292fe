"""Numbers of several runs as text: means with 95 % ranges, medians with the least and the most. Pure."""

from collections.abc import Sequence
from statistics import fmean, median

from tests.benchmarks.paper.measures import measure

__all__ = ["mean", "middle", "percent", "table"]


def mean(values: Sequence[float], digits: int = 2) -> str:
    """Return the mean and half the width of its 95 % range; a dash without runs."""
    if not values:
        return "–"
    found = measure(values)
    return f"{found.mean:.{digits}f} ± {found.margin:.{digits}f}" if len(values) > 1 else f"{fmean(values):.{digits}f}"


def middle(values: Sequence[float]) -> str:
    """Return the median in percent, with the least and the most; a dash without runs."""
    if not values:
        return "–"
    return f"{percent(median(values))} ({percent(min(values))} to {percent(max(values))})"


def percent(part: float) -> str:
    """Format a number for people."""
    return f"{100 * part:.0f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, which also reads well on a terminal."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

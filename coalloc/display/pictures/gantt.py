"""The bytes that pass each link over time: one row per link, one colour per file."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coalloc.display.pictures.bars import Bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["gantt", "rows"]

NAMED = 10
"""Most files named in the legend."""

MOMENT = 1e-6
"""Longest gap in seconds that is too short to be seen."""

Row = tuple[str, str]


def rows(bars: Sequence[Bar]) -> list[Row]:
    """Return one row per pair of hosts, in the order in which bytes reach them."""
    first: dict[Row, float] = {}
    for bar in bars:
        pair = bar.source, bar.sink
        first[pair] = min(bar.start, first.get(pair, bar.start))
    return sorted(first, key=lambda pair: (first[pair], pair))


def gantt(axes: "Axes", bars: Sequence[Bar], fewest: int, most: int) -> None:
    """Draw the bars, with room for `fewest` rows; if there are more than `most`, those with the most bytes."""
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
    """Distribute the bars to lanes, so that those of a lane do not overlap; join consecutive bars of the same file."""
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

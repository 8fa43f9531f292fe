"""When bytes go over which link: a line a link, a colour a file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coalloc.pictures.bars import Bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["gantt", "rows"]

NAMED = 10
"""Files that a legend names."""

Row = tuple[str, str]


def rows(bars: Sequence[Bar]) -> list[Row]:
    """A line for each pair of hosts, in the order in which bytes reach them."""
    first: dict[Row, float] = {}
    for bar in bars:
        pair = bar.source, bar.sink
        first[pair] = min(bar.start, first.get(pair, bar.start))
    return sorted(first, key=lambda pair: (first[pair], pair))


def gantt(axes: "Axes", bars: Sequence[Bar], fewest: int, most: int) -> None:
    """Draw them, with room for `fewest` lines; of more than `most` those with most bytes."""
    from matplotlib import colormaps

    shown = _shown(bars, most)
    files = list(dict.fromkeys(bar.file for bar in bars))
    colours = colormaps["tab10" if len(files) <= NAMED else "turbo"]
    colour = {file: colours(i) if len(files) <= NAMED else colours(i / len(files)) for i, file in enumerate(files)}
    for line, pair in enumerate(shown):
        mine = [bar for bar in bars if (bar.source, bar.sink) == pair]
        for lane, bar in enumerate(_side_by_side(mine)):
            height = 0.8 / len(_side_by_side(mine))
            for each in bar:
                axes.barh(
                    line - 0.4 + (lane + 0.5) * height, each.end - each.start, left=each.start, height=height,
                    color=colour[each.file], edgecolor="white", linewidth=0.3,
                )  # fmt: skip
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
    """Bars that overlap in time lie in lanes below each other."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.start):
        free = next((lane for lane in lanes if lane[-1].end <= bar.start + 1e-9), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return lanes

"""A collect job on a terminal: a bar for the job and a line for each pair of hosts, redrawn in place."""

from typing import TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from coalloc.collect.values import CollectView, PairView
from coalloc.display.bars import Display, headline, total
from coalloc.display.collect_text import files, pair
from coalloc.util import human

__all__ = ["CollectionBars", "draw"]

SHOWN = 12
"""Maximum number of pairs shown, the busiest ones: a screen with few lines would cut more."""


class CollectionBars(Display[CollectView]):
    """A printer that draws the last state of a collect job on `file`, a terminal."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, draw)


def draw(view: CollectView) -> RenderableType:
    """Return the whole picture."""
    parts: list[RenderableType] = [headline(view), total(view), Text(files(view), no_wrap=True, overflow="ellipsis")]
    moving = sorted(view.pairs, key=lambda each: (not each.waiting, -each.rate))[:SHOWN]
    pairs = [each for each in view.pairs if each in moving]
    if pairs:
        parts.append(_pairs(pairs))
        parts += [
            Text(f"{pair(each)}: {human.one_line(each.error)}", style="yellow", no_wrap=True, overflow="ellipsis")
            for each in pairs
            if each.error
        ]
    if len(view.pairs) > len(pairs):
        parts.append(Text(f"and {human.counted(len(view.pairs) - len(pairs), 'pair')} more", style="dim"))
    parts.append(Text())  # the terminal echoes ^C here
    return Group(*parts)


def _pairs(pairs: list[PairView]) -> Table:
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True, overflow="ellipsis")
    for least in (9, 9, 9):
        lines.add_column(no_wrap=True, justify="right", min_width=least)
    for each in pairs:
        moving = each.waiting > 0
        lines.add_row(
            Text(pair(each), style="" if moving else "dim"),
            human.rate(each.rate) if each.rate and moving else "-",
            human.size(each.bytes),
            human.counted(each.waiting, "piece") if moving else "",
        )
    return lines

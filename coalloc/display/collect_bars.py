"""A collect job on a terminal: a bar for the job and a line for each pair of hosts, redrawn in place."""

from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from coalloc.collect.values import CollectView, PairView
from coalloc.display.bars import GAP, Display, Headline, total
from coalloc.display.collect_text import files, pair
from coalloc.util import human

__all__ = ["CollectionBars", "draw"]

SHOWN = 12
"""Maximum number of pairs shown, the busiest ones: a screen with few lines would cut more."""

NUMBER_COLUMNS, LEAST_PAIR_COLUMNS = 9, 20
"""Least width of a number; and the width of a pair's name that is worth leaving out a number."""


class CollectionBars(Display[CollectView]):
    """A printer that draws the last state of a collect job on `file`, a terminal."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, draw)


def draw(view: CollectView) -> RenderableType:
    """Return the whole picture."""
    parts: list[RenderableType] = [Headline(view), total(view), Text(files(view), no_wrap=True, overflow="ellipsis")]
    moving = sorted(view.pairs, key=lambda each: (not each.waiting, -each.rate))[:SHOWN]
    pairs = [each for each in view.pairs if each in moving]
    if pairs:
        parts.append(PairLines(pairs))
        parts += [
            Text(f"{pair(each)}: {human.one_line(each.error)}", style="yellow", no_wrap=True, overflow="ellipsis")
            for each in pairs
            if each.error
        ]
    if len(view.pairs) > len(pairs):
        parts.append(Text(f"and {human.counted(len(view.pairs) - len(pairs), 'pair')} more", style="dim"))
    parts.append(Text())  # the terminal echoes ^C here
    return Group(*parts)


class PairLines:
    """A line for each pair of hosts; on a narrow terminal, its name is cut, and the last numbers are left out."""

    def __init__(self, pairs: Sequence[PairView]) -> None:
        self._pairs = pairs
        self._rows = [_numbers(each) for each in pairs]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(NUMBER_COLUMNS, *map(len, column)) for column in zip(*self._rows, strict=True)]
        longest = max(cell_len(pair(each)) for each in self._pairs)
        while widths and options.max_width - _taken(widths) < min(longest, LEAST_PAIR_COLUMNS):
            widths.pop()
        lines = Table.grid(padding=(0, GAP, 0, 0))
        name = max(1, min(longest, options.max_width - _taken(widths)))
        lines.add_column(no_wrap=True, overflow="ellipsis", width=name)
        for width in widths:
            lines.add_column(no_wrap=True, justify="right", width=width)
        for each, numbers in zip(self._pairs, self._rows, strict=True):
            lines.add_row(Text(pair(each), style="" if each.waiting else "dim"), *numbers[: len(widths)])
        yield lines


def _taken(widths: Sequence[int]) -> int:
    """Return the columns of the terminal for all but the name."""
    return sum(GAP + width for width in widths)


def _numbers(each: PairView) -> tuple[str, str, str]:
    moving = each.waiting > 0
    return (
        human.rate(each.rate) if each.rate and moving else "-",
        human.size(each.bytes),
        human.counted(each.waiting, "piece") if moving else "",
    )

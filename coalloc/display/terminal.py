"""Text and tables on a terminal, fitted to its width, by rich. `table` chooses between this and plain text."""

from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coalloc.safe_text import lines, one_line
from coalloc.util.streams import drawn

__all__ = ["PlainConsole", "console"]

_ENDLESS = 1000  # columns, for files and pipes, which have no width
GAP = 2
"""Columns between two columns of a table."""
TEXT = 14
"""Columns in which text can still be read."""


def console(file: TextIO) -> "PlainConsole":
    """Return a rich console that prints text unchanged: brackets of IPv6 addresses are not markup."""
    width = None if file.isatty() else _ENDLESS
    return PlainConsole(file=drawn(file), width=width, markup=False, highlight=False, emoji=False)


class PlainConsole(Console):
    """A console that prints each string on one line, and no control characters."""

    def print_table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table. A column whose heading begins with '>' has numbers, aligned to the right.

        On a terminal that is too narrow for it, print each row as lines of a heading and a value.
        """
        rows = list(rows)
        if _least_width(headings, rows) > self.width:
            for row in rows:
                self._print_row([heading.lstrip(">") for heading in headings], row)
            return
        grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for heading in headings:
            number = heading.startswith(">")
            grid.add_column(heading.lstrip(">"), justify="right" if number else "left", no_wrap=number, overflow="fold")
        for row in rows:
            grid.add_row(*row)
        self.print(grid)

    def _print_row(self, headings: Sequence[str], row: Sequence[str]) -> None:
        grid = Table.grid("heading", "value", padding=(0, GAP, 0, 0))
        grid.columns[0].style, grid.columns[0].no_wrap, grid.columns[1].overflow = "bold", True, "fold"
        for heading, cell in zip(headings, row, strict=True):
            if cell:
                grid.add_row(heading, cell)
        self.print(grid)
        self.print()

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(one_line(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for each in super().render(renderable, options):
            yield each if each.control else Segment(lines(each.text), each.style)


def _least_width(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the columns that a table needs: all of its numbers, and a few words of its texts."""
    columns = zip(headings, *rows, strict=True)
    widths = [(column[0].startswith(">"), max(cell_len(one_line(cell)) for cell in column)) for column in columns]
    return sum((width if number else min(width, TEXT)) + GAP for number, width in widths) - GAP

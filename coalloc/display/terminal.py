"""Text and tables on a terminal, fitted to its width, by rich. `table` chooses between this and plain text."""

from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coalloc.safe_text import lines, one_line
from coalloc.util.streams import drawn

__all__ = ["PlainConsole", "console"]

_ENDLESS = 1000  # columns, for files and pipes, which have no width


def console(file: TextIO) -> "PlainConsole":
    """Return a rich console that prints text unchanged: brackets of IPv6 addresses are not markup."""
    width = None if file.isatty() else _ENDLESS
    return PlainConsole(file=drawn(file), width=width, markup=False, highlight=False, emoji=False)


class PlainConsole(Console):
    """A console that prints each string on one line, and no control characters."""

    def print_table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table. A column whose heading begins with '>' has numbers, aligned to the right."""
        grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading in headings:
            number = heading.startswith(">")
            grid.add_column(heading.lstrip(">"), justify="right" if number else "left", no_wrap=number, overflow="fold")
        for row in rows:
            grid.add_row(*row)
        self.print(grid)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(one_line(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for each in super().render(renderable, options):
            yield each if each.control else Segment(lines(each.text), each.style)

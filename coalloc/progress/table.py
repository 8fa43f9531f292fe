"""Tables on any output: fitted to a terminal's width, never cut in a file or a pipe."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from coalloc.streams import drawn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["console", "table"]

_ENDLESS = 1000  # columns; files and pipes have no width


def console(file: TextIO) -> "Console":
    """Return a rich console that prints text unchanged: brackets of IPv6 addresses are not markup."""
    from coalloc.progress.console import PlainConsole

    width = None if file.isatty() else _ENDLESS
    return PlainConsole(file=drawn(file), width=width, markup=False, highlight=False, emoji=False)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    """Return a plain table. A heading that begins with '>' belongs to numbers, aligned to the right."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        number = heading.startswith(">")
        grid.add_column(heading.lstrip(">"), justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid

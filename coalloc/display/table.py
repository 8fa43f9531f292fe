"""Reports of lines and tables: fitted to a terminal's width, but never cut in a file or a pipe.

`terminal` draws them on a terminal; its library takes longer to import than a small file to fetch.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from coalloc.safe_text import one_line

if TYPE_CHECKING:
    from coalloc.display.terminal import PlainConsole

__all__ = ["ReportPrinter", "TextTable", "table"]

GAP = "  "
"""Text between two columns."""


class TextTable(NamedTuple):
    """A table. A column whose heading begins with '>' has numbers, aligned to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        """Return the lines of the table without a limit of their width."""
        cells = [
            [heading.lstrip(">") for heading in self.headings],
            *([one_line(cell) for cell in row] for row in self.rows),
        ]
        widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
        return [GAP.join(map(_aligned, line, widths, self.headings)).rstrip() for line in cells]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> TextTable:
    """Return a table. A column whose heading begins with '>' has numbers, aligned to the right."""
    return TextTable(tuple(headings), tuple(map(tuple, rows)))


class ReportPrinter:
    """A printer of lines and tables on `file`."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._terminal: PlainConsole | None = None
        if file.isatty():
            from coalloc.display.terminal import console

            self._terminal = console(file)

    def print(self, what: str | TextTable = "") -> None:
        """Print text on one line, or a table."""
        if self._terminal is None:
            for line in what.lines() if isinstance(what, TextTable) else [one_line(what)]:
                print(line, file=self._file)
        elif isinstance(what, TextTable):
            self._terminal.print_table(*what)
        else:
            self._terminal.print(what)


def _aligned(cell: str, width: int, heading: str) -> str:
    blanks = " " * (width - _width(cell))
    return f"{blanks}{cell}" if heading.startswith(">") else f"{cell}{blanks}"


def _width(text: str) -> int:
    """Return the number of columns of a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)

"""Progress on a terminal: a bar for the file and a line for each source, redrawn in place."""

import os
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Generic, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from coalloc.display import V, View
from coalloc.display.promises import outlook
from coalloc.display.terminal import console
from coalloc.model.progress import Snapshot, SourceState, SourceView
from coalloc.util import human

__all__ = ["GAP", "Bars", "Display", "Headline", "Total", "draw", "total"]

REDRAW_SECONDS = 0.2
NAME_COLUMNS, LEAST_NAME_COLUMNS = 30, 14
"""Width of a source's name: enough for most hosts; and the width that is worth leaving out another column."""
BAR_COLUMNS = 12
"""Least width of a source's bar."""
GAP = 2
"""Columns between two cells."""
_COLUMNS = {"state": 10, "rate": 9, "bytes": 9, "share": 5}
"""Width of the columns between a source's name and its bar."""
_LAYOUTS = (("state", "rate", "bytes", "share"), ("state", "rate", "share"), ("state", "rate"), ("state",), ())
"""These columns as shown, for ever narrower terminals."""
_NUMBERS = ((0, 1, 2, 3), (0, 2, 3), (0, 3), (0,), ())
"""Numbers beside a bar of the whole, by their places, as shown on ever narrower terminals."""

_STYLES: dict[SourceState, str] = {
    "connecting": "dim",
    "idle": "dim",
    "fetching": "green",
    "stalled": "yellow",
    "waiting": "yellow",
    "pausing": "yellow",
    "dropped": "red",
}


class Display(Generic[V]):
    """A printer that draws the latest state on `file`, a terminal, a few times a second of the states' own time.

    :param picture: function that makes the whole picture of a state
    """

    def __init__(self, file: TextIO, picture: Callable[[V], RenderableType]) -> None:
        self._picture = picture
        self._last: V | None = None
        self._drawn_at = 0.0
        self._widths: tuple[int, ...] = ()
        """Widths of the lines on the terminal."""
        self._columns = 0
        # No refresh thread: it would draw while data are being delivered.
        self._live = Live(console=console(file), auto_refresh=False)

    def show(self, snapshot: V) -> None:
        """Draw this state, unless the last drawing is recent and of the same phase."""
        last, self._last = self._last, snapshot
        if last and last.name != snapshot.name:
            self._end(transient=True)
            self._live.console.print(Headline(last))
        elif last and last.phase == snapshot.phase and snapshot.seconds - self._drawn_at < REDRAW_SECONDS:
            return
        self._live.start()
        self._draw(snapshot)

    def close(self, finished: bool) -> None:
        """Release the terminal. If the work is finished, erase the picture, which its report replaces."""
        if self._last and not finished:
            self._draw(self._last)
        self._end(transient=finished)

    def _draw(self, snapshot: V) -> None:
        self._drawn_at = snapshot.seconds
        self._erase_wrapped()
        picture, screen = self._picture(snapshot), self._live.console
        self._columns = screen.width
        self._widths = tuple(map(Segment.get_line_length, screen.render_lines(picture, pad=False)))
        self._live.update(picture, refresh=True)

    def _erase_wrapped(self) -> None:
        """Erase the lines by which the picture has grown, if the terminal got narrower and has wrapped its lines.

        The others are erased when the picture is drawn again, or ends.
        """
        screen = self._live.console
        if screen.width >= self._columns or not _wraps_when_narrowed(os.environ):
            return
        rows = [max(1, -(-width // screen.width)) for width in self._widths]
        for _ in range(sum(rows) - len(rows)):
            screen.control(Control((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)))

    def _end(self, transient: bool) -> None:
        self._erase_wrapped()
        self._live.transient = transient
        self._live.stop()
        self._live = Live(console=self._live.console, auto_refresh=False)  # a used one would erase lines above the next
        self._columns, self._widths = 0, ()


def _wraps_when_narrowed(environment: Mapping[str, str]) -> bool:
    """Return whether a terminal wraps old lines when it gets narrower; xterm, rxvt and screen cut them.

    >>> _wraps_when_narrowed({"TERM": "xterm-256color"}), _wraps_when_narrowed({"XTERM_VERSION": "XTerm(379)"})
    (True, False)
    """
    cutting = not environment.keys().isdisjoint(("XTERM_VERSION", "STY")) or environment.get("TERM", "").startswith(
        "rxvt"
    )
    return not cutting or "TMUX" in environment


class Bars(Display[Snapshot]):
    """A printer that draws snapshots of transfers."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, draw)


def draw(snapshot: Snapshot) -> RenderableType:
    """Return the whole picture, the file first, because a screen with few lines cuts the last lines."""
    parts: list[RenderableType] = [Headline(snapshot), total(snapshot)]
    if snapshot.sources:
        names = human.labels([source.url for source in snapshot.sources])
        parts.append(SourceLines(names, snapshot.sources))
        parts += [
            Text(
                human.about(name, source.url, source.error),
                style=_STYLES[source.state],
                no_wrap=True,
                overflow="ellipsis",
            )
            for name, source in zip(names, snapshot.sources, strict=True)
            if source.error
        ]
    if snapshot.eta_bounds and snapshot.eta_bounds[1] < inf:
        early, late = snapshot.eta_bounds
        parts.append(Text(f"probably {human.duration(early)} to {human.duration(late)} left", style="dim"))
    if promise := snapshot.deadline or snapshot.reading:
        parts.append(Text(outlook(promise), style="yellow" if snapshot.warnings else "dim"))
    parts.append(Text())  # an empty line, where the terminal echoes ^C without shifting the picture
    return Group(*parts)


class Headline:
    """A line with the name, the phase and the elapsed time; on a narrow terminal, the name is cut."""

    def __init__(self, snapshot: View) -> None:
        self._name = human.one_line(snapshot.name)
        self._phase = snapshot.phase
        self._seconds = human.duration(snapshot.seconds)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name = Text(self._name, style="bold")
        rest = Text.assemble(self._phase, " " * GAP, (self._seconds, "dim"))
        name.truncate(max(1, options.max_width - GAP - rest.cell_len), overflow="ellipsis")
        line = Text.assemble(name, " " * GAP, rest)
        line.truncate(options.max_width, overflow="ellipsis")
        yield line


class Total:
    """A bar, and the numbers beside it; on a narrow terminal, some numbers are left out, the second one first.

    :param done: completed part of `size`; if `size` is None or 0, the bar only shows that work is under way
    """

    def __init__(self, done: int, size: int | None, numbers: Sequence[str], seconds: float) -> None:
        self._numbers = numbers if size else ()
        self._bar = (
            ProgressBar(total=size, completed=done)
            if size
            else ProgressBar(total=None, pulse=True, animation_time=seconds)
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        spare = options.max_width - BAR_COLUMNS
        layouts = [[self._numbers[place] for place in each] for each in _NUMBERS] if self._numbers else [[]]
        shown = next((each for each in layouts if sum(cell_len(text) + GAP for text in each) <= spare), layouts[-1])
        line = Table.grid(padding=(0, GAP, 0, 0), expand=True)
        line.add_column(ratio=1)
        for text in shown:
            line.add_column(justify="right", no_wrap=True, width=cell_len(text))
        line.add_row(self._bar, *shown)
        yield line


def total(snapshot: View) -> RenderableType:
    """Return a bar of the bytes, and the numbers beside it."""
    numbers = (
        human.percent(snapshot.done_bytes, snapshot.size or 0),
        f"{human.size(snapshot.done_bytes)} of {human.size(snapshot.size or 0)}",
        human.rate(snapshot.rate),
        "" if snapshot.eta_seconds is None else human.remaining(snapshot.eta_seconds),
    )
    return Total(snapshot.done_bytes, snapshot.size, numbers, snapshot.seconds)


class SourceLines:
    """A line for each source, fitted to the terminal: if it is narrow, names are cut, and some columns are left out."""

    def __init__(self, names: tuple[str, ...], sources: tuple[SourceView, ...]) -> None:
        self._names = names
        self._sources = sources

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        longest = min(NAME_COLUMNS, max(map(cell_len, self._names)))
        spare = options.max_width - BAR_COLUMNS
        least = min(longest, LEAST_NAME_COLUMNS)
        shown = next((each for each in _LAYOUTS if spare - _taken(each) >= least), _LAYOUTS[-1])
        name = max(1, min(longest, spare - _taken(shown)))
        lines = Table.grid(padding=(0, GAP, 0, 0))
        lines.add_column(no_wrap=True, overflow="ellipsis", width=name)
        for column in shown:
            lines.add_column(no_wrap=True, justify="left" if column == "state" else "right", width=_COLUMNS[column])
        lines.add_column(width=max(BAR_COLUMNS, options.max_width - name - _taken(shown)))
        for text, source in zip(self._names, self._sources, strict=True):
            cells = _cells(source)
            bar = ProgressBar(total=1.0, completed=source.share, complete_style="blue", finished_style="blue")
            lines.add_row(text, *(cells[column] for column in shown), bar)
        yield lines


def _taken(shown: tuple[str, ...]) -> int:
    """Return the columns of the terminal for all but the name and the bar."""
    return sum(_COLUMNS[column] + GAP for column in shown) + GAP


def _cells(source: SourceView) -> dict[str, RenderableType]:
    return {
        "state": Text(source.state, style=_STYLES[source.state]),
        "rate": human.rate(source.rate) if source.rate else "-",
        "bytes": human.size(source.bytes),
        "share": human.percent(source.share, 1),
    }

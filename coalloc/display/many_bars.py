"""The fetch of many files on a terminal: a bar for all files, and the names of some that are being fetched."""

from typing import TextIO

from rich.console import Group, RenderableType
from rich.text import Text

from coalloc.display.bars import Display, Headline, Total
from coalloc.display.many_text import files
from coalloc.download.many import ManyView
from coalloc.util import human

__all__ = ["ManyBars", "draw"]

SHOWN = 4
"""Number of names shown: a screen with few lines would cut more."""


class ManyBars(Display[ManyView]):
    """A printer that draws the last state of many files on `file`, a terminal."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, draw)


def draw(view: ManyView) -> RenderableType:
    """Return the whole picture."""
    parts: list[RenderableType] = [Headline(view), _total(view)]
    parts += [_line(name, "dim") for name in view.current[:SHOWN]]
    if len(view.current) > SHOWN:
        parts.append(_line(f"and {len(view.current) - SHOWN} more", "dim"))
    parts += [_line(f"{name}: {message}", "red") for name, message in view.failures]
    parts.append(Text())  # the terminal echoes ^C here
    return Group(*parts)


def _line(text: str, style: str) -> Text:
    return Text(human.one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def _total(view: ManyView) -> RenderableType:
    """Return a bar of the files, and the numbers beside it."""
    numbers = (
        files(view),
        human.size(view.done_bytes),
        human.rate(view.rate),
        "" if view.eta_seconds is None else human.remaining(view.eta_seconds),
    )
    return Total(view.files_done + view.files_failed, view.files, numbers, view.seconds)

"""A rich console that escapes text from outside; rich itself lets most control characters through."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from coalloc.plain import lines, one_line

__all__ = ["PlainConsole"]


class PlainConsole(Console):
    """A console that prints each string on one line, and no control characters."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(one_line(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for each in super().render(renderable, options):
            yield each if each.control else Segment(lines(each.text), each.style)

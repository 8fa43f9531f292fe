"""A broker's task on a terminal: a picture, redrawn in place."""

from typing import TextIO

from rich.console import Group, RenderableType
from rich.text import Text

from coalloc.display.bars import Display, Headline, total
from coalloc.display.task_text import files, waits
from coalloc.model.tasks import TaskView

__all__ = ["TaskBars", "draw"]


class TaskBars(Display[TaskView]):
    """A printer that draws the last state of a task on `file`, a terminal."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, draw)


def draw(task: TaskView) -> RenderableType:
    """Return the whole picture."""
    parts: list[RenderableType] = [Headline(task)]
    if task.size or not task.over:
        parts.append(total(task))
    parts.append(Text(files(task), no_wrap=True, overflow="ellipsis"))
    if why := waits(task):
        parts.append(Text(why, style="yellow", no_wrap=True, overflow="ellipsis"))
    parts.append(Text())  # the terminal echoes ^C here
    return Group(*parts)

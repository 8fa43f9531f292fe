"""A broker's task in words: as lines while it goes, and in one when it is done."""

from typing import TextIO

from coalloc.model import TaskView
from coalloc.progress import human
from coalloc.progress.text import Log

__all__ = ["TaskLines", "files", "line", "summary"]


class TaskLines(Log[TaskView]):
    """Writes what happens in a task to `file`."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, line, _troubles)


def line(task: TaskView) -> str:
    """The whole state in one line."""
    parts = [f"{human.one_line(task.name)}: {task.phase}", files(task)]
    if task.size:
        parts.append(f"{human.size(task.done_bytes)} of {human.size(task.size)}")
    if task.rate and not task.over:
        parts.append(human.rate(task.rate))
    if task.eta_seconds is not None:
        parts.append(f"{human.duration(task.eta_seconds)} left")
    return ", ".join(parts)


def summary(task: TaskView) -> str:
    """What a task did that is done."""
    what = human.counted(task.files_done, "file") + (" deleted" if task.kind == "delete" else "")
    took = f"{what}, {human.size(task.done_bytes)} in {human.duration(task.seconds)}"
    return f"{human.one_line(task.name)}: {took}, {human.rate(task.rate)}{_beside(task)}"


def files(task: TaskView) -> str:
    """How many of its files are done, and what became of others."""
    return f"{task.files_done} of {human.counted(task.files, 'file')}{_beside(task)}"


def _beside(task: TaskView) -> str:
    """What else became of files."""
    said = [
        (task.files_skipped, "were there already"),
        (task.left_out, "left out for their errors"),
        (task.failed, "failed"),
        (task.faults, "faults that were tried again"),
    ]
    return "".join(f", {count} {what}" for count, what in said if count)


def _troubles(task: TaskView) -> list[tuple[object, str]]:
    return [(task.waits, f"{human.one_line(task.name)}: {human.one_line(task.waits)}")] if task.waits else []

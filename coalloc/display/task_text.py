"""A broker's task as text: lines while it runs, and a summary at the end."""

from typing import TextIO

from coalloc.display.text import TextLog
from coalloc.model.tasks import TaskView
from coalloc.util import human

__all__ = ["TaskLines", "files", "line", "reason", "summary", "waits"]


class TaskLines(TextLog[TaskView]):
    """A printer that writes the events of a task to `file`."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, line, _troubles)


def line(task: TaskView) -> str:
    """Return the whole state in one line."""
    parts = [f"{human.one_line(task.name)}: {task.phase}", files(task)]
    if task.size:
        parts.append(f"{human.size(task.done_bytes)} of {human.size(task.size)}")
    if task.rate and not task.over:
        parts.append(human.rate(task.rate))
    if task.eta_seconds is not None:
        parts.append(f"{human.duration(task.eta_seconds)} left")
    return ", ".join(parts)


def summary(task: TaskView) -> str:
    """Return a summary of a task that has ended."""
    name, took = human.one_line(task.name), human.duration(task.seconds)
    if task.kind == "delete":
        return f"{name}: {human.counted(task.files_done, 'file')} deleted in {took}{_beside(task)}"
    what = f"{human.counted(task.files_done, 'file')}, {human.size(task.done_bytes)}"
    return f"{name}: {what} in {took}, {human.rate(task.rate)}{_beside(task)}"


def files(task: TaskView) -> str:
    """Return the number of files that are done, and the numbers of skipped, failed and other files."""
    found = f"{task.files_done:,} of {human.counted(task.files, 'file')}" if task.files else "no files found yet"
    return ("no files" if task.over and not task.files else found) + _beside(task)


def waits(task: TaskView) -> str:
    """Return why the task does not proceed, and what to do; empty if it does, or is over."""
    why = reason(task)
    return human.one_line(f"{why} ({task.remedy})" if why and task.remedy else why)


def reason(task: TaskView) -> str:
    """Return why the task does not proceed, without what to do; empty if it does, or is over."""
    if task.over:
        return ""
    return task.waits or ("" if task.begun else "no worker has started it yet")


def _beside(task: TaskView) -> str:
    """Return the counts of files that were skipped, failed and so on."""
    folders = task.folders_not_cleared
    counts = [
        (task.files_skipped, f"{task.files_skipped:,} existed already"),
        (task.left_out, f"{task.left_out:,} skipped because of errors"),
        (task.failed, f"{task.failed:,} failed"),
        (task.files_unverified, f"{human.counted(task.files_unverified, 'file')} not verified"),
        (folders, f"extra files left in {folders:,} {'directory' if folders == 1 else 'directories'}"),
        (task.faults, f"{human.counted(task.faults, 'fault')}"),
    ]
    return "".join(f", {what}" for count, what in counts if count)


def _troubles(task: TaskView) -> list[tuple[object, str]]:
    why = waits(task)
    return [(why, f"{human.one_line(task.name)}: {why}")] if why else []

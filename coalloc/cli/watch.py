"""`coget watch`: show the progress of a broker's task."""

import sys
from typing import TYPE_CHECKING, TextIO

import click

from coalloc.cli import interrupts, options
from coalloc.cli.failures import CommandFailed
from coalloc.cli.progress import showing
from coalloc.util.streams import say, say_json

if TYPE_CHECKING:
    from coalloc.display.task_bars import TaskBars
    from coalloc.display.task_text import TaskLines

__all__ = ["printer", "until_over", "watch"]


@click.command(short_help="Show the progress of a broker's task until it is over.")
@click.argument("task")
@options.broker
@options.as_json
def watch(task: str, broker: str | None, as_json: bool) -> None:
    """Show the progress of a task until it ends; TASK is its id, or the beginning of it.

    The exit status is 0 when the task succeeded and 5 when it failed. An interrupt ends the display, not the task.
    If the broker does not answer, the command retries for ten minutes.

    \b
    Examples:
      coget watch 5f0c1b3e
      coget watch --json 5f0c1b3e-8d0a-4b52-9d3c-3b0d6f1f2a77 2> /dev/null
    """
    until_over(task, broker, as_json)


def until_over(number: str, broker: str | None, as_json: bool) -> None:
    """Show a task until it ends, then its result."""
    from coalloc import api

    with showing(printer) as show:
        remedy = f"the task continues; to follow it: coget watch {number}; to cancel it: coget tasks cancel {number}"
        try:
            task = interrupts.run(api.watch(number, show, broker), remedy)
        except api.TaskFailed as error:
            if as_json:
                raise CommandFailed(error, error.task.document) from error
            raise
    if as_json:
        say_json(task.document)
    elif sys.stderr.isatty():
        from coalloc.display.task_text import summary

        say(summary(task), err=True)


def printer(file: TextIO, live: bool) -> "TaskBars | TaskLines":
    """Return a printer that draws a task on a terminal, or one that writes lines."""
    if live:
        from coalloc.display.task_bars import TaskBars

        return TaskBars(file)
    from coalloc.display.task_text import TaskLines

    return TaskLines(file)

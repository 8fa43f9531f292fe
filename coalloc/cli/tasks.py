"""`coget tasks`: list and cancel this user's tasks on a broker."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from coalloc.cli import interrupts, options
from coalloc.cli.failures import CommandFailed
from coalloc.errors import CoallocError
from coalloc.util.streams import say, say_json

if TYPE_CHECKING:
    from coalloc.model.tasks import TaskView

__all__ = ["tasks"]

SHOWN = 8
"""Characters shown of an id: enough to tell thousands of tasks apart."""


@click.group(short_help="List or cancel your tasks on a broker.", invoke_without_command=True)
@click.option("--all", "every", is_flag=True, help="Include finished tasks.")
@click.option(
    "--most", type=click.IntRange(min=1), default=100, show_default=True, metavar="N", help="Maximum number of rows."
)
@options.broker
@options.as_json
@click.pass_context
def tasks(context: click.Context, every: bool, most: int, broker: str | None, as_json: bool) -> None:
    """List your unfinished tasks on a broker, the newest first; a waiting task with the reason.

    \b
    Examples:
      coget tasks
      coget tasks --all --json
      coget tasks cancel 5f0c1b3e
    """
    context.obj = broker, as_json
    if context.invoked_subcommand:
        return
    from coalloc import api

    found = interrupts.run(api.tasks(every, most, broker))
    if as_json:
        say_json([task.document for task in found])
    elif found:
        _print(found)
    else:
        say("No tasks yet." if every else "No unfinished tasks; --all also shows finished ones.", err=True)


@tasks.command(short_help="Cancel tasks.")
@click.argument("numbers", metavar="TASK...", nargs=-1, required=True)
@options.broker
@options.as_json
@click.pass_context
def cancel(context: click.Context, numbers: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    """Cancel tasks; files already transferred are kept. TASK is an id, or its beginning.

    \b
    Examples:
      coget tasks cancel 5f0c1b3e
    """
    from coalloc import api

    usual, silent = context.obj
    silent = as_json or silent
    documents: list[Mapping[str, object]] = []
    for number in numbers:
        try:
            task = interrupts.run(api.cancel(number, broker or usual))
        except CoallocError as error:
            raise CommandFailed(error, {"tasks": documents}) from error
        documents.append(task.document)
        if not silent:
            outcome = "had already succeeded" if task.status == "SUCCEEDED" else task.error or "is over"
            say(f"{task.id}: {outcome}")
    if silent:
        say_json(documents)


def _print(found: "Sequence[TaskView]") -> None:
    from coalloc.display.table import ReportPrinter, table

    headings = (">task", "state", ">files", ">bytes", ">of", ">age", "what")
    ReportPrinter(sys.stdout).print(table(headings, map(_row, found)))


def _row(task: "TaskView") -> tuple[str, ...]:
    from coalloc.display.task_text import reason
    from coalloc.util import human

    why = reason(task)
    return (
        task.id[:SHOWN],
        task.phase,
        f"{task.files_done:,}",
        human.size(task.done_bytes),
        human.size(task.size),
        human.duration(max(0.0, time.time() - task.requested)),
        human.one_line(f"{task.name}: {why}" if why else task.name),
    )

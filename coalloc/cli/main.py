"""The entry point `coget` and its group of commands."""

import atexit
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from coalloc.cli import failures, interrupts
from coalloc.util import streams

__all__ = ["coget", "invoke", "main"]


COMMANDS = {
    "collect": "coalloc.cli.collect",
    "completion": "coalloc.cli.completion",
    "datasets": "coalloc.cli.datasets",
    "doctor": "coalloc.cli.doctor",
    "forecast": "coalloc.cli.forecast",
    "get": "coalloc.cli.get",
    "history": "coalloc.cli.history",
    "plan": "coalloc.cli.plan",
    "probe": "coalloc.cli.probe",
    "register": "coalloc.cli.datasets",
    "search": "coalloc.cli.datasets",
    "stream": "coalloc.cli.stream",
    "submit": "coalloc.cli.submit",
    "tasks": "coalloc.cli.tasks",
    "watch": "coalloc.cli.watch",
}
"""Module of each command, which is imported when the command runs or its help text is shown."""
BETWEEN_COLLECTIONS = 50_000
"""New objects that trigger a garbage collection. Python's 700 would trigger it 30 times while modules are loaded."""


class DefaultGroup(click.Group):
    """A command group that runs `get` when the first argument is not a command.

    A file with the name of a command can be given as ./plan.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        own = {name for param in self.get_params(ctx) for name in param.opts}
        if args and args[0] not in COMMANDS and args[0] not in own:
            args = ["get", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return command


@click.group(cls=DefaultGroup, context_settings={"max_content_width": 100})
@click.version_option(package_name="coget", message="coget %(version)s")
def coget() -> None:
    """Fetch one file from several servers at once, complete and verified.

    `coget SOURCE...` is short for `coget get SOURCE...`; see `coget get --help` for its options.

    \b
    Examples:
      coget ftp://a.example/x.root ftp://b.example/x.root
      coget https://a.example/x ftp://b.example/x -o data/
      coget dataset.meta4
      coget collect ftp://a.example/run1/ ftp://b.example/y --to data/
      coget plan ftp://a.example/x ftp://b.example/x
      coget doctor ftp://a.example/x

    \b
    Exit status:
      0  done                          5  the transfer failed
      1  a defect of coget             6  the local disk
      2  usage                         7  not allowed
      3  nothing to fetch from         8  another coget writes the target
      4  verification failed           9  the deadline
                                     130  interrupted, can be resumed
    """


def _open_closed_streams() -> None:
    """Open the null device for closed standard streams; otherwise a file opened later would receive the output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # opens as `number`, the lowest free descriptor
            streams.CLOSED.add(number)
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115 - it is never closed
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


def _log_warnings() -> None:
    """Send Python's warnings to the log, which escapes control characters, even while a display is drawn."""
    logging.captureWarnings(True)
    if logging.lastResort:
        logging.getLogger("py.warnings").addHandler(logging.lastResort)


def invoke(args: Sequence[str]) -> int:
    """Run `coget` with these arguments and return its exit status; raise nothing."""
    return failures.reported(lambda: coget.main(list(args), prog_name="coget", standalone_mode=False), args)


def main() -> NoReturn:
    """Run the console script."""
    for number in interrupts.SIGNALS:  # until a command runs that has something to clean up, and when it is over
        signal.signal(number, interrupts.stop_at_once)
    gc.set_threshold(BETWEEN_COLLECTIONS)
    _open_closed_streams()
    streams.guard()
    _log_warnings()
    _end(invoke(sys.argv[1:]))


def _end(status: int) -> NoReturn:
    """End the process like an interpreter, but leave its memory to the kernel, which takes a tenth of the time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:
        sys.exit(status)  # the interpreter reports that the output cannot be written
    os._exit(status)

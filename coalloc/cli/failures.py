"""Errors become a message and an exit status here, and nowhere else.

Whatever a command raises ends as "coget: MESSAGE" and what to do on stderr; with `--json` it is an object on
stdout too.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

import click

from coalloc.cli.interrupts import Interrupted
from coalloc.errors import CoallocError, SinkError, UsageError
from coalloc.streams import say_json
from coalloc.urls import redacted_text

__all__ = ["reported"]


class Defect(CoallocError):
    """What should not have happened, and is not for the user to mend."""

    code = "defect"


def reported(command: Callable[[], object], args: Sequence[str]) -> int:
    """Run `command`, which was called with `args`; show what went wrong and return the exit status."""
    try:
        status = command()
    except Exception as error:
        failure = _ours(error)
        with suppress(OSError):  # the status still tells, where nothing can be written
            _show(failure, as_json="--json" in args)
        return failure.status
    return status if isinstance(status, int) else 0


def _ours(error: Exception) -> CoallocError:
    match error:
        case CoallocError():
            return error
        case click.Abort():  # click's word for KeyboardInterrupt
            return Interrupted("interrupted")
        case click.UsageError():
            where = error.ctx.command_path if error.ctx else "coget"
            return UsageError(error.format_message(), f"see {where} --help")
        case click.ClickException():
            return UsageError(error.format_message())
        case OSError(filename=None):  # all others became ours where they arose
            return SinkError(
                f"standard output or error cannot be written: {error.strerror or error}", "send it to another place"
            )
    if os.environ.get("COGET_DEBUG"):
        print(redacted_text("".join(traceback.format_exception(error))), file=sys.stderr)
    return Defect(
        f"a defect of coget: {type(error).__name__}: {error}",
        "please report it, with what the same command prints under COGET_DEBUG=1",
    )


def _show(error: CoallocError, as_json: bool) -> None:
    from coalloc.progress.json import failure

    print("coget:", "\n  ".join(filter(None, (error.message, error.remedy))), file=sys.stderr)
    if as_json:
        say_json(failure(error))

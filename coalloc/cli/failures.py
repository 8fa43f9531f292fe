"""Conversion of errors to messages and exit statuses, for all commands.

An exception of a command is printed on stderr as "coget: MESSAGE", followed by what to do; with `--json` it is also
an object on stdout.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

import click

from coalloc.cli.interrupts import Interrupted
from coalloc.errors import CoallocError, SinkError, UsageError
from coalloc.safe_text import redacted_text
from coalloc.util.streams import say_json

__all__ = ["reported"]


class Defect(CoallocError):
    """An unexpected exception, which is a bug of coget and not an error of the user."""

    code = "defect"


def reported(command: Callable[[], object], args: Sequence[str]) -> int:
    """Run `command`, which was called with `args`; show any error and return the exit status."""
    try:
        status = command()
    except Exception as error:
        failure = _ours(error)
        with suppress(OSError):  # if nothing can be written, the status still reports the failure
            _show(failure, as_json="--json" in args)
        return failure.status
    return status if isinstance(status, int) else 0


def _ours(error: Exception) -> CoallocError:
    match error:
        case CoallocError():
            return error
        case click.Abort():  # raised by click for KeyboardInterrupt
            return Interrupted("interrupted")
        case click.UsageError():
            where = error.ctx.command_path if error.ctx else "coget"
            return UsageError(error.format_message(), f"see {where} --help")
        case click.ClickException():
            return UsageError(error.format_message())
        case OSError(filename=None):  # OSErrors with a filename are converted where they occur
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
    from coalloc.display.json import failure

    print("coget:", "\n  ".join(filter(None, (error.message, error.remedy))), file=sys.stderr)
    if as_json:
        say_json(failure(error))

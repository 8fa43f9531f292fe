"""Conversion of errors to messages and exit statuses, for all commands.

An exception of a command is printed on stderr as "coget: MESSAGE", followed by the remedy; with `--json`, it is also
printed as an object on stdout.
"""

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import click

from coalloc.cli.interrupts import Interrupted
from coalloc.errors import CoallocError, SinkError, UsageError
from coalloc.safe_text import redacted_text
from coalloc.util.streams import say_json

__all__ = ["CommandFailed", "reported"]


class Defect(CoallocError):
    """An unexpected exception, which is a bug of coget and not an error of the user."""

    code = "defect"


class CommandFailed(Exception):
    """An error of a command with partial results: the document that `--json` prints with the error.

    :param document: None if the command has printed it already, with the error
    """

    def __init__(self, error: CoallocError, document: Mapping[str, object] | None) -> None:
        super().__init__(error.message)
        self.error = error
        self.document = document


def reported(command: Callable[[], object], args: Sequence[str]) -> int:
    """Run `command`, which was called with `args`; show any error and return the exit status."""
    try:
        status = command()
    except Exception as error:
        failure, known = (error.error, error.document) if isinstance(error, CommandFailed) else (_ours(error), {})
        with suppress(OSError):  # if nothing can be written, the status still reports the failure
            _show(failure, known or {}, as_json="--json" in args and known is not None)
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
            return UsageError(error.format_message(), f"read the options in {where} --help")
        case click.ClickException():
            return UsageError(error.format_message())
        case OSError(filename=None):  # OSErrors with a filename are converted where they occur
            return SinkError(
                f"cannot write to standard output or error: {error.strerror or error}", "redirect it to another place"
            )
    if os.environ.get("COGET_DEBUG"):
        print(redacted_text("".join(traceback.format_exception(error))), file=sys.stderr)
    return Defect(
        f"a defect of coget: {type(error).__name__}: {error}",
        "please report it, with the output of the same command under COGET_DEBUG=1",
    )


def _show(error: CoallocError, known: Mapping[str, object], as_json: bool) -> None:
    from coalloc.display.json import error_document

    print("coget:", "\n  ".join(filter(None, (error.message, error.remedy))), file=sys.stderr)
    if as_json:
        say_json({**known, "error": error_document(error)})

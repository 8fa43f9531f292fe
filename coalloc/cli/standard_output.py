"""A file on standard output: its bytes, written while they arrive."""

import os
import select
import stat
import sys
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from coalloc.cli.event_loop import in_daemon_thread
from coalloc.errors import SinkError, UsageError
from coalloc.util import streams

if TYPE_CHECKING:
    from coalloc.api import Request, Results
    from coalloc.model.progress import Snapshot
    from coalloc.model.promises import ReadingRate
    from coalloc.model.reports import TransferReport

__all__ = ["check", "write_file"]


OUTPUT = 1
"""Number of standard output."""


def check(as_json: bool) -> None:
    """Refuse to write a file to standard output where a terminal or a JSON document is, or if it is closed.

    :raises UsageError: in the first cases
    :raises SinkError: if it is closed
    """
    if OUTPUT in streams.CLOSED:
        raise SinkError("standard output is closed", "send it to a program with |, or name a file with -o NAME")
    if as_json:
        raise UsageError("-o - and --json both need standard output", "leave one of them out")
    if sys.stdout.isatty():
        raise UsageError(
            "standard output is a terminal, which bytes of a file would disturb",
            "send it to a program with |, or name a file with -o NAME",
        )


async def write_file(
    request: "Request",
    watch: "Callable[[Snapshot], None] | None",
    results: "Results[TransferReport]",
    rate: "ReadingRate | None" = None,
) -> "list[TransferReport]":
    """Write the file that the request names to standard output, in order, perhaps at a rate; return its report.

    :raises CoallocError: as `api.stream`
    :raises SinkError: if standard output cannot be written
    """
    from coalloc import api

    async with aclosing(api.stream(request, watch, results, rate)) as chunks:
        async for data in chunks:
            await in_daemon_thread(partial(_write, data))  # the reader may keep it waiting for ever
    await in_daemon_thread(_complete)
    return results.done


def _write(data: bytes) -> None:
    rest, out = memoryview(data), sys.stdout.fileno()
    while rest:
        try:
            rest = rest[os.write(out, rest) :]
        except BlockingIOError:  # another program made the pipe non-blocking
            select.select([], [out], [])
        except OSError as error:
            raise _unwritable(error) from None


def _complete() -> None:
    """Wait until the file that standard output may be has all bytes: some errors come only then."""
    out = sys.stdout.fileno()
    try:
        if stat.S_ISREG(os.fstat(out).st_mode):
            os.fsync(out)
            os.close(os.dup(out))  # file systems of a network may report errors only here
    except OSError as error:
        raise _unwritable(error) from None


def _unwritable(error: OSError) -> SinkError:
    return SinkError(f"cannot write to standard output: {error.strerror}", "check the disk, or the program that reads")

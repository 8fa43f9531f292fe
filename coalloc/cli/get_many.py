"""`coget get` of many files: of a list (`-i`), or of a directory (`-r`)."""

import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from coalloc.cli import interrupts
from coalloc.cli.failures import CommandFailed
from coalloc.cli.progress import showing
from coalloc.errors import CoallocError, UsageError
from coalloc.util.streams import say

if TYPE_CHECKING:
    from coalloc.api import Request
    from coalloc.display.many_bars import ManyBars
    from coalloc.display.many_text import ManyLines
    from coalloc.download.many import FileResult, ManyView

__all__ = ["fetch"]

REMEDY = "run the same command again: it skips the files that are complete"

Take = Callable[["FileResult"], None]
Watch = Callable[["ManyView"], None] | None


class ResultList:
    """The JSON object of many files on standard output, written while they end, so that it needs no memory."""

    def __init__(self) -> None:
        self._between = '{"files": ['

    def add(self, result: "FileResult") -> None:
        """Write the results of a file."""
        from coalloc.display.json import file_result

        self._write(f"{self._between}\n{_dumped(file_result(result))}")
        self._between = ","

    def close(self, error: CoallocError | None) -> None:
        """Write the end of the object."""
        from coalloc.display.json import error_document

        begun = "" if self._between == "," else self._between
        self._write(f"{begun}]" + (f', "error": {_dumped(error_document(error))}' if error else "") + "}\n")

    @staticmethod
    def _write(text: str) -> None:
        print(text, end="", flush=True)


def _dumped(document: object) -> str:
    return json.dumps(document).replace("\x7f", "\\u007f")


def _check(request: "Request", option: str) -> None:
    """Refuse options that are for one file.

    :param option: the option for many files
    :raises UsageError: if there is one
    """
    one_file = {
        "SOURCE": bool(request.sources) and option == "-i",
        "--checksum": request.expected is not None,
        "--by": request.deadline is not None,
        "--staging": request.staging is not None,
        "-o -": request.output == Path("-"),
    }
    if given := [name for name, is_given in one_file.items() if is_given]:
        raise UsageError(f"{given[0]} is for one file, and makes no sense with {option}", "leave one of them out")


def fetch(request: "Request", listed: str | None, recursive: bool, as_json: bool, quiet: bool) -> None:
    """Fetch the files of a list, or of a directory; show their progress, and print a summary.

    :raises CoallocError: if a file fails
    """
    if listed is None:
        _check(request, "-r")
        _fetch_directory(request, as_json, quiet)
    else:
        if recursive:
            raise UsageError("-i and -r exclude each other", "leave one of them out")
        _check(request, "-i")
        _fetch_list(request, listed, as_json, quiet)


def _fetch_list(request: "Request", path: str, as_json: bool, quiet: bool) -> None:
    """Fetch the files of the list at `path`; `-` for standard input."""
    from coalloc import api

    listed = api.read_list(_lines(path))  # before signals are handled, as the wait for a pipe would delay that
    _run(lambda take, watch: api.download_list(request, listed, take, watch, path != "-"), request, as_json, quiet)


def _fetch_directory(request: "Request", as_json: bool, quiet: bool) -> None:
    """Fetch all files below a directory; without an output, into a directory of its name."""
    from coalloc import api
    from coalloc.resolve.catalogue_names import directory_of, is_catalogued
    from coalloc.resolve.file_names import from_url

    if request.output is None:
        first = request.named[0].rstrip("/")
        name = directory_of(first) if is_catalogued(first) else from_url(first)
        request = request._replace(output=Path(name))
    _run(lambda take, watch: api.download_directory(request, take, watch, _say_loops), request, as_json, quiet)


def _say_loops(folders: list[str]) -> None:
    for folder in folders:
        say(f"{folder} was left out: its listing is the same as that of a directory above it", err=True)


def _run(
    fetch: Callable[[Take, Watch], Coroutine[Any, Any, None]], request: "Request", as_json: bool, quiet: bool
) -> None:
    from coalloc.display.many_text import ManyTotals, print_totals

    totals, results, began = ManyTotals(), ResultList(), time.monotonic()

    def take(result: "FileResult") -> None:
        totals.add(result)
        if as_json:
            results.add(result)

    failed: CoallocError | None = None
    try:
        with nullcontext() if quiet else showing(_printer) as watch:
            interrupts.run(fetch(take, watch), remedy=REMEDY)
    except CoallocError as error:
        failed = error
    if totals.files and not quiet:
        print_totals(totals, str(request.path or Path()), time.monotonic() - began, sys.stderr)
    if as_json:
        results.close(failed)
    if failed:
        raise CommandFailed(failed, None) from failed


def _lines(path: str) -> Iterator[str]:
    """Yield the lines of a list; `-` is standard input.

    :raises UsageError: if it cannot be read, or has a line without end
    """
    from coalloc.resolve.file_list import MOST_IN_LINE

    try:
        named, own = (0, False) if path == "-" else (path, True)
        with open(named, encoding="utf-8-sig", errors="surrogateescape", newline="\n", closefd=own) as file:
            while line := file.readline(MOST_IN_LINE + 1):
                if len(line) > MOST_IN_LINE:
                    raise UsageError(f"{path} has a line of more than {MOST_IN_LINE} characters", "give a list of URLs")
                yield line
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {path}: {reason}", "give a readable list with -i") from None


def _printer(file: TextIO, live: bool) -> "ManyBars | ManyLines":
    if live:
        from coalloc.display.many_bars import ManyBars

        return ManyBars(file)
    from coalloc.display.many_text import ManyLines

    return ManyLines(file)

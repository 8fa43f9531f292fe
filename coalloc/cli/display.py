"""Progress on standard error, so that standard output is for programs alone."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol, TextIO, TypeVar

__all__ = ["showing"]

V = TypeVar("V", contravariant=True)


class Printer(Protocol[V]):
    """Shows states of something."""

    def show(self, snapshot: V) -> None: ...
    def close(self, finished: bool) -> None: ...


@contextmanager
def showing(make: Callable[[TextIO, bool], Printer[V]]) -> Iterator[Callable[[V], None]]:
    """What shows a state on standard error.

    :param make: makes the printer, when there is something to show, for this file; one that redraws where that works
    """

    @cache
    def printer() -> Printer[V]:
        return make(sys.stderr, sys.stderr.isatty() and os.environ.get("TERM") != "dumb")

    try:
        yield lambda state: printer().show(state)
    except BaseException:
        printer().close(finished=False)
        raise
    printer().close(finished=True)

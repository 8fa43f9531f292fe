"""Progress on standard error; standard output is reserved for output that programs read."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol, TextIO, TypeVar

from coalloc.util import trace

__all__ = ["showing"]

V = TypeVar("V", contravariant=True)


class Printer(Protocol[V]):
    """A printer of states."""

    def show(self, snapshot: V) -> None: ...
    def close(self, finished: bool) -> None: ...


@contextmanager
def showing(make: Callable[[TextIO, bool], Printer[V]]) -> Iterator[Callable[[V], None]]:
    """Yield a function that shows a state on standard error.

    :param make: function that makes the printer when the first state is shown; its arguments are the file, and whether
        the file is a terminal that can redraw lines, and no requests are shown between them
    """

    @cache
    def printer() -> Printer[V]:
        return make(sys.stderr, sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not trace.is_on())

    try:
        yield lambda state: printer().show(state)
    except BaseException:
        printer().close(finished=False)
        raise
    printer().close(finished=True)

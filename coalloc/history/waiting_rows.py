"""Rows that wait to be stored together: a run with many files writes seldom, as others may have the file locked."""

import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

__all__ = ["WaitingRows"]

Row = TypeVar("Row")

MOST, SECONDS = 200, 1.0
"""Rows that wait at most, and seconds after which those that wait are stored."""
PAUSES = 20
"""Minimum time between two writes, as a multiple of the time of one."""


class WaitingRows(Generic[Row]):
    """Rows that are stored in groups by `store`; `flush` stores those that wait, and must be called at the end."""

    def __init__(self, store: Callable[[list[Row]], None]) -> None:
        self._store = store
        self._rows: list[Row] = []
        self._next = time.monotonic() + SECONDS

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows; store all that wait if they are many, or if it is time."""
        self._rows += rows
        if len(self._rows) >= MOST or time.monotonic() > self._next:
            self.flush()

    def flush(self) -> None:
        """Store the rows that wait."""
        rows, self._rows, began = self._rows, [], time.monotonic()
        self._store(rows)
        now = time.monotonic()
        self._next = now + PAUSES * (now - began) + SECONDS

"""The number up to which all observations are visible, so that a reader misses none, and reads each once.

PostgreSQL numbers rows when they are written, but shows them when their transaction commits: number 5 may be visible
before number 4, and a reader that continues after 5 would never see 4. So the reader first reads the newest number,
then the list of writing transactions, and reads up to that number when all of these have ended. A writer holds a lock
on the table from before its first number until its rows are visible. So each smaller number is either visible, or its
writer is in the list.

On SQLite, one writer follows the other, and numbers become visible in order; the list is empty.
"""

from collections.abc import Set

__all__ = ["Horizon"]


class Horizon:
    """The largest known number below which all observations are visible (`settled`)."""

    def __init__(self) -> None:
        self.settled = 0
        self._mark = 0
        self._awaited: Set[str] = frozenset()

    def look(self, last: int, writers: Set[str]) -> int:
        """Return the number up to which later reads see all observations.

        :param last: largest visible number
        :param writers: transactions that write observations, read after `last`
        """
        self._awaited = self._awaited & writers
        if not self._awaited:
            self.settled = self._mark
            self._mark, self._awaited = max(self._mark, last), frozenset(writers)
            if not writers:
                self.settled = self._mark
        return self.settled

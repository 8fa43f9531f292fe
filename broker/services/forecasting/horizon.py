"""The number up to which all observations are visible, so that each is read once, and none is missed. Pure.

PostgreSQL numbers rows when they are written, and shows them when their transaction commits: number 5 may be visible
before number 4. A reader that goes on from 5 would never see 4. So the reader looks at the newest number, then at the
transactions that are writing, and reads up to that number only when all of these have ended. Each writer holds a lock
on the table from before it takes its first number until its rows are visible. So a number below one that was seen is
either visible, or its writer is among those that hold the lock after that.

On SQLite, writers take turns, and numbers become visible in their order: there are no such writers.
"""

from collections.abc import Set

__all__ = ["Horizon"]


class Horizon:
    """The number up to which no observation is missing, as far as is known."""

    def __init__(self) -> None:
        self.settled = 0
        self._mark = 0
        self._awaited: Set[str] = frozenset()

    def look(self, last: int, writers: Set[str]) -> int:
        """Return the number up to which reads after this call miss nothing.

        :param last: greatest visible number
        :param writers: transactions that hold a lock as writers of observations, read after `last`
        """
        self._awaited = self._awaited & writers
        if not self._awaited:
            self.settled = self._mark
            self._mark, self._awaited = max(self._mark, last), frozenset(writers)
            if not writers:
                self.settled = self._mark
        return self.settled

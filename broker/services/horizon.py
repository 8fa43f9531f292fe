"""Up to which number all observations can be seen: what is read up to there is read once, and nothing is missed. Pure.

PostgreSQL numbers rows when they are written, and shows them when their transaction is committed: number 5 may be seen
before number 4. Who reads on from 5 would never see 4. So numbers are read only as far as all who wrote when the
newest of them was seen have ended. Each writer holds a lock of the table from before it takes its first number until
what it wrote can be seen; so a number that is less than one that was seen is either visible, or its writer is among
those that hold the lock after that.

On SQLite writers take turns, and numbers become visible in their order: there are no such writers.
"""

from collections.abc import Set

__all__ = ["Horizon"]


class Horizon:
    """Up to which number nothing is missing, as far as is known."""

    def __init__(self) -> None:
        self.settled = 0
        self._mark = 0
        self._awaited: Set[str] = frozenset()

    def look(self, last: int, writers: Set[str]) -> int:
        """Up to which number nothing is missing of what is read after this.

        :param last: the greatest number that can be seen
        :param writers: transactions that hold a lock as writers of observations, asked for after `last`
        """
        self._awaited = self._awaited & writers
        if not self._awaited:
            self.settled = self._mark
            self._mark, self._awaited = max(self._mark, last), frozenset(writers)
            if not writers:
                self.settled = self._mark
        return self.settled

"""Sets of byte ranges [start, end), such as present, missing or assigned bytes. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["Intervals"]

Range = tuple[int, int]


class Intervals:
    """A set of integers, stored as sorted, disjoint, non-adjacent ranges [start, end).

    >>> held = Intervals([(0, 10), (20, 30)])
    >>> held.add(10, 15); list(held), held.total
    ([(0, 15), (20, 30)], 25)
    >>> held.gaps(0, 40)
    [(15, 20), (30, 40)]
    """

    __slots__ = ("_ends", "_starts", "total")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.total = 0
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __len__(self) -> int:
        return len(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __repr__(self) -> str:
        return f"Intervals({list(self)})"

    def add(self, start: int, end: int) -> None:
        """Add the integers of [start, end) to the set."""
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if last - first == 1 and self._ends[first] == start:  # the common case: a range grows at its end
            self._ends[first] = end
            self.total += end - start
            return
        if first == last:
            self._starts.insert(first, start)
            self._ends.insert(first, end)
            self.total += end - start
            return
        start = min(start, self._starts[first])
        end = max(end, self._ends[last - 1])
        self._replace(first, last, [(start, end)])

    def remove(self, start: int, end: int) -> None:
        """Remove the integers of [start, end) from the set."""
        if start >= end:
            return
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        if first >= last:
            return
        edges = [
            (self._starts[first], min(start, self._ends[first])),
            (max(end, self._starts[last - 1]), self._ends[last - 1]),
        ]
        self._replace(first, last, [(a, b) for a, b in edges if a < b])

    def _replace(self, first: int, last: int, ranges: list[Range]) -> None:
        gone = sum(b - a for a, b in zip(self._starts[first:last], self._ends[first:last], strict=True))
        self.total += sum(b - a for a, b in ranges) - gone
        self._starts[first:last] = [a for a, _ in ranges]
        self._ends[first:last] = [b for _, b in ranges]

    def within(self, start: int, end: int) -> list[Range]:
        """Return the parts of [start, end) that are in the set, in order."""
        first = bisect_right(self._ends, start)
        found = []
        for i in range(first, len(self._starts)):
            if self._starts[i] >= end:
                break
            found.append((max(start, self._starts[i]), min(end, self._ends[i])))
        return found

    def gaps(self, start: int, end: int) -> list[Range]:
        """Return the parts of [start, end) that are not in the set, in order."""
        found, at = [], start
        for a, b in self.within(start, end):
            if at < a:
                found.append((at, a))
            at = b
        if at < end:
            found.append((at, end))
        return found

    def reach(self, at: int) -> int:
        """Return the end of the range that contains `at`; `at` itself if no range does."""
        i = bisect_right(self._starts, at) - 1
        return max(at, self._ends[i]) if i >= 0 else at

    def covers(self, start: int, end: int) -> bool:
        """Return whether all of [start, end) is in the set."""
        return not self.gaps(start, end)

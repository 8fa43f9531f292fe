"""Ranges of one file that are requested together: near ones are joined, long ones are cut. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from coalloc.util.intervals import Intervals

__all__ = ["PIECE", "assembled", "pieces"]

NEAR = 16 * 1024
"""Most bytes between two ranges that are requested together: they take less time than one more request."""
PIECE = 1024 * 1024
"""Most bytes of a request: the replicas share longer ranges."""

Range = tuple[int, int]


def pieces(ranges: Sequence[Range], length: int = PIECE) -> list[Range]:
    """Return the requests for these ranges [start, end), in order, without overlap.

    >>> pieces([(50_000, 60_000), (0, 100), (110, 200)])
    [(0, 200), (50000, 60000)]
    >>> pieces([(0, 25)], 10)
    [(0, 9), (9, 18), (18, 25)]
    """
    wanted = Intervals(ranges)
    for (_, end), (start, _) in pairwise(list(wanted)):
        if start - end <= NEAR:
            wanted.add(end, start)
    return [piece for run in wanted for piece in _cut(run, length)]


def _cut(run: Range, length: int) -> list[Range]:
    """Return the equal parts of a range of which none is longer than `length`."""
    start, end = run
    step = -(-(end - start) // -(-(end - start) // length))
    return [(at, min(at + step, end)) for at in range(start, end, step)]


def assembled(ranges: Iterable[Range], arrived: Mapping[Range, bytes]) -> list[bytes]:
    """Return the bytes of each range from the pieces that cover it, which are in order.

    >>> assembled([(8, 12), (4, 4)], {(0, 10): b"0123456789", (10, 20): b"abcdefghij"})
    [b'89ab', b'']
    """
    cut = list(arrived)
    starts = [start for start, _ in cut]
    return [arrived[each] if each in arrived else b"".join(_parts(each, cut, starts, arrived)) for each in ranges]


def _parts(
    wanted: Range, cut: Sequence[Range], starts: Sequence[int], arrived: Mapping[Range, bytes]
) -> Iterator[memoryview]:
    """Yield the parts of a range in the pieces."""
    start, end = wanted
    if start >= end:
        return
    for i in range(bisect_right(starts, start) - 1, bisect_left(starts, end)):
        yield memoryview(arrived[cut[i]])[max(start - starts[i], 0) : end - starts[i]]

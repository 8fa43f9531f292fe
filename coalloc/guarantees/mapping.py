"""The mapping of guaranteed streams to paths, from the distributions of the paths' rates (IQ-Paths, V-B). Pure.

Streams are placed in the order of their precedence, each on the path where its guarantee holds best: with the highest
probability (lemma 1), or with the fewest expected misses (lemma 2). A stream that no single path carries is divided.
What a path still has for a stream is its rate without the rates of the streams there that have precedence.

A window of a divided stream is kept if that of each part is kept. Theorem 1 adds up the probabilities of the parts,
which is wrong. Here the probabilities of *failure* are added up: that bound holds however the paths depend on each
other. It does not count on the help that paths give each other (`packets`), so that more windows are kept.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from math import inf
from typing import NamedTuple

from coalloc.guarantees.streams import Stream

__all__ = ["Placement", "map_streams"]

ROUNDING = 1e-9


class Placement(NamedTuple):
    """The paths of a stream.

    :param stream: the stream
    :param packets: number of packets that each path has to serve in a window; empty for best effort, which uses all
    :param level: its precedence: lower levels are served first
    :param probability: lower bound of the probability that all of them are served in their window
    :param misses: upper bound of the mean number of packets of a window that are not
    """

    stream: Stream
    packets: Mapping[str, int]
    level: int = 0
    probability: float = 0.0
    misses: float = 0.0

    @property
    def holds(self) -> bool:
        """Return whether the paths carry the stream as it is required."""
        if not self.packets:
            return True
        if self.stream.misses is not None:
            return self.misses <= self.stream.misses + ROUNDING
        return self.probability >= self.stream.probability - ROUNDING


class _Path:
    """A path: the distribution of its rate, and the rates of the streams that were placed on it.

    :param rates: rates of past windows, ascending
    """

    def __init__(self, name: str, rates: Sequence[float]) -> None:
        self.name = name
        self.load = 0.0
        self._rates = rates
        self._count, self._last = len(rates), len(rates) - 1
        self._sums = [0.0, *accumulate(rates)]

    def failure(self, rate: float) -> float:
        """Return the share of windows in which `rate` is not left for a stream: 1 - P of lemma 1."""
        return bisect_left(self._rates, (self.load + rate) * (1 - ROUNDING)) / self._count

    def shortfall(self, rate: float) -> float:
        """Return the mean of what a stream lacks of `rate` in a window, a rate as well: lemma 2, corrected."""
        return self._short(self.load + rate) - self._short(self.load)

    def shortfall_of_last(self, share: float) -> float:
        """Return the shortfall of a stream with a share of the load, if it is served last."""
        return self._short(self.load) - self._short(self.load - share)

    def _short(self, rate: float) -> float:
        below = bisect_left(self._rates, rate)
        return (below * rate - self._sums[below]) / self._count

    def left(self, failure: float) -> float:
        """Return the rate that is left for a stream in all but a share of `failure` of the windows."""
        rank = min(self._last, int(failure * self._count + ROUNDING))
        return max(0.0, self._rates[rank] - self.load)


def map_streams(streams: Sequence[Stream], paths: Mapping[str, Sequence[float]]) -> list[Placement]:
    """Return the placement of each stream, in the given order; `holds` tells whether it is a guarantee.

    Streams with a higher probability have precedence over others; among equal ones, those with a bound of misses, the
    lower the earlier. The others with the same probability are served alike, except for one that no paths carry, which
    comes after them. Those that a single path carries are placed first, the largest ones before the smaller ones.

    :param streams: the streams; those of best effort are placed nowhere, as they use what is left on all paths
    :param paths: for each path its rates in past windows, in bytes per second, ascending, at least one. The windows are
        as long as the shortest one of a stream: the mean rate of longer windows varies less
    """
    views = [_Path(name, rates) for name, rates in paths.items()]
    placed: dict[str, Placement] = {}
    for _, equals in groupby(sorted(filter(_is_guaranteed, streams), key=_precedence), key=_alike):
        alike: list[_Shares] = []
        waiting = list(equals)
        for find in (_single, _divided):
            for stream in waiting.copy():
                shares = find(stream, views)
                if shares.cost <= _allowed(stream):
                    waiting.remove(stream)
                    _load(views, shares)
                    alike.append(shares)
        _place(alike, views, placed)
        for stream in waiting:
            shares = _spread(stream, views)
            _load(views, shares)
            _place([shares], views, placed)
    return [placed.get(stream.name) or Placement(stream, {}) for stream in streams]


class _Shares(NamedTuple):
    """A way to serve a stream.

    :param packets: number of packets on each path
    :param cost: probability that they are not served; with a bound of misses, the share that is expected late
    """

    stream: Stream
    packets: Sequence[int]
    cost: float


def _is_guaranteed(stream: Stream) -> bool:
    return stream.required > 0


def _alike(stream: Stream) -> tuple[float, str]:
    return stream.probability, "" if stream.misses is None else stream.name


def _precedence(stream: Stream) -> tuple[float, bool, float, float]:
    return -stream.probability, stream.misses is None, stream.misses or 0.0, -stream.required * _unit(stream)


def _unit(stream: Stream) -> float:
    """Return the rate of a stream that has one packet in a window."""
    return stream.packet / stream.window


def _allowed(stream: Stream) -> float:
    """Return the highest cost with which the stream is guaranteed."""
    if stream.misses is not None:
        return stream.misses / stream.required + ROUNDING
    return 1 - stream.probability + ROUNDING


def _shares(stream: Stream, paths: Sequence[_Path], packets: Sequence[int]) -> _Shares:
    costs = [_cost(stream, path, number) for path, number in zip(paths, packets, strict=True) if number]
    return _Shares(stream, packets, sum(costs))


def _cost(stream: Stream, path: _Path, packets: int) -> float:
    rate = packets * _unit(stream)
    if stream.misses is None:
        return path.failure(rate)
    return path.shortfall(rate) / (stream.required * _unit(stream))


def _single(stream: Stream, paths: Sequence[_Path]) -> _Shares:
    """Return the best way to serve a stream by a single path."""
    required = stream.required
    costs = [(_cost(stream, path, required), -path.left(1 - stream.probability)) for path in paths]
    best = min(range(len(paths)), key=costs.__getitem__)
    packets = [required if index == best else 0 for index in range(len(paths))]
    return _Shares(stream, packets, costs[best][0])


def _divided(stream: Stream, paths: Sequence[_Path]) -> _Shares:
    """Return a way to serve a stream by several paths, by few if they suffice; no path suffices alone."""
    spare = [path.left(1 - stream.probability) for path in paths]
    found = _Shares(stream, [0] * len(paths), inf)
    if stream.misses is None and sum(spare) < stream.required * _unit(stream):
        return found  # a part must not fail more often than the whole
    by_spare = sorted(range(len(paths)), key=lambda index: -spare[index])
    number = 1
    while found.cost > _allowed(stream) and number < len(paths):
        number = min(2 * number, len(paths))
        found = min(found, _shares(stream, paths, _divide(stream, paths, by_spare[:number])), key=_by_cost)
    return found


def _spread(stream: Stream, paths: Sequence[_Path]) -> _Shares:
    """Return a way to serve a stream that no paths carry."""
    everywhere = _divide(stream, paths, range(len(paths)))
    return min(_single(stream, paths), _shares(stream, paths, everywhere), key=_by_cost)


def _by_cost(shares: _Shares) -> float:
    return shares.cost


def _divide(stream: Stream, paths: Sequence[_Path], chosen: Sequence[int]) -> list[int]:
    """Return the packets of a stream on each path, such that all of the chosen ones fail equally often.

    That is the division with the fewest expected misses: the derivative of `shortfall` is `failure`.
    """
    rate = stream.required * _unit(stream)
    low, high = 0.0, 1.0
    for _ in range(10):  # finer than a thousand windows
        middle = (low + high) / 2
        if sum(paths[index].left(middle) for index in chosen) < rate:
            low = middle
        else:
            high = middle
    parts = [paths[index].left(high) if index in chosen else 0.0 for index in range(len(paths))]
    if not any(parts):
        parts[chosen[0]] = rate
    edges = accumulate(parts, initial=0.0)
    total = sum(parts)
    marks = [round(stream.required * edge / total) for edge in edges]
    return [after - before for before, after in pairwise(marks)]


def _load(paths: Sequence[_Path], shares: _Shares) -> None:
    for path, packets in zip(paths, shares.packets, strict=True):
        path.load += packets * _unit(shares.stream)


def _place(alike: Sequence[_Shares], paths: Sequence[_Path], placed: dict[str, Placement]) -> None:
    """Place streams that are served alike, so that each of them suffers from all others."""
    level = 1 + max((each.level for each in placed.values()), default=-1)
    for stream, packets, _ in alike:
        used = [(path, number) for path, number in zip(paths, packets, strict=True) if number]
        failure = sum(path.failure(0.0) for path, _ in used)
        misses = sum(path.shortfall_of_last(number * _unit(stream)) for path, number in used) / _unit(stream)
        counts = {path.name: number for path, number in used}
        placed[stream.name] = Placement(stream, counts, level, max(0.0, 1 - failure), misses)

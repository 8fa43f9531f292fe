"""Admission of promised finish times on paths that others use, too. Pure; times are arguments.

A promise reserves a share of each of its links, from a moment until its deadline. A new one is admitted if the links
carry it beside all shares that are promised already, with the wanted probability. Earlier promises have precedence, as
in IQ-Paths, section V: so the probability of a promise is that of the sum of all rates up to its own.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import NamedTuple

from coalloc.guarantees.deadline import PathRate, finish
from coalloc.guarantees.finish import FinishErrors, FinishForecast

__all__ = [
    "AdmittedFinish",
    "FinishView",
    "PromisedShare",
    "PromisedShares",
    "RefusedFinish",
    "ServerLimit",
    "SharedPath",
    "admit",
    "view",
]

RETRY = 30.0
"""Seconds within which the earliest time of a refusal may be asked for."""
BEGINS = 32
"""Number of moments at which a promise may begin that are tried: now, and the next ends of other promises."""


class PromisedShare(NamedTuple):
    """A share that is promised to another transfer.

    :param rate: bytes per second
    :param since: seconds since the epoch
    :param until: seconds since the epoch; the share is free from then on
    """

    rate: float
    since: float
    until: float


class PromisedShares:
    """The shares that are promised on one link or interface.

    >>> shares = [PromisedShare(5.0, 0.0, 9.0), PromisedShare(3.0, 2.0, 4.0), PromisedShare(4.0, 4.0, 9.0)]
    >>> PromisedShares(shares).most(1.0)
    9.0
    """

    def __init__(self, shares: Iterable[PromisedShare] = ()) -> None:
        self._shares = tuple(shares)

    def __iter__(self) -> Iterator[PromisedShare]:
        return iter(self._shares)

    def most(self, since: float) -> float:
        """Return the highest sum of shares that are promised at one time from a moment on."""
        times, sums, highest = self._sums
        begun = bisect_right(times, since)
        return max(0.0, sums[begun - 1] if begun else 0.0, highest[begun] if begun < len(highest) else 0.0)

    @cached_property
    def _sums(self) -> tuple[list[float], list[float], list[float]]:
        """Moments at which the sum of all shares changes, the sum from then on, and the highest from then on."""
        begun = [(each.since, 1, each.rate) for each in self if each.until > each.since]
        ended = [(each.until, 0, -each.rate) for each in self if each.until > each.since]
        changes = sorted([*begun, *ended])  # an end comes before a beginning at the same time
        sums = list(accumulate(rate for _, _, rate in changes))
        return [at for at, _, _ in changes], sums, list(accumulate(reversed(sums), max))[::-1]


class ServerLimit(NamedTuple):
    """The interface of a server.

    :param rate: what it carries at most, in bytes per second; infinite if unknown
    :param promised: the shares of all its links
    """

    rate: float = inf
    promised: PromisedShares = PromisedShares()

    def free(self, since: float) -> float:
        """Return the rate that is not promised from a moment on."""
        return inf if self.rate == inf else max(0.0, self.rate - self.promised.most(since))


class SharedPath(NamedTuple):
    """A source, with the link from it to the destination.

    :param rate: the expected rate of the link, as if nothing were promised
    :param promised: the shares of this link
    :param server: the interface of the source
    """

    rate: PathRate
    promised: PromisedShares = PromisedShares()
    server: ServerLimit = ServerLimit()


class AdmittedFinish(NamedTuple):
    """A promise that can be made.

    :param chance: probability that it is kept
    :param since: when its shares begin, in seconds since the epoch
    :param shares: bytes per second of each used path, by the index of the path
    :param t50: when it ends with a probability of 50 %, in seconds since the epoch, if it uses all that is free
    :param t95: the same for 95 %
    """

    chance: float
    since: float
    shares: dict[int, float]
    t50: float
    t95: float


class RefusedFinish(NamedTuple):
    """A promise that cannot be made.

    :param chance: probability with which the deadline would be kept
    :param earliest: the earliest time that would be promised within the next 30 s, if nothing changes meanwhile, in
        seconds since the epoch; None if there is none
    """

    chance: float
    earliest: float | None


class FinishView(NamedTuple):
    """The finish of a transfer, at one moment.

    :param chance: probability that its deadline is kept
    :param sure_by: when it ends with the wanted probability, in seconds since the epoch; infinite if never
    """

    chance: float
    sure_by: float


class _Ready(NamedTuple):
    """A path from a moment on.

    :ivar rate: its rate, with what is promised on it, as far as its server permits
    :ivar busy: bytes per second that are promised on it
    """

    rate: PathRate
    busy: float

    @property
    def free(self) -> float:
        """The expected rate beside all that is promised."""
        return self.rate.rate - self.busy


class _Joined(NamedTuple):
    """Several paths together, from a moment on.

    :ivar forecast: seconds for one byte over all of them, and the spread
    :ivar busy: bytes per second that are promised on them
    :ivar most: rate that the destination's interface has left
    """

    used: tuple[int, ...]
    since: float
    setup: float
    forecast: FinishForecast
    busy: float
    most: float

    def chance(self, nbytes: float, until: float, errors: FinishErrors) -> float:
        """Return the probability that so many bytes arrive in time, after all that is promised already."""
        seconds = until - self.since - self.setup
        if seconds <= 0 or nbytes / seconds > self.most:
            return 0.0
        return self.forecast.chance(1 / (self.busy + nbytes / seconds), errors)

    def end(self, nbytes: float, probability: float, errors: FinishErrors) -> float:
        """Return when so many bytes have arrived with this probability, in seconds since the epoch."""
        rate = min(1 / self.forecast.within(probability, errors) - self.busy, self.most)
        return self.since + self.setup + nbytes / rate if rate > 0 else inf


def admit(
    nbytes: float,
    now: float,
    by: float,
    sure: float,
    paths: Sequence[SharedPath],
    destination: ServerLimit,
    errors: FinishErrors,
) -> AdmittedFinish | RefusedFinish:
    """Decide whether a finish time can be promised, with as few paths as suffice.

    It begins now if possible, otherwise when other promises have ended.

    :param by: the deadline, in seconds since the epoch
    :param sure: probability with which it is to be kept, neither 0 nor 1
    :param paths: at least one
    """
    best, earliest = 0.0, inf
    for begin in _begins(now, paths, destination):
        ready = [_from(path, begin) for path in paths]
        for joined in _joined(begin, sure, ready, destination.free(begin), errors):
            found = joined.chance(nbytes, by, errors)
            if found >= sure:
                return _admitted(joined, found, nbytes, by, ready, errors)
            best = max(best, found)
            later = joined._replace(since=begin + RETRY)
            earliest = min(earliest, later.end(nbytes, sure, errors))
    return RefusedFinish(best, earliest if earliest < inf else None)


def view(
    left: float,
    now: float,
    by: float,
    sure: float,
    paths: Sequence[SharedPath],
    destination: ServerLimit,
    errors: FinishErrors,
) -> FinishView:
    """Return the outlook of a transfer over all its paths, after all shares that are promised on them.

    :param left: bytes that are missing
    """
    if left <= 0:
        return FinishView(1.0, now)
    ready = [_from(path, now) for path in paths]
    joined = _all_of(range(len(paths)), now, ready, destination.free(now))
    return FinishView(joined.chance(left, by, errors), joined.end(left, sure, errors))


def _begins(now: float, paths: Sequence[SharedPath], destination: ServerLimit) -> list[float]:
    promised = [share for path in paths for share in (*path.promised, *path.server.promised)]
    ends = {share.until for share in (*promised, *destination.promised) if share.until > now}
    return [now, *sorted(ends)[: BEGINS - 1]]


def _joined(begin: float, sure: float, paths: Sequence[_Ready], free: float, errors: FinishErrors) -> Iterator[_Joined]:
    """Yield the best path, then the best two, and so on: the best one can promise the highest rate.

    :param free: rate that the destination's interface has left
    """
    single = [_all_of([i], begin, paths, free) for i in range(len(paths))]
    promisable = [1 / each.forecast.within(sure, errors) - each.busy for each in single]
    usable = [i for i in sorted(range(len(paths)), key=lambda i: -promisable[i]) if paths[i].free > 0]
    for count in range(1, len(usable) + 1):
        yield _all_of(usable[:count], begin, paths, free)


def _all_of(used: Iterable[int], begin: float, paths: Sequence[_Ready], free: float) -> _Joined:
    chosen = tuple(used)
    forecast = finish(1.0, [paths[i].rate._replace(setup=0.0) for i in chosen])
    setup = max((paths[i].rate.setup for i in chosen), default=0.0)
    return _Joined(chosen, begin, setup, forecast, sum(paths[i].busy for i in chosen), free)


def _from(path: SharedPath, begin: float) -> _Ready:
    busy = path.promised.most(begin)
    permitted = path.server.free(begin) + busy
    return _Ready(path.rate._replace(rate=min(path.rate.rate, permitted)), busy)


def _admitted(
    joined: _Joined, found: float, nbytes: float, by: float, paths: Sequence[_Ready], errors: FinishErrors
) -> AdmittedFinish:
    rate = nbytes / (by - joined.since - joined.setup)
    total = sum(paths[i].free for i in joined.used)
    shares = {i: rate * paths[i].free / total for i in joined.used}
    return AdmittedFinish(
        found, joined.since, shares, joined.end(nbytes, 0.5, errors), joined.end(nbytes, 0.95, errors)
    )

"""Forecasts of the time of random reads, and the decision to ask a second replica. Pure: time is an argument.

The forecast for a server rests on its newest reads of about the same size. A read is late when it takes longer than the
upper end of its forecast interval. Then another replica is asked for the same bytes, as far as the budget for bytes
that may arrive twice allows.
"""

from collections import deque
from collections.abc import Collection, Sequence
from math import sqrt
from typing import NamedTuple

from coalloc.model.forecasts import Estimate

__all__ = ["HedgeBudget", "ReadForecast", "ReadForecasts"]

NEWEST = 100
"""Number of newest reads per server and size on which its forecast rests."""
FEW = 8
"""Number of reads below which the prior forecast counts for the interval."""
RECENT = 30
"""Number of newest reads on which the usual time rests."""
HIGH, SPREADS = 0.9, 1.0
"""The interval ends this number of spreads above its high quantile; the spread is that quantile minus the median."""
LOST = 5.0
"""Factor for the time of a cancelled read. A server that stalls now and then is soon taken only if others are busy."""
LEAST = 0.002
"""Least seconds of a spread: timers and this machine are not more exact."""
UNKNOWN_SECONDS = 1.0
"""Upper end of the interval if nothing is known."""
TRIPS, SLOWER, LEAST_PRIOR = 4, 3.0, 0.1
"""The upper end of the interval before the first reads: a multiple of the time to connect, or of the predicted time;
least seconds of the former.
"""
SHARE, FIRST = 0.045, 256 * 1024
"""Budget for bytes that may arrive twice: share of the requested bytes, and the bytes granted at the start."""


class ReadForecast(NamedTuple):
    """The forecast for one read in seconds: `usual` ranks servers, and after `late` a read is later than expected."""

    usual: float
    late: float


class ReadForecasts:
    """The newest reads of each server, by size.

    >>> forecasts = ReadForecasts()
    >>> for seconds in (0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.03):
    ...     forecasts.learn("a.example:80", 65536, seconds)
    >>> round(forecasts.forecast("a.example:80", 65536).late, 3)
    0.04
    """

    def __init__(self) -> None:
        self._seconds: dict[str, dict[int, deque[float]]] = {}
        self._made: dict[tuple[str, int], ReadForecast] = {}
        """Forecasts since the newest read of each server and size class, as they are asked for often."""

    def learn(self, server: str, nbytes: int, seconds: float, *, lost: bool = False) -> None:
        """Record the time of a read.

        :param lost: whether it was cancelled then, as a second replica had answered; how long it would have taken is
            unknown, so it counts several times
        """
        seconds *= LOST if lost else 1.0
        size = _size_class(nbytes)
        self._seconds.setdefault(server, {}).setdefault(size, deque(maxlen=NEWEST)).append(seconds)
        self._made.pop((server, size), None)

    def forecast(
        self, server: str, nbytes: int, prior: Estimate | None = None, trip: float | None = None
    ) -> ReadForecast | None:
        """Return the forecast for a read; None if nothing is known of the server.

        :param prior: prediction from earlier transfers, if there is one
        :param trip: seconds in which the server was connected
        """
        sizes = self._seconds.get(server)
        if not sizes:
            return _prior(nbytes, prior, trip)
        size = _nearest(sizes, _size_class(nbytes))
        made = self._made.get((server, size))
        if made is None:
            made = self._made[server, size] = _from_reads(sizes[size])
        if len(sizes[size]) < FEW and (before := _prior(nbytes, prior, trip)):
            return made._replace(late=max(made.late, before.late))
        return made


def _size_class(nbytes: int) -> int:
    """Return a number that is the same for sizes within a factor of two."""
    return nbytes.bit_length()


def _nearest(sizes: Collection[int], wanted: int) -> int:
    """Return the wanted size class, or else the next larger one, or else the largest one."""
    return min((size for size in sizes if size >= wanted), default=max(sizes))


def _from_reads(seconds: Sequence[float]) -> ReadForecast:
    recent, ordered = list(seconds)[-RECENT:], sorted(seconds)
    mean = sum(recent) / len(recent)
    deviation = sqrt(sum((each - mean) ** 2 for each in recent) / len(recent))
    median, high = ordered[len(ordered) // 2], ordered[int(len(ordered) * HIGH)]
    return ReadForecast(mean + deviation, high + SPREADS * max(high - median, LEAST))


def _prior(nbytes: int, prior: Estimate | None, trip: float | None) -> ReadForecast | None:
    """Return the forecast from earlier transfers, or from the time to connect; None if neither is known."""
    if prior and prior.rate:
        setup = prior.setup_seconds or 0.0
        slow = prior.bounds[0] if prior.bounds and prior.bounds[0] > 0 else prior.rate / SLOWER
        return ReadForecast(setup + nbytes / prior.rate, SLOWER * setup + nbytes / slow)
    return None if trip is None else ReadForecast(trip, max(TRIPS * trip, LEAST_PRIOR))


class HedgeBudget:
    """The bytes that may be requested twice.

    >>> budget = HedgeBudget()
    >>> budget.take(200_000), budget.take(200_000)
    (True, False)
    >>> budget.request(10_000_000); budget.take(200_000)
    True
    """

    def __init__(self) -> None:
        self._left = float(FIRST)

    def request(self, nbytes: int) -> None:
        """Record bytes that the user asks for."""
        self._left += SHARE * nbytes

    def take(self, nbytes: int) -> bool:
        """Take bytes of the budget for a second request; return whether they are granted."""
        if nbytes > self._left:
            return False
        self._left -= nbytes
        return True

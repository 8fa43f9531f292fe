"""Deadlines and promised rates: the request, the outlook, and the result. No behaviour, no I/O.

Rates are bytes per second, times seconds.
"""

from typing import NamedTuple

__all__ = ["Deadline", "DeadlineReport", "DeadlineView", "RateReport", "RateView", "ReadingRate"]


class Deadline(NamedTuple):
    """The time by which a file is to be complete, in seconds since the epoch, and the wanted probability of that."""

    at: float
    sure: float = 0.95


class DeadlineView(NamedTuple):
    """The probability, from 0 to 1, that a deadline is kept with all sources, as of `moment`; None while unknown.

    `later` is the time at which the file is complete with the wanted probability, None if unknown. Times are seconds
    since the epoch.
    """

    deadline: Deadline
    moment: float
    chance: float | None = None
    later: float | None = None


class DeadlineReport(NamedTuple):
    """A deadline, what was known of it at the start, warnings during the transfer, and the end; None if not complete.

    `spared` is the number of sources that were not needed. `guarantee` is the number of the broker's promise, None if
    it made none; `is_over` says that the broker ended it before the transfer did.
    """

    first: DeadlineView
    warnings: tuple[DeadlineView, ...] = ()
    ended: float | None = None
    spared: int = 0
    guarantee: int | None = None
    is_over: bool = False

    @property
    def kept(self) -> bool:
        """Return whether the file was complete in time."""
        return self.ended is not None and self.ended <= self.first.deadline.at


class ReadingRate(NamedTuple):
    """The bytes per second that a reader is to get, and the share of the seconds in which it must get them."""

    rate: float
    share: float = 0.95


class RateView(NamedTuple):
    """The outlook, as of `moment`, for the rate that a reader was promised.

    `chance` is the probability, from 0 to 1, that the promise is kept until the end; None while it is measured.
    `possible` is the rate that could be promised with the same share of the seconds, None if unknown; `share` is the
    share of the seconds that could be promised at the wanted rate, None if there is none. `moment` is in seconds since
    the epoch.
    """

    wanted: ReadingRate
    moment: float
    chance: float | None = None
    possible: float | None = None
    share: float | None = None


class RateReport(NamedTuple):
    """A promised rate, what was known of it at the start, warnings, and the seconds in which the reader got less."""

    first: RateView
    warnings: tuple[RateView, ...] = ()
    seconds: int = 0
    missed: int = 0

    @property
    def is_promised(self) -> bool:
        """Return whether a class of files was promised its rate; if not, it was refused, or nothing is known yet."""
        return self.first.chance is not None and self.first.possible is None

    @property
    def kept(self) -> bool:
        """Return whether the reader got the rate in a sufficient share of the seconds."""
        return self.missed <= (1 - self.first.wanted.share) * self.seconds + 1e-9

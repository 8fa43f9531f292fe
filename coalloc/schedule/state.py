"""The scheduler's knowledge of one transfer: the state of every byte, and what is expected of each source.

At any time each byte is in exactly one state: final (delivered), unassigned, in the share of one source, in a running
partial copy, or not opened yet; only a race puts a byte in two copies. Policies read the state; only the scheduler
changes it.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf, log2

from coalloc.model.forecasts import Estimate
from coalloc.schedule.rate import RateMeter
from coalloc.schedule.sources import RunningCopy, ScheduledSource
from coalloc.schedule.steal_size import AHEAD_TRIPS, SETUP_TRIPS, Thief, Victim
from coalloc.util.intervals import Intervals

__all__ = ["UNKNOWN_RATE", "State", "median"]

UNKNOWN_RATE = 10e6
"""Assumed bytes per second of a source if no source's rate is known."""
UNKNOWN_SETUP = 0.1
"""Assumed seconds to the first byte of a range if no source's set-up time is known."""

GROWING_TRIPS = 10
"""Number of round trips after the first byte in which TCP may still double its rate each time."""
BURST = 0.5
"""Seconds after the first byte in which a rate of 0 is no measurement, as some servers send in bursts."""

USUAL_GAP = 0.05
"""Normal seconds between two arrivals."""


class State:
    """The state of one transfer.

    :param size: bytes in the file
    :param estimates: forecast of each source, in the order of the replicas
    :param missing: ranges not delivered by earlier runs; None for the whole file
    :param opened: number of bytes, from the first one on, that may be fetched at first; None for all
    :ivar opened: number of bytes, from the first one on, that may be fetched now
    """

    def __init__(
        self,
        size: int,
        estimates: Sequence[Estimate],
        missing: Iterable[tuple[int, int]] | None = None,
        opened: int | None = None,
    ) -> None:
        self.size = size
        self.sources = [
            ScheduledSource(i, e, RateMeter(e.rate), setup_seconds=e.setup_seconds) for i, e in enumerate(estimates)
        ]
        self.copies: dict[int, RunningCopy] = {}
        self.unassigned = Intervals([(0, size)] if missing is None else missing)
        self.final = Intervals([(0, size)])
        for start, end in self.unassigned:
            self.final.remove(start, end)
        self.opened = size if opened is None else opened
        self.unassigned.remove(self.opened, size)
        self.raced_bytes = 0
        self.history: deque[str] = deque(maxlen=100)

    def open(self, end: int) -> None:
        """Allow that all bytes before `end` are fetched."""
        for start, stop in self.final.gaps(self.opened, end):
            self.unassigned.add(start, stop)
        self.opened = max(self.opened, end)

    @property
    def complete(self) -> bool:
        """Return whether every byte is final."""
        return self.final.total == self.size

    @property
    def held(self) -> Intervals:
        """The ranges of the running partial copies."""
        return Intervals((copy.start, copy.end) for copy in self.copies.values())

    def note(self, line: str) -> None:
        """Record a decision for messages about defects."""
        self.history.append(line)

    def is_last(self, source: ScheduledSource) -> bool:
        """Return whether no other source is usable; waiting sources do not count, as they may wait for ever."""
        return not any(other.usable and other.status != "waiting" for other in self.sources if other is not source)

    def lacking(self, copy: RunningCopy) -> list[tuple[int, int]]:
        """Return the ranges of a partial copy that are not final yet."""
        return self.final.gaps(copy.start, copy.end)

    def first_stretch(self, ranges: Intervals) -> tuple[int, int] | None:
        """Return the first of these ranges, extended over those behind it as long as all bytes in between are final."""
        stretch: tuple[int, int] | None = None
        for start, end in ranges:
            if stretch and not self.final.covers(stretch[1], start):
                break
            stretch = (stretch[0] if stretch else start, end)
        return stretch

    def running(self, source: ScheduledSource) -> RunningCopy | None:
        """Return the source's partial copy, if it has one."""
        return None if source.copy is None else self.copies[source.copy]

    def all_running(self, source: ScheduledSource) -> list[RunningCopy]:
        """Return the source's running partial copies, the newest last."""
        newest = [] if source.copy is None else [source.copy]
        return [self.copies[copy] for copy in (*source.draining, *newest)]

    def copies_of(self, source: ScheduledSource) -> list[RunningCopy]:
        """Return the source's ended partial copies, then its running ones."""
        return [*source.ended, *self.all_running(source)]

    def draining_bytes(self, source: ScheduledSource) -> int:
        """Return the number of missing bytes of the source's earlier copies, which are in flight."""
        return sum(b - a for copy in source.draining for a, b in self.lacking(self.copies[copy]))

    def backlog(self, source: ScheduledSource) -> int:
        """Return the number of bytes that the source still has to deliver: of its newest copy and its share."""
        copy = self.running(source)
        return source.share.total + (sum(b - a for a, b in self.lacking(copy)) if copy else 0)

    def equal_share(self) -> int:
        """Return the missing bytes, divided by the number of sources in use."""
        return (self.size - self.final.total) // max(1, sum(source.usable for source in self.sources))

    def rate(self, source: ScheduledSource, now: float) -> float:
        """Return a source's expected bytes per second: measured, else forecast, else the median of all known.

        A rate of 0 is not a measurement if the source has no work, or has only just begun a range.
        """
        own = source.meter.rate(now)
        if own or (own is not None and self.running(source) and not self._has_just_begun(source, now)):
            return own
        known = [self._pace(other, r, now) for other in self.sources if (r := other.meter.rate(now))]
        return median(known) if known else UNKNOWN_RATE

    def pace(self, source: ScheduledSource, now: float) -> float:
        """Return the bytes per second at which a source is expected to deliver its backlog.

        At the beginning of a range TCP doubles its rate with each round trip. This is assumed to continue, up to the
        highest rate of all sources, or UNKNOWN_RATE.
        """
        return self._pace(source, self.rate(source, now), now)

    def _pace(self, source: ScheduledSource, rate: float, now: float) -> float:
        trip, backlog = self._round_trip(source), self.backlog(source)
        if rate <= 0 or not trip or not backlog or not self._grows(source, now):
            return rate
        growing = backlog / (trip * log2(1 + backlog / (rate * trip)))
        return max(rate, min(growing, max([UNKNOWN_RATE, *(other.meter.rate(now) or 0.0 for other in self.sources)])))

    def setup(self, source: ScheduledSource) -> float:
        """Return the expected seconds from requesting a range from a source to its first byte."""
        if source.setup_seconds is not None:
            return source.setup_seconds
        if source.widening.rtt is not None:
            return SETUP_TRIPS * source.widening.rtt
        known = [other.setup_seconds for other in self.sources if other.setup_seconds is not None]
        return median(known) if known else UNKNOWN_SETUP

    def thief(self, source: ScheduledSource, now: float) -> Thief:
        """Return a source in the form for the stealing rule.

        If it still delivers a copy, the next one follows without a pause, once it has been requested.
        """
        if self.running(source):
            trip = self._round_trip(source)
            busy = max(0.0, self.finish_seconds(source, now) - self.ending_seconds(source) - trip)
            return Thief(self.rate(source, now), trip, 0.0, self.ending_seconds(source), busy=busy)
        setup = self.setup(source)
        return Thief(self.rate(source, now), setup, setup / SETUP_TRIPS, self.ending_seconds(source))

    def victim(self, source: ScheduledSource, now: float) -> Victim:
        """Return a source with bytes to deliver in the form for the stealing rule.

        The bytes of its share follow those of its partial copy.
        """
        return Victim(
            nbytes=self.backlog(source),
            seconds=self.finish_seconds(source, now),
            rate=self.pace(source, now),
            pause=self.wait_seconds(source, now) + self.ending_seconds(source),
            in_flight=self.in_flight(source, now),
        )

    def scattered(self, source: ScheduledSource) -> bool:
        """Return whether the source's copy delivers several parts of its range at once."""
        copy = self.running(source)
        if copy is None or source.share:
            return False
        return source.widening.streams > 1 or len(self.lacking(copy)) > 1

    def ending_seconds(self, source: ScheduledSource) -> float:
        """Return the seconds that parallel streams add at the end of a range, as they do not finish together."""
        return self._round_trip(source) if source.widening.streams > 1 else 0.0

    def wait_seconds(self, source: ScheduledSource, now: float) -> float:
        """Return the expected seconds until a source's bytes flow (again).

        If it is late, its delay is expected to double.
        """
        copy = self.running(source)
        if copy is None:
            return self.setup(source)
        silent = copy.silence(now)
        if copy.last_byte_at is None and source.draining:  # the bytes of an earlier copy are arriving
            return 0.0
        if copy.last_byte_at is not None:
            return silent if silent > USUAL_GAP + 3 * source.longest_gap else 0.0
        return max(self.setup(source) - silent, silent)

    def finish_seconds(self, source: ScheduledSource, now: float) -> float:
        """Return the seconds until the source has delivered its backlog at its expected pace; infinite at rate 0."""
        backlog, rate = self.backlog(source), self.pace(source, now)
        if not backlog:
            return 0.0
        backlog += self.draining_bytes(source)
        if rate <= 0:
            return inf
        return self.wait_seconds(source, now) + backlog / rate + self.ending_seconds(source)

    def in_flight(self, source: ScheduledSource, now: float) -> int:
        """Return the bytes that the server will have sent before it learns that another source takes over.

        Parallel streams deliver several parts of a range at once, requested some round trips ahead.
        """
        if self.wait_seconds(source, now):
            return 0
        trips = AHEAD_TRIPS if self.scattered(source) else 2 if self._grows(source, now) else 1
        return int(trips * self.rate(source, now) * self._round_trip(source))

    @staticmethod
    def _round_trip(source: ScheduledSource) -> float:
        return source.widening.rtt or 0.0

    def _grows(self, source: ScheduledSource, now: float) -> bool:
        """Return whether the source's range began so recently that TCP may still be raising its rate."""
        return self._begun_within(source, GROWING_TRIPS * self._round_trip(source), now)

    def _has_just_begun(self, source: ScheduledSource, now: float) -> bool:
        """Return whether the source's range began so recently that silence since its first bytes means nothing."""
        return self._begun_within(source, max(BURST, GROWING_TRIPS * self._round_trip(source)), now)

    def _begun_within(self, source: ScheduledSource, seconds: float, now: float) -> bool:
        copy = self.running(source)
        if copy is None or copy.first_byte_at is None or copy.queued:
            return False
        return now < copy.first_byte_at + seconds

    def rivals(self, copy: RunningCopy) -> list[RunningCopy]:
        """Return the other running copies that include bytes of this one: they are in a race."""
        return [
            other
            for other in self.copies.values()
            if other is not copy and other.start < copy.end and copy.start < other.end
        ]


def median(values: Iterable[float]) -> float:
    """Return the median of one or more values.

    >>> median([3.0, 1.0, 2.0]), median([1.0, 4.0])
    (2.0, 2.5)
    """
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2

"""The scheduler's records of one source and of one of its partial copies."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from coalloc.model.forecasts import Estimate
from coalloc.model.reports import Ending
from coalloc.schedule.rate import RateMeter
from coalloc.schedule.stream_count import Widening
from coalloc.util.intervals import Intervals

__all__ = ["RunningCopy", "ScheduledSource", "Status"]

Status = Literal["spare", "connecting", "idle", "fetching", "waiting", "pausing", "dropped"]

THROTTLED = 0.1
"""Fraction of a partial copy's time spent waiting for admission above which the rate limit is its bottleneck."""


@dataclass(slots=True)
class ScheduledSource:
    """One source: its status, its rate, and the bytes that are reserved for it.

    `planned` is the number of bytes of its share at the start, None if the policy assigned no shares. `connected`: a
    connection exists or is being made. `wanted`: other transfers wait for its connection while it has no work.
    `idle_at`, `busy_at`: when it became idle, or began to fetch. `copy` is its newest partial copy, whose range may be
    changed; `draining` are earlier ones, whose missing bytes are all in flight.
    """

    index: int
    estimate: Estimate
    meter: RateMeter
    status: Status = "spare"
    share: Intervals = field(default_factory=Intervals)
    copy: int | None = None
    setup_seconds: float | None = None
    ranged: bool = True
    failures: int = 0
    resume_at: float = 0.0
    reason: str | None = None
    ready_at: float | None = None
    planned: int | None = None
    connected: bool = False
    wanted: bool = False
    idle_at: float = 0.0
    busy_at: float = 0.0
    draining: list[int] = field(default_factory=list)
    bytes: int = 0
    ended: list["RunningCopy"] = field(default_factory=list)
    busy_seconds: float = 0.0
    longest_gap: float = 0.0
    widening: Widening = field(default_factory=Widening)

    @property
    def usable(self) -> bool:
        """Return whether the source is in use, or will be again after a pause."""
        return self.status not in ("dropped", "spare")

    @property
    def answers(self) -> bool:
        """Return whether the source can be asked for checksums: it answered, and has not failed since."""
        return self.ready_at is not None and self.status not in ("connecting", "dropped", "pausing", "waiting")

    def learn_setup(self, seconds: float) -> None:
        """Update the set-up time with the seconds that a first byte took; the earlier value counts half."""
        known = self.setup_seconds
        self.setup_seconds = seconds if known is None else 0.5 * (known + seconds)

    def learn_wait(self, seconds: float) -> None:
        """Learn that a first byte takes longer than this: the range was given up after so many seconds."""
        self.setup_seconds = max(self.setup_seconds or 0.0, seconds)


@dataclass(slots=True)
class RunningCopy:
    """A partial copy: bytes [start, end) requested from one source. `end` may be lowered while it runs (`engine.span`).

    `received` counts the bytes it delivered, `bytes` those that no other copy had delivered before. `racing`: it is the
    second copy of its range. `skip`: parts of its range that were present already. `stolen_from`: another source took
    over some of its range. `queued`: it was requested while its source still delivered an earlier copy. `abandoned`: it
    was stopped, or failed. `held_at` is when its present wait for admission began, `held_seconds` the sum of earlier
    waits, and `went_on_at` the end of the last one.
    """

    id: int
    source: int
    start: int
    end: int
    requested_at: float
    first_byte_at: float | None = None
    last_byte_at: float | None = None
    skip: Sequence[tuple[int, int]] = ()
    queued: bool = False
    abandoned: bool = False
    received: int = 0
    bytes: int = 0
    racing: bool = False
    stolen_from: bool = False
    over_at: float | None = None
    ending: Ending | None = None
    held_at: float | None = None
    held_seconds: float = 0.0
    went_on_at: float = 0.0

    def go_on(self, now: float) -> None:
        """End the wait for admission."""
        self.held_seconds, self.held_at, self.went_on_at = self.held(now), None, now

    def held(self, now: float) -> float:
        """Return the seconds that the copy has waited for admission."""
        return self.held_seconds + (0.0 if self.held_at is None else now - self.held_at)

    def throttled(self, now: float) -> bool:
        """Return whether the rate limit, by its waits for admission, is the copy's bottleneck."""
        return self.held(now) > THROTTLED * (now - self.requested_at)

    @property
    def unanswered(self) -> bool:
        """Return whether nothing has arrived yet, although no earlier copy of its source is before it."""
        return self.last_byte_at is None and not self.queued

    @property
    def is_delivered(self) -> bool:
        """Return whether it has delivered all bytes of its range that were missing at its start."""
        present = sum(max(0, min(stop, self.end) - start) for start, stop in self.skip)
        return present + self.received >= self.end - self.start

    def silence(self, now: float) -> float:
        """Return the seconds since the last byte, the request or the last admission; 0 while waiting for admission."""
        if self.held_at is not None:
            return 0.0
        return now - max(self.requested_at, self.last_byte_at or 0.0, self.went_on_at)

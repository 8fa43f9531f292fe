"""The finish time of a running transfer: forecasts, and the number of sources that a deadline needs.

The decisions are those of `coalloc.guarantees`; this module takes their input from the state of the transfer. Time is
an argument.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Literal, NamedTuple

from coalloc.errors import DeadlineRefused
from coalloc.guarantees import LOOK
from coalloc.guarantees.deadline import (
    UNSURE,
    Grade,
    PathRate,
    finish,
    graded,
    paths_of,
    prospect,
    spares_needed,
    spread_of,
)
from coalloc.guarantees.finish import FinishErrors, FinishForecast
from coalloc.guarantees.windows import RateWindows
from coalloc.model.forecasts import Estimate
from coalloc.model.promises import Deadline, DeadlineReport, DeadlineView
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State
from coalloc.util import human

__all__ = ["FinishError", "Moment", "Outlook", "promised", "refused"]

RANGE = (0.05, 0.95)
"""Probabilities of the bounds that are displayed."""
SETTLED, SETTLED_PART = 5.0, 0.1
"""Seconds for which the chance must be below a limit before a warning; this part of the time left if that is less."""
RETRY = 30.0
"""Seconds that a user has to enter a command with a later deadline."""
RELEASE, RELEASES = 5.0, 3
"""Seconds for which fewer sources must be enough, without any later help, before others are released; how often that
happens at most.
"""
VERIFIED = 4e8
"""Bytes per second at which a file is verified after its last byte, which is part of the promise."""
ENDLESS = 3e8
"""Seconds beyond which a finish is not shown."""
LEARNT = 1.0
"""Minimum seconds of a forecast whose error is worth keeping."""

Moment = Literal["start", "running"]
"""When a forecast was made: before the first byte, or when half of the bytes had arrived."""


class FinishError(NamedTuple):
    """The error of one forecast, in units of its spread, as in `FinishForecast.error`."""

    moment: Moment
    error: float


class Outlook:
    """Forecasts of one transfer's finish, renewed at each look.

    :param own: errors of this user's earlier forecasts
    :param deadline: None if the transfer need not end at a certain time
    :param most: number of sources that may be used at once
    :param clock: seconds since the epoch, now
    """

    def __init__(self, own: Mapping[str, Sequence[float]], deadline: Deadline | None, most: int, clock: float) -> None:
        self._errors = {moment: FinishErrors(own.get(moment, ())) for moment in ("start", "running")}
        self._deadline = deadline
        self._most = most
        self._releases = 0
        self._windows: dict[int, RateWindows] = {}
        self._total = RateWindows()
        self._enough_since: float | None = None
        self._used: tuple[int, ...] = ()
        self._start: tuple[float, FinishForecast] | None = None
        self._half: tuple[float, FinishForecast] | None = None
        self._first = deadline and DeadlineView(deadline, clock)
        self._grade: Grade = "fine"
        self._since: tuple[Grade, float] | None = None
        self.warnings: list[DeadlineView] = []
        self.view: DeadlineView | None = None
        self.seconds: float | None = None
        self.bounds: tuple[float, float] | None = None

    def begin(self, left: int, estimates: Sequence[Estimate], name: str, now: float, clock: float) -> int:
        """Return the number of sources, the first ones, with which to begin.

        :param left: bytes that are missing
        :param now: seconds of a monotonic clock
        :param clock: seconds since the epoch
        :raises DeadlineRefused: if the deadline will probably not be kept even with all sources
        """
        paths = paths_of(estimates)
        if paths:
            self._start = now, finish(left, paths)
        if self._deadline is None or not paths:
            return len(estimates)
        self._first, needed = promised(self._deadline, left, paths, self._errors["start"], clock)
        if (self._first.chance or 0.0) >= self._deadline.sure:
            return needed if all(each.rate for each in estimates[:needed]) else len(estimates)
        if len(paths) == len(estimates):
            raise refused(name, self._first)
        return len(estimates)  # nothing is known about some of them: they are measured first

    def look(self, state: State, now: float, clock: float) -> int:
        """Renew the forecast; return the number of sources to use, at least 1, of which the first ones are preferred.

        :param now: seconds of a monotonic clock
        :param clock: seconds since the epoch
        """
        used = sorted(
            (source for source in state.sources if source.usable and source.status != "waiting"),
            key=lambda source: source.status != "fetching",
        )
        spares = [source for source in state.sources if source.status == "spare" and source.ranged]
        left = state.size - state.final.total
        self._measure(state, used, now)
        ahead = self.seconds if self.seconds and self.seconds < inf else LOOK
        paths = [self._path(source, state, ahead, now) for source in used]
        forecast = self._finish(left, paths, ahead)
        if self._half is None and 2 * left <= state.size and self._total.forecast(ahead):
            self._half = now, forecast
        if self._deadline is None:
            self._show(forecast)
            return max(1, len(used))
        others = [self._path(source, state, ahead, now) for source in spares][: max(0, self._most - len(used))]
        everything = self._finish(left, [*paths, *others], ahead)
        until = self._deadline.at - clock - reserve(state.size)
        sure, errors = self._deadline.sure, self._errors["running"]
        later = everything.within(sure, errors) + reserve(state.size)
        self.view = DeadlineView(
            self._deadline, clock, everything.chance(until, errors), clock + later if later < ENDLESS else None
        )
        self._warn(self.view, now)
        needed = spares_needed(left, until, paths, others, sure, errors, LOOK)
        self._show(self._finish(left, [*paths, *others[:needed]], ahead))
        if needed or not used:
            self._enough_since = None
            return max(1, len(used) + needed)
        delivering = sum(source.status == "fetching" for source in used)
        chances = (self._finish(left, paths[:count], ahead).chance(until, errors) for count in range(1, delivering))
        fewer = next((count for count, chance in enumerate(chances, 1) if chance >= sure), len(used))
        return self._released(len(used), fewer, now)

    def _released(self, used: int, fewer: int, now: float) -> int:
        """Return `fewer` sources if so few have been enough for some time: sources must not come and go."""
        if fewer >= used or self._releases == RELEASES:
            self._enough_since = None
            return used
        if self._enough_since is None:
            self._enough_since = now
        if now - self._enough_since < RELEASE:
            return used
        self._releases, self._enough_since = self._releases + 1, None
        return fewer

    def _measure(self, state: State, used: Sequence[ScheduledSource], now: float) -> None:
        """Add what has arrived to the windows of each source, and of all together."""
        for source in state.sources:
            windows = self._windows.setdefault(source.index, RateWindows())
            if source.status == "fetching":
                windows.add(source.bytes, now)
            else:
                windows.pause()
        indices = tuple(sorted(source.index for source in used))  # in one order, whichever of them fetch now
        if indices != self._used:
            self._total.restart(self.seconds or LOOK)
            self._used = indices
        self._total.add(state.final.total, now)

    def _path(self, source: ScheduledSource, state: State, ahead: float, now: float) -> PathRate:
        setup = 0.0 if source.status == "fetching" else state.setup(source)
        if source.status == "pausing":
            setup += max(0.0, source.resume_at - now)
        measured = self._windows[source.index].forecast(ahead)
        if measured and measured[0]:
            return PathRate(*measured, setup)
        known = source.meter.rate(now) or source.estimate.rate
        return PathRate(state.rate(source, now), spread_of(source.estimate) if known else UNSURE, setup)

    def _finish(self, left: int, paths: Sequence[PathRate], ahead: float) -> FinishForecast:
        """Return the forecast; sources that share a link vary together, which only their sum shows."""
        forecast, together = finish(left, paths), self._total.forecast(ahead)
        return forecast._replace(spread=max(forecast.spread, together[1])) if together else forecast

    def _show(self, forecast: FinishForecast) -> None:
        errors = self._errors["running"]
        self.seconds = forecast.seconds
        self.bounds = forecast.within(RANGE[0], errors), forecast.within(RANGE[1], errors)

    def _warn(self, view: DeadlineView, now: float) -> None:
        """Add a warning when the chance has been in another grade for some time."""
        grade = graded(view.chance or 0.0, self._grade, view.deadline.sure)
        if grade == self._grade:
            self._since = None
            return
        if self._since is None or self._since[0] != grade:
            self._since = grade, now
        if now - self._since[1] >= min(SETTLED, SETTLED_PART * max(0.0, view.deadline.at - view.moment)):
            self._grade, self._since = grade, None
            self.warnings.append(view)

    def report(self, ended: float | None, unused: int) -> DeadlineReport | None:
        """Return the deadline's part of the transfer's report.

        :param ended: when the file was complete, in seconds since the epoch; None if it is not
        :param unused: number of sources that sent nothing
        """
        return self._first and DeadlineReport(self._first, tuple(self.warnings), ended, unused)

    def errors(self, ended: float) -> list[FinishError]:
        """Return the errors of the forecasts of a transfer that has ended, at `ended` of the monotonic clock."""
        made: list[tuple[Moment, tuple[float, FinishForecast] | None]] = [
            ("start", self._start),
            ("running", self._half),
        ]
        return [
            FinishError(moment, forecast.error(ended - at))
            for moment, (at, forecast) in ((moment, each) for moment, each in made if each)
            if LEARNT <= forecast.seconds < inf and ended > at
        ]


def promised(
    deadline: Deadline, left: float, paths: Sequence[PathRate], errors: FinishErrors, clock: float
) -> tuple[DeadlineView, int]:
    """Return what is known about a deadline before a transfer, and the number of sources that suffice at its start."""
    seconds = deadline.at - clock - reserve(left)
    found = prospect(left, seconds, paths, deadline.sure, errors, LOOK)
    later = found.seconds + reserve(left)
    view = DeadlineView(deadline, clock, found.chance, clock + later if later < ENDLESS else None)
    return view, found.needed


def reserve(size: float) -> float:
    """Return the seconds to verify a file and to give it its name, after its last byte."""
    return LOOK + size / VERIFIED


def refused(name: str, view: DeadlineView) -> DeadlineRefused:
    """Return the error for a deadline that cannot be promised, with the earliest time that can."""
    assert view.chance is not None
    wanted = view.deadline
    return DeadlineRefused(
        f"{name} will be complete by {human.moment(wanted.at)} with a probability of {human.probability(view.chance)}, "
        f"not {100 * wanted.sure:g} %",
        f"use --by {human.moment(view.later + RETRY)}, a lower --sure, or more sources"
        if view.later
        else "use a lower --sure, or more sources",
    )

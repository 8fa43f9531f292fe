"""The rate that is promised to a reader: measured, promised or refused, and watched while it is read.

The decisions are those of `coalloc.guarantees`; this module takes their input from the state of the transfer. It is
pure: time is an argument.
"""

from collections.abc import Sequence
from math import exp, log
from typing import NamedTuple

from coalloc.errors import RateRefused
from coalloc.guarantees.admission import CONFIDENCE, AdmittedStream, RateRequest, admit
from coalloc.guarantees.contracts import KNOWN, LEAST, window_count
from coalloc.guarantees.deadline import UNSURE, Grade, graded
from coalloc.guarantees.finish import FinishErrors
from coalloc.guarantees.first_seconds import ReadingErrors, forecast_from_mean, mean_of_latest
from coalloc.guarantees.groups import PathGroup, joint_rates
from coalloc.guarantees.samples import LENGTH, PathSamples
from coalloc.guarantees.streams import Stream
from coalloc.model.promises import RateReport, RateView, ReadingRate
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State
from coalloc.util import human

__all__ = ["TICK", "NeededSources", "ReadingOutlook", "refused"]

TICK = 0.25
"""Seconds between two looks: half a window, as `PathSamples.add` wants it."""
WINDOWS = (4.0, 2.0, 1.0, 0.5)
"""Windows whose rates decide, in seconds: the longest that half of the buffer outlasts, if enough of them are known."""
BUSY = 0.999
"""Part of the time that a source must fetch, or its rate shows only what was asked of it."""
LOW = 0.25
"""Part of the buffer below which all sources are used."""
SETTLED = 5.0
"""Seconds for which the chance must have changed before a warning."""
DOWN = 0.99
"""Part of a possible rate that is offered, as it is rounded when it is shown."""
PATIENCE = 10.0
"""Seconds after the first byte for which a rate is measured before it is refused."""
ERRORS = ReadingErrors()
"""Errors of forecasts from the first seconds."""


class NeededSources(NamedTuple):
    """The sources to use from now on.

    :param most: their number
    :param preferred: their indices, the best ones first
    """

    most: int
    preferred: tuple[int, ...] = ()


class _Forecast(NamedTuple):
    """The outlook for a rate.

    :param sources: the sources that it needs, the best ones first; empty if all of them, or if it cannot be promised
    """

    view: RateView
    sources: tuple[int, ...]


class ReadingOutlook:
    """Forecasts of the rate that one reader can get, renewed at each look.

    First all sources fetch as fast as they can, to be measured, until enough is known or the buffer is full. Then the
    rate is promised with as few sources as it needs, or refused.

    :param room: bytes of the buffer
    :param clock: seconds since the epoch, now
    """

    def __init__(self, wanted: ReadingRate, room: int, clock: float) -> None:
        self._wanted = wanted
        self._room = room
        self._paths: dict[int, PathSamples] = {}
        self._bytes: dict[int, int] = {}
        self._busy: dict[int, float] = {}
        self._looked: float | None = None
        self._began: float | None = None
        self._first: RateView | None = None
        self._grade: Grade = "fine"
        self._since: tuple[Grade, float] | None = None
        self.view = RateView(wanted, clock)
        self.warnings: list[RateView] = []

    @property
    def promised(self) -> bool:
        """Return whether the rate has been promised."""
        return self._first is not None

    def look(self, state: State, front: int, reach: int, now: float, clock: float) -> NeededSources | None:
        """Renew the forecast; return the sources to use from now on, None for those as before.

        :param front: bytes that the reader has taken
        :param reach: bytes that have arrived without a gap
        :param now: seconds of a monotonic clock
        :raises RateRefused: if the rate cannot be promised
        """
        self._measure(state, now)
        if self._began is None and state.final.total:
            self._began = now
        forecast = self._forecast(state.size, front, reach, clock)
        if self._first is None:
            return self._decide(state, reach, forecast, now, clock)
        if forecast:
            self.view = forecast.view
            self._warn(now)
        low = reach - front < LOW * min(self._room, state.size - front)
        return NeededSources(len(state.sources)) if low or self._grade != "fine" else None

    def _measure(self, state: State, now: float) -> None:
        """Add what has arrived from each source since the last look; from its first bytes on."""
        since, self._looked = self._looked, now
        for source in state.sources:
            busy = source.busy_seconds + (now - source.busy_at if source.status == "fetching" else 0.0)
            fetched, used = source.bytes - self._bytes.get(source.index, 0), busy - self._busy.get(source.index, busy)
            if source.bytes:
                limited = since is None or used < BUSY * (now - since) or self._throttled(state, source, now)
                self._paths.setdefault(source.index, PathSamples()).add(fetched, now, limited)
            self._bytes[source.index], self._busy[source.index] = source.bytes, busy

    def _throttled(self, state: State, source: ScheduledSource, now: float) -> bool:
        return any(copy.throttled(now) for copy in state.all_running(source))

    def _decide(
        self, state: State, reach: int, forecast: "_Forecast | None", now: float, clock: float
    ) -> NeededSources | None:
        """Promise or refuse the rate, if enough is known."""
        if forecast is None and (self._began is None or reach < state.opened):
            return None
        self.view, sources = forecast or _Forecast(self._guessed(state, now, clock), ())
        if (self.view.chance or 0.0) >= CONFIDENCE:
            self._first = self.view
            return NeededSources(len(sources), sources) if sources else None
        if self._began is not None and (reach >= state.opened or now - self._began >= PATIENCE):
            raise refused(self.view)
        return None

    def _forecast(self, size: int, front: int, reach: int, clock: float) -> "_Forecast | None":
        """Return what is known about the rest; None while too little is known.

        What is in the buffer need not come any more, so the rest may come somewhat slower than it is read.
        """
        if reach == size:
            return _Forecast(RateView(self._wanted, clock, 1.0), ())
        groups = [PathGroup(str(index), [samples]) for index, samples in self._paths.items()]
        part, seconds = (size - reach) / (size - front), (size - front) / self._wanted.rate
        longest = self._room / self._wanted.rate / 2
        fitting = (window for window in WINDOWS if window <= longest or window == WINDOWS[-1])
        known = ((window, max(len(group.rates(window)) for group in groups)) for window in fitting if groups)
        window, number = next(((each, count) for each, count in known if count >= LEAST), (None, 0))
        if window is None:
            return None
        stream = Stream("reader", part * self._wanted.rate, self._wanted.share, window)
        request = RateRequest(stream, max(window, seconds))
        if number < min(KNOWN, 2 * window_count(stream, request.seconds)):
            return self._from_mean(groups, request, clock)
        (found,) = admit([request], groups)
        if isinstance(found, AdmittedStream):
            return _Forecast(RateView(self._wanted, clock, found.chance), tuple(map(int, found.parts)))
        return _Forecast(RateView(self._wanted, clock, found.chance, found.rate or None, found.probability), ())

    def _from_mean(self, groups: Sequence[PathGroup], request: RateRequest, clock: float) -> "_Forecast | None":
        """Return what the mean rate says while less is known than the past contracts that `admit` looks at."""
        ordered = sorted(groups, key=lambda group: -mean_of_latest(joint_rates([group], LENGTH), LENGTH))
        possible, chance = 0.0, None
        for number in range(1, len(ordered) + 1):
            forecast = forecast_from_mean(joint_rates(ordered[:number], LENGTH), LENGTH, request.seconds)
            if forecast is None:
                continue
            promised = forecast.promise(CONFIDENCE, ERRORS)
            chance = max(chance or 0.0, forecast.chance(request.rate, ERRORS))
            if promised >= request.rate:
                used = tuple(int(group.name) for group in ordered[:number])
                return _Forecast(RateView(self._wanted, clock, chance), used)
            possible = max(possible, promised)
        return None if chance is None else _Forecast(RateView(self._wanted, clock, chance, possible or None), ())

    def _guessed(self, state: State, now: float, clock: float) -> RateView:
        """Return what is known when the buffer was filled so soon that there are few measurements."""
        assert self._began is not None
        rate = state.final.total / max(TICK, now - self._began)
        errors = FinishErrors()
        possible = rate * exp(-UNSURE * errors.quantile(CONFIDENCE))
        return RateView(self._wanted, clock, errors.chance(log(rate / self._wanted.rate) / UNSURE), possible)

    def _warn(self, now: float) -> None:
        """Add a warning when the chance has been in another grade for some time."""
        grade = graded(self.view.chance or 0.0, self._grade, CONFIDENCE)
        if grade == self._grade:
            self._since = None
            return
        if self._since is None or self._since[0] != grade:
            self._since = grade, now
        if now - self._since[1] >= SETTLED:
            self._grade, self._since = grade, None
            self.warnings.append(self.view)

    def report(self, seconds: int, missed: int) -> RateReport:
        """Return the promise's part of the transfer's report.

        :param seconds: the seconds so far
        :param missed: those in which the reader got less
        """
        return RateReport(self._first or self.view, tuple(self.warnings), seconds, missed)


def refused(view: RateView) -> RateRefused:
    """Return the error for a rate that cannot be promised, with what can."""
    wanted, share = view.wanted, f"{100 * view.wanted.share:g} %"
    offers = []
    if view.possible:
        offers.append(f"--rate '{human.rate(DOWN * view.possible)}'")
    if view.share:
        offers.append(f"--sure {100 * view.share:g}")
    return RateRefused(
        f"{human.rate(wanted.rate)} in {share} of the seconds would be kept with a probability of "
        f"{human.probability(view.chance or 0.0)}, not {100 * CONFIDENCE:g} %",
        f"use {', or '.join([*offers, 'more sources'])}",
    )

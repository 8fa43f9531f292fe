"""The views and reports of a transfer: sources for a display, the final report, records for the history. Pure."""

from collections.abc import Container, Mapping, Sequence
from urllib.parse import urlsplit

from coalloc.errors import NoFreeConnection, ServerBusy, SourceError
from coalloc.history.route_values import MeasuredRoute
from coalloc.history.values import PastTransfer
from coalloc.model.progress import SourceState, SourceView
from coalloc.model.reports import Outcome, PartialCopy, SourceReport, TransferReport
from coalloc.schedule.sources import RunningCopy, ScheduledSource
from coalloc.schedule.state import State

__all__ = [
    "measured_routes",
    "past_transfers",
    "source_reports",
    "source_views",
    "unstarted_reports",
    "unstarted_views",
]

SLOW = 0.1
"""Share of the fastest source's rate below which a source is reported as slow."""
SILENT = 1.0
"""Seconds without a byte after which a fetching source is shown as stalled."""


def source_views(state: State, urls: Sequence[str], now: float) -> tuple[SourceView, ...]:
    """Return the current state of each source for a display."""
    whole = max(1, sum(source.bytes for source in state.sources))
    return tuple(
        SourceView(
            url=urls[source.index],
            state=_state(state, source, now),
            rate=_rate(state, source, now) if _flowing(state, source) else 0.0,
            bytes=source.bytes,
            share=source.bytes / whole,
            error=source.reason if source.status in ("dropped", "pausing", "waiting") else None,
        )
        for source in state.sources
    )


def source_reports(
    state: State, urls: Sequence[str], bad: Mapping[int, str], began: float, until: float
) -> tuple[SourceReport, ...]:
    """Return each source's part in the whole transfer.

    :param bad: the sources whose bytes were wrong, with the reason
    :param began: time at which the transfer began
    :param until: time of the last byte, or now; idle time counts up to it
    """
    busy = {source.index: _busy(state, source, until) for source in state.sources}
    unlimited = {source.index: _busy(state, source, until, held=False) for source in state.sources}
    rates = {source.index: source.bytes / busy[source.index] for source in state.sources if busy[source.index] > 0}
    paces = {
        source.index: source.bytes / unlimited[source.index] for source in state.sources if unlimited[source.index] > 0
    }
    fastest = max(paces.values(), default=0.0)
    return tuple(
        SourceReport(
            url=urls[source.index],
            bytes=source.bytes,
            seconds=busy[source.index],
            rate=rates.get(source.index, 0.0),
            ranges=len(state.copies_of(source)),
            streams=source.widening.streams,
            idle_seconds=0.0 if source.ready_at is None else max(0.0, until - source.ready_at - busy[source.index]),
            setup_seconds=source.setup_seconds if source.bytes else None,
            outcome=_outcome(source, bad, paces.get(source.index, 0.0) < SLOW * fastest),
            error=bad.get(source.index) or source.reason,
            copies=tuple(_partial_copy(copy, began) for copy in state.copies_of(source)),
            ready_seconds=None if source.ready_at is None else source.ready_at - began,
            estimate=source.estimate,
            planned_bytes=source.planned,
            held_seconds=busy[source.index] - unlimited[source.index],
        )
        for source in state.sources
    )


def unstarted_views(urls: Sequence[str], errors: Mapping[int, SourceError]) -> tuple[SourceView, ...]:
    """Return the sources of a transfer before any has answered; `errors` are of the sources that failed."""
    return tuple(_unstarted_view(url, errors.get(i)) for i, url in enumerate(urls))


def _unstarted_view(url: str, error: SourceError | None) -> SourceView:
    match error:
        case None:
            return SourceView(url, "connecting")
        case NoFreeConnection():
            return SourceView(url, "waiting", error=str(error))
        case ServerBusy():
            return SourceView(url, "pausing", error=str(error))
        case _:
            return SourceView(url, "dropped", error=str(error))


def unstarted_reports(urls: Sequence[str], errors: Mapping[int, SourceError]) -> tuple[SourceReport, ...]:
    """Return the sources of a transfer that did not begin; `errors` are of the sources that could not be used."""
    return tuple(_unstarted_report(url, errors.get(i)) for i, url in enumerate(urls))


def _unstarted_report(url: str, error: SourceError | None) -> SourceReport:
    if error is None:
        return SourceReport(url)
    failed = not isinstance(error, NoFreeConnection)  # a lack of free connections is not the source's failure
    return SourceReport(url, outcome="failed" if failed else "unused", error=error.message)


def _partial_copy(copy: RunningCopy, began: float) -> PartialCopy:
    moments = (copy.first_byte_at, copy.last_byte_at, copy.over_at)
    first, last, over = (None if at is None else at - began for at in moments)
    return PartialCopy(copy.start, copy.end, copy.bytes, copy.requested_at - began, first, last, over, copy.ending)


def _outcome(source: ScheduledSource, bad: Container[int], slow: bool) -> Outcome:
    if source.index in bad:
        return "corrupt"
    if source.status == "dropped" or (source.status == "pausing" and not source.bytes):
        return "failed"
    if not source.bytes:
        return "unused"
    return "slow" if slow else "ok"


def _busy(state: State, source: ScheduledSource, now: float, held: bool = True) -> float:
    """Return the seconds in which a source had work; without the waits for its rate limit, unless `held`."""
    copy = state.running(source)
    busy = source.busy_seconds + (now - source.busy_at if copy else 0.0)
    return busy if held else busy - sum(copy.held(now) for copy in state.copies_of(source))


def _rate(state: State, source: ScheduledSource, now: float) -> float:
    """Return the current rate of a source. If a limit throttles it, return the mean rate, as bytes come in bursts."""
    copy = state.running(source)
    busy = _busy(state, source, now)
    if copy is not None and copy.throttled(now) and busy > 0.0:
        return source.bytes / busy
    return source.meter.rate(now) or 0.0


def _flowing(state: State, source: ScheduledSource) -> bool:
    return any(copy.last_byte_at is not None for copy in state.all_running(source))


def _state(state: State, source: ScheduledSource, now: float) -> SourceState:
    copy = state.running(source)
    if copy is not None:
        return "stalled" if copy.silence(now) > SILENT else "fetching"
    if source.status in ("connecting", "waiting", "pausing", "dropped"):
        return source.status
    return "idle"


def past_transfers(report: TransferReport, began: float, streams: int | None) -> list[PastTransfer]:
    """Return the history's records of a transfer.

    :param began: seconds since the epoch
    :param streams: number of streams per source, if the user set it
    """
    return [
        PastTransfer(
            url=source.url,
            start=began,
            end=began + report.seconds,
            bytes=source.bytes,
            busy_seconds=source.seconds - source.held_seconds,  # a limited rate says nothing about the path
            setup_seconds=source.setup_seconds,
            ranges=source.ranges,
            streams=streams or source.streams,
            strategy=report.strategy,
            outcome=source.outcome,
            error=source.error,
        )
        for source in report.sources
    ]


def measured_routes(report: TransferReport, began: float) -> list[MeasuredRoute]:
    """Return the measurements of routes in a transfer.

    :param began: time at which it began, in seconds since the epoch
    """
    return [
        MeasuredRoute(*server, began + report.seconds, use)
        for source in report.sources
        if (server := _server(source.url))
        for use in source.routes
    ]


def _server(url: str) -> tuple[str, str] | None:
    """Return scheme and host of a URL; None if it has none."""
    parts = urlsplit(url)
    return (parts.scheme, parts.hostname) if parts.hostname else None

"""The decision behind a transfer: the replicas, their forecasts, the assigned ranges, and the results. Pure.

Clients report it to their broker, which stores it, in the body of `POST /broker/v1/decisions`.
"""

from collections.abc import Sequence
from itertools import groupby
from math import ceil
from typing import Any

from coalloc.history.values import source_key
from coalloc.model.reports import PartialCopy, SourceReport, TransferReport
from coalloc.safe_text import one_line, without_query

__all__ = ["LARGE", "LONGEST", "LONGEST_NAME", "MOST", "MOST_SOURCES", "Document", "decision", "worth_reporting"]

Document = dict[str, Any]

LARGE = 8 << 20
"""Minimum bytes moved by a reported transfer with one source."""
CHOSEN = 1 << 20
"""Minimum bytes moved by a reported transfer with several sources; thousands of smaller ones would be of no use."""
MOST = 2000
"""Most ranges of one transfer; beyond that, neighbours are merged."""
MOST_SOURCES = 100
LONGEST, LONGEST_NAME = 500, 2000
"""Characters of a remark, and of a name."""
MOMENT = 0.1
"""Minimum seconds of data flow that show a source's rate without its set-up."""
WORST = ("failed", "stalled", "shortened", "whole")


def worth_reporting(report: TransferReport) -> bool:
    """Return whether the transfer is worth a report: it moved bytes, and it is large, or there was a choice."""
    moved = report.size - report.resumed_bytes
    return moved >= LARGE or (moved >= CHOSEN and len(report.sources) > 1)


def decision(
    report: TransferReport, error: str | None, began: float, key: str, kind: str, thing: str, sink: str
) -> Document:
    """Return the document of a transfer's decision and its results.

    :param error: the reason, if the transfer failed
    :param began: seconds since the epoch
    :param key: identifier that is unique for its reporter
    :param kind: download or copy
    :param thing: the dataset, or the file's name
    :param sink: the destination: a site, or empty
    """
    sources = report.sources[:MOST_SOURCES]
    ranges = _thinned(sources)
    return {
        "id": key,
        "at": began,
        "kind": kind,
        "thing": one_line(thing, LONGEST_NAME),
        "sink": sink,
        "bytes": report.size,
        "moved": report.size - report.resumed_bytes,
        "strategy": report.strategy,
        "rationale": one_line(report.rationale, LONGEST),
        "outcome": "ok" if error is None else "failed",
        "error": error and one_line(error, LONGEST),
        "seconds": report.seconds,
        "fetch_seconds": max((each["last"] or each["asked"] for each in ranges), default=report.seconds),
        "sources": [_source(source) for source in sources],
        "ranges": ranges,
        "range_count": sum(len(source.copies) for source in sources),
    }


def _source(source: SourceReport) -> Document:
    low, high = source.estimate.bounds or (None, None)
    start, flow = _shown(source)
    return {
        "source": source_key(source.url),
        "url": one_line(without_query(source.url), LONGEST_NAME),
        "rate": {"p10": low, "p50": source.estimate.rate, "p90": high} if source.estimate.rate else None,
        "setup_expected": source.estimate.setup_seconds,
        "reason": one_line(source.estimate.reason, LONGEST),
        "planned_bytes": source.planned_bytes,
        "bytes": source.bytes,
        "seconds": source.seconds,
        "setup_seconds": source.setup_seconds,
        "start_seconds": start,
        "flow_seconds": flow,
        "streams": max(1, source.streams),
        "outcome": source.outcome,
        "error": one_line(source.error, LONGEST) if source.error else None,
    }


def _shown(source: SourceReport) -> tuple[float | None, float]:
    """Return the seconds until a source could send its first byte, and the seconds for which it then sent.

    If it sent too briefly to show a rate, the second value includes the set-up.
    """
    flow = sum(copy.last_byte - copy.first_byte for copy in source.copies if copy.last_byte and copy.first_byte)
    if flow < MOMENT or source.ready_seconds is None:
        return source.ready_seconds, source.seconds
    setups = [copy.first_byte - copy.asked for copy in source.copies if copy.first_byte]
    return source.ready_seconds + min(setups), flow


def _thinned(sources: Sequence[SourceReport]) -> list[Document]:
    """Return the ranges of each source in the order of the requests; merge neighbours if there are too many.

    Merging preserves all bytes and seconds, but not the boundaries; the worst ending is reported.
    """
    count = sum(len(source.copies) for source in sources)
    together = max(1, ceil(count / max(1, MOST - len(sources)))) if count > MOST else 1
    return [
        _range(i, [copy for _, copy in some])
        for i, source in enumerate(sources)
        for _, some in groupby(enumerate(source.copies), lambda numbered: numbered[0] // together)
    ]


def _range(source: int, copies: Sequence[PartialCopy]) -> Document:
    firsts = [copy.first_byte for copy in copies if copy.first_byte is not None]
    lasts = [copy.last_byte for copy in copies if copy.last_byte is not None]
    endings = {copy.ending for copy in copies}
    return {
        "source": source,
        "start": min(copy.start for copy in copies),
        "end": max(copy.end for copy in copies),
        "bytes": sum(copy.bytes for copy in copies),
        "asked": copies[0].asked,
        "first": min(firsts, default=None),
        "last": max(lasts, default=None),
        "over": copies[-1].over,
        "ending": next((ending for ending in WORST if ending in endings), None),
        "count": len(copies),
    }

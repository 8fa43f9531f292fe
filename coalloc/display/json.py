"""The documents of `--json`. Their keys are stable, because programs read them.

Sizes are bytes, rates bytes per second, times seconds. Passwords in URLs are never shown.
"""

from collections.abc import Sequence
from typing import Any

from coalloc.collect.values import Collected, CollectReport, PairReport
from coalloc.download.many import FileResult
from coalloc.errors import CoallocError
from coalloc.model.checksums import Checksum
from coalloc.model.plans import Plan, PlannedShare
from coalloc.model.promises import DeadlineReport, DeadlineView, RateReport
from coalloc.model.reports import Results, SourceReport, TransferReport
from coalloc.safe_text import redact

__all__ = ["Document", "collection", "error_document", "file_result", "plans", "transfers", "unfinished"]

Document = dict[str, Any]


def transfers(reports: Sequence[TransferReport]) -> Document:
    """Return the results of transfers: one object for one file, `{"files": [...]}` for several."""
    return _one_or_files([_transfer(report) for report in reports])


def plans(made: Sequence[Plan]) -> Document:
    """Return the plans of transfers: one object for one file, `{"files": [...]}` for several."""
    return _one_or_files([_plan(plan) for plan in made])


def collection(report: CollectReport) -> Document:
    """Return the results of a collect job."""
    return {
        "output": report.output,
        "size": report.size,
        "seconds": report.seconds,
        "method": report.method,
        "rationale": report.rationale,
        "planned_seconds": report.planned_seconds,
        "direct_seconds": report.direct_seconds,
        "there_bytes": report.there_bytes,
        "duplicate_bytes": report.duplicate_bytes,
        "mended_bytes": report.mended_bytes,
        "staged_bytes": report.staged_bytes,
        "peaks": dict(report.peaks),
        "files": [_collected(file) for file in report.files],
        "pairs": [_pair(pair) for pair in report.pairs],
        "gone": dict(report.gone),
        "left": [each._asdict() for each in report.left],
        "cleared": list(report.cleared),
        "loops": list(report.loops),
        "guarantees": {pattern: _promised_rate(each) for pattern, each in report.guarantees.items()},
        "unused": dict(report.unused),
    }


def _promised_rate(report: RateReport) -> Document:
    first = report.first
    return {
        "rate": first.wanted.rate,
        "share": first.wanted.share,
        "moment": first.moment,
        "probability": first.chance,
        "possible": first.possible,
        "kept": report.kept if report.is_promised else None,
        "seconds": report.seconds,
        "missed": report.missed,
    }


def unfinished(results: Results[TransferReport]) -> Document:
    """Return the results of failed or cancelled transfers: `{"files": [...]}` if several files were requested."""
    if results.several:
        return {"files": [_transfer(report) for report in results.known]}
    return _transfer(results.known[0]) if results.known else {}


def file_result(result: FileResult) -> Document:
    """Return the result of one of many files; after a failure, with `error`."""
    known = _transfer(result.report) if result.report else {"output": result.name}
    return {**known, "error": error_document(result.error)} if result.error else known


def error_document(error: CoallocError) -> Document:
    """Return an error as part of a document."""
    return {"code": error.code, "message": error.message, "remedy": error.remedy, "transient": error.transient}


def _one_or_files(documents: list[Document]) -> Document:
    return documents[0] if len(documents) == 1 else {"files": documents}


def _transfer(report: TransferReport) -> Document:
    checksum = report.checksum
    return {
        "output": report.output,
        "size": report.size,
        "seconds": report.seconds,
        "rate": report.rate,
        "strategy": report.strategy,
        "resumed_bytes": report.resumed_bytes,
        "duplicate_bytes": report.duplicate_bytes,
        "checksum": {**_checksum(checksum), "verified": report.verified, "basis": report.basis},
        "rationale": report.rationale,
        "sources": [_source(source) for source in report.sources],
        **({"deadline": _deadline(report.deadline)} if report.deadline else {}),
    }


def _deadline(report: DeadlineReport) -> Document:
    return {
        **_outlook(report.first),
        "kept": report.kept,
        "ended": report.ended,
        "spared_sources": report.spared,
        "guarantee": report.guarantee,
        "guarantee_over": report.is_over,
        "warnings": [_outlook(view) for view in report.warnings],
    }


def _outlook(view: DeadlineView) -> Document:
    return {
        "by": view.deadline.at,
        "sure": view.deadline.sure,
        "moment": view.moment,
        "probability": view.chance,
        "sure_by": view.later,
    }


def _pair(pair: PairReport) -> Document:
    return {**pair._asdict(), "stretches": [each._asdict() for each in pair.stretches]}


def _collected(file: Collected) -> Document:
    return {
        "name": file.name,
        "output": file.output,
        "size": file.size,
        "outcome": file.outcome,
        "seconds": file.seconds,
        "checksum": {**_checksum(file.checksum), "verified": file.verified},
        "error": file.error,
    }


def _checksum(checksum: Checksum | None) -> Document:
    return {"algorithm": checksum and checksum.algorithm, "value": checksum and checksum.value}


def _source(source: SourceReport) -> Document:
    return {
        "url": redact(source.url),
        "bytes": source.bytes,
        "seconds": source.seconds,
        "rate": source.rate,
        "ranges": source.ranges,
        "streams": source.streams,
        "idle_seconds": source.idle_seconds,
        "held_seconds": source.held_seconds,
        "outcome": source.outcome,
        "error": source.error,
        "planned_bytes": source.planned_bytes,
        "ready_seconds": source.ready_seconds,
        "copies": [copy._asdict() for copy in source.copies],
        "routes": [use._asdict() for use in source.routes],
        "unused_checksums": list(source.unused_checksums),
        "named_by": source.named_by,
    }


def _plan(plan: Plan) -> Document:
    return {
        "name": plan.name,
        "size": plan.size,
        "strategy": plan.strategy,
        "seconds": plan.seconds,
        "seconds_p10_p90": plan.bounds,
        "rationale": plan.rationale,
        "checksums": [_checksum(checksum) for checksum in plan.checksums],
        "shares": [_share(share) for share in plan.shares],
        **({"deadline": {**_outlook(plan.deadline), "sources": plan.needed}} if plan.deadline else {}),
    }


def _share(share: PlannedShare) -> Document:
    return {
        "url": redact(share.url),
        "bytes": share.bytes,
        "fraction": share.fraction,
        "setup_seconds": share.estimate.setup_seconds,
        "rate": share.estimate.rate,
        "rate_p10_p90": share.estimate.bounds,
        "reason": share.estimate.reason,
        "priority": share.priority,
        "routes": [route._asdict() for route in share.routes],
        "error": share.error,
    }

"""The decision behind a collect job, in which each pair of hosts counts as a source. Pure."""

from coalloc.broker_client.decision import LARGE, LONGEST, LONGEST_NAME, MOST, MOST_SOURCES, Document
from coalloc.collect.values import HERE, CollectReport, PairReport
from coalloc.history.values import source_key
from coalloc.safe_text import one_line

__all__ = ["collected"]


def collected(report: CollectReport, error: str | None, began: float, key: str, site: str) -> Document | None:
    """Return the document of a collect job's decision and results; None if it is not worth a report.

    :param site: the site of this machine
    """
    pairs = [pair for pair in report.pairs if "://" in pair.source][:MOST_SOURCES]
    if report.size < LARGE or not any(pair.bytes for pair in pairs):
        return None
    here = any(pair.sink == HERE for pair in pairs)
    hops = [each for i, pair in enumerate(pairs) for each in _stretches(i, pair)]
    return {
        "id": key,
        "at": began,
        "kind": "collect",
        "thing": one_line(f"{_counted(len(report.files))}{'' if here else f' to {report.output}'}", LONGEST_NAME),
        "sink": site if here else "",
        "bytes": report.size,
        "moved": max(0, report.size - report.there_bytes),
        "strategy": report.method,
        "rationale": one_line(report.rationale, LONGEST),
        "outcome": "ok" if error is None else "failed",
        "error": error and one_line(error, LONGEST),
        "seconds": report.seconds,
        "fetch_seconds": max((each["over"] for each in hops), default=report.seconds),
        "sources": [_hop(pair, pair.source in report.gone or pair.sink in report.gone) for pair in pairs],
        "ranges": hops[:MOST],
        "range_count": sum(each["count"] for each in hops),
    }


def _counted(files: int) -> str:
    return f"{files:,} files" if files > 1 else "a file"


def _hop(pair: PairReport, gone: bool) -> Document:
    return {
        "source": source_key(pair.source),
        "url": one_line(f"{pair.source} to {pair.sink}", LONGEST_NAME),
        "bytes": pair.bytes,
        "seconds": pair.seconds,
        "flow_seconds": pair.seconds,
        "outcome": "failed" if gone else "ok" if pair.bytes else "unused",
        "error": one_line(pair.error, LONGEST) if pair.error else None,
    }


def _stretches(number: int, pair: PairReport) -> list[Document]:
    return [
        {
            "source": number,
            "start": 0,
            "end": each.bytes,
            "bytes": each.bytes,
            "asked": max(0.0, each.begin),
            "first": max(0.0, each.begin),
            "last": max(0.0, each.end),
            "over": max(0.0, each.end),
            "ending": "whole",
            "count": max(1, each.pieces),
        }
        for each in pair.stretches
    ]

"""A collect job as text: lines while it runs, and a report at the end."""

from typing import TextIO

from coalloc.collect.values import Collected, CollectReport, CollectView, PairView
from coalloc.display import promises
from coalloc.display.table import ReportPrinter, table
from coalloc.display.text import TextLog
from coalloc.model.promises import RateReport
from coalloc.util import human

__all__ = ["CollectionLines", "files", "headline", "pair", "print_collection"]

SHOWN = 5
"""Maximum number of unused replicas that are named."""


class CollectionLines(TextLog[CollectView]):
    """A printer that writes the events of a collect job to `file`."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, line, _troubles)


def line(view: CollectView) -> str:
    """Return the whole state in one line."""
    name = human.one_line(view.name)
    if view.phase != "collecting" or not view.size:
        return f"{name}: {view.phase}"
    parts = [
        f"{name}: {human.percent(view.done_bytes, view.size)}",
        f"{human.size(view.done_bytes)} of {human.size(view.size)}",
        files(view),
        human.rate(view.rate),
    ]
    if view.eta_seconds is not None:
        parts.append(f"{human.duration(view.eta_seconds)} left")
    return ", ".join(parts)


def files(view: CollectView) -> str:
    """Return how many of the files are complete."""
    return f"{view.files_done:,} of {human.counted(view.files, 'file')}"


def pair(each: PairView) -> str:
    """Return the two hosts of a link, from -> to."""
    return f"{human.host(each.source)} -> {human.host(each.sink)}"


def _troubles(view: CollectView) -> list[tuple[object, str]]:
    return [
        *(
            ((pattern, each.kept), f"{human.one_line(pattern)}: {text}")
            for pattern, each in view.guarantees.items()
            if (text := _state(each))
        ),
        *(
            ((each.source, each.sink, each.error), f"{pair(each)}: {human.one_line(each.error)}")
            for each in view.pairs
            if each.error
        ),
    ]


def _state(report: RateReport) -> str | None:
    """Return what was promised to a class, or that it is not kept; None before the promise."""
    if not report.kept:
        return promises.result(report)
    return promises.outlook(report.first) if report.is_promised else None


def print_collection(report: CollectReport, file: TextIO) -> None:
    """Print a report on `file`."""
    out = ReportPrinter(file)
    for text in (headline(report), verification(report), report.rationale and f"{report.method}: {report.rationale}"):
        if text:
            out.print(human.one_line(text))
    rows = [
        (
            f"{human.host(each.source)} -> {human.host(each.sink)}",
            human.size(each.bytes),
            human.counted(each.pieces, "piece"),
            human.rate(each.rate) if each.bytes else "-",
        )
        for each in report.pairs
    ]
    if rows:
        out.print(table(("from -> to", ">bytes", ">pieces", ">rate"), rows))
    for pattern, each in report.guarantees.items():
        text = promises.result(each) if each.is_promised else promises.outlook(each.first)
        out.print(human.one_line(f"{pattern}: {text}"))
    for text in troubles(report):
        out.print(human.one_line(text))


def headline(report: CollectReport) -> str:
    """Return the output, the bytes and the time, and the bytes that were duplicated, staged or already present."""
    count = human.counted(len(report.files), "file")
    took = f"{count}, {human.size(report.size)} in {human.duration(report.seconds)}"
    parts = [f"{human.one_line(report.output)}: {took} ({report.method or 'not begun'})"]
    if report.planned_seconds:
        parts.append(f"the plan was {human.duration(report.planned_seconds)}")
    if report.direct_seconds:
        parts.append(f"without relays {human.duration(report.direct_seconds)}")
    for count_of, what in (
        (report.there_bytes, "existed already"),
        (report.staged_bytes, "went over relays"),
        (report.duplicate_bytes, "were received twice"),
        (report.mended_bytes, "were wrong, and were fetched again from their origin"),
    ):
        if count_of:
            parts.append(f"{human.size(count_of)} {what}")
    return "; ".join(parts)


def verification(report: CollectReport) -> str:
    """Return how many files are verified, not verified and missing."""
    there = [each for each in report.files if each.outcome != "missing"]
    unsure = sum(not each.verified for each in there)
    parts = [f"{len(there) - unsure} verified"]
    if unsure:
        parts.append(f"{unsure} not verified, as their servers do not support checksums")
    if missing := len(report.files) - len(there):
        parts.append(f"{missing} missing")
    return ", ".join(parts)


def troubles(report: CollectReport) -> list[str]:
    """Return one line for each lost host, each error, and each path that was cleared or left behind.

    If a file is missing, also name some replicas that are not used.
    """
    missing = any(file.outcome == "missing" for file in report.files)
    unused = list(report.unused.items()) if missing else []
    return [
        *(f"{human.host(host)} was lost: {reason}" for host, reason in report.gone.items()),
        *map(_trouble, (each for each in report.files if each.error)),
        *(f"{url} is not used: {reason}" for url, reason in unused[:SHOWN]),
        *([f"{len(unused) - SHOWN} more replicas are not used"] if len(unused) > SHOWN else []),
        *(f"removed, as a run that was killed had left it: {where}" for where in report.cleared),
        *(f"left behind: {each.where}: {each.reason}" for each in report.left),
    ]


def _trouble(file: Collected) -> str:
    return f"{file.name}: {file.error}"

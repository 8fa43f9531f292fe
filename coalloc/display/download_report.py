"""The report of a transfer for users: a line on the file, a line on its verification, a table of its sources."""

from collections.abc import Mapping, Sequence
from typing import TextIO

from coalloc.display.promises import result
from coalloc.display.table import ReportPrinter, TextTable, table
from coalloc.model.checksums import Basis
from coalloc.model.reports import SourceReport, TransferReport
from coalloc.util import human

__all__ = ["print_reports"]

KINDS: Mapping[Basis, str] = {
    "given": "verified",
    "agree": "verified, replicas agree",
    "own word": "not verified, only its own server confirms the checksum",
    "none": "not verified, nothing to compare with",
}


def print_reports(reports: Sequence[TransferReport], file: TextIO) -> None:
    """Print each report on `file`."""
    out = ReportPrinter(file)
    for report in reports:
        promises = [result(promise) for promise in (report.deadline, report.reading) if promise]
        for text in (headline(report), verification(report), *promises, report.rationale, report.notice):
            if text:
                out.print(human.one_line(text))
        out.print(sources_table(report.sources))
        if named := named_by(report.sources):
            out.print(human.one_line(named))
        for text in troubles(report.sources):
            out.print(text)


def headline(report: TransferReport) -> str:
    """Return the file, its size, time and rate, and the bytes that were present before or arrived twice."""
    if report.there:
        size, took = human.size(report.size), human.duration(report.seconds)
        return f"{human.one_line(report.output)}: nothing to fetch, all {size} were already here (found in {took})"
    took = f"{human.size(report.size)} in {human.duration(report.seconds)}"
    parts = [f"{human.one_line(report.output)}: {took}, {human.rate(report.rate)} ({report.strategy})"]
    if report.resumed_bytes:
        parts.append(f"{human.size(report.resumed_bytes)} were already here")
    if report.duplicate_bytes:
        parts.append(f"{human.size(report.duplicate_bytes)} were received twice")
    return "; ".join(parts)


def verification(report: TransferReport) -> str:
    """Return the state of the verification, and the checksum."""
    if report.checksum is None:
        return "verified" if report.verified else "not verified: no checksum was stored"
    return f"{KINDS[report.basis]}: {report.checksum.algorithm} {report.checksum.value}"


def sources_table(sources: Sequence[SourceReport]) -> TextTable:
    """Return a table with one row per source, in the order in which they were named."""
    total = sum(source.bytes for source in sources)
    names = human.labels([source.url for source in sources])
    rows = [
        (
            name,
            human.percent(source.bytes, total) if total else "-",
            human.size(source.bytes),
            human.rate(source.rate) if source.bytes else "-",
            source.outcome,
        )
        for name, source in zip(names, sources, strict=True)
    ]
    return table(("source", ">share", ">bytes", ">rate", "outcome"), rows)


def named_by(sources: Sequence[SourceReport]) -> str:
    """Return the number of sources that servers named, and where they did; empty if there are none."""
    places = [source.named_by for source in sources if source.named_by]
    return f"{human.counted(len(places), 'source')} named by {', '.join(dict.fromkeys(places))}" if places else ""


def troubles(sources: Sequence[SourceReport]) -> list[str]:
    """Return one line for each source that had an error, or states checksums that say nothing about the file."""
    labelled = list(zip(human.labels([source.url for source in sources]), sources, strict=True))
    return [
        *(human.about(name, source.url, source.error) for name, source in labelled if source.error),
        *(
            human.about(name, source.url, f"unused checksums: {', '.join(source.unused_checksums)}")
            for name, source in labelled
            if source.unused_checksums
        ),
    ]

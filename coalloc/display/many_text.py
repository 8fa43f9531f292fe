"""The fetch of many files as text: lines while it runs, and a summary at the end."""

from collections import Counter
from typing import TextIO

from coalloc.display.table import ReportPrinter
from coalloc.display.text import TextLog
from coalloc.download.many import FileResult, ManyView
from coalloc.model.checksums import Basis
from coalloc.util import human

__all__ = ["ManyLines", "ManyTotals", "files", "print_totals"]

CHECKED: dict[Basis, str] = {
    "given": "verified",
    "agree": "verified (replicas agree)",
    "own word": "confirmed only by their own server",
    "none": "not verified",
}


class ManyLines(TextLog[ManyView]):
    """A printer that writes the progress of many files."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, line, _troubles)


def line(view: ManyView) -> str:
    """Return the whole state in one line."""
    parts = [f"{human.one_line(view.name)}: {files(view)}", human.size(view.done_bytes), human.rate(view.rate)]
    if view.eta_seconds is not None and view.phase != "done":
        parts.append(human.remaining(view.eta_seconds))
    return ", ".join(parts)


def files(view: ManyView) -> str:
    """Return how many of the files are complete, and how many have failed."""
    failed = f", {view.files_failed:,} failed" if view.files_failed else ""
    return f"{view.files_done:,} of {human.counted(view.files, 'file')}{failed}"


def _troubles(view: ManyView) -> list[tuple[object, str]]:
    return [(name, f"{name}: {message}") for name, message in view.failures]


class ManyTotals:
    """The sums of the results of many files."""

    def __init__(self) -> None:
        self.files = self.failed = self.there = self.bytes = 0
        self.bases = Counter[Basis]()

    def add(self, result: FileResult) -> None:
        """Add a result."""
        self.files += 1
        if result.error or result.report is None:
            self.failed += 1
            return
        self.there += result.report.there
        self.bytes += sum(source.bytes for source in result.report.sources)
        if not result.report.there:
            self.bases[result.report.basis] += 1


def print_totals(totals: ManyTotals, output: str, seconds: float, file: TextIO) -> None:
    """Print the sums on `file`."""
    out = ReportPrinter(file)
    took = f"{human.size(totals.bytes)} in {human.duration(seconds)}, {human.rate(totals.bytes / seconds)}"
    parts = [f"{output}: {totals.files - totals.failed:,} of {human.counted(totals.files, 'file')}, {took}"]
    if totals.there:
        parts.append(f"{totals.there:,} were here already")
    out.print(human.one_line("; ".join(parts)))
    checked = [f"{count:,} {CHECKED[basis]}" for basis, count in sorted(totals.bases.items())]
    if checked:
        out.print(", ".join(checked))

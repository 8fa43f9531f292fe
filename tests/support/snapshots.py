"""Snapshots of a transfer, for tests of the progress displays.

    python -m tests.support.snapshots [SOURCES] [SECONDS]

shows such a transfer on this terminal.
"""

import sys
import time
from collections.abc import Iterator

from coalloc.model.progress import Snapshot, SourceView
from coalloc.model.reports import SourceReport, TransferReport
from coalloc.safe_text import redact

SIZE = 10_000_000_000
LONG_HOST = "gridftp-door-{:02d}.data-transfer.tier1.research-institute.example.org"


def url(index: int) -> str:
    """Return the URL of a source, alternately with a long host name and with a password."""
    host = LONG_HOST.format(index) if index % 2 == 0 else f"user:secret@se{index:02d}.example:2811"
    return f"ftp://{host}/store/run 7/file.root"


def snapshot(done: float, seconds: float, sources: int = 3, **changes) -> Snapshot:
    """Return a snapshot of a transfer whose second source was dropped.

    :param done: share of `SIZE` that has arrived
    :param seconds: time since the start
    :param changes: other values of fields
    """
    rate = SIZE / 80
    parts = [0.0 if index == 1 else 1 / max(1, sources - 1) for index in range(sources)]
    views = tuple(
        SourceView(url(index), "fetching", rate * part, int(SIZE * done * part), part)
        if part
        else SourceView(url(index), "dropped", error=f"{redact(url(index))}: no such file")
        for index, part in enumerate(parts)
    )
    values = {
        "name": "file.root",
        "phase": "fetching",
        "seconds": seconds,
        "done_bytes": int(SIZE * done),
        "size": SIZE,
        "rate": rate,
        "eta_seconds": (1 - done) * 80,
        "sources": views,
    }
    return Snapshot(**(values | changes))


def stream(sources: int = 3, seconds: float = 80.0, steps: int = 800) -> Iterator[Snapshot]:
    """Yield the snapshots of a whole transfer."""
    yield Snapshot(
        "file.root", "connecting", 0.0, sources=tuple(SourceView(url(i), "connecting") for i in range(sources))
    )
    for step in range(steps + 1):
        yield snapshot(step / steps, seconds * step / steps, sources)
    for phase in ("verifying", "done"):
        yield snapshot(1.0, seconds, sources, phase=phase, rate=0.0, eta_seconds=None)


def report(sources: int = 3, **changes) -> TransferReport:
    """Return the report of such a transfer."""
    last = snapshot(1.0, 80.0, sources)
    values = {
        "output": "data/file.root",
        "size": SIZE,
        "seconds": 80.0,
        "rate": SIZE / 80,
        "strategy": "adaptive",
        "resumed_bytes": 0,
        "duplicate_bytes": 1_200_000,
        "checksum": None,
        "basis": "none",
        "rationale": "Two sources of equal rate share the file.",
        "sources": tuple(
            SourceReport(
                view.url,
                view.bytes,
                80.0,
                view.rate,
                ranges=3 if view.bytes else 0,
                outcome="ok" if view.bytes else "failed",
                error=view.error,
            )
            for view in last.sources
        ),
    }
    return TransferReport(**(values | changes))


def play(sources: int, seconds: float) -> None:
    """Show a transfer on this terminal as `coget` would."""
    from coalloc.display.bars import Bars
    from coalloc.display.download_report import print_reports

    bars = Bars(sys.stderr)
    for state in stream(sources, seconds, steps=round(20 * seconds)):
        bars.show(state)
        time.sleep(0.05)
    bars.close(finished=True)
    print_reports([report(sources)], sys.stderr)


if __name__ == "__main__":
    play(int(sys.argv[1]) if len(sys.argv) > 1 else 3, float(sys.argv[2]) if len(sys.argv) > 2 else 8.0)

"""A collect job of a single file, reported as a download."""

from collections.abc import Container

from coalloc.collect.values import HERE, CollectReport, CollectView, PairReport
from coalloc.model.checksums import Basis, Checksum
from coalloc.model.progress import Phase, Snapshot, SourceView
from coalloc.model.reports import SourceReport, TransferReport

__all__ = ["report", "snapshot"]

PHASES: dict[str, Phase] = {
    "connecting": "connecting",
    "collecting": "fetching",
    "verifying": "verifying",
    "done": "done",
}


def report(collected: CollectReport, given: Container[Checksum]) -> TransferReport:
    """Return the report of the download; its sources are the servers that sent bytes to this machine, relays included.

    :param given: checksums given by the user or a Metalink
    """
    (file,) = collected.files
    basis: Basis = "given" if file.checksum in given else "own word"
    return TransferReport(
        output=file.output,
        size=file.size,
        seconds=collected.seconds,
        rate=file.size / collected.seconds if collected.seconds else 0.0,
        strategy=collected.method,
        resumed_bytes=collected.there_bytes,
        duplicate_bytes=collected.duplicate_bytes + collected.mended_bytes,
        checksum=file.checksum,
        basis=basis if file.verified else "none",
        rationale=collected.rationale,
        sources=tuple(_source(pair, collected) for pair in collected.pairs if pair.sink == HERE),
    )


def _source(pair: PairReport, collected: CollectReport) -> SourceReport:
    return SourceReport(
        pair.source,
        pair.bytes,
        pair.seconds,
        pair.rate,
        pair.pieces,
        outcome="failed" if pair.source in collected.gone else "ok" if pair.bytes else "unused",
        error=collected.gone.get(pair.source, pair.error),
    )


def snapshot(view: CollectView, name: str) -> Snapshot:
    """Return the current state of the download."""
    inward = [pair for pair in view.pairs if pair.sink == HERE]
    came = sum(pair.bytes for pair in inward)
    return Snapshot(
        name,
        PHASES[view.phase],
        view.seconds,
        view.done_bytes,
        size=view.size,
        rate=view.rate,
        eta_seconds=view.eta_seconds,
        sources=tuple(
            SourceView(
                pair.source,
                "fetching" if pair.waiting else "idle",
                pair.rate,
                pair.bytes,
                pair.bytes / came if came else 0.0,
                pair.error,
            )
            for pair in inward
        ),
    )

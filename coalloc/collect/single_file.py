"""A collect job of a single file: its destination, and its report as a download."""

from pathlib import Path

from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.values import HERE, CollectReport, CollectView, PairReport
from coalloc.model.checksums import Basis
from coalloc.model.progress import Phase, Snapshot, SourceView
from coalloc.model.replicas import ReplicaSet
from coalloc.model.reports import SourceReport, TransferReport

__all__ = ["FileDestination", "report", "snapshot"]

PHASES: dict[str, Phase] = {
    "connecting": "connecting",
    "collecting": "fetching",
    "verifying": "verifying",
    "done": "done",
}


class FileDestination(LocalDestination):
    """A path of this machine, as for a download, that only files with this name may get.

    :param replace: whether the file may replace a file with other content
    :param within: the real path of a directory that the path must not leave by a symbolic link; None for no limit
    :param beside: the name of the directory for partial data; None for `NAME.coget`
    """

    def __init__(self, path: Path, replace: bool, within: Path | None, beside: str | None) -> None:
        super().__init__(path.parent, replace)
        self.path = path
        self._within = within
        self._directory = beside

    @property
    def _bounds(self) -> Path | None:
        return self._within

    def _target(self, item: CollectItem) -> Path:
        return self.path

    def _beside(self, item: CollectItem) -> str | None:
        return self._directory


def report(collected: CollectReport, wanted: ReplicaSet) -> TransferReport:
    """Return the report of the download; its sources are the servers that sent bytes to this machine, relays included.

    :param wanted: the file, with what the user or a Metalink states about it
    """
    (file,) = collected.files
    by_pieces = wanted.pieces and not wanted.checksums
    basis: Basis = "given" if by_pieces or file.checksum in wanted.checksums else "own word"
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

"""Fetches of files into a directory of this machine, from one server or from all replicas of a dataset at once."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from broker.models.forecasts import Resolved
from broker.models.tasks import Options, Work
from broker.models.work import WorkResult
from broker.services.collections.trees import LocalTree, Naming
from broker.services.network.places import Allowed
from broker.worker.actions.dataset_findings import DatasetFindings
from broker.worker.concurrency import of_each, side_by_side
from broker.worker.fence import LeaseLost
from broker.worker.policy.faults import Unverifiable, VerificationDemand
from broker.worker.rate_limits import RateLimits
from broker.worker.recorder import Recorder
from broker.worker.temporary_names import earlier, folder, folders, temporary
from broker.worker.transfer_records import ArrivingBytes, Move, TransferDecision, of_batch, of_sources
from coalloc.api import Credentials, Leads, Request, discard, download
from coalloc.errors import IsDirectory, NoSuchFile, SinkError
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.model.reports import TransferReport

__all__ = ["Downloading", "LocatedReplicas", "Sources", "discarded"]

AT_ONCE = 4


class LocatedReplicas(NamedTuple):
    """The replicas of a file, and the limits of sessions with their servers.

    :param expected: forecasts, by URL
    :param proxy: file of the proxy certificate to use; None for this process's default
    :param checksum: checksum of the file, ALGORITHM:HEX, if known
    :param leads: function that checks a redirect before it is followed
    :param dataset: dataset of the file; None for a file that is not from the catalogue
    """

    expected: Mapping[str, Estimate]
    allowed: Allowed
    proxy: Path | None = None
    checksum: str | None = None
    leads: Leads | None = None
    dataset: Resolved | None = None


Sources = Callable[[str], Awaitable[LocatedReplicas]]
"""A function that returns the replicas of the file at a path of the source collection."""
Moves = defaultdict[tuple[str, int], list[Move]]
"""The files that a batch moved as a whole, by server and number of streams."""


class Downloading:
    """Fetches from one collection into a directory.

    :param owner_and_site: the task's owner, and the destination's site
    :param namings: namings of the task's collections
    :param findings: store of what the copies show about datasets
    :param lenient: whether to copy files that cannot be verified
    """

    def __init__(
        self,
        sources: Sources,
        sink: LocalTree,
        options: Options,
        limits: RateLimits,
        owner_and_site: tuple[str, str],
        namings: Sequence[Naming],
        findings: DatasetFindings,
        lenient: bool = False,
    ) -> None:
        source = namings[0].name if len(namings) > 1 else "the replicas"
        self._demand = VerificationDemand(options, (source, sink.naming.name), lenient)
        self._sources = sources
        self._sink = sink
        self._namings = namings
        self._options = options
        self._limits = limits
        self._owner_and_site = owner_and_site
        self._findings = findings

    async def copy(self, batch: Sequence[Work], recorder: Recorder) -> None:
        """Fetch a batch of files, and report each result."""
        at_once, (owner, site) = self._options.perf_pp or AT_ONCE, self._owner_and_site
        began, moves = time.time(), Moves(list)
        await side_by_side(lambda work: self._fetch(work, recorder, moves), batch, recorder, self._options, at_once)
        for (server, streams), moved in moves.items():
            recorder.observe(owner, of_batch(server, site, began, moved, streams))

    async def _fetch(self, work: Work, recorder: Recorder, moves: Moves) -> WorkResult:
        await _reached(self._sink, work)
        await _refuse_folder(self._sink, work)
        await _emptied(self._sink, work, map(folder, earlier(work.destination, work)))
        arriving, beside = ArrivingBytes(work.task_id, recorder), folder(temporary(work.destination, work))
        sources, allowed, proxy, recorded, leads, dataset = await self._sources(work.source)
        checked = self._demand.of(work) or work.details.compare
        request = Request(
            (),
            file=ReplicaSet(work.source.rpartition("/")[2], tuple(map(Replica, sources))),
            output=self._sink.at(work.destination),
            within=self._sink.real(_parent(work.destination)),
            streams=self._options.perf_p,
            checksum=work.details.stated_checksum or (recorded if checked else "none"),
            proxy=proxy,
            beside=beside,
            leads=leads,
            credentials=Credentials(own=False),  # those of this process are an admin's
            **allowed,
        )

        async def confirm(verified: bool) -> None:
            self._demand.check(work, verified)
            if self._options.preserve_timestamp and work.details.modified is not None:
                await self._sink.touch(f"{_parent(work.destination)}/{beside}/data", work.details.modified)
            await recorder.fence.check(work)

        with TransferDecision.of(
            recorder, work, "download", work.source, self._owner_and_site, self._namings
        ) as deciding:
            try:
                limits = self._limits.by_url(sources)
                policy = allowed["policy"]
                async with self._findings.of_failure(work, dataset, deciding.results, recorder, policy):
                    (report,) = await download(request, arriving.watch, sources, limits, confirm, deciding.results)
            except (LeaseLost, Unverifiable):
                await _emptied(self._sink, work, [beside])
                raise
            deciding.came(report)
        await self._findings.of_success(work, dataset, report, recorder)
        owner, site = self._owner_and_site
        if dataset:
            recorder.observe(owner, of_sources(work, site, deciding.began, report.sources, self._namings))
        elif move := Move.of(work, deciding.began, report):
            source = report.sources[0]
            moves["/".join(source.url.split("/")[:3]), source.streams].append(move)
        if work.details.compare and report.there:
            return WorkResult(work, "succeeded", counts={"files_skipped": 1, "bytes": -work.size})
        arriving.whole(report.size)
        done = WorkResult(work, "succeeded", _checksum(report), counts={"files_transferred": 1}, size=report.size)
        return self._demand.marked(done, report.compared or not report.size, time.time())


async def discarded(sink: LocalTree, batch: Sequence[Work]) -> None:
    """Delete the partial data, from all workers, of files that will not be completed.

    :raises CoallocError: when partial data may remain
    """

    async def one(work: Work) -> None:
        with suppress(NoSuchFile):
            await _reached(sink, work)
            if not await _emptied(sink, work, folders(work.destination, work)):
                raise SinkError(f"partial data of {work.destination} are still open", "wait until its worker has ended")

    await of_each(one, batch)


async def _emptied(sink: LocalTree, work: Work, beside: Iterable[str]) -> bool:
    """Delete the partial data in directories, even while a worker writes them; return whether nothing remains."""
    target, within = sink.at(work.destination), sink.real(_parent(work.destination))
    gone = [await asyncio.to_thread(discard, target, within, name) for name in beside]
    return all(gone)


async def _reached(sink: LocalTree, work: Work) -> None:
    """Check that the directory of the destination exists.

    :raises NoSuchFile: when it does not exist, or a component of its path is a link
    """
    await sink.stat(f"{_parent(work.destination)}/")


async def _refuse_folder(sink: LocalTree, work: Work) -> None:
    """Check that a file's destination is not a directory.

    :raises IsDirectory: when it is
    """
    try:
        there = await sink.stat(work.destination)
    except NoSuchFile:
        return
    if there.kind == "dir":
        raise IsDirectory(
            f"{work.destination} is a directory", "give the path of a file in it, or end the path with a slash"
        )


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _checksum(report: TransferReport) -> str | None:
    """Return the verified checksum of a file, ALGORITHM:HEX; None if it was not compared with its source."""
    known = report.checksum if report.compared else None
    return known and f"{known.algorithm}:{known.value}"

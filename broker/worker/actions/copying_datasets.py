"""Third-party copies of datasets from all replicas to a GridFTP server; no data pass through this machine."""

import time
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from broker.models.forecasts import RankedReplica, Resolved
from broker.models.tasks import Options, Work
from broker.models.work import WorkResult
from broker.services.catalogue.replicas import ReadableReplicas
from broker.services.collections.trees import GridFTPTree, named
from broker.worker.actions.comparing import same
from broker.worker.actions.copying import delete_partial_files
from broker.worker.actions.dataset_findings import DatasetFindings
from broker.worker.concurrency import side_by_side
from broker.worker.copy_routes import CopyRoutes
from broker.worker.policy.faults import VerificationDemand, at_destination
from broker.worker.rate_limits import RateLimits
from broker.worker.recorder import Recorder
from broker.worker.temporary_names import temporary
from broker.worker.transfer_records import ArrivingBytes, TransferDecision, of_sources
from coalloc.api import copy
from coalloc.errors import NothingToFetchFrom
from coalloc.model.reports import TransferReport

__all__ = ["DatasetCopying"]

AT_ONCE = 4
SCHEMES = ("ftp://", "gsiftp://")
Where = Callable[[str], Awaitable[ReadableReplicas]]
"""A function that returns the replicas of the dataset at a catalogue path, the best replica first."""


class DatasetCopying:
    """Copies from replicas to one collection.

    :param owner_and_site: the task's owner, and the destination's site
    :param findings: store of what the copies show about the datasets
    :param lenient: whether to copy files that cannot be verified
    """

    def __init__(
        self,
        where: Where,
        depots: CopyRoutes,
        sink: GridFTPTree,
        options: Options,
        limits: RateLimits,
        owner_and_site: tuple[str, str],
        findings: DatasetFindings,
        lenient: bool = False,
    ) -> None:
        self._demand = VerificationDemand(options, ("the replicas", sink.naming.name), lenient)
        self._where = where
        self._depots = depots
        self._sink = sink
        self._options = options
        self._limits = limits
        self._owner, self._site = owner_and_site
        self._findings = findings

    async def copy(self, batch: Sequence[Work], recorder: Recorder) -> None:
        """Copy a batch of datasets, and report each result."""
        at_once = self._options.perf_pp or AT_ONCE
        await side_by_side(lambda work: self._copy(work, recorder), batch, recorder, self._options, at_once)

    async def _copy(self, work: Work, recorder: Recorder) -> WorkResult:
        found, addresses, _ = await self._where(work.source)
        policy = self._sink.server.policy.pin(addresses)
        speak = _at_gridftp_servers(found)
        with at_destination():
            await self._sink.writable(work.destination)
        urls, sink = [replica.url for replica in speak], self._sink.url(work.destination)
        recorded = [f"{name}:{value}" for name, value in found.checksums.items()]
        known = [work.details.stated_checksum] if work.details.stated_checksum else recorded
        if work.details.compare and await same(self._sink, work, found.checksums, urls, policy):
            return WorkResult(work, "succeeded", counts={"files_skipped": 1, "bytes": -work.size})
        with at_destination():
            await delete_partial_files(self._sink, [work])  # partial data of a worker that died
        arriving = ArrivingBytes(work.task_id, recorder)

        async def confirm(verified: bool) -> None:
            self._demand.check(work, verified)
            await self._sink.writable(work.destination)
            await recorder.fence.check(work)

        owner_and_site, namings = (self._owner, self._site), (self._sink.naming,)
        with TransferDecision.of(recorder, work, "copy", found.name, owner_and_site, namings) as deciding:
            async with self._findings.of_failure(work, found, deciding.results, recorder, policy):
                report = await copy(
                    urls,
                    sink,
                    found.size,
                    checksums=known,
                    estimates={replica.url: replica.estimate for replica in speak},
                    proxies=(None, self._sink.server.proxy),
                    parallelism=self._options.perf_p or 1,
                    watch=arriving.watch,
                    beside=temporary(self._sink.at(work.destination), work),
                    confirm=confirm,
                    limits=self._limits.by_url(urls, sink),
                    policy=policy,
                    delegate=self._sink.server.delegate,
                    results=deciding.results,
                    via=self._depots.via,
                )
            deciding.came(report)
        await self._findings.of_success(work, found, report, recorder)
        self._note_routes(work, report, recorder)
        arriving.whole(report.size)
        recorder.observe(self._owner, of_sources(work, self._site, deciding.began, report.sources, namings))
        return self._demand.marked(_done(work, report), report.compared or not report.size, time.time())

    def _note_routes(self, work: Work, report: TransferReport, recorder: Recorder) -> None:
        if self._depots.via:
            failure = self._depots.via.last_failure(urlsplit(self._sink.server.source).hostname or "")
            why = named(failure, [self._sink.naming])
            for route in dict.fromkeys(use.route for source in report.sources for use in source.routes):
                self._depots.note(recorder, work.task_id, route, why)


def _done(work: Work, report: TransferReport) -> WorkResult:
    sure = report.checksum if report.compared else None
    checksum = sure and f"{sure.algorithm}:{sure.value}"
    counts = {"files_transferred": 1, **({"bytes_checksummed": report.size} if checksum else {})}
    return WorkResult(work, "succeeded", checksum, counts=counts, size=report.size)


def _at_gridftp_servers(found: Resolved) -> list[RankedReplica]:
    """Return the replicas at servers between which copies are possible.

    :raises NothingToFetchFrom: if there is none
    """
    usable = [replica for replica in found.replicas if replica.url.startswith(SCHEMES)]
    if not usable:
        raise NothingToFetchFrom(
            f"no GridFTP server has a replica of {found.name}",
            "register a replica at a GridFTP server, or use coget get",
        )
    return usable

"""Findings about datasets from copies: replicas with wrong bytes, and sizes that the catalogue lacks.

Only the checksums of the catalogue count, never one that a user stated for a task: otherwise a wrong one would put
replicas out of service. The findings are the owner's, who could report them directly; an admin can ignore them.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from broker.errors import BrokerError
from broker.models.callers import Role
from broker.models.catalogue import BadReplica
from broker.models.forecasts import Resolved
from broker.models.tasks import Event, Work
from broker.services.catalogue.bad_replica_reports import BadReplicaReports
from broker.services.catalogue.datasets import Catalogue
from broker.worker.actions.comparing import contradicts
from broker.worker.policy.faults import Unverifiable
from broker.worker.recorder import Recorder
from coalloc.errors import VerificationError
from coalloc.model.reports import Results, TransferReport
from coalloc.util.addresses import AddressPolicy

__all__ = ["DatasetFindings"]

log = structlog.get_logger("broker.worker")


class DatasetFindings:
    """The findings about datasets that a task copies.

    :param owner: the task's owner
    """

    def __init__(self, catalogue: Catalogue, reports: BadReplicaReports, owner: str, role: Role) -> None:
        self._catalogue = catalogue
        self._reports = reports
        self._owner = owner
        self._role = role

    @asynccontextmanager
    async def of_failure(
        self,
        work: Work,
        dataset: Resolved | None,
        results: Results[TransferReport],
        recorder: Recorder,
        policy: AddressPolicy,
    ) -> AsyncIterator[None]:
        """Report a replica whose wrong bytes make the attempt in the block fail.

        The destination may be at fault. So if the dataset has other replicas, this one is reported only if its own
        server contradicts the catalogue.

        :param dataset: dataset that is copied; None for a file that is not in the catalogue
        :param results: reports of the attempt, which the block fills
        :param policy: address policy for the replica's URL
        """
        try:
            yield
        except VerificationError as error:
            report = results.unfinished
            delivered = [] if report is None else [each.url for each in report.sources if each.bytes]
            if dataset and report and len(delivered) == 1 and not isinstance(error, Unverifiable):
                url, only = delivered[0], len(dataset.replicas) == 1
                if only or await contradicts(url, report.size, dataset.checksums, policy):
                    await self._keep(work, dataset, {url: error.message}, None, recorder)
            raise

    async def of_success(
        self, work: Work, dataset: Resolved | None, report: TransferReport, recorder: Recorder
    ) -> None:
        """Report the replicas with wrong bytes, and store the dataset's size if the catalogue lacks it."""
        if dataset and report.basis == "given":
            wrong = {each.url: str(each.error) for each in report.contradicted}
            await self._keep(work, dataset, wrong, report.size, recorder)

    async def _keep(
        self, work: Work, dataset: Resolved, wrong: Mapping[str, str], size: int | None, recorder: Recorder
    ) -> None:
        if work.details.stated_checksum or not dataset.checksums:
            return
        try:
            for url, reason in wrong.items():
                await self._report(work, dataset.name, url, reason, recorder)
            if dataset.size is None and size is not None:
                await self._catalogue.learn_size(self._owner, dataset.name, size)
        except BrokerError as error:  # the copy is as good without it
            log.warning("failed to store bad replicas or a size", dataset=dataset.name, error=error.message)

    async def _report(self, work: Work, dataset: str, url: str, reason: str, recorder: Recorder) -> None:
        found = BadReplica(dataset=dataset, url=url, reason=f"{reason[:300]} (task {work.task_id})")
        replica = await self._reports.report(self._owner, found, self._role)
        becomes = "stays" if replica.state == "AVAILABLE" else "is now"  # it stays as a curator stated it
        details = f"{dataset} at {replica.endpoint}: {reason}; the replica {becomes} {replica.state}"
        recorder.note(work.task_id, Event(time.time(), "BAD_REPLICA", True, "a replica has wrong bytes", details))

"""One transfer for a request: what a broker promises before it, and what is recorded of it."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from coalloc.download.report import measured_routes, past_transfers
from coalloc.download.request import Request
from coalloc.download.time_limit import time_limit
from coalloc.download.transfer import Admit, Transfer
from coalloc.engine import open_sources
from coalloc.engine.base import Admission, Source
from coalloc.engine.limits.server_slots import Slots
from coalloc.errors import CoallocError
from coalloc.history.transfers import TransferHistory
from coalloc.model.forecasts import FoundReplicas
from coalloc.model.replicas import ReplicaSet
from coalloc.model.reports import Results, TransferReport
from coalloc.safe_text import without_query

if TYPE_CHECKING:
    from coalloc.broker_client import Broker
    from coalloc.broker_client.guarantee import ReservedFinish

__all__ = ["RequestedTransfer"]


class RequestedTransfer:
    """The transfer of one file of a request, which begins now.

    :param broker: the broker that is asked for a promise, and gets the results; None for no broker
    :param past: the history that gets the results
    """

    def __init__(self, request: Request, found: FoundReplicas, broker: "Broker | None", past: TransferHistory) -> None:
        self._request = request
        self._found = found
        self._broker = broker
        self._past = past
        self._began = time.time()
        self._reserved: ReservedFinish | None = None

    def sources(self, file: ReplicaSet, limits: Mapping[str, Admission] | None = None) -> list[Source]:
        """Return a source for each replica, whose connections count as those of other transfers to its server.

        :param limits: the rate limits of replicas, by URL
        :raises CoallocError: as `open_sources`
        """
        counted = replace(self._request.options, slots=Slots.from_environment())
        return open_sources(file, self._request.engine, counted, limits)

    def reserve(self, file: ReplicaSet) -> Admit | None:
        """Return the function that asks the broker to promise the deadline; None without a broker or a deadline."""
        request = self._request
        if not (self._broker and request.deadline):
            return None
        from coalloc.broker_client.guarantee import ReservedFinish

        most = 1 if request.strategy == "single" else request.max_sources
        self._reserved = ReservedFinish(self._broker.access, request.deadline, file.name, most)
        return self._reserved.admit

    async def run(self, fetch: Transfer, output: object, results: Results[TransferReport]) -> TransferReport:
        """Run the transfer while the broker's promise is kept open, and return its report; record only a failure.

        :param output: the destination, for messages
        :param results: gets the report of a transfer that fails or is cancelled
        :raises CoallocError: when it fails, or the time limit is over
        """
        try:
            with results.of(fetch.report):
                async with self._held(fetch), time_limit(self._request.max_seconds, output):
                    report = await fetch.run()
        except CoallocError as error:
            await self.record(fetch.report(), error)
            raise
        return self._with_guarantee(report)

    def _held(self, fetch: Transfer) -> AbstractAsyncContextManager[None]:
        """Return a context that keeps the broker's promise open, if there is one."""
        return self._reserved.held(fetch.snapshot) if self._reserved else nullcontext()

    def _with_guarantee(self, report: TransferReport) -> TransferReport:
        """Return the report with the number of the broker's promise."""
        reserved = self._reserved
        if not (reserved and report.deadline):
            return report
        deadline = report.deadline._replace(guarantee=reserved.number, is_over=reserved.is_over)
        return report._replace(deadline=deadline)

    async def record(self, report: TransferReport, error: CoallocError | None = None) -> None:
        """Add the transfer to this user's history, and report it to the broker."""
        request, found, began = self._request, self._found, self._began
        transfers = past_transfers(report, began, request.streams)
        self._past.add(transfers)
        if request.traces:
            request.traces.add(found.file, report, began, error)
        if routes := measured_routes(report, began):
            from coalloc.history.routes import RouteHistory  # imported here because few users have depots

            RouteHistory(self._past.path).add(routes)
        if self._broker:
            from coalloc.broker_client.outbox import decisions, send_results

            bad = [] if error else self._bad(report)
            thing, known = found.dataset or found.file.name, report.sources[: len(found.file.replicas)]
            why, of_known = error.message if error else None, report._replace(sources=known)
            decided = [] if request.admission else decisions(self._broker, thing, of_known, why, began)
            with suppress(asyncio.CancelledError):  # the user's work is done
                await send_results(self._broker, transfers, bad, decided=decided, routes=routes)

    def _bad(self, report: TransferReport) -> list[tuple[str, str, str]]:
        """Return replicas that contradict the broker's checksum of their dataset; leave out merely suspected ones."""
        dataset = self._found.dataset
        if not (dataset and report.verified) or self._request.expected:
            return []
        return [(dataset, without_query(each.url), str(each.error)) for each in report.contradicted]

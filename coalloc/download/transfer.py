"""The parts of a transfer from several sources that do not depend on the destination.

`to_disk` and `to_server` make a transfer of them; their `run` has the order of all steps.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coalloc.download.agreement import Agreement, unusable
from coalloc.download.connections import SourceConnections, stop
from coalloc.download.report import source_reports, source_views, unstarted_reports, unstarted_views
from coalloc.download.runner import TransferRunner
from coalloc.engine.base import Source
from coalloc.engine.limits.within_process import CONNECTING
from coalloc.errors import CoallocError, TransferFailed
from coalloc.guarantees import LOOK
from coalloc.model.forecasts import Estimate
from coalloc.model.progress import Phase, Snapshot
from coalloc.model.promises import Deadline
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.model.reports import SourceReport, TransferReport
from coalloc.safe_text import redact
from coalloc.schedule import Scheduler
from coalloc.schedule.events import Event, Started
from coalloc.schedule.pauses import TRIES
from coalloc.schedule.policies import Policy
from coalloc.util.disk import in_thread
from coalloc.verify.statements import Contradiction

if TYPE_CHECKING:
    from coalloc.download.outlook import FinishError, Outlook

__all__ = ["Admit", "PastErrors", "Transfer"]

log = logging.getLogger(__name__)

PastErrors = Callable[[], Mapping[str, Sequence[float]]]
"""Function that returns errors of earlier forecasts of finish times, by moment, as in `outlook.FinishError`."""
Admit = Callable[[int], Awaitable[None]]
"""Function that asks whether so many missing bytes may arrive by the deadline; raises DeadlineRefused if not."""

SHOW = 0.125
"""Seconds between two snapshots for the display."""
FIRST_SHOW = 0.01
"""Seconds until the first snapshot. By then servers have been asked, and a display can load while they answer."""


class Transfer(ABC):
    """The transfer of one file: its sources, their agreement, and the state that is displayed and reported.

    A subclass defines `run`: within `_under_way`, it calls `_connect`, then `_schedule`, then `_fetch`. `_agree` is
    called for each source's answer, and `_write` by the runner for all bytes that arrive.

    :param file: description of the file; its replicas are in the order of `sources`
    :param estimates: forecast of each source
    :param output: the destination, without secrets
    :param most: number of sources to use at once; None for as many as the limit allows
    :param watch: receives a snapshot several times a second
    :param seed: seed of the random pauses, so that they differ from transfer to transfer
    :param past_errors: returns the errors of earlier forecasts of finish times; called in another thread
    :param tries: consecutive failures after which a source is not used again
    """

    def __init__(
        self,
        file: ReplicaSet,
        sources: Sequence[Source],
        estimates: Sequence[Estimate],
        output: str,
        policy: Policy,
        most: int | None = None,
        watch: Callable[[Snapshot], None] | None = None,
        seed: int = 0,
        deadline: Deadline | None = None,
        past_errors: PastErrors = dict,
        tries: int = TRIES,
    ) -> None:
        self._file = file
        self._sources = sources
        self._estimates = estimates
        self._output = output
        self._policy = policy
        self._limit = self._most = min(most or len(sources), CONNECTING)
        self._deadline = deadline
        self._past_errors = past_errors
        self._outlook: Outlook | None = None
        self._left_at_start = 0
        self._fetch_began: float | None = None
        self._watch = watch
        self._seed = seed
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._fetched_at: float | None = None
        self._ended_at: float | None = None
        self._complete_at: float | None = None
        """When the file got its name, in seconds since the epoch."""
        self._phase: Phase = "connecting"
        self._agreement = Agreement(file)
        self._connections = SourceConnections(sources, self._agree, seed, tries)
        self._tries = tries
        self._runner = TransferRunner(self._connections, self._write)
        self._scheduler: Scheduler | None = None
        self._urls = [redact(source.url) for source in sources]

    @abstractmethod
    async def run(self) -> TransferReport:
        """Transfer the file, verify it, and give it its name. If that fails, `report` has the results so far.

        :raises CoallocError: when it fails
        """

    @asynccontextmanager
    async def _under_way(self) -> AsyncIterator[None]:
        """Display the transfer, take its time, and close the sources at the end."""
        beside = [self._loop.create_task(self._look_ahead())]
        if self._watch:
            beside.append(self._loop.create_task(self._show()))
        try:
            yield
        finally:
            self._stop_clock()
            await stop(beside)
            await self._runner.close()
        self._phase = "done"
        if self._watch:
            self._watch(self.snapshot())

    def _stop_clock(self) -> None:
        """End the duration that the report states, before the clean-up."""
        if self._ended_at is None:
            self._ended_at = self._loop.time()

    @abstractmethod
    def _write(self, source: int, start: int, end: int, data: memoryview | None) -> None:
        """Store the bytes [start, end), which have arrived; `data` is None if they went to another server."""

    @property
    @abstractmethod
    def _name(self) -> str:
        """The file's name, for the display."""

    @property
    @abstractmethod
    def _bad(self) -> Mapping[int, str]:
        """The sources whose bytes were wrong, with the reason."""

    @property
    def _contradictions(self) -> Sequence[Contradiction]:
        """The checksums that sources state, but the file does not have."""
        return ()

    def _agree(self, source: int, stat: Stat) -> None:
        """Process a replica's answer.

        :raises CoallocError: as `Agreement.check`
        """
        self._agreement.check(source, stat)

    async def _connect(self) -> None:
        """Connect until the first server answers, which determines the size.

        Replicas that another one's server named are asked only if no other replica can be used.

        :raises CoallocError: when no source can be used
        """
        guests = self._file.guests
        own = [source for source in range(len(self._sources)) if source not in guests]
        connect = self._connections.connect
        if not await connect(self._most, own) and not await connect(self._most, sorted(guests)):
            raise unusable(self._urls, self._connections.errors)

    def _schedule(self, missing: Sequence[tuple[int, int]] | None = None, opened: int | None = None) -> Scheduler:
        """Make the scheduler, once the size is known.

        :param missing: the ranges to fetch; None for all
        :param opened: number of bytes, from the first one on, that may be fetched at first; None for all
        """
        size = self._agreement.size or 0
        self._left_at_start = size if missing is None else sum(end - start for start, end in missing)
        self._fetch_began = self._loop.time()
        self._scheduler = Scheduler(
            size,
            self._estimates,
            self._policy,
            missing=missing,
            opened=opened,
            most=self._most,
            seed=self._seed,
            tries=self._tries,
        )
        return self._scheduler

    async def _fetch(self, judge: Callable[[], Awaitable[Event | None]]) -> None:
        """Fetch all ranges of the scheduler, and wrong ranges again.

        :param judge: called when all ranges have arrived; returns the event for the scheduler to fetch wrong ranges
            again, or None if the file is right
        """
        assert self._scheduler is not None
        event: Event | None = Started(self._loop.time(), self._connections.connected)
        while event:
            self._phase, self._fetched_at = "fetching", None
            try:
                await self._runner.run(self._scheduler, event)
            except TransferFailed as failed:
                raise self._cause() or failed from None
            self._phase, self._fetched_at = "verifying", self._loop.time()
            event = await judge()

    async def _look_ahead(self) -> None:
        """Forecast the finish again and again, and use as many sources as the deadline needs."""
        try:
            while True:
                await asyncio.sleep(LOOK)  # first: short transfers need no forecast
                if self._scheduler and self._phase == "fetching":
                    await self._look(self._scheduler)
        except Exception:  # a defect must neither end nor delay the transfer
            log.exception("the finish cannot be forecast any more")
            if self._deadline:
                self._runner.limit(self._limit)

    async def _look(self, scheduler: Scheduler) -> None:
        if self._outlook is None:
            await self._forecast(self._left_at_start)
        assert self._outlook is not None
        most = min(self._limit, self._outlook.look(scheduler.state, self._loop.time(), time.time()))
        if self._deadline and self._policy.rebalances and most != self._most:
            self._most = most
            self._runner.limit(most)

    async def _forecast(self, left: int) -> None:
        """Begin to forecast the finish. With a deadline, choose the number of sources that it needs at the start.

        :param left: bytes missing at the start
        :raises DeadlineRefused: as `Outlook.begin`
        """
        from coalloc.download.outlook import Outlook

        outlook = Outlook(await in_thread(self._past_errors), self._deadline, self._limit, time.time())
        began = self._loop.time() if self._fetch_began is None else self._fetch_began
        needed = outlook.begin(left, self._estimates[: self._limit], self._name, began, time.time())
        if self._policy.rebalances:  # else sources that are added later would have no work
            self._most = min(self._limit, needed)
        self._outlook = outlook

    def _cause(self) -> CoallocError | None:
        """Return the error to raise if no source is left; None for the list of all sources' errors."""
        return None

    async def _show(self) -> None:
        assert self._watch is not None
        await asyncio.sleep(FIRST_SHOW)
        while True:
            self._watch(self.snapshot())
            await asyncio.sleep(SHOW)

    def snapshot(self) -> Snapshot:
        """Return the current state of the transfer."""
        now = self._loop.time()
        if self._scheduler is None:
            waiting = unstarted_views(self._urls, self._connections.errors)
            return Snapshot(self._name, self._phase, now - self._began, sources=waiting)
        state = self._scheduler.state
        views = source_views(state, self._urls, now)
        rate = sum(view.rate for view in views)
        seconds = (state.size - state.final.total) / rate if rate else None
        outlook = self._outlook
        return Snapshot(
            name=self._name,
            phase=self._phase,
            seconds=now - self._began,
            done_bytes=state.final.total,
            size=state.size,
            rate=rate,
            eta_seconds=outlook.seconds if outlook and outlook.seconds is not None else seconds,
            sources=views,
            eta_bounds=outlook.bounds if outlook else None,
            deadline=outlook.view if outlook else None,
            warnings=tuple(outlook.warnings) if outlook else (),
        )

    def report(self) -> TransferReport:
        """Return the results of the transfer so far."""
        ended = self._loop.time() if self._ended_at is None else self._ended_at
        scheduler = self._scheduler
        if scheduler is None:
            sources = unstarted_reports(self._urls, self._connections.errors)
        else:
            until = ended if self._fetched_at is None else self._fetched_at
            sources = source_reports(scheduler.state, self._urls, self._bad, self._began, until)
        sources = tuple(self._with_facts(number, source) for number, source in enumerate(sources))
        moved = sum(source.bytes for source in sources)
        seconds = ended - self._began
        return TransferReport(
            output=self._output,
            size=self._agreement.size or 0,
            seconds=seconds,
            rate=moved / seconds if seconds else 0.0,
            strategy=self._policy.name,
            resumed_bytes=0,
            duplicate_bytes=0,
            checksum=None,
            basis="none",
            rationale=scheduler.rationale if scheduler else "",
            sources=sources,
            deadline=self._outlook.report(self._complete_at, _unused(sources)) if self._outlook else None,
        )

    def _with_facts(self, number: int, report: SourceReport) -> SourceReport:
        """Return the report of a source with its routes, its origin, and the checksums that it states in vain."""
        stat = self._agreement.first_answers.get(number)
        wrong = tuple(str(each) for each in self._contradictions if each.source == number)
        unused = (*wrong, *(stat.unused if stat else ()))
        named_by = self._file.replicas[number].named_by
        return report._replace(
            routes=self._sources[number].routes, unused_checksums=unused, named_by=named_by and named_by.url
        )

    @property
    def finish_errors(self) -> "Sequence[FinishError]":
        """The errors of this transfer's forecasts of its finish, once it has ended successfully."""
        if self._outlook is None or self._complete_at is None or self._fetched_at is None:
            return ()
        if self._deadline or not self._policy.rebalances:  # not all sources were used that the forecast rests on
            return ()
        return self._outlook.errors(self._fetched_at)


def _unused(sources: Sequence[SourceReport]) -> int:
    return sum(source.outcome == "unused" for source in sources)

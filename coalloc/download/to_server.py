"""A copy of one file from several GridFTP servers to another one, co-allocated, with no byte through this machine.

As in a download, scheduler and runner decide which source copies which range. The difference is the destination: a file
beside its final name at the sink, which gets that name when it is complete and verified. Nothing is kept of a failed
copy.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from coalloc.download.agreement import Agreement, unusable
from coalloc.download.report import source_reports, source_views, unstarted_reports, unstarted_views
from coalloc.download.runner import TransferRunner
from coalloc.engine.gridftp.remote import RemoteSource
from coalloc.engine.gridftp.storage import Storage
from coalloc.engine.sessions.process_limits import CONNECTING
from coalloc.errors import CoallocError, NoSpace, ReplicaChanged, SourceError, TransferFailed, VerificationError
from coalloc.model import Confirm, Estimate, Extent, Phase, ReplicaSet, Snapshot, TransferReport
from coalloc.safe_text import redact
from coalloc.schedule import Scheduler
from coalloc.schedule.events import Event, Rejected, Started
from coalloc.schedule.policies import Policy
from coalloc.util.intervals import Intervals
from coalloc.verify import AtSink, WitnessServers

__all__ = ["ServerCopy"]

LOOK = 0.125
"""Seconds between two snapshots for the display."""


class ServerCopy:
    """Copies one file.

    :param file: description of the file; its replicas are in the order of `sources`
    :param sources: write to the temporary name at the sink
    :param connect: logs in at the sink, to verify and to rename
    :param names: the temporary path and the final one
    :param estimates: forecast of each source
    :param output: the URL of the final name, as it may be shown
    :param watch: receives a snapshot several times a second
    :param seed: seed of the random pauses, so that they differ from transfer to transfer
    :param confirm: is awaited before the file gets its name; an exception it raises ends the copy
    """

    def __init__(
        self,
        file: ReplicaSet,
        sources: Sequence[RemoteSource],
        estimates: Sequence[Estimate],
        connect: Callable[[], Awaitable[Storage]],
        names: tuple[str, str],
        output: str,
        policy: Policy,
        watch: Callable[[Snapshot], None] | None = None,
        seed: int = 0,
        confirm: Confirm | None = None,
    ) -> None:
        self._file = file
        self._sources = sources
        self._estimates = estimates
        self._connect = connect
        self._names = names
        self._output = output
        self._policy = policy
        self._watch = watch
        self._seed = seed
        self._confirm = confirm
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._fetched_at: float | None = None
        self._phase: Phase = "connecting"
        self._agreement = Agreement(file)
        self._runner = TransferRunner(sources, self._agreement.check, self._write, seed)
        self._scheduler: Scheduler | None = None
        self._checked: AtSink | None = None
        self._here = Intervals()
        self._first = [Intervals() for _ in sources]
        """Ranges that each source delivered first."""
        self._bad: dict[int, str] = {}
        self._duplicate_bytes = 0
        self._urls = [redact(source.url) for source in sources]

    async def run(self) -> TransferReport:
        """Copy, verify, and give the file its name.

        :raises CoallocError: with the results so far in its `report`; a CancelledError has them as its argument
        """
        showing = self._loop.create_task(self._show()) if self._watch else None
        try:
            await self._copy()
        except BaseException as error:
            if isinstance(error, CoallocError):
                error.report = self.report()
            elif isinstance(error, asyncio.CancelledError):
                error.args = (self.report(),)
            await self._runner.close()  # first, else the sources would create the file again
            with suppress(SourceError):
                async with await self._connect() as store:
                    await store.delete(self._names[0])
            raise
        finally:
            if showing:
                showing.cancel()
            await self._runner.close()
        self._phase = "done"
        if self._watch:
            self._watch(self.snapshot())
        return self.report()

    async def _copy(self) -> None:
        if not await self._runner.connect(min(len(self._sources), CONNECTING)):
            raise unusable(self._urls, self._runner.errors)
        size = self._agreement.size or 0
        self._scheduler = Scheduler(size, self._estimates, self._policy, most=CONNECTING, seed=self._seed)
        lanes = self._scheduler.state.lanes
        witnesses = WitnessServers(self._sources, lambda source: lanes[source].answers)
        self._checked = AtSink(witnesses, size, self._file.checksums)
        if not size:
            await self._sources[self._agreement.answered[0]].make_empty()
        event: Event = Started(self._loop.time(), self._runner.connected)
        while True:
            self._phase, self._fetched_at = "fetching", None
            await self._run(self._scheduler, event)
            self._phase, self._fetched_at = "verifying", self._loop.time()
            async with await self._connect() as store:  # an idle session may have been closed meanwhile
                bad = await self._checked.find_bad(self._pieces(), partial(store.checksum, self._names[0]))
                bad = bad or await self._unconfirmed(self._checked)
                if not bad:
                    if self._confirm:
                        await self._confirm(self._checked.basis != "none" or not size)
                    await store.rename(*self._names)
                    return
            event = self._reject(self._scheduler, bad)

    async def _run(self, scheduler: Scheduler, event: Event) -> None:
        """Run the scheduler until all ranges are copied.

        :raises NoSpace: when the transfer failed because the sink's disk is full
        """
        try:
            await self._runner.run(scheduler, event)
        except TransferFailed:
            for error in self._runner.errors.values():
                if isinstance(error, NoSpace):
                    raise error from None
            raise

    async def _unconfirmed(self, checked: AtSink) -> dict[int, str]:
        """Return the sources that have changed since they delivered, or cannot tell, if no other check covers that.

        A checksum of the whole file that was expected and found covers it.
        """
        if checked.knows_the_whole:
            return {}
        errors = await self._runner.recheck(i for i, first in enumerate(self._first) if first)
        certain = {i: e for i, e in errors.items() if isinstance(e, ReplicaChanged) or checked.basis != "agree"}
        return {i: error.message for i, error in certain.items()}

    def _pieces(self) -> list[Extent]:
        return sorted(Extent(start, end, i) for i, first in enumerate(self._first) for start, end in first)

    def _write(self, source: int, offset: int, view: memoryview) -> None:
        """Note ranges that are at the sink; the view is a placeholder for bytes there."""
        end = offset + len(view)
        fresh = self._here.gaps(offset, end)
        for start, stop in fresh:
            self._first[source].add(start, stop)
        self._here.add(offset, end)
        self._duplicate_bytes += len(view) - sum(stop - start for start, stop in fresh)

    def _reject(self, scheduler: Scheduler, bad: Mapping[int, str]) -> Rejected:
        """Unassign all ranges that bad sources wrote, even over others' bytes, so that others copy them again."""
        self._bad |= bad
        wrong = [each for source in bad for at in self._sources[source].touched for each in self._here.within(*at)]
        for held in (self._here, *self._first):
            for start, end in wrong:
                held.remove(start, end)
        if all(lane.source in self._bad or lane.status == "left" for lane in scheduler.state.lanes):
            why = "; ".join(f"{self._urls[i]}: {reason}" for i, reason in self._bad.items())
            raise VerificationError(
                f"{self._output} could not be verified, and no other source is left. {why}",
                "check the expected checksum, or name a replica that is known to be good",
            )
        return Rejected(self._loop.time(), tuple(bad), tuple(wrong))

    async def _show(self) -> None:
        assert self._watch is not None
        while True:
            await asyncio.sleep(LOOK)
            self._watch(self.snapshot())

    def snapshot(self) -> Snapshot:
        """Return the current state of the copy."""
        now = self._loop.time()
        name = self._output.rpartition("/")[2]
        if self._scheduler is None:
            waiting = unstarted_views(self._urls, self._runner.errors)
            return Snapshot(name, self._phase, now - self._began, sources=waiting)
        state = self._scheduler.state
        views = source_views(state, self._urls, now)
        rate = sum(view.rate for view in views)
        return Snapshot(
            name=name,
            phase=self._phase,
            seconds=now - self._began,
            done_bytes=state.final.total,
            size=state.size,
            rate=rate,
            eta_seconds=(state.size - state.final.total) / rate if rate else None,
            sources=views,
        )

    def report(self) -> TransferReport:
        """Return the results of the copy so far."""
        now = self._loop.time()
        if self._scheduler is None:
            sources = unstarted_reports(self._urls, self._runner.errors)
        else:
            until = now if self._fetched_at is None else self._fetched_at
            sources = source_reports(self._scheduler.state, self._urls, self._bad, self._began, until)
        seconds = now - self._began
        moved = sum(source.bytes for source in sources)
        return TransferReport(
            output=self._output,
            size=self._agreement.size or 0,
            seconds=seconds,
            rate=moved / seconds if seconds else 0.0,
            strategy=self._policy.name,
            resumed_bytes=0,
            duplicate_bytes=self._duplicate_bytes,
            checksum=self._checked.checksum if self._checked else None,
            basis=self._checked.basis if self._checked else "none",
            rationale=self._scheduler.rationale if self._scheduler else "",
            sources=sources,
        )

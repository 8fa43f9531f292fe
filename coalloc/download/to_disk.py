"""The download of one file, from the first server's answer to its final name. Connects runner, sink, journal and
verification.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coalloc.download.agreement import Agreement, unusable
from coalloc.download.continuation import Continuation
from coalloc.download.judge import Judge, JudgedFile
from coalloc.download.report import source_reports, source_views, unstarted_reports, unstarted_views
from coalloc.download.runner import TransferRunner
from coalloc.engine.base import Source
from coalloc.engine.sessions.process_limits import CONNECTING
from coalloc.errors import CoallocError, ReplicaChanged, TargetExists, TransferFailed
from coalloc.model import (
    Basis,
    Checksum,
    Confirm,
    Estimate,
    Phase,
    ReplicaSet,
    Snapshot,
    SourceReport,
    Stat,
    TransferReport,
)
from coalloc.partial_file import Header, Journal, PartialFile, Recollection, describe, matching_bytes, recall, resembles
from coalloc.safe_text import redact
from coalloc.schedule import Scheduler
from coalloc.schedule.events import Event, Started
from coalloc.schedule.policies import Policy
from coalloc.util.disk import in_thread
from coalloc.util.intervals import Intervals
from coalloc.verify import Verification, WitnessServers, expectation

__all__ = ["Download", "DownloadSettings"]

LOOK = 0.125
"""Seconds between two snapshots for the display."""
FIRST_LOOK = 0.01
"""Seconds until the first one. By then the servers have been asked, and a display can load while they answer."""


class DownloadSettings(NamedTuple):
    """The user's options apart from the file: the scheme, the most sources at once, whether to keep checksums.

    `within` is the real path of a directory that the target must not leave by a symbolic link. `replace`: whether the
    file may replace one of other content. `beside` is the name of the directory for partial data, in place of
    `NAME.coget`. `confirm` is awaited when the file is complete, before it gets its name; if it fails, the file does
    not get the name.
    """

    policy: Policy
    most: int | None = None
    keep_checksums: bool = True
    within: Path | None = None
    replace: bool = True
    beside: str | None = None
    confirm: Confirm | None = None


class Download:
    """Fetches one file to `target`.

    :param file: description of the file; its replicas are in the order of `sources`
    :param estimates: forecast of each source
    :param watch: receives a snapshot several times a second
    :param seed: seed of the random pauses, so that they differ from transfer to transfer
    """

    def __init__(
        self,
        file: ReplicaSet,
        sources: Sequence[Source],
        estimates: Sequence[Estimate],
        target: Path,
        settings: DownloadSettings,
        watch: Callable[[Snapshot], None] | None = None,
        seed: int = 0,
    ) -> None:
        self._file = file
        self._sources = sources
        self._estimates = estimates
        self._target = target
        self._settings = settings
        self._most = min(settings.most or len(sources), CONNECTING)
        self._watch = watch
        self._seed = seed
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._phase: Phase = "connecting"
        self._agreement = Agreement(file)
        self._runner = TransferRunner(sources, self._agree, self._write, seed)
        self._continuation: Continuation | None = None
        self._journal: Journal | None = None
        self._scheduler: Scheduler | None = None
        self._urls = [redact(source.url) for source in sources]
        self._verification: Verification | None = None
        self._resumed = Intervals()
        self._notice: str | None = None
        self._here: Checksum | None = None
        """Checksum of the existing target, if it is the wanted file."""
        self._here_by: Basis = "none"
        self._fetched_at: float | None = None

    async def run(self) -> TransferReport:
        """Fetch, verify, and give the file its name.

        :raises CoallocError: with the results so far in its `report`; a CancelledError has them as its argument
        """
        showing = self._loop.create_task(self._show()) if self._watch else None
        try:
            with self._locked() as self._partial:
                if await self._is_here(expectation(self._file.checksums), "given"):
                    return self._finished()
                await self._connect()
                said = await self._servers_word()
                if await self._is_here(said, "own word"):
                    return self._finished()
                await self._refuse_to_replace(said)
                await self._prepare()
                try:
                    await self._fetch_and_verify()
                finally:
                    self._close_journal()
                if self._settings.confirm and self._verification:
                    await in_thread(self._partial.sync)  # so that a confirmed file gets its name at once
                    await self._settings.confirm(self._verification.basis != "none" or not self._agreement.size)
                with suppress(asyncio.CancelledError):  # once publishing has begun, finishing it is the cleanest stop
                    await in_thread(self._publish)
        except CoallocError as error:
            error.report = self.report()
            raise
        except asyncio.CancelledError as stop:
            stop.args = (self.report(),)
            raise
        finally:
            if showing:
                showing.cancel()
            if self._verification:
                self._verification.cancel()
            await self._runner.close()
        return self._finished()

    def _locked(self) -> PartialFile:
        settings = self._settings
        return PartialFile(
            self._target, keep_checksums=settings.keep_checksums, within=settings.within, beside=settings.beside
        )

    async def _is_here(self, wanted: Checksum | None, basis: Basis) -> bool:
        """Return whether the target exists already, with its known checksum."""
        if wanted is None:
            return False
        size = await in_thread(matching_bytes, self._target, wanted, self._agreement.size, self._settings.within)
        if size is None:
            return False
        self._here, self._here_by = wanted, basis
        self._agreement.size = size
        self._resumed.add(0, size)
        self._notice = f"{self._target} was here already"
        return True

    async def _refuse_to_replace(self, said: Checksum | None) -> None:
        """Refuse before a byte is fetched, if the target has other content and is not to be replaced.

        If that is not known, the file is fetched and compared.

        :param said: a server's checksum of the file, which the target does not have
        """
        if self._settings.replace or not await in_thread(os.path.lexists, self._target):
            return
        known = said or expectation(self._file.checksums)
        if known or not await self._resembles(self._agreement.size):
            raise TargetExists(
                f"{self._target} exists, with other content",
                "use --overwrite to replace it, or choose another name with -o",
            )

    async def _resembles(self, size: int | None) -> bool:
        return await in_thread(resembles, self._target, size, self._settings.within)

    def _publish(self) -> None:
        """Give the file its name, unless an existing file is the same and not to be replaced."""
        try:
            self._partial.publish(replace=self._settings.replace)
        except TargetExists:
            fetched = Checksum("sha256", self._partial.digest("sha256"))
            if matching_bytes(self._target, fetched, self._partial.size, self._settings.within) is None:
                raise
            self._partial.revoke(0, self._partial.size)  # so that nothing of it is kept
            self._notice = f"{self._target} was here already"

    def _finished(self) -> TransferReport:
        self._phase = "done"
        if self._watch:
            self._watch(self.snapshot())
        return self.report()

    async def _connect(self) -> None:
        """Connect until the first server answers, which determines the size."""
        if not await self._runner.connect(self._most):
            raise unusable(self._urls, self._runner.errors)

    async def _servers_word(self) -> Checksum | None:
        """Return the answering server's checksum of the whole file, if the target exists and has its size."""
        size, known = self._agreement.size or 0, self._file.checksums or self._file.pieces
        if known or not self._settings.keep_checksums or not await self._resembles(size):
            return None
        if said := expectation(self._agreement.digests):
            return said
        answered = self._agreement.answered[0]
        value = await WitnessServers(self._sources, lambda source: source == answered).digest(
            answered, "adler32", 0, size
        )
        if value is None:
            self._notice = (
                f"{self._target} was here already, as long as this file; "
                f"it was fetched again, as {self._urls[answered]} cannot say whether it is the same"
            )
        return Checksum("adler32", value) if value else None

    async def _prepare(self) -> None:
        """Continue from the state that an earlier run left, or begin anew."""
        size = self._agreement.size
        assert size is not None
        expected = expectation(self._file.checksums) or expectation(self._agreement.digests)
        algorithm = expected.algorithm if expected else None
        header = describe(size, self._urls, self._agreement.said, [expected] if expected else [])
        earlier = recall(self._partial.journal_path, header, self._partial.directory)
        if earlier.extents and not (expected or self._file.pieces):
            earlier = await self._continued(header, earlier)
        kept = await in_thread(self._partial.begin, size, earlier.extents, algorithm)
        self._journal = Journal.create(self._partial.journal_path, earlier.header, kept, own=self._partial.directory)
        self._resumed = Intervals((extent.start, extent.end) for extent in kept)
        if earlier.trouble and not self._resumed:
            self._notice = earlier.trouble
        self._urls = [origin.url for origin in earlier.header.origins]
        missing = self._partial.missing()
        self._scheduler = Scheduler(
            size, self._estimates, self._settings.policy, missing=missing, most=self._most, seed=self._seed
        )
        lanes = self._scheduler.state.lanes
        witnesses = WitnessServers(
            self._sources, lambda source: lanes[source].answers, self._holders(header, earlier.header)
        )
        stated_by = self._agreement.stated_by(expected) if expected and not self._file.checksums else None
        compare = self._settings.keep_checksums
        self._verification = Verification(
            self._partial, witnesses, expected, self._file.pieces, compare=compare, stated_by=stated_by
        )
        self._verification.add(self._partial.pieces())

    def _holders(self, now: Header, all_known: Header) -> dict[int, int]:
        """Return the replicas that only an earlier run used, if they are still named, with their current numbers."""
        numbers = {origin.url: number for number, origin in enumerate(now.origins)}
        earlier = enumerate(all_known.origins[len(now.origins) :], len(now.origins))
        return {number: numbers[origin.url] for number, origin in earlier if origin.url in numbers}

    def _close_journal(self) -> None:
        if self._journal:
            self._journal.close()

    def _agree(self, source: int, stat: Stat) -> None:
        """Process a replica's answer.

        :raises CoallocError: as `Agreement.check`
        """
        self._agreement.check(source, stat)
        if self._continuation:
            self._continuation.hear(source, stat)
        if self._journal:
            self._journal.identify(source, stat)

    async def _continued(self, header: Header, earlier: Recollection) -> Recollection:
        """Return the usable part of the earlier run, as far as the first answers show: nothing if replicas changed.

        If one has changed, this waits for the others, which may be unchanged.
        """
        origins = {extent.source: earlier.header.origins[extent.source] for extent in earlier.extents}
        continuation, said = Continuation(origins, header.origins), self._agreement.said
        known = [source for source in said if source in continuation.unheard]
        if known and not any(continuation.is_same(source, said[source]) for source in known):
            await self._runner.hear(set(continuation.unheard) - said.keys())
        for source in sorted(said, key=lambda source: not continuation.is_same(source, said[source])):
            with suppress(ReplicaChanged):  # raised again when it is connected
                continuation.hear(source, said[source])
        self._continuation = continuation
        if continuation.begun_anew:
            names = ", ".join(sorted({redact(origins[number].url) for number in continuation.changed}))
            self._notice = f"what an earlier run left is not used: {names} was changed since the fetch began"
            return Recollection(header)
        return earlier

    async def _fetch_and_verify(self) -> None:
        assert self._scheduler is not None
        assert self._verification is not None
        assert self._journal is not None
        lanes, continuation = self._scheduler.state.lanes, self._continuation
        file = JudgedFile(self._target.name, self._partial, self._journal, self._resumed)
        judge = Judge(file, self._urls, lanes, self._runner, self._verification, continuation)
        event: Event | None = Started(self._loop.time(), self._runner.connected)
        while event:
            self._phase, self._fetched_at = "fetching", None
            await self._run(self._scheduler, event)
            self._phase, self._fetched_at = "verifying", self._loop.time()
            if not (self._file.checksums or self._file.pieces):  # else no server's answer matters
                await self._runner.hear_the_late()
            event = await judge.judge()
            self._notice = judge.notice or self._notice

    async def _run(self, scheduler: Scheduler, event: Event) -> None:
        """Run the scheduler until all ranges are fetched.

        :raises ReplicaChanged: when no source is left, as all have changed
        """
        try:
            await self._runner.run(scheduler, event)
        except TransferFailed:
            changed = [error for error in self._runner.errors.values() if isinstance(error, ReplicaChanged)]
            if len(changed) == len(self._sources):
                raise changed[0] from None
            raise

    def _write(self, source: int, offset: int, view: memoryview) -> None:
        assert self._verification is not None
        assert self._journal is not None
        fresh = self._partial.write(source, offset, view)
        self._journal.append(fresh)
        self._verification.add(fresh)

    # Views and report

    async def _show(self) -> None:
        assert self._watch is not None
        await asyncio.sleep(FIRST_LOOK)
        while True:
            self._watch(self.snapshot())
            await asyncio.sleep(LOOK)

    def snapshot(self) -> Snapshot:
        """Return the current state of the transfer."""
        now = self._loop.time()
        if self._scheduler is None:
            waiting = unstarted_views(self._urls, self._runner.errors)
            return Snapshot(self._target.name, self._phase, now - self._began, sources=waiting)
        state = self._scheduler.state
        views = source_views(state, self._urls, now)
        rate = sum(view.rate for view in views)
        left = state.size - state.final.total
        return Snapshot(
            name=self._target.name,
            phase=self._phase,
            seconds=now - self._began,
            done_bytes=state.final.total,
            resumed_bytes=self._resumed.total,
            size=state.size,
            rate=rate,
            eta_seconds=left / rate if rate else None,
            sources=views,
        )

    def report(self) -> TransferReport:
        """Return the results of the transfer so far."""
        now = self._loop.time()
        size = self._agreement.size or 0
        scheduler, checked = self._scheduler, self._verification
        if scheduler is None or checked is None:
            sources = unstarted_reports(self._urls, self._runner.errors)
        else:
            until = now if self._fetched_at is None else self._fetched_at
            sources = source_reports(scheduler.state, self._urls, checked.bad, self._began, until)
        moved = sum(source.bytes for source in sources)
        seconds = now - self._began
        return TransferReport(
            output=str(self._target),
            size=size,
            seconds=seconds,
            rate=moved / seconds if seconds else 0.0,
            strategy=self._settings.policy.name,
            resumed_bytes=self._resumed.total,
            duplicate_bytes=self._partial.duplicate_bytes if scheduler else 0,
            checksum=checked.checksum if checked else self._here,
            basis=checked.basis if checked else self._here_by,
            rationale=scheduler.rationale if scheduler else "",
            notice=self._notice,
            there=self._here is not None,
            sources=(*sources, *(SourceReport(url, error=why) for url, why in self._file.left_out)),
        )

"""The download of one file, from the first server's answer to its final name.

It connects the runner, the partial file, its journal and the verification.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from coalloc.download.arrivals import Arrivals
from coalloc.download.continuation import Continuation
from coalloc.download.existing_target import ExistingTarget
from coalloc.download.judge import Judge, JudgedFile
from coalloc.download.transfer import Admit, PastErrors, Transfer
from coalloc.engine.base import Source
from coalloc.errors import CoallocError, ReplicaChanged, TargetExists
from coalloc.model.checksums import Checksum, Confirm
from coalloc.model.forecasts import Estimate
from coalloc.model.progress import Snapshot
from coalloc.model.promises import Deadline
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.model.reports import SourceReport, TransferReport
from coalloc.partial_file import Header, Journal, PartialFile, Recollection, describe, matching_bytes, recall
from coalloc.safe_text import redact
from coalloc.schedule.events import Event
from coalloc.schedule.pauses import TRIES
from coalloc.schedule.policies import Policy
from coalloc.util.disk import in_thread
from coalloc.util.intervals import Intervals
from coalloc.verify import Verification, WitnessServers, expectation
from coalloc.verify.statements import Contradiction

__all__ = ["Download", "DownloadSettings"]


class DownloadSettings(NamedTuple):
    """The user's options apart from the file.

    :param policy: the strategy
    :param most: maximum number of sources at once; None for no limit
    :param keep_checksums: whether to compute checksums of arriving pieces, with which replicas are compared
    :param within: real path of a directory that the target must not leave by a symbolic link
    :param replace: whether the file may replace a file with other content
    :param beside: name of the directory for partial data; None for `NAME.coget`
    :param confirm: awaited when the file is complete; if it raises an error, the file does not get its final name
    :param deadline: time by which the file must be complete; as few sources are used as it needs
    :param past_errors: as for `Transfer`
    :param is_whole: returns whether an earlier run fetched one of the versions that servers state, which it gets by
        URL; called in a thread
    :param tries: as for `Transfer`
    :param admit: awaited after the forecast for the deadline
    """

    policy: Policy
    most: int | None = None
    keep_checksums: bool = True
    within: Path | None = None
    replace: bool = True
    beside: str | None = None
    confirm: Confirm | None = None
    deadline: Deadline | None = None
    past_errors: PastErrors = dict
    is_whole: Callable[[Mapping[str, Stat]], bool] | None = None
    tries: int = TRIES
    admit: Admit | None = None


class Download(Transfer):
    """The fetch of one file to `target`, a path of this machine."""

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
        super().__init__(
            file,
            sources,
            estimates,
            str(target),
            settings.policy,
            settings.most,
            watch,
            seed,
            settings.deadline,
            settings.past_errors,
            settings.tries,
        )
        self._target = target
        self._settings = settings
        self._locked: PartialFile | None = None
        self._continuation: Continuation | None = None
        self._journal: Journal | None = None
        self._verification: Verification | None = None
        self._resumed = Intervals()
        self._arrivals = [Arrivals() for _ in sources]
        self._time = asyncio.get_running_loop().time
        self._notice: str | None = None
        self.written: os.stat_result | None = None
        """The state of the file before it got its name; None if this run did not write or compare it."""
        self._senders: set[int] = set()
        """Sources whose bytes the complete file has."""
        self._existing = ExistingTarget(target, settings.within, file, self._agreement)

    async def run(self) -> TransferReport:
        async with self._under_way():
            try:
                with self._lock() as self._locked:
                    await self._fetch_unless_there()
                    self._complete_at = time.time()
            finally:
                if self._verification:
                    self._verification.cancel()
        return self.report()

    async def _fetch_unless_there(self) -> None:
        if await self._is_there():
            self._resumed.add(0, self._agreement.size or 0)
        else:
            await self._fetch_and_publish()

    async def _is_there(self) -> bool:
        """Return whether the target is the wanted file already; if not, the first source is connected.

        :raises TargetExists: if it has other content, and must not be replaced
        """
        existing, settings = self._existing, self._settings
        if await existing.has(expectation(self._file.checksums), "given"):
            return True
        await self._connect()
        if await existing.was_fetched(settings.is_whole, self._versions(self._agreement.answered)):
            return True
        stated = await existing.server_checksum(self._sources) if settings.keep_checksums else None
        if await existing.has(stated, "own word"):
            return True
        if not settings.replace:
            await existing.refuse_to_replace(stated)
        return False

    async def _fetch_and_publish(self) -> None:
        try:
            judge = await self._prepare()
            await self._fetch(partial(self._judged, judge))
        except ReplicaChanged:
            for source, error in self._connections.errors.items():
                if isinstance(error, ReplicaChanged):
                    self._distrust(source)
            raise
        finally:
            if self._journal:
                self._journal.close()
        self._senders = self._senders_of_today()
        if self._settings.confirm:
            await in_thread(self._partial.sync)  # now, so that nothing slow follows the confirmation
            await self._settings.confirm(judge.basis != "none" or not self._agreement.size)
        with suppress(asyncio.CancelledError):  # once publishing has begun, finishing it is the cleanest stop
            await in_thread(self._publish)

    @property
    def versions(self) -> dict[str, Stat]:
        """The versions that the complete file has, by URL: of its senders, and of replicas that state its checksum."""
        checksum = self._verification and self._verification.checksum
        return self._versions(self._senders | (self._agreement.stated_by(checksum) if checksum else set()))

    def _versions(self, replicas: Iterable[int]) -> dict[str, Stat]:
        """Return the versions that these replicas stated, by URL, without those that have changed since."""
        errors, answers = self._connections.errors, self._agreement.first_answers
        unchanged = [i for i in replicas if i in answers and not isinstance(errors.get(i), ReplicaChanged)]
        return {self._sources[i].url: answers[i] for i in unchanged}

    def _senders_of_today(self) -> set[int]:
        """Return the sources whose bytes the file has, with those that have not changed since an earlier run."""
        senders, continuation = self._partial.senders, self._continuation
        urls = {source.url: i for i, source in enumerate(self._sources)}
        unchanged = continuation.confirmed & senders if continuation else set()
        return {i for i in senders if i < len(self._sources)} | {
            urls[self._urls[i]] for i in unchanged if self._urls[i] in urls
        }

    @property
    def _partial(self) -> PartialFile:
        assert self._locked is not None
        return self._locked

    def _lock(self) -> PartialFile:
        settings = self._settings
        return PartialFile(
            self._target, keep_checksums=settings.keep_checksums, within=settings.within, beside=settings.beside
        )

    def _publish(self) -> None:
        """Give the file its name, unless an existing file with the same content must not be replaced."""
        try:
            self.written = self._partial.publish(replace=self._settings.replace)
        except TargetExists:
            with suppress(OSError):
                self.written = os.lstat(self._target)  # before it is compared
            fetched = Checksum("sha256", self._partial.digest("sha256"))
            if matching_bytes(self._target, fetched, self._partial.size, self._settings.within) is None:
                raise
            self._partial.revoke(0, self._partial.size)  # so that no partial data are kept
            self._notice = f"{self._target} existed already"

    async def _prepare(self) -> Judge:
        """Continue from the state that an earlier run left, or begin anew; return the judge of the complete file."""
        stated = [] if self._file.pieces else self._agreement.digests  # a server does not outweigh given hashes
        expected = expectation(self._file.checksums) or expectation(stated)
        header = self._header(expected)
        earlier = await self._recalled(header)
        journal = await self._begin(earlier, expected)
        missing = self._partial.missing()
        await self._admit(sum(end - start for start, end in missing))
        self._urls = [origin.url for origin in earlier.header.origins]  # also those that only the earlier run used
        in_use = self._schedule(missing).state.sources
        witnesses = WitnessServers(
            self._sources, lambda source: in_use[source].answers, self._holders(header, earlier.header)
        )
        return Judge(
            JudgedFile(self._target.name, self._partial, journal, self._resumed),
            self._urls,
            in_use,
            self._connections,
            self._begin_verification(witnesses, expected),
            self._continuation,
            self._arrivals,
            self._file.guests,
        )

    def _header(self, expected: Checksum | None) -> Header:
        """Return the description of this run's file and replicas for the journal."""
        size = self._agreement.size
        assert size is not None
        return describe(size, self._urls, self._agreement.first_answers, [expected] if expected else [])

    async def _begin(self, earlier: Recollection, expected: Checksum | None) -> Journal:
        """Begin the partial file and its journal with what is left of an earlier run."""
        known = [each.algorithm for each in ([expected] if expected else []) + self._agreement.digests]
        retained = await in_thread(self._partial.begin, earlier.header.size, earlier.extents, known)
        journal = Journal.create(self._partial.journal_path, earlier.header, retained, own=self._partial.directory)
        self._journal = journal
        self._resumed = Intervals((extent.start, extent.end) for extent in retained)
        if earlier.trouble and not self._resumed:
            self._notice = earlier.trouble
        return journal

    async def _admit(self, left: int) -> None:
        """Forecast the finish if there is a deadline, and ask whether the missing bytes may arrive by then.

        :raises DeadlineRefused: if they may not
        """
        if self._deadline:
            await self._forecast(left)
            if self._settings.admit:
                await self._settings.admit(left)

    def _begin_verification(self, witnesses: WitnessServers, expected: Checksum | None) -> Verification:
        """Begin the verification of the file with the pieces of an earlier run."""
        self._verification = verification = Verification(
            self._partial,
            witnesses,
            expected,
            self._file.pieces,
            compare=self._settings.keep_checksums,
            stated_by=self._agreement.stated_by(expected) if expected and not self._file.checksums else None,
            stated=lambda: self._agreement.stated,
            guests=self._file.guests,
        )
        verification.add(self._partial.pieces())
        return verification

    def _holders(self, now: Header, all_known: Header) -> dict[int, int]:
        """Return the current number of each earlier run's replica (by its journal number) that is named in this run."""
        numbers = {origin.url: number for number, origin in enumerate(now.origins)}
        earlier = enumerate(all_known.origins[len(now.origins) :], len(now.origins))
        return {number: numbers[origin.url] for number, origin in earlier if origin.url in numbers}

    def _agree(self, source: int, stat: Stat) -> None:
        """Compare a replica's answer with the others', and record its version.

        :raises CoallocError: as `Agreement.check`
        """
        try:
            super()._agree(source, stat)
        except ReplicaChanged:
            self._distrust(source)
            raise
        if self._continuation:
            self._continuation.add_answer(source, stat)
        if self._journal:
            self._journal.identify(source, stat)

    def _distrust(self, source: int) -> None:
        """Record the bytes of a changed replica as missing, as they may be of either version.

        A later run could not tell if it found the old version again, as after the restore of a backup.
        """
        if self._journal:
            for start, end in self._partial.delivered_by(source):
                self._journal.revoke(start, end)

    async def _recalled(self, header: Header) -> Recollection:
        """Return what the earlier run left, or nothing of it if the first answers show that its replicas changed.

        If no answering replica is unchanged, this waits for the others, which may be.

        :param header: the description of this run's file and replicas
        """
        earlier = recall(self._partial.journal_path, header, self._partial.directory)
        if not earlier.extents or header.checksums or self._file.pieces:
            return earlier  # known hashes of the file decide about its bytes
        origins = {extent.source: earlier.header.origins[extent.source] for extent in earlier.extents}
        continuation, answers = Continuation(origins, header.origins), self._agreement.first_answers
        known = [source for source in answers if source in continuation.unanswered]
        if known and not any(continuation.is_same(source, answers[source]) for source in known):
            await self._connections.await_answers(set(continuation.unanswered) - answers.keys())
        for source in sorted(answers, key=lambda source: not continuation.is_same(source, answers[source])):
            with suppress(ReplicaChanged):  # raised again when the source is connected
                continuation.add_answer(source, answers[source])
        self._continuation = continuation
        if continuation.begun_anew:
            names = ", ".join(sorted({redact(origins[number].url) for number in continuation.changed}))
            self._notice = f"the data of an earlier run are not used: {names} was changed since that run"
            return Recollection(header)
        return earlier

    async def _judged(self, judge: Judge) -> Event | None:
        """Judge the complete file, after waiting for late sources if their answers matter."""
        if not (self._file.checksums or self._file.pieces):  # expected checksums decide without any server's answer
            await self._runner.await_late_answers(self._file.guests)
            if self._verification and (late := expectation(self._agreement.digests)):
                self._verification.expect(late, self._agreement.stated_by(late))
        event = await judge.judge()
        self._notice = judge.notice or self._notice
        return event

    def _cause(self) -> CoallocError | None:
        changed = [error for error in self._connections.errors.values() if isinstance(error, ReplicaChanged)]
        return changed[0] if len(changed) == len(self._sources) else None

    def _write(self, source: int, start: int, end: int, data: memoryview | None) -> None:
        assert data is not None, "these engines deliver bytes"
        assert self._verification is not None
        assert self._journal is not None
        fresh = self._partial.write(source, start, data)
        self._journal.append(fresh)
        self._verification.add(fresh)
        self._arrivals[source].add(self._time(), start, end)

    @property
    def _name(self) -> str:
        return self._target.name

    @property
    def _bad(self) -> Mapping[int, str]:
        return self._verification.bad if self._verification else {}

    @property
    def _contradictions(self) -> Sequence[Contradiction]:
        return self._verification.contradictions if self._verification else ()

    def snapshot(self) -> Snapshot:
        """Return the current state of the transfer."""
        return super().snapshot()._replace(resumed_bytes=self._resumed.total)

    def report(self) -> TransferReport:
        """Return the results of the transfer so far."""
        known, checked = super().report(), self._verification
        return known._replace(
            resumed_bytes=self._resumed.total,
            duplicate_bytes=self._locked.duplicate_bytes if self._locked else 0,
            checksum=checked.checksum if checked else self._existing.checksum,
            basis=checked.basis if checked else self._existing.basis,
            notice=self._notice or self._existing.notice,
            there=self._existing.is_wanted,
            sources=(*known.sources, *(SourceReport(url, error=why) for url, why in self._file.left_out)),
        )

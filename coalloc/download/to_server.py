"""A copy of one file from several GridFTP servers to another one, co-allocated; no bytes pass this machine.

As in a download, the scheduler decides which source copies which range. The difference is the destination: a file with
a temporary name at the sink, which is renamed when it is complete and verified. A failed copy is deleted.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from coalloc.download.transfer import Transfer
from coalloc.engine.gridftp.remote_source import RemoteSource
from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import CoallocError, NoSpace, ReplicaChanged, SourceError, VerificationError
from coalloc.model.checksums import Confirm, Extent
from coalloc.model.forecasts import Estimate
from coalloc.model.progress import Snapshot
from coalloc.model.replicas import ReplicaSet
from coalloc.model.reports import TransferReport
from coalloc.schedule import Scheduler
from coalloc.schedule.events import Event, Rejected
from coalloc.schedule.policies import Policy
from coalloc.util.intervals import Intervals
from coalloc.verify import AtSink, WitnessServers

__all__ = ["ServerCopy"]


class ServerCopy(Transfer):
    """The copy of one file to a server.

    :param sources: sources that write to the temporary path at the sink
    :param login: function that logs in to the sink, to verify and to rename
    :param names: the temporary path and the final path
    :param output: the URL of the final path, without secrets
    :param confirm: awaited before the file gets its name; an exception ends the copy
    """

    def __init__(
        self,
        file: ReplicaSet,
        sources: Sequence[RemoteSource],
        estimates: Sequence[Estimate],
        login: Callable[[], Awaitable[Storage]],
        names: tuple[str, str],
        output: str,
        policy: Policy,
        watch: Callable[[Snapshot], None] | None = None,
        seed: int = 0,
        confirm: Confirm | None = None,
    ) -> None:
        super().__init__(file, sources, estimates, output, policy, watch=watch, seed=seed)
        self._writers = sources
        self._login = login
        self._names = names
        self._confirm = confirm
        self._checked: AtSink | None = None
        self._here = Intervals()
        self._first = [Intervals() for _ in sources]
        """Ranges that each source delivered first."""
        self._wrong: dict[int, str] = {}
        self._duplicate_bytes = 0

    async def run(self) -> TransferReport:
        async with self._under_way():
            await self._copy()
        return self.report()

    async def _copy(self) -> None:
        try:
            await self._connect()
            scheduler = self._schedule()
            in_use = scheduler.state.sources
            witnesses = WitnessServers(self._sources, lambda source: in_use[source].answers)
            size = self._agreement.size or 0
            self._checked = checked = AtSink(witnesses, size, self._file.checksums)
            if not size:
                await self._writers[self._agreement.answered[0]].make_empty()
            await self._fetch(partial(self._judge, scheduler, checked))
        except BaseException:
            self._stop_clock()
            await self._runner.close()  # before the deletion, else the sources would create the file again
            with suppress(SourceError):
                async with await self._login() as store:
                    await store.delete(self._names[0])
            raise

    async def _judge(self, scheduler: Scheduler, checked: AtSink) -> Event | None:
        """Compare the file with the sources; give it its name if it is right, else return the ranges to copy again."""
        async with await self._login() as store:  # an idle session may have been closed meanwhile
            bad = await checked.find_bad(self._pieces(), partial(store.checksum, self._names[0]))
            bad = bad or await self._unconfirmed(checked)
            if not bad:
                if self._confirm:
                    await self._confirm(checked.basis != "none" or not self._agreement.size)
                await store.rename(*self._names)
                return None
        return self._reject(scheduler, bad)

    def _cause(self) -> CoallocError | None:
        return next((error for error in self._connections.errors.values() if isinstance(error, NoSpace)), None)

    async def _unconfirmed(self, checked: AtSink) -> dict[int, str]:
        """Return the sources that have, or may have, changed since they delivered, with the reasons.

        Without doubt by a whole file's expected checksum, there are none. Doubts do not count if replicas agree.
        """
        if checked.knows_the_whole:
            return {}
        errors = await self._connections.recheck(i for i, first in enumerate(self._first) if first)
        certain = {i: e for i, e in errors.items() if isinstance(e, ReplicaChanged) or checked.basis != "agree"}
        return {i: error.message for i, error in certain.items()}

    def _pieces(self) -> list[Extent]:
        return sorted(Extent(start, end, i) for i, first in enumerate(self._first) for start, end in first)

    def _write(self, source: int, start: int, end: int, data: memoryview | None) -> None:
        """Record that a range is at the sink."""
        fresh = self._here.gaps(start, end)
        for gap in fresh:
            self._first[source].add(*gap)
        self._here.add(start, end)
        self._duplicate_bytes += end - start - sum(stop - at for at, stop in fresh)

    def _reject(self, scheduler: Scheduler, bad: Mapping[int, str]) -> Rejected:
        """Mark all ranges that bad sources wrote, even over others' bytes, as missing; return the event for it."""
        self._wrong |= bad
        wrong = [each for source in bad for at in self._writers[source].touched for each in self._here.within(*at)]
        for held in (self._here, *self._first):
            for start, end in wrong:
                held.remove(start, end)
        if all(each.index in self._wrong or each.status == "dropped" for each in scheduler.state.sources):
            why = "; ".join(f"{self._urls[i]}: {reason}" for i, reason in self._wrong.items())
            raise VerificationError(
                f"{self._output} could not be verified, and no other source is left. {why}",
                "check the expected checksum, or give a replica that is known to be good",
            )
        return Rejected(self._loop.time(), tuple(bad), tuple(wrong))

    @property
    def _name(self) -> str:
        return self._output.rpartition("/")[2]

    @property
    def _bad(self) -> Mapping[int, str]:
        return self._wrong

    def report(self) -> TransferReport:
        """Return the results of the copy so far."""
        checked = self._checked
        return (
            super()
            .report()
            ._replace(
                duplicate_bytes=self._duplicate_bytes,
                checksum=checked.checksum if checked else None,
                basis=checked.basis if checked else "none",
            )
        )

"""Many files, several at a time. A file that fails does not end the others, unless the disk is full."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

from coalloc.download.connections import stop
from coalloc.errors import CoallocError, DiskFull
from coalloc.model.progress import Snapshot
from coalloc.model.replicas import ReplicaSet
from coalloc.model.reports import Results, TransferReport
from coalloc.util.concurrency import gather

__all__ = ["AT_ONCE", "FetchFile", "FileResult", "ManyFiles", "ManyView"]

AT_ONCE = 16
"""Files that are fetched at the same time: a small file takes a few round trips, in which little is transferred."""
SHOW = 0.125
"""Seconds between two views for the display."""
RECENT = 3.0
"""Seconds over which the shown rate is measured."""
SHOWN = 5
"""Number of newest failures in a view."""


class FileResult(NamedTuple):
    """The end of one file: its report, None if it was not begun, and its error, None if it is complete."""

    name: str
    report: TransferReport | None
    error: CoallocError | None = None


class ManyView(NamedTuple):
    """The current state of many files.

    `done_bytes` are those that arrived in this run; `size` is None, as not all sizes are known. `failures` are the
    newest failures, each with the file's name and the reason.
    """

    name: str
    phase: Literal["fetching", "done"]
    seconds: float
    done_bytes: int
    size: int | None
    rate: float
    eta_seconds: float | None
    files: int
    files_done: int
    files_failed: int
    current: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()


FetchFile = Callable[[ReplicaSet, Callable[[Snapshot], None], Results[TransferReport]], Awaitable[TransferReport]]
"""`await fetch(file, watch, results)`: fetch one file; after an error, `results` has the report so far."""


class ManyFiles:
    """The fetch of many files.

    :param name: name of the whole, for the display
    :param fetch: fetches one of them
    :param take: called for each file when it is complete or has failed, in this order
    :param watch: receives a view several times a second
    """

    def __init__(
        self,
        name: str,
        files: Sequence[ReplicaSet],
        fetch: FetchFile,
        take: Callable[[FileResult], None],
        watch: Callable[[ManyView], None] | None = None,
    ) -> None:
        self._name = name
        self._files = files
        self._left: Iterator[ReplicaSet] = iter(files)
        self._fetch = fetch
        self._take = take
        self._watch = watch
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._arrived: dict[str, int] = {}
        """Bytes of each file that is being fetched."""
        self._bytes = self._done = self._failed = 0
        self._failures = deque[tuple[str, str]](maxlen=SHOWN)
        self._past = deque([(self._began, 0)])
        """Times and numbers of bytes that had arrived, of the last seconds."""

    @property
    def unbegun(self) -> int:
        """The number of files that were not begun, because the disk is full."""
        return len(self._files) - self._done - self._failed

    async def run(self) -> None:
        """Fetch all files."""
        showing = [asyncio.create_task(self._show(self._watch))] if self._watch else []
        try:
            await gather(*(self._work() for _ in range(min(AT_ONCE, len(self._files)))))
        finally:
            await stop(showing)
        if self._watch:
            self._watch(self._view("done"))

    async def _work(self) -> None:
        while file := next(self._left, None):  # not a `for`: it would keep the iterator when the disk is full
            await self._one(file)

    async def _one(self, file: ReplicaSet) -> None:
        results, name = Results[TransferReport](several=True), file.name
        self._arrived[name] = 0
        try:
            report = await self._fetch(file, partial(self._note, name), results)
        except CoallocError as error:
            if isinstance(error, DiskFull):
                self._left = iter(())
            self._failed += 1
            self._failures.append((name, error.summary))
            self._take(FileResult(name, results.unfinished, error))
        else:
            self._done += 1
            self._bytes += sum(source.bytes for source in report.sources)
            self._take(FileResult(name, report))
        finally:
            del self._arrived[name]

    def _note(self, name: str, snapshot: Snapshot) -> None:
        self._arrived[name] = snapshot.done_bytes - snapshot.resumed_bytes

    async def _show(self, watch: Callable[[ManyView], None]) -> None:
        while True:
            watch(self._view("fetching"))
            await asyncio.sleep(SHOW)

    def _view(self, phase: Literal["fetching", "done"]) -> ManyView:
        now, arrived = self._clock(), self._bytes + sum(self._arrived.values())
        while len(self._past) > 1 and self._past[1][0] < now - RECENT:
            self._past.popleft()
        since, before = self._past[0]
        self._past.append((now, arrived))
        ended, seconds = self._done + self._failed, now - self._began
        return ManyView(
            self._name,
            phase,
            seconds,
            arrived,
            None,
            max(0.0, arrived - before) / (now - since) if now > since else 0.0,
            seconds * (len(self._files) - ended) / ended if ended else None,
            len(self._files),
            self._done,
            self._failed,
            tuple(self._arrived),
            tuple(self._failures),
        )

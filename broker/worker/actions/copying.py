"""Third-party copies between two GridFTP servers; no data pass through this machine.

A file is written under a temporary name, compared by checksum, and then renamed. One pair of sessions copies many files
at once. A file whose earlier attempt failed is copied alone, so that it cannot affect other files if it makes a server
fail.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from broker.models.tasks import Options, Work
from broker.models.work import WorkResult
from broker.services.collections.trees import GridFTPTree, called, named
from broker.worker.concurrency import of_each
from broker.worker.copy_sessions import CopyEnds, Route, Routes
from broker.worker.fence import LeaseLost
from broker.worker.policy.faults import VerificationDemand, at_source, failed
from broker.worker.rate_limits import RateLimits
from broker.worker.recorder import Recorder
from broker.worker.temporary_names import earlier, names, temporary
from broker.worker.transfer_records import Move, of_batch
from coalloc.api import Storage
from coalloc.errors import CoallocError, ConnectionLost, NoSuchFile, ReplicaChanged, Unsupported, VerificationError
from coalloc.model.routes import DIRECTLY
from coalloc.util.concurrency import gather
from coalloc.util.intervals import Intervals

__all__ = ["Copying", "delete_partial_files"]

AT_ONCE = 32
"""Default number of files that one pair of sessions copies at once."""
LARGE = 64 << 20
"""Bytes from which a file's source is checked before a copy, and its partial data are kept for a retry."""
REPORTED = 1 << 20
"""Smallest size in bytes of files with progress reports during the copy."""
ALGORITHMS = ("sha256", "sha1", "md5", "adler32")
"""Checksum algorithms, in order of preference; the first that both servers support is used."""


class Copying:
    """Copies between two collections at GridFTP servers.

    :param owner_and_site: the task's owner, and the destination's site
    :param lenient: whether to copy files that cannot be verified
    """

    def __init__(
        self,
        routes: Routes,
        source: GridFTPTree,
        sink: GridFTPTree,
        options: Options,
        limits: RateLimits,
        owner_and_site: tuple[str, str],
        lenient: bool = False,
    ) -> None:
        self._demand = VerificationDemand(options, (source.naming.name, sink.naming.name), lenient)
        self._routes = routes
        self._source = source
        self._sink = sink
        self._options = options
        self._ends = CopyEnds(source.server, sink.server, options.perf_p or 1)
        self._limits = limits
        self._owner, self._site = owner_and_site
        self._at_once = options.perf_pp or AT_ONCE

    async def copy(self, batch: Sequence[Work], recorder: Recorder) -> None:
        """Copy a batch of files, and report each result."""
        for group in _groups(batch):
            began, moves = time.time(), list[Move]()
            try:
                async with self._routes.one(self._ends) as route:
                    why = named(route.pair.notice, (self._source.naming, self._sink.naming))
                    self._routes.depots.note(recorder, group[0].task_id, route.pair.route, why)
                    outcomes = await self._side_by_side(route, group, recorder, moves)
            except CoallocError as error:
                outcomes = [error for _ in group]
            given_up = self._report(group, outcomes, recorder)
            with suppress(CoallocError):  # the cleanup after the task tries again
                await delete_partial_files(self._sink, given_up)
            streams = self._ends.parallelism
            recorder.observe(self._owner, of_batch(self._source.server.source, self._site, began, moves, streams))

    def _report(self, group: Sequence[Work], outcomes: Sequence[Exception | None], recorder: Recorder) -> list[Work]:
        """Report the failed work items.

        If one error broke the connection, the work items that lost the connection are not reported, so that they are
        retried without counting an attempt.

        :returns: work items that are not retried
        """
        given_up = []
        broken = any(error and not isinstance(error, ConnectionLost) for error in outcomes)
        for work, error in zip(group, outcomes, strict=True):
            if error and not (broken and isinstance(error, ConnectionLost)):
                result = failed(work, error, self._options)
                recorder.report(result)
                given_up += [work] if result.state != "pending" else []
        return given_up

    async def _side_by_side(
        self, route: Route, group: Sequence[Work], recorder: Recorder, moves: list[Move]
    ) -> list[Exception | None]:
        """Copy files, several at a time, and report those that succeed; return an error for each file, or None.

        :param moves: list that receives the files that were copied as a whole in this attempt
        """
        outcomes: list[Exception | None] = [None] * len(group)
        left = iter(enumerate(group))

        async def some() -> None:
            for number, work in left:
                try:
                    await recorder.fence.check_if_silent(work)
                    begun = time.time()
                    with called(self._source.naming, self._sink.naming):
                        result = await self._copy(route, work, recorder)
                    recorder.report(result)
                    if result.counts.get("files_transferred") and not work.received:
                        moves.append(Move(work, begun, time.time()))
                except Exception as error:
                    outcomes[number] = error

        await gather(*(some() for _ in range(min(self._at_once, len(group)))))
        return outcomes

    async def _copy(self, route: Route, work: Work, recorder: Recorder) -> WorkResult:
        with at_source():
            await self._source.readable(work.source)
        await self._sink.writable(work.destination)
        source, sink = self._source.at(work.source), self._sink.at(work.destination)
        beside = temporary(sink, work)
        for name in earlier(sink, work):  # a worker that counts as dead can no longer rename them
            with suppress(NoSuchFile):
                await route.sink.delete(name)
        size, received = work.size, Intervals(work.received)
        if work.size >= LARGE or work.attempt > 1:
            size, received = await self._look(route, work, source)
        algorithm = work.details.checksum.partition(":")[0] if work.details.checksum else None
        if work.details.compare and await self._same(route, work, size, algorithm):
            return WorkResult(work, "succeeded", counts={"files_skipped": 1, "bytes": -work.size})
        if not (algorithm or _can_verify(route)):
            self._demand.check(work, verified=not size)
        await self._move(route, work, (source, beside, size), received, recorder)
        checksum = await self._verified(route, work, (source, beside, size), algorithm, recorder)
        if self._options.preserve_timestamp and work.details.modified is not None:
            await route.sink.touch(beside, work.details.modified)
        await self._name(route, work, (beside, sink), recorder)
        checksummed = {"bytes_checksummed": size} if checksum else {}
        done = WorkResult(work, "succeeded", checksum, counts={"files_transferred": 1, **checksummed})
        return self._demand.marked(done, checksum is not None or not size, time.time())

    async def _name(self, route: Route, work: Work, names: tuple[str, str], recorder: Recorder) -> None:
        """Give a file its final name if this worker still holds the lease.

        If the lease is lost after the check, the next worker with the lease deletes the temporary file first.
        """
        try:
            await self._sink.writable(work.destination)
            await recorder.fence.check(work)
        except LeaseLost:
            with suppress(CoallocError):
                await route.sink.delete(names[0])
            raise
        await route.sink.rename(*names)

    async def _look(self, route: Route, work: Work, source: str) -> tuple[int, Intervals]:
        """Return the file's current size, and the ranges that the destination has; none if the file has changed."""
        with at_source():
            entry = await route.source.stat(source)
        if entry.size is None:
            raise ReplicaChanged(f"{work.source} has no size any more", "check the file at the source")
        same = (entry.size, entry.modified) == (work.size, work.details.modified)
        if same and work.received and await self._has(route, work):
            return entry.size, Intervals(work.received)
        with suppress(NoSuchFile):
            await route.sink.delete(temporary(self._sink.at(work.destination), work))
        return entry.size, Intervals()

    async def _has(self, route: Route, work: Work) -> bool:
        """Return whether the partial file of an earlier attempt exists, and is large enough."""
        try:
            beside = await route.sink.stat(temporary(self._sink.at(work.destination), work))
        except NoSuchFile:
            return False
        return (beside.size or 0) >= max(end for _, end in work.received)

    async def _move(
        self, route: Route, work: Work, what: tuple[str, str, int], received: Intervals, recorder: Recorder
    ) -> None:
        source, beside, size = what
        had = received.total

        def arrived(start: int, end: int) -> None:
            before = received.total
            received.add(start, end)
            recorder.moved(work.task_id, received.total - before)
            if size >= LARGE:
                recorder.progress(work, received)

        on_bytes = arrived if size >= REPORTED else None
        ranges = received.gaps(0, size) if had else None
        admission = None
        if self._limits:
            admission = self._limits.of(self._source.url(work.source), self._sink.url(work.destination))
        if admission and size:
            for start, end in _pieces([(0, size)] if ranges is None else ranges, admission.piece):
                await admission.wait(end - start)
                await recorder.fence.check_if_silent(work)
                await route.pair.copy(source, beside, size, [(start, end)], on_bytes)
        elif ranges is None or ranges:
            await route.pair.copy(source, beside, size, ranges, on_bytes)
        if received.total < size:
            recorder.moved(work.task_id, size - received.total)
        if ranges or admission:  # a copy of the whole file would have detected a change
            with at_source():
                now = (await route.source.stat(source)).size
            if now != size:
                raise ReplicaChanged(
                    f"{work.source} changed from {size} to {now} bytes during the copy", "it is copied again"
                )

    async def _verified(
        self, route: Route, work: Work, what: tuple[str, str, int], algorithm: str | None, recorder: Recorder
    ) -> str | None:
        """Return the checksum that both servers report; None if none is required or possible.

        :raises VerificationError: when they differ from each other, or from the expected checksum
        :raises Unsupported: when a server does not support the given algorithm
        """
        if not self._demand.of(work):
            return None
        source, beside, size = what
        name, ours, theirs = await self._checksums(route, source, beside, size, algorithm)
        if name is None:
            if algorithm:
                raise Unsupported(f"{work.source}: no server knows the checksum {algorithm}", "leave out the checksum")
            self._demand.check(work, verified=not size)
            return None
        expected = work.details.stated_checksum.partition(":")[2].lower() if work.details.stated_checksum else ours
        if ours == theirs == expected:
            return f"{name}:{ours}"
        with suppress(CoallocError):
            await route.sink.delete(beside)
        recorder.progress(work, Intervals())
        wrong = f"{work.source}: {name} is {ours} at the source, {theirs} at the destination, and should be {expected}"
        relayed = ours != theirs and route.pair.route != DIRECTLY
        if relayed:  # the next attempt is direct, as the depot may have altered bytes
            route.pair.fail(ConnectionLost(wrong, "connect again"), broken=True)
        raise VerificationError(
            f"{wrong}; the data came over {route.pair.route}" if relayed else wrong,
            "it is copied again; if that does not help, check the disks of both servers",
        )

    async def _same(self, route: Route, work: Work, size: int, algorithm: str | None) -> bool:
        source, sink = self._source.at(work.source), self._sink.at(work.destination)
        try:
            await self._sink.readable(work.destination)
            name, ours, theirs = await self._checksums(route, source, sink, size, algorithm)
        except NoSuchFile:
            return False
        return name is not None and ours == theirs

    async def _checksums(
        self, route: Route, source: str, sink: str, size: int, algorithm: str | None
    ) -> tuple[str | None, str | None, str | None]:
        """Return an algorithm that both servers support, and both checksums; None for all three if there is none."""
        for name in (algorithm,) if algorithm else ALGORITHMS:
            ours, theirs = await gather(
                _of_source(route.source, source, name, size), route.sink.checksum(sink, name, 0, size)
            )
            if ours is not None and theirs is not None:
                return name, ours, theirs
        return None, None, None


async def delete_partial_files(sink: GridFTPTree, batch: Sequence[Work]) -> None:
    """Delete the partial files of work items from all workers; the source need not exist.

    :raises CoallocError: when partial files may remain
    """

    async def one(work: Work) -> None:
        for name in names(work.destination, work):
            with suppress(NoSuchFile, Unsupported):  # a path that the server does not support was never written
                await sink.delete(name)

    await of_each(one, batch)


async def _of_source(server: Storage, path: str, algorithm: str, size: int) -> str | None:
    with at_source():
        return await server.checksum(path, algorithm, 0, size)


def _can_verify(route: Route) -> bool:
    """Return whether both servers advertise a common checksum algorithm."""
    return any(route.source.offers(name) and route.sink.offers(name) for name in ALGORITHMS)


def _pieces(ranges: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges divided into pieces of at most `most` bytes.

    >>> list(_pieces([(0, 5), (7, 8)], 2))
    [(0, 2), (2, 4), (4, 5), (7, 8)]
    """
    for start, end in ranges:
        for at in range(start, end, most):
            yield at, min(end, at + most)


def _groups(batch: Sequence[Work]) -> Iterator[Sequence[Work]]:
    """Yield groups of work items to copy at once: first all new ones, then each retried one alone."""
    if fresh := [work for work in batch if work.attempt == 1]:
        yield fresh
    for work in batch:
        if work.attempt > 1:
            yield [work]

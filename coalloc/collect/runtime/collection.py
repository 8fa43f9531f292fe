"""One collect job, from the check for existing files to the renaming of the last file.

It connects method, runner, carrier and finisher.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from coalloc.collect.methods import Method
from coalloc.collect.methods.actions import Piece
from coalloc.collect.runtime.carrier import Carrier, Listener
from coalloc.collect.runtime.checking import FAST
from coalloc.collect.runtime.destination import Destination
from coalloc.collect.runtime.finishing import Finisher
from coalloc.collect.runtime.holder import Holder
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.meter import ByteMeter
from coalloc.collect.runtime.partial_files import clear_partial_files, is_of_files
from coalloc.collect.runtime.runner import CollectRunner
from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.staging import DirectoryReplaced, StagingArea, clear
from coalloc.collect.runtime.staging_records import StagingRecords
from coalloc.collect.values import Collected, CollectionPhase, CollectReport, CollectView, LeftBehind
from coalloc.errors import CoallocError, FilesFailed, NotEmpty, SourceError, TargetExists
from coalloc.model.checksums import Checksum
from coalloc.planner.network import Demand, File
from coalloc.util.concurrency import gather
from coalloc.util.disk import in_thread

__all__ = ["LOOK", "Choose", "CollectJob", "Field", "MethodChoice", "error_of_files"]

CLEARING_SECONDS = 30.0
"""Seconds after the last file in which what killed jobs left may still be removed; a later job goes on with it."""
LOOK = 0.125
"""Seconds between two views for the display."""
SHOWN = 5
"""Maximum number of file names in one message."""


class MethodChoice(NamedTuple):
    """A method, and the planned seconds with relays and without; None if unknown."""

    method: Method
    planned_seconds: float | None = None
    direct_seconds: float | None = None


Choose = Callable[[Demand], MethodChoice]


@dataclass(frozen=True)
class Field:
    """The participants: servers by label, their staging areas, and the destination; and the records of such areas."""

    servers: Mapping[str, Holder]
    areas: Mapping[str, StagingArea]
    landing: Destination
    records: StagingRecords


class CollectJob:
    """A collect job.

    :param output: name of the destination, for users
    :param choose: function that chooses the method, called when it is known which files are already present
    :param watch: callback that gets a view several times a second
    :param loops: URLs of directories that were left out because their listings repeat, for the report
    :param unused: URLs of replicas that are not used, with the reason, for the report
    :param failed: errors of files that could not be looked up, by name or URL
    """

    def __init__(
        self,
        items: Sequence[CollectItem],
        field: Field,
        output: str,
        choose: Choose,
        watch: Callable[[CollectView], None] | None = None,
        seed: int = 0,
        loops: Sequence[str] = (),
        unused: Mapping[str, str] = MappingProxyType({}),
        failed: Mapping[str, CoallocError] = MappingProxyType({}),
    ) -> None:
        self._items = items
        self._field = field
        self._output = output
        self._choose = choose
        self._watch = watch
        self._chance = Random(seed)
        self._loops = loops
        self._unused = unused
        self._failed: dict[str, Exception] = dict(failed)
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._meter = ByteMeter()
        self._there: dict[str, Collected] = {}
        self._unknown: set[str] = set()
        """Files that have to be fetched to be compared with those of the same size at the destination."""
        self._choice: MethodChoice | None = None
        self._runner: CollectRunner | None = None
        self._carrier: Carrier | None = None
        self._finisher: Finisher | None = None
        self._done = False
        self._ended_at: float | None = None
        self._left: list[LeftBehind] = []
        self._cleared: list[str] = []

    async def run(self) -> CollectReport:
        """Collect everything. If that fails, `report` has the results so far.

        :raises FilesFailed: when some of several files fail; finished files keep their names
        :raises CoallocError: when it fails
        """
        showing = self._loop.create_task(self._show()) if self._watch else None
        clearing = self._loop.create_task(self._clear())
        try:
            await self._collect()
            await asyncio.wait({clearing}, timeout=CLEARING_SECONDS)
        finally:
            clearing.cancel()
            await asyncio.wait({clearing})
            self._ended_at = self._loop.time()
            await self._close()
            if showing:
                showing.cancel()
        self._done = True
        if self._watch:
            self._watch(self.view())
        return self.report()

    async def _collect(self) -> None:
        found = await gather(*(self._look(item) for item in self._items))
        self._there = {each.name: each for each in found if each}
        await self._refuse_to_replace()
        label = self._field.landing.label
        missing = {item.name: item for item in self._items if item.name not in self._there}
        beside = [missing.pop(item.name) for item in list(missing.values()) if label in item.paths]
        demand = Demand(tuple(_file(item, label) for item in missing.values()))
        self._choice = self._choose(demand)
        self._runner = CollectRunner(self._choice.method, missing, label, self._connect, self._finish)
        self._carrier = self._runner.carrier
        self._finisher = Finisher(self._field.servers, self._field.landing, self._carrier)
        for item in beside:  # a file at the destination's own server needs no method
            try:
                await self._carrier.fetch(label, item, Piece(item.name, 0, item.size))
                self._there[item.name] = await self._finish(item, [(0, item.size)])
            except CoallocError as error:
                if label in self._carrier.lost:
                    raise
                self._failed[item.name] = error
        await self._runner.run()
        if failed := self._failed | self._runner.errors:
            raise error_of_files(failed, self._count)

    @property
    def _count(self) -> int:
        """The number of all files, also of those that could not be looked up."""
        return len(self._failed.keys() | {item.name for item in self._items})

    def _connect(self, listener: Listener) -> Carrier:
        return Carrier(self._field.servers, self._field.areas, self._field.landing, listener, self._chance)

    async def _finish(self, item: CollectItem, pieces: list[tuple[int, int]]) -> Collected:
        assert self._finisher is not None
        return await self._finisher.finish(item, pieces, self._began)

    async def _refuse_to_replace(self) -> None:
        """Check that the job replaces no file without permission. :raises TargetExists: if it would"""
        known = self._there.keys() | self._unknown
        foreign = [item for item in self._items if item.foreign and item.name not in known]
        if self._field.landing.overwrite or not foreign:
            return
        there = await gather(*(self._field.landing.exists(item) for item in foreign))
        if taken := [item.name for item, is_there in zip(foreign, there, strict=True) if is_there]:
            more = f" and {len(taken) - SHOWN} more" if len(taken) > SHOWN else ""
            raise TargetExists(
                f"files exist at {self._output}, and are not known to be the same: {', '.join(taken[:SHOWN])}{more}",
                "use --overwrite to replace them, or choose another directory with --to",
            )

    async def _look(self, item: CollectItem) -> Collected | None:
        """Return the file if it is already at its destination, with the expected checksum or its origin's."""
        landing = self._field.landing
        if not await landing.resembles(item):
            return None
        wanted = item.expected or item.pieces or await self._checksum(item)
        known = await landing.has(item, wanted) if wanted else await landing.fetched_before(item)
        if not known:
            if wanted is None and landing.compares:
                self._unknown.add(item.name)
            return None
        if cleared := await landing.clear(item):
            self._cleared.append(cleared)
        checksum = wanted if isinstance(wanted, Checksum) else None
        return Collected(item.name, landing.place(item), item.size, "there", None, checksum, wanted is not None)

    async def _clear(self) -> None:
        """Remove the staging areas and partial files that killed jobs left at the servers of this one."""
        records = self._field.records
        servers = {label: each for label, each in self._field.servers.items() if isinstance(each, CollectServer)}
        for record in await in_thread(records.abandoned, servers):
            where = f"{record.server}{record.path}"
            above = where.rpartition("/")[0]
            if is_of_files(record) and any(self._field.landing.place(i) != f"{above}/{i.name}" for i in self._items):
                continue  # of a job with another destination, whose next run will find the files
            try:
                if is_of_files(record):
                    names = [item.name for item in self._items]
                    deleted = await clear_partial_files(servers[record.server], record, names)
                    self._cleared += [f"{record.server}{path}" for path in deleted]
                elif await clear(servers[record.server], record):
                    self._cleared.append(where)
            except (DirectoryReplaced, NotEmpty) as error:
                self._left.append(LeftBehind(where, error.message))
            except SourceError as error:  # a later job tries again
                self._left.append(LeftBehind(where, error.message))
                continue
            await in_thread(records.forget, record)

    async def _checksum(self, item: CollectItem) -> Checksum | None:
        """Return the checksum of a file from a server that holds it."""
        if not item.size:
            return Checksum(FAST, "00000001")
        for host, path in item.paths.items():
            with suppress(SourceError):
                if digest := await self._field.servers[host].checksum(path, FAST, 0, item.size):
                    return Checksum(FAST, digest)
        return None

    async def _close(self) -> None:
        if self._carrier:
            self._left += await self._carrier.close()
        await self._field.landing.close()
        await asyncio.gather(*(server.close() for server in self._field.servers.values()))

    # Display

    async def _show(self) -> None:
        assert self._watch is not None
        while True:
            await asyncio.sleep(LOOK)
            self._watch(self.view())

    @property
    def _there_bytes(self) -> int:
        return sum(each.size for each in self._there.values())

    def view(self) -> CollectView:
        """Return the current state of the collect job."""
        now = self._loop.time()
        done = self._runner.done_bytes if self._runner else 0
        if self._carrier:
            self._meter.add(now, self._carrier.landed_bytes - self._meter.bytes)
        rate = self._meter.rate(now)
        size = sum(item.size for item in self._items)
        left = size - done - self._there_bytes
        collected = len(self._runner.collected) if self._runner else 0
        return CollectView(
            name=self._output,
            phase=self._phase(left),
            seconds=now - self._began,
            done_bytes=done + self._there_bytes,
            size=size,
            rate=rate,
            eta_seconds=left / rate if rate > 0 and left else None,
            files=len(self._items),
            files_done=len(self._there) + collected,
            pairs=self._carrier.views() if self._carrier else (),
            guarantees=self._choice.method.guarantees() if self._choice else {},
        )

    def _phase(self, left: int) -> CollectionPhase:
        if self._done:
            return "done"
        if self._runner is None:
            return "connecting"
        return "collecting" if left else "verifying"

    def report(self) -> CollectReport:
        """Return the results so far."""
        until = self._loop.time() if self._ended_at is None else self._ended_at
        carrier, choice = self._carrier, self._choice
        method = choice.method if choice else None
        return CollectReport(
            output=self._output,
            size=sum(item.size for item in self._items),
            seconds=until - self._began,
            method=method.name if method else "",
            rationale=method.rationale if method else "",
            planned_seconds=choice.planned_seconds if choice else None,
            direct_seconds=choice.direct_seconds if choice else None,
            files=(*map(self._outcome, self._items), *self._not_looked_up()),
            pairs=carrier.reports(self._began) if carrier else (),
            there_bytes=self._there_bytes + self._field.landing.found_bytes,
            duplicate_bytes=method.ledger.duplicate_bytes if method else 0,
            mended_bytes=self._finisher.mended_bytes if self._finisher else 0,
            staged_bytes=carrier.staged_bytes if carrier else 0,
            peaks={host: peak for host, peak in method.ledger.peak.items() if peak} if method else {},
            gone=dict(carrier.lost) if carrier else {},
            left=tuple(self._left),
            cleared=tuple(self._cleared),
            loops=tuple(self._loops),
            guarantees=method.guarantees() if method else {},
            unused=dict(self._unused),
        )

    def _outcome(self, item: CollectItem) -> Collected:
        found = self._there.get(item.name) or (self._runner and self._runner.collected.get(item.name))
        if found:
            return found
        error = self._failed.get(item.name) or (self._runner and self._runner.errors.get(item.name))
        return Collected(item.name, self._field.landing.place(item), item.size, error=str(error) if error else None)

    def _not_looked_up(self) -> list[Collected]:
        known = {item.name for item in self._items}
        return [Collected(name, "", 0, error=str(error)) for name, error in self._failed.items() if name not in known]


def error_of_files(failed: Mapping[str, Exception], files: int) -> Exception:
    """Return one error for all failed files of a job.

    :param failed: the error of each failed file, at least one
    :param files: number of all files
    """
    errors = {name: error for name, error in failed.items() if isinstance(error, CoallocError)}
    unexpected = next((error for name, error in failed.items() if name not in errors), None)
    if unexpected or files == 1:
        return unexpected or next(iter(errors.values()))
    return FilesFailed(errors, files)


def _file(item: CollectItem, destination: str) -> File:
    return File(item.name, item.size, tuple(item.paths), (destination,))

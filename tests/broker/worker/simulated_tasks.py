"""Tasks between local directories that behave like servers: no server runs, and all failures are injected.

The broker's worker and all decisions are real; the servers' answers about files and the copies of bytes are simulated.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, MutableSequence, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from broker.models.collections import Collection
from broker.models.lanes import LaneCandidate
from broker.models.tasks import Work
from broker.models.work import WorkResult
from broker.services.auth.permissions import Reach
from broker.services.collections.trees import LocalTree
from broker.worker.concurrency import of_each, side_by_side
from broker.worker.executor import Doer, Executor, TaskEnd
from broker.worker.policy.faults import at_source
from broker.worker.recorder import Recorder
from broker.worker.temporary_names import earlier, names, temporary
from broker.worker.worker import Worker
from coalloc.errors import ConnectionLost, IsDirectory, NoSuchFile, PermissionRefused, ReplicaChanged, ServerSays
from coalloc.model.listings import Entry, Omission
from tests.broker.worlds import World

__all__ = ["SimulatedServer", "Trouble", "simulated"]

AT_ONCE = 4


class Trouble:
    """A failure that is injected by chance, and the server call at which the worker dies."""

    def __init__(self, chance: Random, likely: float = 0.0, last: int | None = None) -> None:
        self._chance = chance
        self._likely = likely
        self._left = last
        self.died = asyncio.Event()

    async def call(self) -> None:
        """Return the result, raise a server's error, or never return."""
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.died.set()
        if self.died.is_set():
            await asyncio.Event().wait()
        if self._chance.random() < self._likely:
            kind = self._chance.choice([ConnectionLost, ConnectionLost, ServerSays, PermissionRefused])
            raise kind("this went wrong", "try again")


class SimulatedServer(LocalTree):
    """A directory as a server shows it: links are followed, and dangling links are not listed.

    :param counts: whether listings tell how much they leave out
    """

    def __init__(self, base: Path, name: str, trouble: Trouble, counts: bool) -> None:
        super().__init__(base, name)
        self._trouble = trouble
        self._counts = counts

    def real(self, path: str) -> Path:
        return Path(os.path.realpath(self.at(path)))

    def _folder(self, path: str) -> int:
        return os.open(self.real(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _shown(self, path: str) -> Entry:
        """Return the target of a path, and the target of its link if it is one."""
        here, real = self.at(path), self.real(path)
        found = LocalTree(real.parent, "shown")._stat(f"/{real.name}")
        found = found._replace(name=path.rstrip("/").rpartition("/")[2] or "/")
        if not here.is_symlink():
            return found
        inside = real.is_relative_to(os.path.realpath(self._base))
        return found._replace(link_target=os.path.relpath(real, os.path.realpath(here.parent)) if inside else str(real))

    async def stat(self, path: str) -> Entry:
        await self._trouble.call()
        try:
            found = self._shown(path)
        except OSError as error:
            raise NoSuchFile(f"{path}: {error}", "look") from None
        if path.endswith("/") and found.kind != "dir":
            raise NoSuchFile(f"{path} is no folder", "look")
        return found

    async def list(
        self, path: str, omitted: MutableSequence[Omission] | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        await self._trouble.call()
        hidden, shown = 0, []
        try:
            found = [each.name for each in self.real(path).iterdir()]
        except OSError as error:
            raise NoSuchFile(f"{path}: {error}", "look") from None
        for name in found:
            try:
                shown.append(self._shown(f"{path.rstrip('/')}/{name}"))
            except OSError:
                hidden += 1
        half = len(shown) // 2
        for entries in (shown[:half], shown[half:]):
            await self._trouble.call()
            if entries:
                yield entries
        if hidden and self._counts and omitted is not None:
            omitted.append(Omission("hidden", hidden))

    async def link(self, target: str, path: str) -> None:
        await self._trouble.call()
        with self._parent(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    async def make(self, path: str) -> None:
        await self._trouble.call()
        await super().make(path)

    async def delete(self, path: str) -> None:
        await self._trouble.call()
        await super().delete(path)
        await self._trouble.call()

    async def remove(self, path: str) -> None:
        await self._trouble.call()
        await super().remove(path)

    async def replace(self, old: str, new: str) -> None:
        await self._trouble.call()
        await super().replace(old, new)
        await self._trouble.call()


class _Trees:
    """The simulated endpoints of all tasks, in place of the broker's."""

    def __init__(self, ends: dict[str, SimulatedServer]) -> None:
        self._ends = ends

    async def of(self, collection: Collection, reach: Reach | None = None) -> SimulatedServer:
        return self._ends[str(collection.id)]


class _Carrier(Executor):
    """The broker's carrier, with a simulated transfer of bytes."""

    async def _copier(self, task: LaneCandidate, source: TaskEnd, sink: TaskEnd) -> Doer:
        async def copy(batch: Sequence[Work], recorder: Recorder) -> None:
            await side_by_side(partial(_copy, source.tree, sink.tree, recorder), batch, recorder, task.options, AT_ONCE)

        return copy

    async def delete_partial_files(self, task: LaneCandidate, batch: Sequence[Work]) -> None:
        _, sink = await self._ends(task, await self._rights(task), limited=False)
        assert sink is not None

        async def one(work: Work) -> None:
            for name in names(work.destination, work):
                with suppress(NoSuchFile):
                    await sink.tree.delete(name)

        await of_each(one, batch)


async def _copy(source: SimulatedServer, sink: SimulatedServer, recorder: Recorder, work: Work) -> WorkResult:
    """Copy one file as between servers: under a temporary name, compared, then renamed."""
    for name in earlier(work.destination, work):
        with suppress(NoSuchFile):
            await sink.delete(name)
    beside = temporary(work.destination, work)
    with at_source():
        found = await source.stat(work.source)
        if found.kind != "file":
            raise NoSuchFile(f"{work.source} is no file", "look")
        content = source.at(work.source).read_bytes()
    there = await _there(sink, work.destination)
    if there and there.kind == "dir" and there.link_target is None:
        raise IsDirectory(f"{work.destination} is a directory", "choose another destination")
    if work.details.compare and there and sink.at(work.destination).read_bytes() == content:
        return WorkResult(work, "succeeded", counts={"files_skipped": 1, "bytes": -work.size})
    for piece in (content[: len(content) // 2], content):
        _write(sink, beside, piece)
        await source.stat(work.source)
    with at_source():
        if source.at(work.source).read_bytes() != content:
            raise ReplicaChanged(f"{work.source} has changed", "it is copied again")
    await recorder.fence.check(work)
    await sink.replace(beside, work.destination)
    return WorkResult(work, "succeeded", counts={"files_transferred": 1})


async def _there(sink: SimulatedServer, path: str) -> Entry | None:
    try:
        return await sink.stat(path)
    except NoSuchFile:
        return None


def _write(sink: SimulatedServer, path: str, content: bytes) -> None:
    with sink._parent(path) as (folder, name):
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=folder)
    with open(fd, "wb") as file:
        file.write(content)


def simulated(world: World, roots: dict[str, Path], trouble: Trouble, counts: bool) -> Worker:
    """A worker of a world with these directories as collections."""
    factory = world.factory
    ends = {str(world.collections[name]): SimulatedServer(root, name, trouble, counts) for name, root in roots.items()}
    services = (factory.places, factory.replicas, factory.catalogue, factory.bad_replica_reports, factory.unpromised)
    carrier = _Carrier(factory.database, _Trees(ends), *services)
    worker = Worker(factory.database, factory.transfers, factory.decisions, carrier, factory.settings.site)
    factory.new_work.subscribe(lambda site: worker.wake())
    return worker

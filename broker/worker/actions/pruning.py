"""Discovery of extra entries at the destination of a sync, from new listings of both directories, after all copies.

A directory may have several paths, through links, mounts and servers. So the directories and files that a task reads or
writes are recognized by their servers' ids, and never deleted.
"""

import time
from collections.abc import AsyncIterator, Collection, MutableSequence, Sequence
from contextlib import aclosing
from typing import NamedTuple

from broker.models.tasks import Options, Work, WorkKind
from broker.models.work import PlannedWork, WorkResult
from broker.services.collections.trees import Tree
from broker.storage.database import Database
from broker.storage.folders_of_tasks import Touched
from broker.storage.work import WorkStore
from broker.worker.actions.overlap import Overlap, with_replicas
from broker.worker.policy.extra_entries import Reason, deletion, extras, untouched
from broker.worker.policy.faults import at_source
from broker.worker.policy.selection import included
from broker.worker.temporary_names import on_record, written
from coalloc.errors import NoSuchFile
from coalloc.model.listings import Entry, Omission

__all__ = ["Items", "Pruning", "entries", "is_link", "ours"]


MOST_ODD = 100
"""Most devices, pipes and other special entries of a directory that are checked."""


class Items:
    """A cache of the sources and destinations of tasks' items."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, Sequence[tuple[str, str]]] = {}

    async def of(self, task: str) -> Sequence[tuple[str, str]]:
        """Return the source and destination path of each item."""
        if task not in self._known:
            async with self._database.read() as connection:
                self._known[task] = await WorkStore(connection).items(task)
        return self._known[task]


class _Listed(NamedTuple):
    """A source directory: its names, those that the destination must have, and reasons to distrust the listing."""

    names: set[str]
    brought: set[str]
    reasons: list[Reason]


class Pruning:
    """The planner of deletions of entries that only the destination has."""

    def __init__(self, database: Database, source: Tree, destination: Tree, options: Options) -> None:
        self._database = database
        self._source = source
        self._destination = destination
        self._options = options
        self._overlap = Overlap(source, destination)
        self._items = Items(database)

    async def prune(self, work: Work) -> WorkResult:
        """Plan the deletion of a directory's entries that only the destination has, or report why they are kept."""
        here, there = await self._listed(work), await self._there(work.destination)
        items = await self._items.of(work.task_id)
        held = await ours(self._database, there.keys() - here.names)
        aims = [aim for _, aim in items]
        spare = extras(there.values(), here.names, self._options.filter_rules, work.destination, aims, held)
        if not spare:
            return WorkResult(work, "succeeded")
        missing = set() if self._options.dry_run else here.brought - there.keys()
        reasons = [*here.reasons, *([Reason("names", len(missing), min(missing))] if missing else [])]
        lineage = await self._destination.lineage(work.destination)
        reasons += await self._reasons_against(work, lineage)
        children = []
        if not reasons:
            copied = await self._copied(work, spare)
            to_keep = await self._to_keep(work, spare, lineage, [source for source, _ in items]) - copied
            within = lineage[0] if lineage else None
            children = [deletion(work, entry, within) for entry in spare if entry.name not in to_keep | copied]
            reasons += [Reason("copied", len(copied), min(copied))] if copied else []
            reasons += [Reason("source", len(to_keep), min(to_keep))] if to_keep else []
        if not reasons:
            return WorkResult(work, "succeeded", children=tuple(children))
        events = (untouched(work.destination, reasons[0], time.time()),)
        return WorkResult(work, "succeeded", counts={"folders_not_cleared": 1}, children=tuple(children), events=events)

    async def _listed(self, work: Work) -> _Listed:
        found, omitted, odd = _Listed(set(), set(), []), list[Omission](), list[str]()
        moved = await self._is_moved(work)
        async for some in entries(self._source, work.source, omitted):
            for entry in some:
                if entry.name in found.names:
                    found.reasons.append(Reason("twice", example=entry.name))
                found.names.add(entry.name)
                if self._is_brought(entry):
                    found.brought.add(entry.name)
                elif entry.kind == "other":
                    odd.append(entry.name)
        if made_up := await self._made_up(work.source, odd):
            found.reasons.append(made_up)
        found.reasons.extend(map(Reason.of, omitted))
        if moved or await self._is_moved(work):
            found.reasons.append(Reason("moved"))
        return found

    async def _is_moved(self, work: Work) -> bool:
        """Return whether another directory has replaced the source directory since the task began to copy it."""
        if work.details.unique is None:
            return False
        with at_source():
            return (await self._source.stat(work.source)).unique != work.details.unique

    async def _made_up(self, folder: str, names: Sequence[str]) -> Reason | None:
        """Return a reason to distrust the listing if it has an entry that does not exist.

        A name with a line break becomes two lines, and the second may look like an entry, whose copy fails.
        """
        for name in names[:MOST_ODD]:
            try:
                with at_source():
                    await self._source.stat(folder + name)
            except NoSuchFile:
                return Reason("nameless", 1, name)
        return Reason("nameless", len(names), names[MOST_ODD]) if len(names) > MOST_ODD else None

    def _is_brought(self, entry: Entry) -> bool:
        """Return whether the task must have copied an entry, so that the destination must list it."""
        followed = not is_link(entry) or self._options.recursive_symlinks == "copy"
        return (
            followed
            and entry.kind in ("dir", "file")
            and included(entry.name, entry.kind == "dir", self._options.filter_rules)
        )

    async def _there(self, path: str) -> dict[str, Entry]:
        """Return the entries of the destination's directory.

        :raises NoSuchFile: when it does not exist, except in a dry run
        """
        try:
            async with aclosing(self._destination.list(path)) as listing:
                return {entry.name: entry async for some in listing for entry in some}
        except NoSuchFile:
            if not self._options.dry_run:
                raise
            return {}

    async def _reasons_against(self, work: Work, lineage: Sequence[str | None]) -> list[Reason]:
        """Return the reasons why nothing may be deleted in a directory of the destination."""
        if work.details.linked:
            return [Reason("link")]
        around = set(filter(None, lineage))
        async with self._database.read() as connection:
            touched = Touched(connection)
            if await touched.of(work.task_id, around, "source"):
                return [Reason("source")]
            here = lineage[0] if lineage else None
            paths = await touched.paths(work.task_id, here, "destination") if here else set()
        others = sorted(paths - {work.destination})
        return [Reason("shared", example=others[0])] if others else []

    async def _to_keep(
        self, work: Work, spare: Sequence[Entry], lineage: Sequence[str | None], items: Sequence[str]
    ) -> set[str]:
        """Return names of entries that the task reads or writes under another path, or that contain such entries."""
        found = await self._overlap.sources(work.destination, spare, items)
        found |= await with_replicas(self._database, self._source, self._destination, work.destination, spare)
        tokens = {entry.unique for entry in spare if entry.unique}
        async with self._database.read() as connection:
            known = await Touched(connection).of(work.task_id, tokens, "source", "above", "destination")
        known |= set(filter(None, lineage))  # directories that contain themselves
        return found | {entry.name for entry in spare if entry.unique in known}

    async def _copied(self, work: Work, spare: Sequence[Entry]) -> set[str]:
        """Return names of entries that the task has copied, even if the source lacks them now."""
        written: Sequence[tuple[WorkKind, str]] = (("copy", ""), ("link", ""), ("expand", "/"))
        keys = {
            PlannedWork(kind, f"{work.source}{entry.name}{end}", f"{work.destination}{entry.name}{end}").key: entry.name
            for entry in spare
            for kind, end in written
        }
        async with self._database.read() as connection:
            return {keys[key] for key in await WorkStore(connection).known(work.task_id, keys)}


async def entries(source: Tree, path: str, omitted: MutableSequence[Omission]) -> AsyncIterator[Sequence[Entry]]:
    """Yield the listing of a source directory in batches; mark its errors as the source's."""
    async with aclosing(source.list(path, omitted)) as listing:
        while True:
            with at_source():
                some = await anext(listing, None)
            if some is None:
                return
            yield some


async def ours(database: Database, names: Collection[str]) -> Collection[str]:
    """Return the names in a directory that belong to partial data, according to the database."""
    numbers = {number for name in names if (number := written(name)) is not None}
    if not numbers:
        return ()
    async with database.read() as connection:
        return on_record(await WorkStore(connection).writing(numbers))


def is_link(entry: Entry) -> bool:
    """Return whether an entry is a symbolic link."""
    return entry.link_target is not None or entry.kind == "link"

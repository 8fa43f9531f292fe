"""Finds out what is to be copied: an item that was submitted, or the next folder. Folders are streamed, never held.

A folder is only held where it has to be compared with its other end: for sync levels, and to find what is only there.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, MutableSequence, Sequence
from contextlib import aclosing, suppress

from broker.models.tasks import Details, Event, Options, Work
from broker.services.trees import Tree
from broker.storage.database import Database
from broker.storage.work import LINKED, Planned, Result, Works
from broker.tasks.beside import on_record, written
from broker.tasks.choosing import included, outdated
from broker.tasks.endless import refuse_endless
from broker.tasks.extra import Reason, deletion, extras, untouched
from broker.tasks.faults import at_source
from broker.tasks.overlapping import Overlap
from coalloc.bounds import DEEPEST
from coalloc.errors import AlreadyThere, IsDirectory, NoSuchFile, NotDirectory
from coalloc.model import Entry, Omission

__all__ = ["Looking"]

MUCH = 500
"""So much work is for more than one lane."""


class Plan:
    """What was found: work to be done, and files that are at the destination already; how many of these count."""

    def __init__(self) -> None:
        self.children: list[Planned] = []
        self.there: list[Planned] = []
        self.skipped = 0
        self.folders_not_cleared = 0
        self.events: list[Event] = []

    def taken(self) -> tuple[list[Planned], list[Planned]]:
        """The work and what is there already, which are then somebody else's to keep, and to count."""
        taken = self.children, self.there
        self.children, self.there = [], []
        return taken

    def result(self, work: Work) -> Result:
        """What became of looking."""
        counts = {
            "files_skipped": self.skipped,
            "files": self.skipped,
            "folders_not_cleared": self.folders_not_cleared,
        }
        counts = {name: count for name, count in counts.items() if count}
        return Result(work, "succeeded", counts=counts, children=tuple(self.children), events=tuple(self.events))


class Looking:
    """Looks at one end and plans for the other.

    :param found: is told when a folder has much, before all of it is read
    """

    def __init__(
        self, database: Database, source: Tree, destination: Tree, options: Options, found: Callable[[], None]
    ) -> None:
        self._database = database
        self._source = source
        self._destination = destination
        self._options = options
        self._found = found
        self._there: set[str] = {"/"}
        self._overlap = Overlap(source, destination)
        self._known: dict[str, Sequence[tuple[str, str]]] = {}

    async def look(self, work: Work) -> Result:
        """What an item is.

        :raises IsDirectory: :raises NotDirectory: when it is not what was said
        """
        with at_source():
            entry = await self._source.stat(work.source)
        if entry.kind == "dir":
            if work.details.recursive is False:
                raise IsDirectory(f"{work.source} is a folder", "transfer it recursively")
            details = Details(above=self._above(work, entry))
            folder = Planned("expand", _folder(work.source), _folder(work.destination), details=details)
            return Result(work, "succeeded", children=(folder,))
        if work.details.recursive:
            raise NotDirectory(f"{work.source} is no folder", "leave --recursive out")
        destination = work.destination
        if destination.endswith("/"):
            destination += work.source.rpartition("/")[2]
        await self._make(destination.rpartition("/")[0] or "/")
        there = None if self._options.sync_level is None else await self._stat(destination)
        plan = Plan()
        self._file(plan, entry, work.source, destination, there, work.details.checksum)
        plan.skipped = len(plan.there)
        return plan.result(work)

    async def expand(self, work: Work) -> Result:
        """Plan all that is in a folder, some at a time."""
        _bounded(work)
        await self._make(work.destination)
        level, extra = self._options.sync_level, self._options.delete_destination_extra
        there = await self._listed(work.destination) if level is not None or extra else {}
        inner = await self._inner(work)
        names: set[str] = set()
        reasons: list[Reason] = []
        omitted: list[Omission] = []
        plan, found, told = Plan(), 0, False
        async for entries in self._entries(work.source, omitted):
            for entry in entries:
                if entry.name in names:
                    reasons.append(Reason("twice", example=entry.name))
                elif work.source + entry.name in inner:
                    plan.events.append(_not_into_itself(work, entry))
                else:
                    self._plan(plan, work, entry, there.get(entry.name))
                if extra:
                    names.add(entry.name)
            children, same = plan.taken()
            async with self._database.write() as connection:
                works = Works(connection)
                with at_source():
                    refuse_endless(work, await works.total(work.task_id))
                found += await works.add(work.task_id, children)
                plan.skipped += await works.unplanned(work.task_id, same)
            if found > MUCH and not told:
                told = True
                self._found()
        if extra:
            await self._extra(plan, work, there, names, [*reasons, *map(Reason.of, omitted)])
        return plan.result(work)

    async def _inner(self, work: Work) -> Collection[str]:
        """Folders of the source that the task copies to."""
        if not await self._overlap.at_one_server():
            return ()
        return await self._overlap.inner([aim for _, aim in await self._items(work)])

    async def _extra(
        self, plan: Plan, work: Work, there: Mapping[str, Entry], names: Collection[str], reasons: list[Reason]
    ) -> None:
        """Plan to delete what is only at the destination, but for what there is a reason to leave."""
        items = await self._items(work)
        aims = [aim for _, aim in items]
        ours = await self._ours(there.keys() - names)
        spare = extras(there.values(), names, self._options.filter_rules, work.destination, aims, ours)
        if spare and work.details.linked:
            reasons.append(Reason("link"))
        if spare and not reasons:
            sources = [source for source, _ in items]
            kept = await self._overlap.sources(work.source, work.destination, spare, sources)
            plan.children += [deletion(work, entry) for entry in spare if entry.name not in kept]
            reasons += [Reason("source", len(kept), kept[0])] if kept else []
        if spare and reasons:
            plan.folders_not_cleared = 1
            plan.events.append(untouched(work.destination, reasons[0]))

    async def _ours(self, there: Collection[str]) -> Collection[str]:
        """Those of the names in a folder under which workers write, or wrote, by the database."""
        numbers = {number for name in there if (number := written(name)) is not None}
        if not numbers:
            return ()
        async with self._database.read() as connection:
            return on_record(await Works(connection).numbered(numbers))

    async def _items(self, work: Work) -> Sequence[tuple[str, str]]:
        """Where the items of the task come from and go, which never changes."""
        if work.task_id not in self._known:
            async with self._database.read() as connection:
                self._known[work.task_id] = await Works(connection).items(work.task_id)
        return self._known[work.task_id]

    async def _entries(self, path: str, omitted: MutableSequence[Omission]) -> AsyncIterator[Sequence[Entry]]:
        """A listing of the source."""
        async with aclosing(self._source.list(path, omitted)) as listing:
            while True:
                with at_source():
                    entries = await anext(listing, None)
                if entries is None:
                    return
                yield entries

    def _plan(self, plan: "Plan", work: Work, entry: Entry, there: Entry | None) -> None:
        """Plan for an entry of a folder."""
        folder = entry.kind == "dir"
        if not included(entry.name, folder, self._options.filter_rules):
            return
        source, destination = work.source + entry.name, work.destination + entry.name
        if _is_link(entry):
            if self._options.recursive_symlinks == "keep":
                link = Details(link=entry.link_target)
                plan.children.append(Planned("link", source, destination, details=link, phase=LINKED))
            if self._options.recursive_symlinks != "copy":
                return
        if folder:
            linked = work.details.linked or (there is not None and _is_link(there))
            deeper = Details(depth=work.details.depth + 1, above=self._above(work, entry), linked=linked)
            plan.children.append(Planned("expand", f"{source}/", f"{destination}/", details=deeper))
        elif entry.kind == "file":
            self._file(plan, entry, source, destination, there, None)

    def _above(self, work: Work, entry: Entry) -> tuple[str, ...]:
        """The folders on the way to one that is found, and itself: where links are followed, it may be one of them."""
        followed = self._options.recursive_symlinks == "copy" and entry.unique is not None
        return (*work.details.above, str(entry.unique)) if followed else ()

    def _file(
        self, plan: "Plan", entry: Entry, source: str, destination: str, there: Entry | None, checksum: str | None
    ) -> None:
        needed = outdated(entry, there, self._options)
        details = Details(modified=entry.modified, checksum=checksum, compare=needed is None)
        copy = Planned("copy", source, destination, entry.size or 0, details)
        (plan.there if needed is False else plan.children).append(copy)

    async def _listed(self, path: str) -> dict[str, Entry]:
        try:
            async with aclosing(self._destination.list(path)) as listing:
                return {entry.name: entry async for entries in listing for entry in entries}
        except NoSuchFile:
            if not self._options.dry_run:  # else it was made just now
                raise
            return {}

    async def _stat(self, path: str) -> Entry | None:
        try:
            return await self._destination.stat(path)
        except NoSuchFile:
            return None

    async def _make(self, path: str) -> None:
        """Make a folder at the destination, and those that it is in, unless they are there."""
        if self._options.dry_run:
            return
        outer = path.rstrip("/") or "/"
        inner = []
        while outer not in self._there:
            try:
                await self._one(outer)
            except NoSuchFile:
                inner.append(outer)
                outer = outer.rpartition("/")[0] or "/"
        for folder in reversed(inner):
            await self._one(folder)

    async def _one(self, folder: str) -> None:
        with suppress(AlreadyThere):
            await self._destination.make(folder)
        self._there.add(folder)


def _bounded(work: Work) -> None:
    """:raises NotDirectory: when a folder is its own ancestor, or may well be"""
    *above, here = work.details.above or ("",)
    if here in above or work.details.depth > DEEPEST:
        with at_source():
            raise NotDirectory(f"{work.source} leads in a circle, or too deep", "mend the link, or leave links out")


def _is_link(entry: Entry) -> bool:
    return entry.link_target is not None or entry.kind == "link"


def _not_into_itself(work: Work, entry: Entry) -> Event:
    said = f"{work.source}{entry.name} is left out: it is where the task copies to"
    return Event(time.time(), "NOT_INTO_ITSELF", False, "a folder is left out", said)


def _folder(path: str) -> str:
    return path if path.endswith("/") else f"{path}/"

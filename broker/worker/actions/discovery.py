"""Discovery of files to copy, from submitted items and directories.

Listings are streamed, except those of destination directories that are compared, for sync levels and for extra entries.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing

from broker.models.tasks import Details, Event, Options, Work, WorkKind
from broker.models.work import LINKED, PlannedWork, WorkResult
from broker.services.collections.trees import Tree
from broker.storage.database import Database
from broker.storage.folders_of_tasks import Touch, Touched
from broker.storage.work import WorkStore
from broker.worker.actions.equal_names import EqualNames
from broker.worker.actions.folders import Making
from broker.worker.actions.overlap import Overlap
from broker.worker.actions.pruning import Items, entries, is_link, ours
from broker.worker.policy.extra_entries import PRUNE
from broker.worker.policy.faults import at_destination, at_source
from broker.worker.policy.selection import included, outdated, refuse_endless
from coalloc.errors import AlreadyThere, IsDirectory, NoSuchFile, NotDirectory, PermissionRefused, Unsupported
from coalloc.model.listings import Entry, Omission
from coalloc.safe_text import one_line
from coalloc.util.listing_limits import DEEPEST

__all__ = ["Looking"]

MUCH = 500
"""Number of work items above which more than one lane is useful."""


class LookResult:
    """The result of a look: planned work items, files that the destination has already, and the number of these."""

    def __init__(self) -> None:
        self.children: list[PlannedWork] = []
        self.there: list[PlannedWork] = []
        self.skipped = 0
        self.events: list[Event] = []

    def taken(self) -> tuple[list[PlannedWork], list[PlannedWork]]:
        """Return and clear the planned work items and the files that exist already; the caller stores them."""
        taken = self.children, self.there
        self.children, self.there = [], []
        return taken

    def result(self, work: Work) -> WorkResult:
        """Return the result of the look."""
        counts = {"files_skipped": self.skipped, "files": self.skipped} if self.skipped else {}
        return WorkResult(work, "succeeded", counts=counts, children=tuple(self.children), events=tuple(self.events))


class Looking:
    """The planner of work items for the items and directories of a source.

    :param found: function to call when a directory has many entries, while it is being read
    """

    def __init__(
        self, database: Database, source: Tree, destination: Tree, options: Options, found: Callable[[], None]
    ) -> None:
        self._database = database
        self._source = source
        self._destination = destination
        self._options = options
        self._found = found
        self._making = Making(destination, options.dry_run)
        self._overlap = Overlap(source, destination)
        self._items = Items(database)
        self._lineages: dict[str, Sequence[str | None]] = {}

    async def look(self, work: Work) -> WorkResult:
        """Find out whether an item is a file or a directory, and plan its work.

        :raises IsDirectory: when it is a directory, but was not submitted as recursive
        :raises NotDirectory: when it is no directory, but was submitted as recursive
        :raises PermissionRefused: when it is a link whose target is unknown, or may not be read
        :raises Unsupported: when it is neither a file nor a directory
        """
        with at_source():
            entry = await self._source.stat(work.source)
        if entry.kind == "dir":
            if work.details.recursive is False:
                raise IsDirectory(f"{work.source} is a directory", "transfer it recursively")
            details = Details(above=self._above(work, entry), unique=entry.unique)
            folder = PlannedWork("expand", _folder(work.source), _folder(work.destination), details=details)
            await self._meet(work, entry, folder)
            return WorkResult(work, "succeeded", children=(folder,))
        if entry.kind == "link":
            with at_source():
                why = f"{work.source} leads to a forbidden place, or its server does not report its target"
                raise PermissionRefused(why, "leave out the link")
        if entry.kind == "other":
            with at_source():
                raise Unsupported(f"{work.source} is neither a file nor a directory", "leave it out")
        if work.details.recursive:
            raise NotDirectory(f"{work.source} is not a directory", "leave out --recursive")
        destination = work.destination
        if destination.endswith("/"):
            destination += work.source.rpartition("/")[2]
        await self._making.make(destination.rpartition("/")[0] or "/")
        await self._remember(work, await self._sources(work, entry))
        there = None if self._options.sync_level is None else await self._stat(destination)
        plan = LookResult()
        self._file(plan, entry, work.source, destination, there, work.details.checksum)
        plan.skipped = len(plan.there)
        return plan.result(work)

    async def _meet(self, work: Work, entry: Entry, folder: PlannedWork) -> None:
        """Store the ids of an item's source and destination directories, to recognize them under other paths.

        :raises AlreadyThere: when both are the same directory
        """
        await self._making.make(folder.destination)
        there = await self._stat(folder.destination)
        if there is None:
            return  # a dry run creates no directories
        if (
            there.unique
            and there.unique == entry.unique
            and await self._overlap.is_one(folder.source, folder.destination)
        ):
            raise AlreadyThere(
                f"{work.source} and {work.destination} are the same directory", "choose another destination"
            )
        aim = [Touch("aim", there.unique, folder.destination)] if there.unique else []
        await self._remember(work, [*aim, *await self._sources(work, entry)])

    async def _sources(self, work: Work, entry: Entry) -> list[Touch]:
        """Return the entries not to delete as extra: an item and all directories around it, also by links."""
        if not self._options.delete_destination_extra:
            return []
        folder = work.source if entry.kind == "dir" or is_link(entry) else work.source.rpartition("/")[0] or "/"
        if folder not in self._lineages:
            self._lineages[folder] = await self._source.lineage(folder)
        above = [Touch("above", token, folder) for token in self._lineages[folder] if token and token != entry.unique]
        return [*above, Touch("source", entry.unique, work.source)] if entry.unique else above

    async def _remember(self, work: Work, found: Sequence[Touch]) -> None:
        if found:
            async with self._database.write() as connection:
                await Touched(connection).add(work.task_id, found)

    async def expand(self, work: Work) -> WorkResult:
        """Plan work for all entries of a directory, in batches."""
        _bounded(work)
        await self._making.make(work.destination)
        level, extra = self._options.sync_level, self._options.delete_destination_extra
        there = await self._listed(work.destination) if level is not None or extra else {}
        inner = await self._inner(work)
        names: set[str] = set()
        plan, found, warned = LookResult(), 0, False
        sink = None if self._options.dry_run else (self._destination, work.destination)
        alike = EqualNames((self._source, work.source), sink)
        if extra:
            await self._remember_folder(work)
        omitted: list[Omission] = []
        async for some in entries(self._source, work.source, omitted):
            aims = await self._aims(work, some)
            twins = await alike.of(some)
            held = await ours(self._database, [entry.name for entry in some])
            for entry in some:
                if entry.name in held:
                    continue
                if work.source + entry.name in inner or entry.name in aims:
                    plan.events.append(_not_into_itself(work, entry))
                else:
                    self._plan(plan, work, entry, there.get(entry.name), twins.get(entry.name))
            if extra:
                names.update(entry.name for entry in some)
            children, same = plan.taken()
            led = [entry for entry in some if extra and is_link(entry) and entry.unique]
            async with self._database.write() as connection:
                works = WorkStore(connection)
                await Touched(connection).add(
                    work.task_id, [Touch("source", str(entry.unique), work.source + entry.name) for entry in led]
                )
                with at_source():
                    refuse_endless(work, await works.total(work.task_id))
                found += await works.add(work.task_id, children)
                plan.skipped += await works.unplanned(work.task_id, same)
            if found > MUCH and not warned:
                warned = True
                self._found()
        plan.events += [_not_listed(work, each) for each in omitted]
        if extra and there.keys() - names:
            details = Details(depth=work.details.depth, linked=work.details.linked, unique=work.details.unique)
            plan.children.append(PlannedWork("prune", work.source, work.destination, details=details, phase=PRUNE))
        return plan.result(work)

    async def _remember_folder(self, work: Work) -> None:
        """Store the ids of a directory at the source and the destination, to recognize them under other paths."""
        there = await self._stat(work.destination)
        token = work.details.unique
        here = [Touch("source", token, work.source)] if token else []
        aim = [Touch("destination", there.unique, work.destination)] if there and there.unique else []
        await self._remember(work, [*here, *aim])

    async def _inner(self, work: Work) -> Collection[str]:
        """Return the paths of directories of the source to which the task copies."""
        if not await self._overlap.at_one_server():
            return ()
        return await self._overlap.inner([aim for _, aim in await self._items.of(work.task_id)])

    async def _aims(self, work: Work, found: Sequence[Entry]) -> set[str]:
        """Return the names of directories that are destinations of the task's items, under any path."""
        tokens = {entry.unique: entry.name for entry in found if entry.kind == "dir" and entry.unique}
        async with self._database.read() as connection:
            touched = Touched(connection)
            same = {
                token: await touched.paths(work.task_id, token, "aim")
                for token in await touched.of(work.task_id, tokens.keys(), "aim")
            }
        return {
            tokens[token]
            for token, paths in same.items()
            for path in paths
            if await self._overlap.is_one(work.source + tokens[token], path)
        }

    def _plan(self, plan: LookResult, work: Work, entry: Entry, there: Entry | None, twin: str | None) -> None:
        """Plan work for an entry of a directory."""
        folder = entry.kind == "dir"
        if not included(entry.name, folder, self._options.filter_rules):
            return
        source, destination = work.source + entry.name, work.destination + entry.name
        if is_link(entry):
            if self._options.recursive_symlinks == "keep":
                link = Details(link=entry.link_target or "")
                plan.children.append(PlannedWork("link", source, destination, details=link, phase=LINKED))
            if self._options.recursive_symlinks != "copy":
                return
        if twin and entry.kind in ("dir", "file"):
            kind: WorkKind = "expand" if folder else "copy"
            plan.children.append(PlannedWork(kind, source, destination, details=Details(twin=twin)))
        elif folder:
            linked = work.details.linked or (there is not None and is_link(there))
            deeper = Details(
                depth=work.details.depth + 1, above=self._above(work, entry), linked=linked, unique=entry.unique
            )
            plan.children.append(PlannedWork("expand", f"{source}/", f"{destination}/", details=deeper))
        elif entry.kind == "file":
            self._file(plan, entry, source, destination, there, None)
        elif entry.kind == "link":  # a link whose target is unknown, or may not be read
            plan.children.append(PlannedWork("copy", source, destination))

    def _above(self, work: Work, entry: Entry) -> tuple[str, ...]:
        """Return the ids of a directory and its parents if links are followed, to detect cycles; otherwise nothing."""
        followed = self._options.recursive_symlinks == "copy" and entry.unique is not None
        return (*work.details.above, str(entry.unique)) if followed else ()

    def _file(
        self, plan: "LookResult", entry: Entry, source: str, destination: str, there: Entry | None, checksum: str | None
    ) -> None:
        needed = outdated(entry, there, self._options)
        details = Details(modified=entry.modified, checksum=checksum, compare=needed is None)
        copy = PlannedWork("copy", source, destination, entry.size or 0, details)
        (plan.there if needed is False else plan.children).append(copy)

    async def _listed(self, path: str) -> dict[str, Entry]:
        try:
            async with aclosing(self._destination.list(path)) as listing:
                with at_destination():
                    return {entry.name: entry async for entries in listing for entry in entries}
        except NoSuchFile:
            if not self._options.dry_run:  # otherwise it must exist
                raise
            return {}

    async def _stat(self, path: str) -> Entry | None:
        try:
            with at_destination():
                return await self._destination.stat(path)
        except NoSuchFile:
            return None


def _bounded(work: Work) -> None:
    """Check that a directory is neither its own ancestor nor too deep.

    :raises NotDirectory: otherwise
    """
    *above, here = work.details.above or ("",)
    if here in above or work.details.depth > DEEPEST:
        with at_source():
            raise NotDirectory(
                f"{work.source} leads in a circle, or is nested too deeply", "fix the link, or leave out links"
            )


def _not_into_itself(work: Work, entry: Entry) -> Event:
    message = f"{work.source}{entry.name} is left out, because it is the task's destination"
    return Event(time.time(), "NOT_INTO_ITSELF", False, "skipped a directory", one_line(message))


def _not_listed(work: Work, omission: Omission) -> Event:
    message = f"{work.source}: " + (
        f"the server counts {omission.entries} entries more than it names, for example dangling links"
        if omission.kind == "hidden"
        else f"{omission.entries} lines of the listing have no name: {omission.example!r}"
    )
    return Event(
        time.time(), "NOT_LISTED", False, "some entries are not copied, because they are not listed", one_line(message)
    )


def _folder(path: str) -> str:
    return path if path.endswith("/") else f"{path}/"

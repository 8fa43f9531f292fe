"""Deletion of files and directories: the entries of a directory first, then the directory itself.

No link is followed. Between the listing of a directory and the deletion of its entries, a link may replace the
directory, so that paths lead elsewhere. So the directory's id is checked just before each deletion, and that of an
extra file, too.
"""

import asyncio
import time
from collections.abc import Callable, MutableSequence, Sequence
from contextlib import aclosing
from typing import NamedTuple

from broker.models.tasks import Details, Event, Options, Work
from broker.models.work import PlannedWork, WorkResult
from broker.services.collections.trees import Tree
from broker.storage.database import Database
from broker.storage.folders_of_tasks import Touched
from broker.storage.work import WorkStore
from broker.worker.fence import Fence
from broker.worker.policy.extra_entries import Reason, untouched
from broker.worker.policy.faults import MISSING
from broker.worker.policy.selection import globbed, included, refuse_deep, refuse_endless
from coalloc.errors import IsDirectory, NoSuchFile, NotDirectory, NotEmpty
from coalloc.model.listings import Entry

__all__ = ["Clearing"]

EMPTIED = 1_000_000
"""The phase that removes directories at the root; deeper directories are removed in earlier phases."""
NO_FILE = {"files": -1}
"""Correction of the task's counters for a directory or a pattern that was counted as a file."""
FRESH = 0.1
"""Seconds for which a directory's id counts as checked, to save a round trip for each entry."""


class _Exchanged(NotDirectory):
    """Another directory or file in place of the listed directory."""


class _Seen(NamedTuple):
    """The id of a directory, and the time of the check."""

    at: float
    token: str | None


class Clearing:
    """Deletion at one collection.

    :param extra: whether a sync deletes extra entries; then, doubtful entries are kept and reported
    """

    def __init__(
        self, database: Database, tree: Tree, options: Options, recursive: bool, fence: Fence, extra: bool = False
    ) -> None:
        self._fence = fence
        self._database = database
        self._tree = tree
        self._options = options
        self._recursive = recursive
        self._extra = extra
        self._filter_rules = options.filter_rules
        self._seen: dict[str, _Seen] = {}

    async def delete(self, work: Work) -> WorkResult:
        """Delete a file, or plan the deletion of a directory's entries.

        :raises NoSuchFile: when the file is missing, unless it may be
        :raises IsDirectory: when it is a directory, and the deletion is not recursive
        """
        try:
            return await self._delete(work)
        except IsDirectory:
            raise
        except _Exchanged:
            if not self._extra:
                raise
            return _left(work, Reason("exchanged"))
        except NoSuchFile as error:
            interrupted = work.attempt > 1 and work.error_code != MISSING  # an earlier attempt may have deleted it
            may_be_missing = self._options.ignore_missing or work.details.found or interrupted
            if may_be_missing and (error.certain or await self._is_gone(work.source)):
                return WorkResult(work, "succeeded")
            raise

    async def _delete(self, work: Work) -> WorkResult:
        if self._options.interpret_globs and not work.details.found:
            folder, _, name = work.source.rstrip("/").rpartition("/")
            if fits := globbed(name):
                return await self._globbed(work, folder, fits)
        found = work.details.found or await self._found(work.source)
        await self._check_parent(work)
        if found != "dir":
            if not self._options.dry_run:
                await self._check_file(work)
                await self._fence.check(work)
                await self._tree.delete(work.source)
            return WorkResult(work, "succeeded")
        if not self._recursive:
            raise IsDirectory(f"{work.source} is a directory", "delete it recursively")
        refuse_deep(work)
        folder = work.source.rstrip("/")
        token = await self._check_folder(work, folder)
        events: list[Event] = []
        await self._plan(work._replace(details=work.details._replace(unique=token)), folder, lambda _: True, events)
        details = Details(unique=token, within=work.details.within)
        children = (PlannedWork("remove", folder, details=details, phase=EMPTIED - folder.count("/")),)
        return WorkResult(work, "succeeded", counts=NO_FILE, children=children, events=tuple(events))

    async def _found(self, path: str) -> str:
        """Return the kind of entry at a path; a broken link, which servers hide but can delete, counts as a file."""
        try:
            return _kind(await self._tree.stat(path))
        except NoSuchFile:
            if path.endswith("/") or self._options.dry_run:
                raise
            return "file"

    async def _is_gone(self, path: str) -> bool:
        """Return whether a name is missing in its directory's listing, for servers whose error was not clear."""
        folder, _, name = path.rstrip("/").rpartition("/")
        try:
            async with aclosing(self._tree.list(folder or "/")) as listing:
                return name not in {entry.name async for entries in listing for entry in entries}
        except NoSuchFile as error:
            return error.certain

    async def _check_parent(self, work: Work) -> None:
        """Check that the parent is the directory that was listed.

        :raises _Exchanged: when another directory has replaced it
        """
        if work.details.within is None:
            return
        folder = work.source.rstrip("/").rpartition("/")[0] or "/"
        now = asyncio.get_running_loop().time()
        if folder not in self._seen or now > self._seen[folder].at + FRESH:
            self._seen[folder] = _Seen(now, (await self._tree.stat(f"{folder.rstrip('/')}/")).unique)
        if self._seen[folder].token != work.details.within:
            raise _Exchanged(f"{folder} was replaced by another directory", "check it, and submit a new task")

    async def _check_file(self, work: Work) -> None:
        """Check that an extra file is the one that was listed, if its server tells; a broken link passes.

        :raises _Exchanged: when another file has taken its name, or it was written to
        """
        if not self._extra or work.details.unique is None:
            return
        try:
            now = await self._tree.stat(work.source)
        except NoSuchFile:
            return
        if (now.unique, now.modified) != (work.details.unique, work.details.modified):
            raise _Exchanged(f"{work.source} was replaced by another file", "check it, and submit a new task")

    async def _check_folder(self, work: Work, folder: str) -> str | None:
        """Return the id of a directory.

        :raises _Exchanged: when it is not the listed directory
        """
        now = await self._tree.stat(folder)
        known = work.details.unique
        if _kind(now) != "dir" or (known is not None and now.unique != known):
            raise _Exchanged(f"{folder} was replaced by another directory", "check it, and submit a new task")
        return now.unique

    async def _globbed(self, work: Work, folder: str, fits: Callable[[str], bool]) -> WorkResult:
        if not await self._plan(work, folder, fits, []):
            raise NoSuchFile(f"no entry matches {work.source}", "list the directory to see its entries")
        return WorkResult(work, "succeeded", counts=NO_FILE)

    async def _plan(
        self,
        work: Work,
        folder: str,
        fits: Callable[[str], bool],
        events: MutableSequence[Event],
    ) -> int:
        """Plan the deletion of a directory's matching entries, in batches; return the number of planned deletions."""
        found = 0
        async with aclosing(self._tree.list(folder or "/")) as listing:
            async for entries in listing:
                chosen = [
                    entry
                    for entry in entries
                    if fits(entry.name) and included(entry.name, _kind(entry) == "dir", self._filter_rules)
                ]
                touched = await self._touched(work, chosen)
                if touched and not events:
                    events.append(untouched(f"{folder}/", Reason("source", len(touched), min(touched)), time.time()))
                children = [
                    PlannedWork("delete", f"{folder}/{entry.name}", details=_deeper(work, entry), phase=work.phase)
                    for entry in chosen
                    if entry.name not in touched
                ]
                found += len(children)
                async with self._database.write() as connection:
                    works = WorkStore(connection)
                    refuse_endless(work, await works.total(work.task_id))
                    await works.add(work.task_id, children)
        return found

    async def _touched(self, work: Work, chosen: Sequence[Entry]) -> set[str]:
        """Return the names of entries that a sync reads or writes under another path."""
        if not self._extra:
            return set()
        async with self._database.read() as connection:
            tokens = {entry.unique for entry in chosen if entry.unique}
            known = await Touched(connection).of(work.task_id, tokens, "source", "above", "destination")
        return {entry.name for entry in chosen if entry.unique in known}

    async def remove(self, work: Work) -> WorkResult:
        """Remove a directory, which should be empty."""
        if self._options.dry_run:
            return WorkResult(work, "succeeded")
        try:
            await self._check_parent(work)
            await self._fence.check(work)
            await self._tree.remove(work.source)
        except _Exchanged:
            if not self._extra:
                raise
            return _left(work, Reason("exchanged"))
        except NoSuchFile:
            pass  # an earlier attempt has removed it
        except NotEmpty:
            if not self._filter_rules:  # filter rules exclude entries, which remain
                if not self._extra:
                    raise
                return _left(work, Reason("left"))
        return WorkResult(work, "succeeded")


def _left(work: Work, reason: Reason) -> WorkResult:
    """Return the result for an entry that a sync keeps, with the reason."""
    counts = {"folders_not_cleared": 1}
    return WorkResult(work, "succeeded", counts=counts, events=(untouched(work.source, reason, time.time()),))


def _deeper(work: Work, entry: Entry) -> Details:
    known = Details(entry.modified, found=_kind(entry), unique=entry.unique, within=work.details.unique)
    return known._replace(depth=work.details.depth + 1)


def _kind(entry: Entry) -> str:
    """Return "dir" for a directory, and "file" for all other entries, including links."""
    return "dir" if entry.kind == "dir" and entry.link_target is None else "file"

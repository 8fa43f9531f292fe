"""Deletes files and folders: each folder is gone through, and removed once all in it is gone."""

from collections.abc import Callable
from contextlib import aclosing

from broker.models.tasks import Details, Options, Work
from broker.services.trees import Tree
from broker.storage.database import Database
from broker.storage.work import Planned, Result, Works
from broker.tasks.choosing import globbed, included
from broker.tasks.endless import refuse_deep, refuse_endless
from broker.tasks.faults import MISSING
from coalloc.errors import IsDirectory, NoSuchFile, NotEmpty
from coalloc.model import Entry

__all__ = ["Clearing"]

EMPTIED = 1_000_000
"""The phase in which folders at the root are removed; what is deeper comes before."""
NO_FILE = {"files": -1}
"""What was counted as a file to be deleted is a folder, or a pattern."""


class Clearing:
    """Deletes at one end."""

    def __init__(self, database: Database, tree: Tree, options: Options, recursive: bool) -> None:
        self._database = database
        self._tree = tree
        self._options = options
        self._recursive = recursive
        self._kept = options.filter_rules

    async def delete(self, work: Work) -> Result:
        """Delete a file, or plan for what is in a folder.

        :raises NoSuchFile: unless what is missing may be
        :raises IsDirectory: when folders are not to be deleted
        """
        try:
            return await self._delete(work)
        except IsDirectory:
            raise
        except NoSuchFile:
            interrupted = work.attempt > 1 and work.error_code != MISSING  # it may have deleted it
            if self._options.ignore_missing or work.details.found or interrupted:
                return Result(work, "succeeded")
            raise

    async def _delete(self, work: Work) -> Result:
        if self._options.interpret_globs and not work.details.found:
            folder, _, name = work.source.rstrip("/").rpartition("/")
            if fits := globbed(name):
                return await self._globbed(work, folder, fits)
        found = work.details.found or await self._found(work.source)
        if found != "dir":
            if not self._options.dry_run:
                await self._tree.delete(work.source)
            return Result(work, "succeeded")
        if not self._recursive:
            raise IsDirectory(f"{work.source} is a folder", "delete it recursively")
        refuse_deep(work)
        folder = work.source.rstrip("/")
        await self._plan(work, folder, lambda _: True)
        depth = folder.count("/")
        children = (Planned("remove", folder, phase=EMPTIED - depth),)
        return Result(work, "succeeded", counts=NO_FILE, children=children)

    async def _found(self, path: str) -> str:
        """What is at a path. Servers know nothing of a link that leads nowhere, but delete it."""
        try:
            return _kind(await self._tree.stat(path))
        except NoSuchFile:
            if path.endswith("/") or self._options.dry_run:
                raise
            return "file"

    async def _globbed(self, work: Work, folder: str, fits: Callable[[str], bool]) -> Result:
        if not await self._plan(work, folder, fits):
            raise NoSuchFile(f"nothing fits {work.source}", "list the folder to see what there is")
        return Result(work, "succeeded", counts=NO_FILE)

    async def _plan(self, work: Work, folder: str, fits: Callable[[str], bool]) -> int:
        """Plan to delete what is in a folder and is called so, some at a time; how much that is."""
        found = 0
        async with aclosing(self._tree.list(folder or "/")) as listing:
            async for entries in listing:
                children = [
                    Planned("delete", f"{folder}/{entry.name}", details=_deeper(work, entry), phase=work.phase)
                    for entry in entries
                    if fits(entry.name) and included(entry.name, _kind(entry) == "dir", self._kept)
                ]
                found += len(children)
                async with self._database.write() as connection:
                    works = Works(connection)
                    refuse_endless(work, await works.total(work.task_id))
                    await works.add(work.task_id, children)
        return found

    async def remove(self, work: Work) -> Result:
        """Remove a folder that is empty by now."""
        if self._options.dry_run:
            return Result(work, "succeeded")
        try:
            await self._tree.remove(work.source)
        except NoSuchFile:
            pass  # the last attempt has done it
        except NotEmpty:
            if not self._kept:  # else it has what rules leave alone
                raise
        return Result(work, "succeeded")


def _deeper(work: Work, entry: Entry) -> Details:
    return Details(depth=work.details.depth + 1, found=_kind(entry))


def _kind(entry: Entry) -> str:
    """A link is deleted, never followed."""
    return "dir" if entry.kind == "dir" and entry.link_target is None else "file"

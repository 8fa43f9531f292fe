"""The catalogue as a collection: datasets are files, the scopes and the parts of their names are folders."""

from collections.abc import AsyncGenerator, Mapping, MutableSequence, Sequence

from broker.models.names import Parts
from broker.storage.database import Database
from broker.storage.folders import Child, Folders
from coalloc.errors import NoSuchFile, PermissionRefused
from coalloc.model import Entry, Omission

__all__ = ["CatalogueTree", "meanings"]

BATCH = 1000


def meanings(path: str) -> list[Parts]:
    """What a path can be: a dataset of a scope, or one without; names may begin with a slash of their own.

    >>> [str(each) for each in meanings("/cms/run1/a.root")]
    ['cms:run1/a.root', 'cms:/run1/a.root', 'cms/run1/a.root', '/cms/run1/a.root']
    """
    whole = path.strip("/")
    scope, _, name = whole.partition("/")
    scoped = [Parts(scope, name), Parts(scope, f"/{name}")] if scope else []
    return [*scoped, Parts("", whole), Parts("", f"/{whole}")]


class CatalogueTree:
    """What the catalogue knows, for reading. Of several datasets with one path, it is the one first in `meanings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def did(self, path: str) -> str:
        """The dataset that a path names. :raises NoSuchFile:"""
        async with self._database.read() as connection:
            found = await Folders(connection).dataset(meanings(path))
        if found is None or path.endswith("/"):
            raise _nothing(path)
        return str(found[0])

    async def stat(self, path: str) -> Entry:
        """What is there. :raises NoSuchFile:"""
        name = path.rstrip("/").rpartition("/")[2] or "/"
        async with self._database.read() as connection:
            folders = Folders(connection)
            found = None if path.endswith("/") else await folders.dataset(meanings(path))
            if found:
                return _entry(found[1]._replace(name=name))
            for each in meanings(path):
                if path == "/" or await folders.children(each.scope, _beginning(each), "", 1):
                    return _entry(Child(name, True))
        raise _nothing(path)

    async def list(
        self, path: str, omitted: MutableSequence[Omission] | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """What a folder has, in batches. :raises NoSuchFile:"""
        inside = path.rstrip("/") + "/"
        await self.stat(inside)
        after = ""
        while True:
            async with self._database.read() as connection:
                folders = Folders(connection)
                parts = [await folders.children(each.scope, _beginning(each), after, BATCH) for each in meanings(path)]
                scopes = await folders.scopes() if inside == "/" else []
            ends = [part[-1].key for part in parts if len(part) == BATCH]
            until = min(ends, default="")  # beyond it some part may have more
            parts.insert(0, [Child(scope, True) for scope in scopes if f"{scope}/" > after])
            found = {child.key: child for part in reversed(parts) for child in part if not until or child.key <= until}
            yield [_entry(found[key]) for key in sorted(found)]
            if not until:
                return
            after = until

    async def lineage(self, path: str) -> Sequence[str | None]:
        """Nothing: a dataset's folder is at no server."""
        return ()

    async def end(self, path: str) -> str | None:
        """The path itself: there are no links."""
        return path

    async def held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Each for itself."""
        return {name: name for name in names}

    async def make(self, path: str) -> None:
        """:raises PermissionRefused: always"""
        raise _read_only(path)

    async def rename(self, old: str, new: str) -> None:
        """:raises PermissionRefused: always"""
        raise _read_only(old)

    async def replace(self, old: str, new: str) -> None:
        """:raises PermissionRefused: always"""
        raise _read_only(old)

    async def delete(self, path: str) -> None:
        """:raises PermissionRefused: always"""
        raise _read_only(path)

    async def remove(self, path: str) -> None:
        """:raises PermissionRefused: always"""
        raise _read_only(path)

    async def link(self, target: str, path: str) -> None:
        """:raises PermissionRefused: always"""
        raise _read_only(path)


def _beginning(each: Parts) -> str:
    """Of the names in the folder that this is."""
    return f"{each.name}/" if each.name.strip("/") else each.name


def _entry(child: Child) -> Entry:
    return Entry(child.name, "dir" if child.folder else "file", child.size, int(child.created_at))


def _nothing(path: str) -> NoSuchFile:
    return NoSuchFile(f"the catalogue has no {path}", "list a folder to see what there is")


def _read_only(path: str) -> PermissionRefused:
    return PermissionRefused(f"{path} is in the catalogue, which is for reading", "register datasets instead")

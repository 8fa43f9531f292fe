"""The catalogue as a collection: datasets are files; scopes and the components of names are directories."""

from collections.abc import AsyncGenerator, Mapping, MutableSequence, Sequence

from broker.models.names import Parts
from broker.storage.database import Database
from broker.storage.dataset_folders import Child, Folders
from coalloc.errors import NoSuchFile, PermissionRefused
from coalloc.model.listings import Entry, Omission

__all__ = ["CatalogueTree", "meanings"]

BATCH = 1000


def meanings(path: str) -> list[Parts]:
    """Return the datasets that a path may name: with or without a scope, and with or without a slash before the name.

    >>> [str(each) for each in meanings("/cms/run1/a.root")]
    ['cms:run1/a.root', 'cms:/run1/a.root', 'cms/run1/a.root', '/cms/run1/a.root']
    """
    whole = path.strip("/")
    scope, _, name = whole.partition("/")
    scoped = [Parts(scope, name), Parts(scope, f"/{name}")] if scope else []
    return [*scoped, Parts("", whole), Parts("", f"/{whole}")]


class CatalogueTree:
    """The read-only tree of the catalogue. If several datasets have the same path, it shows the first of `meanings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def did(self, path: str) -> str:
        """Return the full name of the dataset at a path. :raises NoSuchFile:"""
        async with self._database.read() as connection:
            found = await Folders(connection).dataset(meanings(path))
        if found is None or path.endswith("/"):
            raise _nothing(path)
        return str(found[0])

    async def stat(self, path: str) -> Entry:
        """Return the file or directory at a path. :raises NoSuchFile:"""
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
        """Yield the entries of a directory, in batches. :raises NoSuchFile:"""
        inside = path.rstrip("/") + "/"
        await self.stat(inside)
        after = ""
        while True:
            async with self._database.read() as connection:
                folders = Folders(connection)
                parts = [await folders.children(each.scope, _beginning(each), after, BATCH) for each in meanings(path)]
                scopes = await folders.scopes() if inside == "/" else []
            ends = [part[-1].key for part in parts if len(part) == BATCH]
            until = min(ends, default="")  # a full part may have more names after its last key
            parts.insert(0, [Child(scope, True) for scope in scopes if f"{scope}/" > after])
            found = {child.key: child for part in reversed(parts) for child in part if not until or child.key <= until}
            yield [_entry(found[key]) for key in sorted(found)]
            if not until:
                return
            after = until

    async def lineage(self, path: str) -> Sequence[str | None]:
        """Return an empty sequence, since the catalogue is not at a server."""
        return ()

    async def end(self, path: str) -> str | None:
        """Return the path unchanged, since the catalogue has no links."""
        return path

    async def held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Map each name to itself, since all names are different."""
        return {name: name for name in names}

    async def make(self, path: str) -> None:
        """Refuse to create a directory. :raises PermissionRefused: always"""
        raise _read_only(path)

    async def rename(self, old: str, new: str) -> None:
        """Refuse to rename. :raises PermissionRefused: always"""
        raise _read_only(old)

    async def replace(self, old: str, new: str) -> None:
        """Refuse to replace a file. :raises PermissionRefused: always"""
        raise _read_only(old)

    async def delete(self, path: str) -> None:
        """Refuse to delete a file. :raises PermissionRefused: always"""
        raise _read_only(path)

    async def remove(self, path: str) -> None:
        """Refuse to remove a directory. :raises PermissionRefused: always"""
        raise _read_only(path)

    async def link(self, target: str, path: str) -> None:
        """Refuse to create a link. :raises PermissionRefused: always"""
        raise _read_only(path)


def _beginning(each: Parts) -> str:
    """Return the prefix of the names in a directory."""
    return f"{each.name}/" if each.name.strip("/") else each.name


def _entry(child: Child) -> Entry:
    return Entry(child.name, "dir" if child.folder else "file", child.size, int(child.created_at))


def _nothing(path: str) -> NoSuchFile:
    return NoSuchFile(f"the catalogue has no {path}", "list a directory to see its entries")


def _read_only(path: str) -> PermissionRefused:
    return PermissionRefused(f"{path} is in the catalogue, which is read-only", "register datasets instead")

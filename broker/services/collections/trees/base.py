"""The interface of the trees of all kinds of collections."""

from collections.abc import AsyncGenerator, Mapping, MutableSequence, Sequence
from typing import Protocol

from coalloc.model import Entry, Omission

__all__ = ["Tree"]


class Tree(Protocol):
    """A collection's folders and files. Paths are as `services.paths.normal` makes them: from the collection's root.

    Every method raises a `coalloc.errors.SourceError` if the server, or the disk, refuses.
    """

    async def stat(self, path: str) -> Entry:
        """Return what is at a path; for a symbolic link, what the server reports of it. :raises NoSuchFile:"""
        ...

    def list(
        self, path: str, omitted: MutableSequence[Omission] | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of a folder, without `.` and `..`, in batches, in any order. Close it to stop early.

        :param omitted: list that has, at the end, what the listing left out, as far as the server tells
        :raises NoSuchFile:
        """
        ...

    async def lineage(self, path: str) -> Sequence[str | None]:
        """Return the ids of a folder, of the folder that contains it, and so on up to the server's root.

        No other folder has the same id. An id is None if the server does not tell it; the result is empty if there is
        no server.
        """
        ...

    async def end(self, path: str) -> str | None:
        """Return the path at which a path ends when all symbolic links are followed; None outside of the collection."""
        ...

    async def held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Return, for each name, the one of these names that the folder takes it for, as it may ignore case."""
        ...

    async def make(self, path: str) -> None:
        """Make a folder in an existing one."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Move a file or a folder to another path. :raises AlreadyThere: when anything is there"""
        ...

    async def replace(self, old: str, new: str) -> None:
        """Move a file or a link to another path, and replace the file or link that is there, in one step."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file, or a symbolic link."""
        ...

    async def remove(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    async def link(self, target: str, path: str) -> None:
        """Make a symbolic link; its target is relative to the link, or absolute from the collection's root."""
        ...

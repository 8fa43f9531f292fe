"""The interface of the trees of all kinds of collections."""

from collections.abc import AsyncGenerator, Mapping, MutableSequence, Sequence
from typing import Protocol

from coalloc.model.listings import Entry, Omission

__all__ = ["Tree"]


class Tree(Protocol):
    """A collection's directories and files. Paths have the form of `collection_paths.normal`, from its root.

    Every method raises a `coalloc.errors.SourceError` if the server or the operating system reports an error.
    """

    async def stat(self, path: str) -> Entry:
        """Return the entry at a path; for a symbolic link, as the server reports it. :raises NoSuchFile:"""
        ...

    def list(
        self, path: str, omitted: MutableSequence[Omission] | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of a directory, without `.` and `..`, in batches and in any order.

        Close the generator to stop early.

        :param omitted: list that receives the entries that the listing left out, as far as the server reports them
        :raises NoSuchFile:
        """
        ...

    async def lineage(self, path: str) -> Sequence[str | None]:
        """Return the unique ids of a directory and of all directories above it, up to the server's root.

        An id is None if the server does not report it; the result is empty if the collection is not at a server.
        """
        ...

    async def end(self, path: str) -> str | None:
        """Return a path with all symbolic links resolved; None if it is outside the collection."""
        ...

    async def held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Map each name to the first of these that the directory treats as equal, since it may ignore case."""
        ...

    async def make(self, path: str) -> None:
        """Create a directory; its parent must exist."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Move a file or a directory to another path. :raises AlreadyThere: when the new path exists"""
        ...

    async def replace(self, old: str, new: str) -> None:
        """Move a file or a link to another path; atomically replace a file or link there."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file, or a symbolic link."""
        ...

    async def remove(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    async def link(self, target: str, path: str) -> None:
        """Create a symbolic link; its target is relative to the link, or absolute from the collection's root."""
        ...

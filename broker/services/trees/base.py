"""What every collection can be asked, whatever is behind it."""

from collections.abc import AsyncGenerator, Mapping, MutableSequence, Sequence
from typing import Protocol

from coalloc.model import Entry, Omission

__all__ = ["Tree"]


class Tree(Protocol):
    """A collection's folders and files. Paths are as `services.paths.normal` makes them: from the collection's root.

    Every method raises a `coalloc.errors.SourceError` where the server, or the disk, refuses.
    """

    async def stat(self, path: str) -> Entry:
        """What is at a path; of a symbolic link what the server makes of it. :raises NoSuchFile:"""
        ...

    def list(
        self, path: str, omitted: MutableSequence[Omission] | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """What a folder has, in batches, in any order; without `.` and `..`. Who stops early closes it.

        What the listing left out is in `omitted` in the end, as far as the server tells.

        :raises NoSuchFile:
        """
        ...

    async def lineage(self, path: str) -> Sequence[str | None]:
        """What tells a folder, the one that it lies in, and so on up to the server's root, apart from all others.

        None for a folder of which the server does not tell; nothing where there is none.
        """
        ...

    async def end(self, path: str) -> str | None:
        """Return where a path is when all symbolic links are followed; None outside of the collection."""
        ...

    async def held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Return for each name that of these for which it is held in a folder, as names may differ in case only."""
        ...

    async def make(self, path: str) -> None:
        """Make a folder in one that there is."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Give a file or a folder another path. :raises AlreadyThere: when anything is there"""
        ...

    async def replace(self, old: str, new: str) -> None:
        """Give a file or a link another path, in place of the file or link that is there, in one step."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file, or a symbolic link."""
        ...

    async def remove(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    async def link(self, target: str, path: str) -> None:
        """Make a symbolic link; its target is named from the folder of the link, or from the collection's root."""
        ...

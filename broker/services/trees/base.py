"""What every collection can be asked, whatever is behind it."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from coalloc.model import Entry

__all__ = ["Tree"]


class Tree(Protocol):
    """A collection's folders and files. Paths are as `services.paths.normal` makes them: from the collection's root.

    Every method raises a `coalloc.errors.SourceError` where the server, or the disk, refuses.
    """

    async def stat(self, path: str) -> Entry:
        """What is at a path; of a symbolic link what the server makes of it. :raises NoSuchFile:"""
        ...

    def list(self, path: str) -> AsyncGenerator[Sequence[Entry], None]:
        """What a folder has, in batches, in any order; without `.` and `..`. Who stops early closes it.

        :raises NoSuchFile:
        """
        ...

    async def make(self, path: str) -> None:
        """Make a folder in one that there is."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Give a file or a folder another path."""
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

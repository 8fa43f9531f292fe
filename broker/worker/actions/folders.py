"""Creation of directories at the destination for files and links."""

from contextlib import suppress

from broker.services.collections.trees import Tree
from broker.worker.policy.faults import at_destination
from coalloc.errors import AlreadyThere, NoSuchFile

__all__ = ["Making"]


class Making:
    """Creation of directories at one collection, with a memory of those that exist.

    :param dry_run: whether to create nothing
    """

    def __init__(self, tree: Tree, dry_run: bool) -> None:
        self._tree = tree
        self._dry_run = dry_run
        self._there: set[str] = {"/"}

    async def make(self, path: str) -> None:
        """Create a directory and its missing parents, unless it exists."""
        if self._dry_run:
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
        with suppress(AlreadyThere), at_destination():
            await self._tree.make(folder)
        self._there.add(folder)

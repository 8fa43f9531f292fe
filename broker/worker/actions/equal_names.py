"""Names in a source directory that would be one file at the destination, such as `a` and `A`."""

from collections.abc import Sequence

from broker.services.catalogue.path_readings import folded
from broker.services.collections.trees import Tree
from broker.worker.actions.pruning import entries
from coalloc.model.listings import Entry

__all__ = ["EqualNames"]

MOST = 200
"""Most names that are tested; a destination that distinguishes these is assumed to distinguish all."""


class EqualNames:
    """Names in a source directory that would be one file at the destination.

    The first name of a group is copied. `of` returns the others, each with the name that it equals.

    :param source: tree and directory that is listed
    :param sink: tree and directory at the destination; None to assume that it distinguishes all names
    """

    def __init__(self, source: tuple[Tree, str], sink: tuple[Tree, str] | None) -> None:
        self._source = source
        self._sink = sink
        self._seen: set[int] = set()
        self._queried = False
        self._twins: dict[str, str] = {}

    async def of(self, some: Sequence[Entry]) -> dict[str, str]:
        """Return those of the next names that equal another name at the destination, each with the other name."""
        before = len(self._seen)
        self._seen.update(
            hash(folded(entry.name)) for entry in some
        )  # hashes, since a directory may have millions of names
        if len(self._seen) < before + len(some) and not self._queried and self._sink:
            self._queried = True
            self._twins = await self._find(*self._sink)
        return {entry.name: self._twins[entry.name] for entry in some if entry.name in self._twins}

    async def _find(self, tree: Tree, folder: str) -> dict[str, str]:
        alike: dict[str, list[str]] = {}
        async for some in entries(*self._source, []):
            for entry in some:
                names = alike.setdefault(folded(entry.name), [])
                if entry.name not in names:
                    names.append(entry.name)
        groups = [names for names in alike.values() if len(names) > 1]
        queried = [name for names in groups for name in names][:MOST]
        held = await tree.held(folder, queried)
        if all(held[name] == name for name in queried):
            return {}
        left = {name: names[0] for names in groups for name in names[1:] if name not in held}
        return left | {name: holder for name, holder in held.items() if holder != name}

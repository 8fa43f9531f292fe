"""Whether the two ends of a task overlap: folders of one server, by whatever names, paths and links it is reached."""

import asyncio
import socket
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from broker.services.trees import GridFTPTree, Tree
from broker.tasks.extra import related
from coalloc.model import Entry

__all__ = ["Overlap"]


class Overlap:
    """What of a task's destination belongs to its source."""

    def __init__(self, source: Tree, destination: Tree) -> None:
        self._source = source
        self._destination = destination
        self._lineages: dict[tuple[Tree, str], Sequence[str | None]] = {}
        self._servers: tuple[GridFTPTree, GridFTPTree] | None = None
        self._compared = False

    async def at_one_server(self) -> tuple[GridFTPTree, GridFTPTree] | None:
        """Return both ends if they are at one server, so that their paths can be compared."""
        source, destination = self._source, self._destination
        if not self._compared and isinstance(source, GridFTPTree) and isinstance(destination, GridFTPTree):
            one, other = await _addresses(source.server.source), await _addresses(destination.server.source)
            self._servers = (source, destination) if one & other else None
        self._compared = True
        return self._servers

    async def inner(self, aims: Sequence[str]) -> Collection[str]:
        """Return the folders of the source where items of the task go, without slashes at their ends.

        :param aims: the paths of these items at the destination
        """
        if (servers := await self.at_one_server()) is None:
            return ()
        source, destination = servers
        root = source.at("/").rstrip("/")
        places = [destination.at(aim).rstrip("/") for aim in aims]
        return {place.removeprefix(root) for place in places if place.startswith(f"{root}/")}

    async def sources(self, here: str, there: str, extra: Sequence[Entry], items: Sequence[str]) -> list[str]:
        """Return the names of those entries that are the source, lie in it, or have it in them.

        :param here: the path of a folder at the source
        :param there: the path of a folder at the destination, with a slash at its end, in which the entries are
        :param items: the paths of the task's items at the source
        """
        mine = await self._lineage(self._source, here)
        if mine and mine[0] is not None and mine[0] in await self._lineage(self._destination, there):
            return [entry.name for entry in extra]
        around = set(filter(None, mine))
        found = {entry.name for entry in extra if entry.unique in around}
        if servers := await self.at_one_server():
            source, destination = servers
            places = [source.at(item) for item in items]
            paths = {entry.name: destination.at(there + entry.name) for entry in extra}
            found |= {name for name, path in paths.items() if any(related(path, place) for place in places)}
        return sorted(found)

    async def _lineage(self, tree: Tree, path: str) -> Sequence[str | None]:
        if (tree, path) not in self._lineages:
            self._lineages[tree, path] = await tree.lineage(path)
        return self._lineages[tree, path]


async def _addresses(url: str) -> set[str]:
    """Return the addresses of a server; its name where they cannot be found out."""
    host = urlsplit(url).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return {host}
    return {str(address[0]) for *_, address in found}

"""Detection of overlap between a task's source and destination, by whatever names, paths and links they are reached."""

import asyncio
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from broker.services.trees import GridFTPTree, Tree
from broker.tasks.extra import related
from coalloc.api import private_name
from coalloc.errors import NoSuchFile, SourceError
from coalloc.model import Entry

__all__ = ["Overlap", "addresses"]


class Overlap:
    """The overlap of a task's destination with its source."""

    def __init__(self, source: Tree, destination: Tree) -> None:
        self._source = source
        self._destination = destination
        self._servers: tuple[GridFTPTree, GridFTPTree] | None = None
        self._compared = False
        self._same: dict[tuple[str, str], bool] = {}

    async def at_one_server(self) -> tuple[GridFTPTree, GridFTPTree] | None:
        """Return both trees if they are at one server, so that their paths can be compared; None otherwise."""
        source, destination = self._source, self._destination
        if not self._compared and isinstance(source, GridFTPTree) and isinstance(destination, GridFTPTree):
            one, other = await addresses(source.server.source), await addresses(destination.server.source)
            self._servers = (source, destination) if one & other else None
        self._compared = True
        return self._servers

    async def inner(self, aims: Sequence[str]) -> Collection[str]:
        """Return the source's folders to which items of the task are copied, without slashes at their ends.

        :param aims: the paths of these items at the destination
        """
        if (servers := await self.at_one_server()) is None:
            return ()
        source, destination = servers
        root = source.at("/").rstrip("/")
        places = [destination.at(aim).rstrip("/") for aim in aims]
        return {place.removeprefix(root) for place in places if place.startswith(f"{root}/")}

    async def is_one(self, here: str, there: str) -> bool:
        """Return whether two folders with the same identity are one folder.

        Two servers may give different folders the same identity, for instance if one machine is a clone of the other.
        So a folder is made in one of them, and looked for in the other.

        :param here: path of a folder at the source
        :param there: path of a folder at the destination
        """
        if await self.at_one_server():
            return True
        if (here, there) not in self._same:
            self._same[here, there] = await self._appears(here.rstrip("/"), there.rstrip("/"))
        return self._same[here, there]

    async def _appears(self, here: str, there: str) -> bool:
        name = private_name()
        await self._destination.make(f"{there}/{name}")
        try:
            await self._source.stat(f"{here}/{name}")
        except NoSuchFile:
            return False
        finally:
            with suppress(SourceError):
                await self._destination.remove(f"{there}/{name}")
        return True

    async def sources(self, there: str, extra: Sequence[Entry], items: Sequence[str]) -> set[str]:
        """Return the names of entries whose paths equal, contain, or lie in an item of the source.

        :param there: path of the destination's folder that has the entries, with a slash at its end
        :param extra: the entries
        :param items: paths of the task's items at the source
        """
        if (servers := await self.at_one_server()) is None:
            return set()
        source, destination = servers
        places = [source.at(item) for item in items]
        paths = {entry.name: destination.at(there + entry.name) for entry in extra}
        return {name for name, path in paths.items() if any(related(path, place) for place in places)}


async def addresses(url: str) -> set[str]:
    """Return the addresses of a server; its host name if they cannot be resolved."""
    host = urlsplit(url).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return {host}
    return {str(address[0]) for *_, address in found}

"""Whether the two ends of a task overlap: folders of one server, by whatever names, paths and links it is reached."""

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
    """What of a task's destination belongs to its source."""

    def __init__(self, source: Tree, destination: Tree) -> None:
        self._source = source
        self._destination = destination
        self._servers: tuple[GridFTPTree, GridFTPTree] | None = None
        self._compared = False
        self._same: dict[tuple[str, str], bool] = {}

    async def at_one_server(self) -> tuple[GridFTPTree, GridFTPTree] | None:
        """Return both ends if they are at one server, so that their paths can be compared."""
        source, destination = self._source, self._destination
        if not self._compared and isinstance(source, GridFTPTree) and isinstance(destination, GridFTPTree):
            one, other = await addresses(source.server.source), await addresses(destination.server.source)
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

    async def is_one(self, here: str, there: str) -> bool:
        """Return whether two folders, which their servers tell apart from others alike, are one folder.

        Two servers may tell two folders apart alike, as when one machine was made like the other: so it is looked
        whether what is made in one of them appears in the other.

        :param here: the path of a folder at the source
        :param there: the path of a folder at the destination
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
        """Return the names of entries that by their paths are an item of the source, lie in one, or have one in them.

        :param there: the path of a folder at the destination, with a slash at its end, in which the entries are
        :param items: the paths of the task's items at the source
        """
        if (servers := await self.at_one_server()) is None:
            return set()
        source, destination = servers
        places = [source.at(item) for item in items]
        paths = {entry.name: destination.at(there + entry.name) for entry in extra}
        return {name for name, path in paths.items() if any(related(path, place) for place in places)}


async def addresses(url: str) -> set[str]:
    """Return the addresses of a server; its name where they cannot be found out."""
    host = urlsplit(url).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return {host}
    return {str(address[0]) for *_, address in found}

"""Detection of overlap between a task's source and destination, also under different names, paths and links."""

import asyncio
import socket
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.services.collections.trees import CatalogueTree, GridFTPTree, LocalTree, Tree
from broker.storage.database import Database
from broker.storage.places import Placed, PlaceStore
from broker.storage.registrations import lies_below
from broker.worker.policy.extra_entries import related
from coalloc.api import private_name
from coalloc.errors import NoSuchFile, SourceError
from coalloc.model.listings import Entry

__all__ = ["Overlap", "addresses", "with_replicas"]


class Overlap:
    """The overlap of a task's destination with its source."""

    def __init__(self, source: Tree, destination: Tree) -> None:
        self._source = source
        self._destination = destination
        self._servers: tuple[GridFTPTree, GridFTPTree] | None = None
        self._compared = False
        self._same: dict[tuple[str, str], bool] = {}

    async def at_one_server(self) -> tuple[GridFTPTree, GridFTPTree] | None:
        """Return both trees if they are at one server, so that their paths are comparable; otherwise None."""
        source, destination = self._source, self._destination
        if not self._compared and isinstance(source, GridFTPTree) and isinstance(destination, GridFTPTree):
            one, other = await addresses(source.server.source), await addresses(destination.server.source)
            self._servers = (source, destination) if one & other else None
        self._compared = True
        return self._servers

    async def inner(self, aims: Sequence[str]) -> Collection[str]:
        """Return the directories of the source to which items of the task are copied, without slashes at their ends.

        :param aims: paths of the items at the destination
        """
        if (servers := await self.at_one_server()) is None:
            return ()
        source, destination = servers
        root = source.at("/").rstrip("/")
        places = [destination.at(aim).rstrip("/") for aim in aims]
        return {place.removeprefix(root) for place in places if place.startswith(f"{root}/")}

    async def is_one(self, here: str, there: str) -> bool:
        """Return whether two directories with the same id are the same directory.

        Two servers may have the same id for different directories, such as after cloning a machine. So a directory is
        created in one of them, and looked for in the other.

        :param here: path of a directory at the source
        :param there: path of a directory at the destination
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

        :param there: path of the entries' directory at the destination, with a slash at its end
        :param extra: entries
        :param items: paths of the task's items at the source
        """
        if (servers := await self.at_one_server()) is None:
            return set()
        source, destination = servers
        places = [source.at(item) for item in items]
        paths = {entry.name: destination.at(there + entry.name) for entry in extra}
        return {name for name, path in paths.items() if any(related(path, place) for place in places)}


async def addresses(url: str) -> set[str]:
    """Return the IP addresses of a server; its host name if they cannot be resolved."""
    host = urlsplit(url).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return {host}
    return {str(address[0]) for *_, address in found}


async def with_replicas(
    database: Database, source: Tree, destination: Tree, folder: str, entries: Iterable[Entry]
) -> set[str]:
    """Return the names of entries of a destination directory that are replicas, or contain replicas.

    The result is empty if the source is not the catalogue.
    """
    if not isinstance(source, CatalogueTree):
        return set()
    async with database.read() as connection:
        endpoints = [each for each in await PlaceStore(connection).endpoints() if await _is_there(each, destination)]
        return {
            entry.name
            for entry in entries
            for place in [_place(destination, folder + entry.name)]
            for each in endpoints
            if await _lies(connection, each, place)
        }


async def _lies(connection: AsyncConnection, placed: Placed, place: str) -> bool:
    root = placed.endpoint.prefix.rstrip("/")
    if f"{root}/".startswith(f"{place}/"):
        return await lies_below(connection, placed.id, "")
    inside = place.removeprefix(f"{root}/")
    return inside != place and await lies_below(connection, placed.id, inside)


def _place(tree: Tree, path: str) -> str:
    """Return the path at the server, or on this machine, for a path in a collection."""
    if isinstance(tree, LocalTree):
        return str(tree.real(path))
    return tree.at(path).rstrip("/") if isinstance(tree, GridFTPTree) else path


async def _is_there(placed: Placed, tree: Tree) -> bool:
    """Return whether an endpoint is at a tree's server, or, for a local tree, on this machine."""
    found = await addresses(f"ftp://{placed.endpoint.host}")
    if isinstance(tree, GridFTPTree):
        return bool(found & await addresses(tree.server.source)) or urlsplit(tree.server.source).hostname in found
    return any(map(_is_ours, found))


def _is_ours(address: str) -> bool:
    """Return whether an IP address is this machine's, by binding a socket to it."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True

"""Detection of replicas in the destination of a task whose source is the catalogue: they are the task's source."""

import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.services.trees import CatalogueTree, GridFTPTree, LocalTree, Tree
from broker.storage.database import Database
from broker.storage.places import Placed, Places
from broker.storage.replicas_below import lies_below
from broker.tasks.overlapping import addresses
from coalloc.model import Entry

__all__ = ["with_replicas"]


async def with_replicas(
    database: Database, source: Tree, destination: Tree, folder: str, entries: Iterable[Entry]
) -> set[str]:
    """Return the names of entries of the destination's folder that are replicas, or contain replicas.

    The result is empty if the source is not the catalogue: replicas then do not matter to the task.
    """
    if not isinstance(source, CatalogueTree):
        return set()
    async with database.read() as connection:
        endpoints = [each for each in await Places(connection).endpoints() if await _is_there(each, destination)]
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
    """Return a path's location at its server, or on this machine."""
    if isinstance(tree, LocalTree):
        return str(tree.real(path))
    return tree.at(path).rstrip("/") if isinstance(tree, GridFTPTree) else path


async def _is_there(placed: Placed, tree: Tree) -> bool:
    """Return whether an endpoint is at a tree's server, or on this machine if the tree is here."""
    found = await addresses(f"ftp://{placed.endpoint.host}")
    if isinstance(tree, GridFTPTree):
        return bool(found & await addresses(tree.server.source)) or urlsplit(tree.server.source).hostname in found
    return any(map(_is_ours, found))


def _is_ours(address: str) -> bool:
    """Return whether an address is this machine's: only then can a socket be bound to it."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True

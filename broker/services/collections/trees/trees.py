"""The factory of trees."""

from collections.abc import Sequence
from pathlib import Path

import structlog

from broker.config.credentials import CollectionCredential, ServerFolder, at, place
from broker.config.settings import Settings
from broker.errors import CredentialRefused
from broker.models.collections import Collection
from broker.services.auth.permissions import Reach
from broker.services.collection_paths import below
from broker.services.collections.trees.base import Tree
from broker.services.collections.trees.catalogue import CatalogueTree
from broker.services.collections.trees.gridftp import GridFTPTree, ServerLogin, ServerSessions
from broker.services.collections.trees.local import LocalTree
from broker.services.network.places import Places
from broker.storage.collections import CollectionStore
from broker.storage.database import Database
from coalloc.errors import Unreachable, Unsupported

__all__ = ["Trees"]

log = structlog.get_logger("broker")


class Trees:
    """A factory of the trees of all collections, for one process."""

    def __init__(self, database: Database, places: Places, settings: Settings) -> None:
        self._database = database
        self._catalogue = CatalogueTree(database)
        self._places = places
        self._settings = settings
        self._sessions = ServerSessions()

    async def of(self, collection: Collection, reach: Reach | None = None) -> Tree:
        """Return the tree of a collection.

        :param reach: access rights of the tree's user; None for everything
        :raises NotFound: when its endpoint no longer exists
        :raises Unreachable: when it is a directory at another site
        :raises Unsupported: when its endpoint is not a GridFTP server
        :raises CredentialRefused: when its credential is not configured here, or not for its endpoint
        """
        if collection.kind == "catalogue":
            return self._catalogue
        if collection.kind == "local":
            if collection.site != self._settings.site:
                raise Unreachable(
                    f"{collection.name} is a directory at {collection.site}, which this process cannot read",
                    "submit a transfer: workers at that site have access to it",
                )
            return LocalTree(Path(collection.base), collection.name)
        return await self.gridftp(collection, reach)

    async def gridftp(self, collection: Collection, reach: Reach | None = None) -> GridFTPTree:
        """Return the tree of a collection at an endpoint."""
        endpoint = await self._places.endpoint(collection.endpoint or "")
        if endpoint.scheme not in ("ftp", "gsiftp"):
            raise Unsupported(
                f"{collection.name} is at {endpoint.name}, which is not a GridFTP server", "give it another endpoint"
            )
        folder = below(endpoint.prefix, collection.base)
        proxy = await self._credential(collection, at(endpoint, folder))
        server = ServerLogin(endpoint.source, proxy, **await self._places.allowed())
        return GridFTPTree(self._sessions, server, folder, collection.name, reach)

    async def _credential(self, collection: Collection, place: ServerFolder) -> Path | None:
        """Return the file of a collection's proxy certificate; None for the default one of this process.

        :param place: directory of the collection
        :raises CredentialRefused: when the collection's credential is not configured here, or not for this directory
        """
        if not collection.credential:
            return None
        known = self._settings.credentials.get(collection.credential)
        if known is None:
            log.warning(
                "the configuration lacks a credential", credential=collection.credential, collection=collection.name
            )
            raise CredentialRefused(
                f"the credential of {collection.name} is not in the configuration",
                "ask an admin to add its file to the [credentials] of --config",
            )
        if not any(each.covers(place) for each in await self._bound(collection.credential, known)):
            log.warning(
                "a credential may not be used for a URL",
                credential=collection.credential,
                collection=collection.name,
                place=str(place),
                remedy=f'add the URL to "for" in [credentials.{collection.credential}] of --config if you trust it',
            )
            raise CredentialRefused(
                f"the credential of {collection.name} may not be used at its endpoint's present address",
                "ask an admin to put the endpoint back, or to add that address to the [credentials] of --config",
            )
        return known.proxy

    async def _bound(self, name: str, known: CollectionCredential) -> Sequence[ServerFolder]:
        """Return the directories for which a credential may be used: from its entry, otherwise from the database."""
        if known.places is not None:
            return known.places
        async with self._database.read() as connection:
            return [place(url) for url in (await CollectionStore(connection).places()).get(name, ())]

    def close(self) -> None:
        """Close the sessions with servers."""
        self._sessions.close()

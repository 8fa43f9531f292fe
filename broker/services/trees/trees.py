"""Which tree a collection is."""

from pathlib import Path

from broker.config import Settings
from broker.models.collections import Collection
from broker.services.paths import below
from broker.services.places import Places
from broker.services.trees.base import Tree
from broker.services.trees.catalogue import CatalogueTree
from broker.services.trees.gridftp import GridFTPTree, Server, Sessions
from broker.services.trees.local import LocalTree
from broker.storage.database import Database
from coalloc.errors import Unreachable, Unsupported

__all__ = ["Trees"]


class Trees:
    """The trees of all collections, as one process sees them."""

    def __init__(self, database: Database, places: Places, settings: Settings) -> None:
        self._catalogue = CatalogueTree(database)
        self._places = places
        self._settings = settings
        self._sessions = Sessions()

    async def of(self, collection: Collection) -> Tree:
        """That of a collection.

        :raises NotFound: when its endpoint is gone
        :raises Unreachable: when it is a folder of other machines
        :raises Unsupported: when its endpoint is no GridFTP server, or its credential is not here
        """
        if collection.kind == "catalogue":
            return self._catalogue
        if collection.kind == "local":
            if collection.site != self._settings.site:
                raise Unreachable(
                    f"{collection.name} is a folder at {collection.site}, and this is another place",
                    "transfer from it or to it: workers there can look into it",
                )
            return LocalTree(Path(collection.base), collection.name)
        return await self.gridftp(collection)

    async def gridftp(self, collection: Collection) -> GridFTPTree:
        """That of a collection at an endpoint: what lies below its base, in the endpoint's own folder."""
        endpoint = await self._places.endpoint(collection.endpoint or "")
        if endpoint.scheme not in ("ftp", "gsiftp"):
            raise Unsupported(
                f"{collection.name} is at {endpoint.name}, which is no GridFTP server", "give it another endpoint"
            )
        server = Server(endpoint.source, self._credential(collection), await self._places.policy())
        folder = below(endpoint.prefix, collection.base)
        return GridFTPTree(self._sessions, server, folder, collection.name)

    def _credential(self, collection: Collection) -> Path | None:
        if not collection.credential:
            return None
        known = self._settings.credentials.get(collection.credential)
        if known is None:
            raise Unsupported(
                f"the credential {collection.credential} of {collection.name} is not known here",
                "name its file in the [credentials] of --config",
            )
        return known

    def close(self) -> None:
        """End sessions with servers."""
        self._sessions.close()

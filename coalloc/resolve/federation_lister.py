"""Directories of Pelican federations, which the director leads to the origin that lists them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from coalloc.engine.base import EngineOptions
from coalloc.engine.http.webdav import WebDAVLister
from coalloc.engine.lister import Lister
from coalloc.errors import Unsupported
from coalloc.model.listings import Entry
from coalloc.model.replicas import Federation, Origin
from coalloc.resolve.federation_answers import ObjectURL, collections_of, is_protected, parse
from coalloc.resolve.pelican import ask_director, refuse

__all__ = ["FederationLister"]


class FederationLister(Lister):
    """The directories of federations. The URL of an entry follows its directory's URL.

    :param options: for the user's own URLs; the origin gets those for servers that the federation names
    """

    def __init__(self, options: EngineOptions) -> None:
        self._options = options

    async def list(self, url: str) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of the directory at a URL in groups as they arrive.

        :raises SourceError: if it cannot be listed
        """
        directory = parse(url)
        server, origin = await self._listing_server(directory)
        async with aclosing(WebDAVLister(self._options.named(origin)).list(directory.at(server))) as groups:
            async for entries in groups:
                yield entries

    async def _listing_server(self, directory: ObjectURL) -> tuple[str, Origin]:
        """Return the server that lists a directory, and the origin of its name.

        :raises SourceError: if the federation has none
        """
        asked = await ask_director("PROPFIND", directory, self._options.dialers)
        if asked is None:
            return directory.discovery, Origin(federation=Federation(directory.federation, False, ()))
        if asked.answer.error:
            refuse(directory, asked)
        server = collections_of(asked.answer.headers)
        if not server or not is_protected(server):
            raise Unsupported(f"{directory.shown}: the federation lists no such directory", "give the URLs of objects")
        return server, asked.origin

    async def close(self) -> None:
        """Do nothing: no connection is open between two listings."""

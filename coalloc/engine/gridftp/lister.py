"""Directories at a GridFTP or FTP server."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.storage import Storage, open_storage
from coalloc.engine.lister import Lister
from coalloc.errors import Unsupported
from coalloc.model.listings import Entry, Omission
from coalloc.safe_text import redact

__all__ = ["GridFTPLister"]


class GridFTPLister(Lister):
    """The directories at one GridFTP or FTP server, listed over one session; `url` is any URL at the server."""

    def __init__(self, url: str, options: EngineOptions) -> None:
        self._url = url
        self._options = options
        self._storage: Storage | None = None

    async def list(self, url: str) -> AsyncGenerator[Sequence[Entry], None]:
        if self._storage is None or not self._storage.usable:
            await self.close()
            self._storage = await open_storage(self._url, self._options, self._options.proxy)
        omitted: list[Omission] = []
        async with aclosing(self._storage.list(parse(url).named, omitted)) as groups:
            async for entries in groups:
                yield entries
        for each in omitted:
            if each.kind == "nameless":  # those that are only counted are broken links
                raise Unsupported(
                    f"{redact(url)}: {each.entries} lines of its listing are not understood, such as: {each.example}",
                    "give the files one by one",
                )

    async def close(self) -> None:
        if self._storage:
            self._storage.close()
            self._storage = None

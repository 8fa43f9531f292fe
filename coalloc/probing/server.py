"""A server that takes part: a file to send, and a directory to write to; afterwards, both are as before."""

import asyncio
from contextlib import suppress
from typing import Self
from urllib.parse import quote

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import parse, parse_server
from coalloc.engine.gridftp.storage import Storage, open_storage
from coalloc.errors import IsDirectory, SourceError, Unsupported
from coalloc.history.values import source_key
from coalloc.safe_text import redact
from coalloc.util.partial_names import private

__all__ = ["ProbedServer"]

BRIEFLY = 10.0
"""Time limit in seconds for removing files at the end."""


class ProbedServer:
    """One server. Its URL names a file to send, or a directory in which a file is created and removed.

    :param size: bytes of the created file
    """

    def __init__(self, url: str, options: EngineOptions, size: int) -> None:
        self.url = url
        self.key = source_key(url)
        self.size = size
        self._options = options
        self._address = parse(url) if url.partition("://")[2].partition("/")[2] else parse_server(url)
        self._folder = ""
        self._file = ""
        self._written: set[str] = set()
        self._storage: Storage | None = None
        self._making = asyncio.Lock()

    @property
    def _store(self) -> Storage:
        assert self._storage is not None, "open() comes first"
        return self._storage

    async def open(self) -> Self:
        """Log in, and look up the URL's file or directory. :raises SourceError: when that fails"""
        self._storage = await open_storage(self.url, self._options)
        path = self._address.named
        try:
            found = await self._store.stat(path)
        except IsDirectory:
            self._folder = path
            return self
        if found.kind == "dir":
            self._folder = path.rstrip("/")
        else:
            self._folder, self._file, self.size = path.rpartition("/")[0], path, found.size or 0
        return self

    async def file(self) -> str:
        """Return the URL of the file to send; create it if needed.

        :raises Unsupported: if it is empty, or cannot be created
        """
        async with self._making:
            if not self._file:
                path = self.scratch()
                try:
                    await self._store.make_sparse(path, self.size)
                except SourceError as error:
                    shown = redact(self.url)
                    raise Unsupported(
                        f"{shown}: cannot create a file for the measurement: {error}", "give an existing file"
                    ) from None
                self._file = path
        if not self.size:
            raise Unsupported(
                f"{redact(self.url)} is empty, so it cannot be used for the measurement",
                "give a larger file, or a directory",
            )
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}{quote(self._file)}"

    def scratch(self) -> str:
        """Return an unused path; `close` removes the file there."""
        path = f"{self._folder}/{private('probe')}"
        self._written.add(path)
        return path

    async def forget(self, path: str) -> None:
        """Remove the file at a path; ignore errors."""
        with suppress(SourceError):
            await self._store.delete(path)

    async def close(self) -> None:
        """Remove all written files, even if written again after `forget`, and log out; never raises."""
        if self._storage is None:
            return
        with suppress(SourceError, TimeoutError):
            async with asyncio.timeout(BRIEFLY):
                if self._written and not self._storage.usable:
                    self._storage.close()
                    self._storage = await open_storage(self.url, self._options)
                await asyncio.gather(*map(self.forget, self._written))
        self._storage.close()

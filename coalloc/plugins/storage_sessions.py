"""Sessions with the servers that list directories, one for each server, kept open for the next listing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from coalloc import api
from coalloc.errors import CoallocError

__all__ = ["StorageSessions"]

IDLE_SECONDS = 10.0
"""Seconds after which an unused session is closed."""


class StorageSessions:
    """The sessions of one event loop, by server."""

    def __init__(self) -> None:
        self._opening: dict[str, asyncio.Task[api.Storage]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def at(self, url: str) -> AsyncIterator[api.Storage]:
        """Yield a session with the server of a URL.

        :raises SourceError: if the login fails
        """
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc}"
        if timer := self._timers.pop(server, None):
            timer.cancel()
        self._users[server] = self._users.get(server, 0) + 1
        try:
            yield await self._usable(server, url)
        finally:
            self._users[server] -= 1
            if not self._users[server]:
                self._timers[server] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close, server)

    async def _usable(self, server: str, url: str) -> api.Storage:
        if task := self._opening.get(server):
            with suppress(CoallocError):
                storage = await asyncio.shield(task)
                if storage.usable:
                    return storage
            if self._opening.get(server) is task:
                self._close(server)
        if server not in self._opening:
            self._opening[server] = asyncio.create_task(api.storage(url))
        return await asyncio.shield(self._opening[server])

    def _close(self, server: str) -> None:
        task = self._opening.pop(server)
        if task.done() and not task.cancelled() and task.exception() is None:
            task.result().close()
        task.cancel()

    async def close(self) -> None:
        """Close all sessions."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for server in list(self._opening):
            self._close(server)
        await asyncio.sleep(0)  # the loop closes the sockets in its next round

"""Limits of one process, for all servers together: connections being set up, and child processes.

A document may name thousands of replicas; replicas beyond the limit are tried when an earlier one is done. The limit
per server, which all processes of a machine share, is in `server_slots`.
"""

import asyncio
from weakref import WeakKeyDictionary

__all__ = ["CONNECTING", "PROCESSES", "ProcessLimit", "connecting", "processes"]

CONNECTING = 64
"""Maximum number of sessions that connect at once, and of sources from which one file is fetched at once."""
PROCESSES = 8
"""Maximum number of concurrent sessions that start programs."""


class ProcessLimit:
    """A fixed number of places for each event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def here(self) -> asyncio.Semaphore:
        """Return the semaphore of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            self._of_loop[loop] = asyncio.Semaphore(self.most)
        return self._of_loop[loop]


connecting = ProcessLimit(CONNECTING)
"""Places held while a session connects and logs in."""
processes = ProcessLimit(PROCESSES)
"""Places held by sessions that start programs, from `open` to `close`."""

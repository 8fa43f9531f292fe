"""How much one process does at once, whatever servers it is told to use: connections that begin, and child processes.

A document may name thousands of replicas. Those beyond the places are tried when one of the first is done with. Slots,
which all processes of a machine share, are of one server each and left to `slots`.
"""

import asyncio
from weakref import WeakKeyDictionary

__all__ = ["CONNECTING", "PROCESSES", "Places", "connecting", "processes"]

CONNECTING = 64
"""Sessions that connect at once, and sources that one file is fetched from at once."""
PROCESSES = 8
"""Sessions at once that start a program to fetch."""


class Places:
    """So many places for each event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def here(self) -> asyncio.Semaphore:
        """The places of the loop that runs."""
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            self._of_loop[loop] = asyncio.Semaphore(self.most)
        return self._of_loop[loop]


connecting = Places(CONNECTING)
"""One is held while a session connects and logs in."""
processes = Places(PROCESSES)
"""One is held by a session that starts programs, from `open` to `close`."""

"""The common part of all readers of one event loop: forecasts, and idle sessions, which give way to others.

All sessions of this machine with a server are limited. So a reader that needs a session takes the place of one that is
idle in another reader.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from coalloc.download.read_forecasts import ReadForecasts
from coalloc.engine.base import Source

__all__ = ["ReaderPool"]

MOST_IDLE = 64
"""Most idle sessions of all readers together, as each takes a file descriptor."""

Drop = Callable[[Source], Awaitable[None]]
"""`await drop(session)`: close an idle session of a reader."""


class ReaderPool:
    """The forecasts and the idle sessions, the longest idle first."""

    def __init__(self) -> None:
        self.forecasts = ReadForecasts()
        self._idle: dict[Source, tuple[str, Drop]] = {}
        self._waiting: Counter[str] = Counter()

    async def add(self, session: Source, server: str, drop: Drop) -> None:
        """Add an idle session; close the longest idle one if there are too many."""
        self._idle[session] = server, drop
        if len(self._idle) > MOST_IDLE:
            await self._drop(next(iter(self._idle)))

    def remove(self, session: Source) -> None:
        """Remove a session that is used again, or was closed."""
        self._idle.pop(session, None)

    async def make_room(self, server: str) -> bool:
        """Close the longest idle session with a server; return whether there was one."""
        session = next((each for each, (place, _) in self._idle.items() if place == server), None)
        if session is None:
            return False
        await self._drop(session)
        return True

    async def _drop(self, session: Source) -> None:
        _, drop = self._idle.pop(session)
        await drop(session)

    def is_wanted(self, server: str) -> bool:
        """Return whether a reader waits for a session with a server."""
        return self._waiting[server] > 0

    @contextmanager
    def waiting(self, server: str) -> Iterator[None]:
        """Count a reader that waits for a session with a server."""
        self._waiting[server] += 1
        try:
            yield
        finally:
            self._waiting[server] -= 1

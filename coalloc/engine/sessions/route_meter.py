"""The bytes and times of the sessions that take one route to a server, from which later transfers choose a route."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coalloc.engine.span import Deliver
from coalloc.model import RouteUse

__all__ = ["BEGINNING", "RouteMeter"]

BEGINNING = 1024 * 1024
"""Bytes whose time shows how fast a route is for a small file: the rate rises while they come."""


class RouteMeter:
    """The measurements of one route.

    :param route: returns the text of the route that was taken last
    """

    def __init__(self, route: Callable[[], str]) -> None:
        self._route = route
        self._bytes = self._sessions = self._fetching = self._beginning = 0
        self._seconds = self._since = self._first = 0.0
        self._opening: float | None = None
        self._taken: str | None = None
        self._over = False

    def opened(self, seconds: float) -> None:
        """Record that a session became ready in this time; if it has taken another route, what follows is not counted.

        Another one is taken after a failure.
        """
        taken = self._route()
        self._taken = self._taken or taken
        self._over |= self._taken != taken
        self._sessions += 1
        self._opening = seconds if self._opening is None else self._opening

    @contextmanager
    def fetching(self, deliver: Deliver) -> Iterator[Deliver]:
        """Count the bytes and the time of a block, which delivers to the yielded function."""

        def counted(start: int, end: int, data: memoryview | None) -> None:
            deliver(start, end, data)
            self._arrived(end - start)

        if self._over:
            yield deliver
            return
        if not self._fetching:
            self._since = time.monotonic()
        self._fetching += 1
        try:
            yield counted
        finally:
            self._fetching -= 1
            if not self._fetching:
                self._seconds += time.monotonic() - self._since

    def _arrived(self, count: int) -> None:
        self._bytes += count
        if self._beginning < BEGINNING:
            self._beginning, self._first = self._bytes, self._busy

    @property
    def use(self) -> RouteUse | None:
        """The measurements so far; None if the route was not used."""
        if self._opening is None or self._taken is None:
            return None
        return RouteUse(
            self._taken, self._bytes, self._busy, self._sessions, self._opening, self._beginning, self._first
        )

    @property
    def _busy(self) -> float:
        """The seconds in which a session fetched."""
        return self._seconds + (time.monotonic() - self._since if self._fetching else 0.0)

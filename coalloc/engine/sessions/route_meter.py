"""The bytes and times of the sessions that take one route to a server, from which later transfers choose a route."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coalloc.engine.span import Deliver
from coalloc.model.routes import RouteUse

__all__ = ["BEGINNING", "RouteMeter"]

BEGINNING = 1024 * 1024
"""Bytes whose time shows how fast a route is for a small file: the rate rises while they come."""


class RouteMeter:
    """The measurements of one route.

    :param route: returns the text of the route that was taken last
    """

    def __init__(self, route: Callable[[], str]) -> None:
        self._route = route
        self._bytes = self._sessions = self._beginning = 0
        self._all, self._own = _BusyTime(), _BusyTime()
        self._first = 0.0
        self._opening: float | None = None
        self._taken: str | None = None
        self._over = False
        self._session: object = None
        """The session whose beginning is measured: several would share it."""

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
    def fetching(self, deliver: Deliver, session: object) -> Iterator[Deliver]:
        """Count the bytes and the time of a block, in which a session delivers to the yielded function."""
        if self._over:
            yield deliver
            return
        self._session = self._session or session
        first = session is self._session

        def counted(start: int, end: int, data: memoryview | None) -> None:
            deliver(start, end, data)
            self._bytes += end - start
            if first and self._beginning < BEGINNING:
                self._beginning, self._first = self._beginning + end - start, self._own.seconds

        clocks = [self._all, self._own] if first else [self._all]
        for clock in clocks:
            clock.begin()
        try:
            yield counted
        finally:
            for clock in clocks:
                clock.end()

    @property
    def use(self) -> RouteUse | None:
        """The measurements so far; None if the route was not used."""
        if self._opening is None or self._taken is None:
            return None
        return RouteUse(
            self._taken, self._bytes, self._all.seconds, self._sessions, self._opening, self._beginning, self._first
        )


class _BusyTime:
    """The time in which at least one of several overlapping tasks runs."""

    def __init__(self) -> None:
        self._running = 0
        self._since = self._ended = 0.0

    def begin(self) -> None:
        if not self._running:
            self._since = time.monotonic()
        self._running += 1

    def end(self) -> None:
        self._running -= 1
        if not self._running:
            self._ended += time.monotonic() - self._since

    @property
    def seconds(self) -> float:
        """The seconds so far."""
        return self._ended + (time.monotonic() - self._since if self._running else 0.0)

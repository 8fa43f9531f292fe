"""Fair turns at a shared resource: one request at a time, next for the user with the least recent use, with limits."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from broker.errors import BrokerError, TooManyRequests

__all__ = ["Turns", "UserTurn"]

log = structlog.get_logger("broker.subprocesses")
HALVED = 300.0
"""Half-life of a user's recorded use, in seconds."""
MOST_USERS = 1000
LONGEST = 30.0
"""Longest time that a request waits for its turn, in seconds."""


class Usage:
    """The recent use of users in seconds, with exponential decay."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}

    def add(self, subject: str, seconds: float) -> None:
        """Add seconds to a user's use."""
        if len(self._used) > MOST_USERS:
            self._used = {name: used for name, used in self._used.items() if self.had(name) > 1}
        self._used[subject] = (self.had(subject) + seconds, time.monotonic())

    def had(self, subject: str) -> float:
        """Return a user's recent use in seconds."""
        now = time.monotonic()
        had, at = self._used.get(subject, (0.0, now))
        return float(had * 0.5 ** ((now - at) / HALVED))


class UserTurn:
    """The turn of one user; its cost is `seconds`, or its wall-clock time if that is None."""

    def __init__(self) -> None:
        self.seconds: float | None = None


class Turns:
    """Turns at a shared resource.

    :param each: limit of one user's recent use in seconds
    :param waiting: most waiting requests of one user
    """

    def __init__(self, each: float, waiting: int) -> None:
        self.each = each
        self.waiting = waiting
        self._busy = False
        self._line: list[tuple[str, asyncio.Future[None]]] = []
        self._had, self._counted = Usage(), Usage()

    @asynccontextmanager
    async def turn(self, subject: str, what: str, admitted: bool = False) -> AsyncIterator[UserTurn]:
        """Wait for a turn, and hold it for the block.

        :param what: name of the work in messages for users
        :param admitted: whether it is a part of work that was admitted, or an admin's: then it is never refused, and
            counts only for the order
        :raises TooManyRequests: when too many requests of the user wait, or the user's requests have taken too long
        """
        if not admitted:
            self.admit(subject, what)
        try:
            await asyncio.wait_for(self._wait(subject), None if admitted else LONGEST)
        except TimeoutError:
            raise self.refusal(
                TooManyRequests(f"{what}: requests of other users come first", "try again later", 30)
            ) from None
        began, turn = time.monotonic(), UserTurn()
        try:
            yield turn
        finally:
            took = time.monotonic() - began if turn.seconds is None else turn.seconds
            self._had.add(subject, took)
            if not admitted:
                self._counted.add(subject, took)
            self._next()

    def refusal(self, error: BrokerError) -> BrokerError:
        """Log a refusal, and return its error."""
        log.warning("refused", status=error.status, why=error.message)
        return error

    def admit(self, subject: str, what: str) -> None:
        """Check that a user may make another request.

        :raises TooManyRequests: when too many requests of the user wait, or the user's requests have taken too long
        """
        mine = sum(name == subject for name, _ in self._line)
        if mine >= self.waiting:
            raise self.refusal(
                TooManyRequests(f"{subject} has {mine} waiting requests already", "wait for their answers", 5)
            )
        if (had := self._counted.had(subject)) > self.each:
            after = math.ceil(HALVED * math.log2(had / self.each)) + 1
            message = f"{what}: requests of {subject} took {had:.0f} s in the last minutes"
            raise self.refusal(TooManyRequests(message, f"try again in {after} s, or request less", after))

    async def _wait(self, subject: str) -> None:
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((subject, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if (subject, turn) in self._line:
                self._line.remove((subject, turn))
            else:  # it got its turn just before the cancellation
                self._next()
            raise

    def _next(self) -> None:
        """Give the next turn to the first request of the user with the least recent use."""
        self._busy = bool(self._line)
        if self._line:
            chosen = min(self._line, key=lambda each: self._had.had(each[0]))
            self._line.remove(chosen)
            chosen[1].set_result(None)

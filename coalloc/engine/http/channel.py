"""Receiving ranges over one HTTP connection that is kept: asked for ahead, they follow each other without a pause.

What is asked for and no longer wanted still comes, and is skipped as long as it is little: a new connection costs round
trips, and TCP's slow start. Who fetches which range is left to `dealing`; what to do where a server does not do this,
to `source`.
"""

import asyncio
from typing import Any, Protocol

from coalloc.engine.base import Deliver, Span
from coalloc.engine.gather import BUFFER, Gather
from coalloc.engine.http.pipeline import Pipeline, Question, Unanswered
from coalloc.engine.turn import Turn
from coalloc.engine.way import way_of
from coalloc.errors import ConnectionLost
from coalloc.model import Way

__all__ = ["Channel", "Connection", "Ended"]

SKIPPED, SKIPPED_TRIPS = 64 * 1024, 4.0
"""Bytes that may be skipped, this or what comes in so many round trips: more cost more than a new connection."""
LEAST_SECONDS = 0.01
"""How long a near server's bytes may be held back: who shares out what is left counts them as not here."""
RECORD = 17 * 1024
"""Bytes of TLS that may have come without telling yet what they say: a record."""


class Ended(Exception):
    """A range does not come from byte `at` on. Internal: ask for the rest of it on another connection."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Connection(Protocol):
    """A connection on which nothing is under way."""

    def get_extra_info(self, info: str) -> Any:
        """As httpcore's: `is_readable` says that it is over."""
        ...

    async def hand_over(self, protocol: asyncio.BufferedProtocol) -> asyncio.Transport:
        """From now on it belongs to this protocol, which is not told that it is made."""
        ...


class Channel(asyncio.BufferedProtocol):
    """A connection of its own, on which one range after the other is asked for.

    Once it has failed it is of no use.
    """

    def __init__(self, question: Question) -> None:
        self.usable = True
        self.pipeline = Pipeline(question)
        self._shown = question.shown
        self._rtt = question.stat.rtt or 0.0

    async def open(self, connection: Connection) -> None:
        """Take a connection over."""
        self._connection = connection  # it may end when nobody has it any more
        self._transport = await connection.hand_over(self)
        self._sock = self._transport.get_extra_info("socket")
        self._gather = Gather(self._sock, self._rtt, LEAST_SECONDS)
        self._hidden = RECORD if self._transport.get_extra_info("ssl_object") else 0

    @property
    def way(self) -> Way | None:
        """How data come at the moment; None if not known."""
        return way_of(self._sock) if self.usable else None

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        """Receive `span`, behind what was asked for before.

        :raises Ended: when the connection ended before a byte of it came, or after other answers: a server that has
            given as many as it wants to may cut off its last ones, as it does not read what is asked behind them
        :raises ConnectionLost: when the first answer was cut off, or at `close`
        """
        if not self.usable:
            raise Ended(span.start)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn, asked = Turn(span, deliver, over), span.end
        self._transport.write(self.pipeline.ask(turn))
        try:
            await over
        finally:
            turn.end()
            self._skip()
        if turn.complete:
            return
        gap = turn.received.gaps(turn.start, span.end)[0][0]
        if gap == turn.start or self.pipeline.answered > 1:
            raise Ended(gap)
        raise ConnectionLost(f"{self._shown}: the data ended at byte {gap} of {turn.start}-{asked}", "try again")

    def get_buffer(self, sizehint: int) -> memoryview:
        return BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self.pipeline.feed(BUFFER[:nbytes])
        except Unanswered:
            self._fail()
            return
        except Exception as error:
            self._fail(error)
            return
        if self.pipeline.over:
            self._fail()
        else:
            self._gather.received(nbytes, max(0, self.pipeline.coming - self._hidden))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail()

    def _skip(self) -> None:
        """Give up where there is more to skip than a new connection costs, and nothing else to wait for."""
        most = max(SKIPPED, SKIPPED_TRIPS * self._rtt * self._gather.rate)
        if not self.pipeline.wanted and self.pipeline.left > most:
            self._fail()

    def close(self) -> None:
        """Let go of the connection, and end what is under way; may be called twice."""
        self._fail(ConnectionLost(f"{self._shown}: the connection was closed", "try again"))

    def _fail(self, error: BaseException | None = None) -> None:
        """End all that is asked for: with `error`, or as far as it came."""
        if self.usable:
            self.usable = False
            self._transport.abort()
            self.pipeline.end(error)

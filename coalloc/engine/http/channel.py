"""Reception of ranges over one persistent HTTP connection: requested ahead, they follow each other without a pause.

Requested bytes that are no longer wanted are skipped if there are few, as a new connection costs round trips and TCP's
slow start. `sharing` decides which session fetches which range; `source` handles servers that do not support this.
"""

import asyncio
from math import inf
from typing import Any, Protocol, Self

from coalloc.engine.batched_reads import BUFFERS, ReadBuffer
from coalloc.engine.http.pipeline import Pipeline, Question, UnexpectedResponse
from coalloc.engine.range_request import RangeRequest
from coalloc.engine.span import Deliver, Span
from coalloc.errors import ConnectionLost
from coalloc.model.routes import PathState
from coalloc.util import trace
from coalloc.util.tcp_info import path_state_of

__all__ = ["HTTPChannel", "HTTPConnection", "RangeEnded"]

SKIPPED, SKIPPED_TRIPS = 64 * 1024, 4.0
"""Maximum to skip, in bytes or round trips' worth of data, whichever is more; else a new connection is cheaper."""
LEAST_SECONDS = 0.01
"""Seconds for which a near server's bytes may be held back; until then, `sharing` counts them as missing."""
RECORD = 17 * 1024
"""Maximum bytes of a TLS record, which may have arrived but not been decrypted yet."""


class RangeEnded(Exception):
    """A range whose bytes from `at` on will not come. Internal: request these bytes on another connection."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class HTTPConnection(Protocol):
    """An idle connection."""

    def get_extra_info(self, info: str) -> Any:
        """Return a property, as httpcore does; for `is_readable`, True means that the connection is closed."""
        ...

    async def hand_over(self) -> asyncio.Transport:
        """Hand the connection over: return its transport, which does not read until it is resumed."""
        ...

    def close(self) -> None:
        """Close the connection; may be called twice."""
        ...


class HTTPChannel(asyncio.BufferedProtocol):
    """An exclusive connection on which one range after another is requested.

    It cannot be used after a failure.

    :param connection: kept open: without a reference it may be closed
    :param transport: its transport
    """

    def __init__(self, question: Question, connection: HTTPConnection, transport: asyncio.Transport) -> None:
        self.usable = True
        self.pipeline = Pipeline(question)
        self._shown = question.shown
        self._rtt = question.stat.rtt or 0.0
        self._connection = connection
        self._transport = transport
        self._sock = transport.get_extra_info("socket")
        self._gather = ReadBuffer(self._sock, self._rtt, LEAST_SECONDS)
        self._asked_at: list[float] = []
        self._buffer = BUFFERS.receiving
        self._hidden = RECORD if transport.get_extra_info("ssl_object") else 0

    @classmethod
    async def take_over(cls, question: Question, connection: HTTPConnection) -> Self:
        """Return a channel that has taken this connection over."""
        transport = await connection.hand_over()
        channel = cls(question, connection, transport)
        transport.set_protocol(channel)
        transport.resume_reading()
        return channel

    @property
    def path_state(self) -> PathState | None:
        """The state of the network path of the data; None if unknown."""
        return path_state_of(self._sock) if self.usable else None

    @property
    def unchanged_at(self) -> float:
        """Return the time of the newest answered request (see `Source`); answers come in the order of the requests."""
        answered = self.pipeline.answered
        return self._asked_at[answered - 1] if answered and not self.pipeline.vague else -inf

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        """Receive `span`, after the ranges requested before.

        :raises RangeEnded: when the connection ended before a byte of the range came, or after other responses: a
            server that closes the connection after some number of responses may cut off the last ones
        :raises ConnectionLost: when the first response was cut off, or at `close`
        """
        if not self.usable:
            raise RangeEnded(span.start)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn, until = RangeRequest(span, deliver, over), span.end
        self._asked_at.append(asyncio.get_running_loop().time())
        if trace.is_on():
            trace.asked(self._shown, f"GET bytes={turn.start}-{turn.start + turn.left - 1}")
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
            raise RangeEnded(gap)
        raise ConnectionLost(f"{self._shown}: the data ended at byte {gap} of {turn.start}-{until}", "try again")

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = BUFFERS.receiving
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        answered = self.pipeline.answered
        try:
            self.pipeline.feed(self._buffer[:nbytes])
            for _ in range(answered, self.pipeline.answered):
                trace.answered(self._shown, "206, the requested bytes")
        except UnexpectedResponse:
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
        """Fail if no range is wanted, and skipping the remaining bytes would cost more than a new connection."""
        most = max(SKIPPED, SKIPPED_TRIPS * self._rtt * self._gather.rate)
        if not self.pipeline.wanted and self.pipeline.left > most:
            self._fail()

    def close(self) -> None:
        """Close the connection, and fail the ranges under way; may be called twice."""
        self._fail(ConnectionLost(f"{self._shown}: the connection was closed", "try again"))

    def _fail(self, error: BaseException | None = None) -> None:
        """End all pending ranges: with `error`, or with the bytes that have come."""
        if self.usable:
            self.usable = False
            self._transport.abort()
            self.pipeline.end(error)

"""Reception of a range over one data connection in stream mode. Its inner loop determines the speed.

All sources of a process share one buffer, which is filled and delivered once per readiness of a socket, so that no
source starves others. There is no time-out: the scheduler decides whether a source stalls.
"""

import asyncio
import socket

from coalloc.engine.batched_reads import BUFFERS, ReadBuffer
from coalloc.engine.gridftp.control import PendingReply
from coalloc.engine.gridftp.data_connections import ComingConnection
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.replies import Reply
from coalloc.engine.gridftp.security import DataStream
from coalloc.engine.gridftp.session import Session
from coalloc.engine.span import Deliver, Span
from coalloc.errors import ConnectionLost, SourceError, Unreachable

__all__ = ["LAST_WORDS_SECONDS", "fetch", "final_reply", "lost"]

LAST_WORDS_SECONDS = 1.0  # time to wait for the server's reason after data ended early
NO_CONNECTION = 425
"""Code of replies that there is no data connection."""


async def fetch(
    session: Session, coming: ComingConnection, span: Span, deliver: Deliver, last: int | None = None
) -> None:
    """Receive `span` on a new data connection, and close it. The span is requested while the connection is made.

    :param last: number of this fetch, if range and replica will probably be checked after it; else None

    The final reply to the transfer is read later, with the replies to later commands, as success has no effect.
    """
    try:
        if span.start >= span.end:  # `end` was lowered while the address was found
            return
        transfer, data = await _requested(session, coming, span)
        if last is not None:
            session.ask_after(last, transfer, span.start, span.end)
        session.ask_ahead()
        stream = await _secured(session, data, transfer) if session.protects_data else data
        receiver = _Receiver(stream, span, deliver, ReadBuffer(data, session.stat.rtt))
        transfer.add_done_callback(receiver.replied)
        reached = await receiver.run()
    finally:
        coming.close()
    if reached < span.end:
        raise lost(session, await final_reply(transfer), span, reached)


async def _requested(session: Session, coming: ComingConnection, span: Span) -> tuple[PendingReply, socket.socket]:
    """Request `span`, and wait for its data connection; if that fails, close the session, as the server waits, too."""
    transfer = None
    try:
        transfer = await session.retrieve(span.start, span.end)
        return transfer, await coming.made()
    except Unreachable:
        reply = await final_reply(transfer) if transfer else None
        session.close()
        if reply and not reply.positive and reply.code != NO_CONNECTION:
            raise refusal(reply, session.address.shown) from None
        raise
    except BaseException:
        session.close()
        raise


async def _secured(session: Session, data: socket.socket, transfer: PendingReply) -> DataStream:
    """Return the data of a protected connection, unless the server refuses the transfer instead of protecting it."""
    securing = asyncio.create_task(session.secure(data))
    try:
        await asyncio.wait((securing, transfer), return_when=asyncio.FIRST_COMPLETED)
        if not securing.done() and (reply := await final_reply(transfer)) and not reply.positive:
            raise refusal(reply, session.address.shown)
        return await securing
    except ConnectionLost:
        reply = await final_reply(transfer)
        if reply and not reply.positive:
            raise refusal(reply, session.address.shown) from None
        raise
    finally:
        if not securing.done():
            securing.cancel()
            await asyncio.wait((securing,))  # it must not use the socket any more when that is closed


async def final_reply(transfer: PendingReply) -> Reply | None:
    """Return the server's reply to a transfer that ended early, if it comes soon."""
    await asyncio.wait({transfer}, timeout=LAST_WORDS_SECONDS)
    if not transfer.done() or transfer.cancelled() or transfer.exception():
        return None
    return transfer.result()


def lost(session: Session, reply: Reply | None, span: Span, reached: int) -> SourceError:
    """Return the error for a transfer that ended at byte `reached`."""
    shown = session.address.shown
    if reply and not reply.positive and reached == span.start:
        return refusal(reply, shown)
    words = f"; the server says {reply.code} {reply.text}" if reply else ""
    return ConnectionLost(f"{shown}: the data ended at byte {reached} of {span.start}-{span.end}{words}", "try again")


class _Receiver:
    """A receiver that reads one stream into the shared buffer until the span, up to its current end, is delivered."""

    __slots__ = ("_admitted", "_at", "_data", "_deliver", "_gather", "_hidden", "_over", "_paused", "_refused", "_span")

    def __init__(self, data: DataStream, span: Span, deliver: Deliver, gather: ReadBuffer) -> None:
        self._data = data
        self._span = span
        self._deliver = deliver
        self._gather = gather
        self._hidden = getattr(data, "overhead", 0)
        self._at = self._admitted = span.start
        self._paused = self._refused = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Receive until the end, or as far as possible; return the offset reached."""
        loop = asyncio.get_running_loop()
        while True:
            self._admitted = await self._span.admitted(self._at)
            loop.add_reader(self._data, self._readable)
            try:
                await self._over
            finally:
                loop.remove_reader(self._data)
            if self._refused or not self._paused:
                return self._at
            self._paused, self._over = False, loop.create_future()

    def replied(self, transfer: PendingReply) -> None:
        """End the wait for data after a refusal, but not after success, or the loss of the control connection."""
        if not (transfer.cancelled() or transfer.exception() or transfer.result().positive):
            self._refused = True  # `run` may be about to begin another wait
            self._end()

    def _readable(self) -> None:
        if self._over.done():  # cancelled in this same iteration of the loop
            return
        start = self._at
        wanted = self._span.end - start
        if wanted <= 0:
            self._end()
            return
        buffer = BUFFERS.receiving
        try:
            count = self._data.recv_into(buffer, min(wanted, self._admitted - start, len(buffer)))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self._end()
            return
        self._at = start + count
        try:
            self._deliver(start, start + count, buffer[:count])
        except Exception as error:
            self._end(error)
        else:
            if self._at >= self._span.end:
                self._end()
            elif self._at >= self._admitted:
                self._paused = True
                self._end()
            else:
                self._gather.received(count, max(0, self._span.end - self._at - self._hidden))

    def _end(self, error: Exception | None = None) -> None:
        if self._over.done():
            return
        if error:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)

"""Which bytes of a kept data connection belong to which of the ranges that were asked for on it. Pure, no I/O.

The server sends the ranges in the order of asking; each ends with an end of data. What of them is no longer wanted
comes all the same, and is counted but not delivered. Making the connection and asking is left to `modee`.
"""

from collections import deque
from typing import Protocol

from coalloc.engine.base import Deliver, Span
from coalloc.engine.gridftp.protocol import Block, BlockReader, EndOfData, EndOfFile
from coalloc.errors import ServerSays, SourceError
from coalloc.intervals import Intervals

__all__ = ["Turn", "Turns"]


class Over(Protocol):
    """What tells that a range is over: a future, which whoever waits for it may also cancel."""

    def done(self) -> bool: ...

    def set_result(self, result: None) -> None: ...

    def set_exception(self, exception: BaseException) -> None: ...


class Turn:
    """A range that was asked for: which of its bytes are here.

    :param over: is set when all that is wanted is delivered, or no more will come; once it is, nothing is delivered
    """

    def __init__(self, span: Span, deliver: Deliver, over: Over) -> None:
        self.span = span
        self.start = span.start
        self.left = span.end - span.start
        self.received = Intervals()
        self.refusal: SourceError | None = None
        self._deliver = deliver
        self._over = over

    @property
    def wanted(self) -> bool:
        return not self._over.done()

    @property
    def complete(self) -> bool:
        length = self.span.end - self.start
        return self.received.total >= length and self.received.covers(self.start, self.span.end)

    def take(self, block: Block) -> None:
        """Deliver what is wanted of a block."""
        self.left -= len(block.view)
        if not self.wanted:
            return
        start = self.start + block.offset
        end = min(start + len(block.view), self.span.end)
        if start < end:
            self.received.add(start, end)
            try:
                self._deliver(start, block.view[: end - start])
            except Exception as error:
                self.end(error)
        if self.complete:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Deliver nothing more; may be called twice."""
        if not self.wanted:
            return
        if error:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)


class Turns:
    """The ranges that are to come, in their order."""

    def __init__(self) -> None:
        self._turns: deque[Turn] = deque()
        self._reader = BlockReader()
        self.ended = 0
        """How many have ended."""
        self.closed = False
        """Whether the server has said that nothing comes after this."""

    def ask(self, turn: Turn) -> None:
        self._turns.append(turn)

    @property
    def first(self) -> Turn | None:
        return self._turns[0] if self._turns else None

    @property
    def left(self) -> int:
        """Bytes that are to come, wanted or not."""
        return sum(turn.left for turn in self._turns)

    @property
    def wanted(self) -> bool:
        return any(turn.wanted for turn in self._turns)

    def feed(self, data: memoryview) -> None:
        """Bytes have arrived.

        :raises ServerSays: when they are not what was asked for
        """
        for event in self._reader.feed(data):
            if not self._turns:
                raise ServerSays("the server sends what no one asked for", "use another replica, or report this server")
            match event:
                case Block():
                    self._turns[0].take(event)
                case EndOfData():
                    self._turns.popleft().end()
                    self.ended += 1
                    self.closed = event.closes
                case EndOfFile():
                    pass  # how many connections end: there is only this one

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes."""
        while self._turns:
            self._turns.popleft().end(error)

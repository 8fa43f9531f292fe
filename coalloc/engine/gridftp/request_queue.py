"""Assignment of a persistent data connection's bytes to the ranges requested on it. Pure, no I/O.

The server sends the ranges in the order of the requests, each followed by an end of data. Bytes that are no longer
wanted are counted but not delivered. `block_channel` makes the connection and the requests.
"""

from collections import deque

from coalloc.engine.gridftp.blocks import Block, BlockReader, EndOfData, EndOfFile
from coalloc.engine.range_request import RangeRequest
from coalloc.errors import ServerSays

__all__ = ["RangeRequests"]


class RangeRequests:
    """The requested ranges that have not ended, in order."""

    def __init__(self) -> None:
        self._turns: deque[RangeRequest] = deque()
        self._reader = BlockReader()
        self.ended = 0
        """Number of ranges that have ended."""
        self.closed = False
        """Whether the server has announced that nothing more comes."""

    def ask(self, turn: RangeRequest) -> None:
        self._turns.append(turn)

    @property
    def first(self) -> RangeRequest | None:
        return self._turns[0] if self._turns else None

    @property
    def left(self) -> int:
        """Number of bytes still to come, wanted or not."""
        return sum(turn.left for turn in self._turns)

    @property
    def wanted(self) -> bool:
        return any(turn.wanted for turn in self._turns)

    def feed(self, data: memoryview) -> None:
        """Process received bytes.

        :raises ServerSays: when no range is pending
        :raises LimitExceeded: when they are outside the range, or come in too many parts
        """
        for event in self._reader.feed(data):
            if not self._turns:
                raise ServerSays(
                    "the server sends bytes that were not requested", "use another replica, or report this server"
                )
            match event:
                case Block():
                    self._turns[0].take(event.offset, event.view)
                case EndOfData():
                    self._turns.popleft().end()
                    self.ended += 1
                    self.closed = event.closes
                case EndOfFile():
                    pass  # gives the number of connections, which is one

    def end(self, error: BaseException | None = None) -> None:
        """End all ranges, because no more data will come."""
        while self._turns:
            self._turns.popleft().end(error)

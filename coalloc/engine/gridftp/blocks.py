"""A parser of the MODE E blocks of GridFTP data connections (GFD.20). No sockets, no clock."""

from struct import Struct
from typing import NamedTuple

from coalloc.errors import LimitExceeded, ServerSays

__all__ = ["Block", "BlockReader", "EndOfData", "EndOfFile"]


class Block(NamedTuple):
    """Bytes of the requested range; `offset` is counted from the start of the range."""

    offset: int
    view: memoryview


class EndOfData(NamedTuple):
    """The end of this transfer's data on this connection; if `closes`, the connection ends, too."""

    closes: bool


class EndOfFile(NamedTuple):
    """The end of the file, with the number of connections on which EndOfData comes."""

    connections: int


class BlockReader:
    """A parser of one MODE E connection's bytes; blocks are returned in pieces, as they arrive.

        +------------+----------------+----------------+=========+
        | descriptor |     count      |     offset     | count   |
        |   1 byte   | 8, big endian  | 8, big endian  | bytes   |
        +------------+----------------+----------------+=========+

    With descriptor EOF, the offset field is the number of connections (GFD.20, 3.5).
    """

    HEADER = Struct("!BQQ")
    ERROR, EOF, EOD, CLOSE = 0x20, 0x40, 0x08, 0x04
    SPARE_BLOCKS, LEAST_BLOCK = 1024, 512
    """Number of blocks of any size that a range may have, and the minimum mean size in bytes of further blocks.

    Servers send blocks of 256 KiB.
    """

    def __init__(self) -> None:
        self._blocks = self._bytes = 0  # of the current range
        self._header = b""
        self._left = 0
        self._offset = 0

    def feed(self, data: memoryview) -> list[Block | EndOfData | EndOfFile]:
        """Return the events in `data`; their views refer to `data`.

        :raises LimitExceeded: when there are too many small blocks
        """
        events: list[Block | EndOfData | EndOfFile] = []
        while data:
            if self._left:
                piece = data[: self._left]
                events.append(Block(self._offset, piece))
                self._offset += len(piece)
                self._left -= len(piece)
                self._bytes += len(piece)
                data = data[len(piece) :]
                continue
            missing = self.HEADER.size - len(self._header)
            self._header += data[:missing]
            data = data[missing:]
            if len(self._header) == self.HEADER.size:
                events += self._begin(*self.HEADER.unpack(self._header))
                self._header = b""
        return events

    def _begin(self, descriptor: int, count: int, offset: int) -> list[Block | EndOfData | EndOfFile]:
        if descriptor & self.ERROR:
            raise ServerSays("the server marked a block as suspect", "try again, or leave out --streams")
        self._blocks += 1
        if self._blocks > self.SPARE_BLOCKS + self._bytes // self.LEAST_BLOCK:
            raise LimitExceeded(
                f"the server sends blocks of only {self._bytes / self._blocks:.0f} bytes on average",
                "use another replica, or tell the server's admin",
            )
        ends: list[Block | EndOfData | EndOfFile] = []
        if descriptor & self.EOF:
            ends.append(EndOfFile(offset))
        else:
            self._left, self._offset = count, offset
        if descriptor & self.EOD:
            self._blocks = self._bytes = 0
            ends.append(EndOfData(bool(descriptor & self.CLOSE)))
        return ends

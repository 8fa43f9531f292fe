"""The bytes of one direction between two connections, in a pipe of the kernel or in a buffer."""

import os
import socket
from collections import deque
from contextlib import suppress

__all__ = ["BufferedDirection", "Direction", "PairedSocket", "Pipes", "direction"]

CHUNK = 1 << 18
"""Maximum bytes moved at once through a pipe."""
BLOCK = 1 << 16
"""Maximum bytes received at once into a buffer."""
SMALL = 1 << 12
"""Maximum bytes received at once into a pipe, and of pieces that are joined in a buffer, as each takes some memory."""
TURN = 32
"""Maximum number of moves in one direction before others get their turn. Moves of few bytes take as long as others."""
SPARE_PIPES = 64
"""Maximum number of unused pipes that are kept."""
FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK


class Pipes:
    """Pipes that carry bytes between sockets, kept for later use while they are empty."""

    def __init__(self) -> None:
        self._spare: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """Return an empty pipe: its end to read, and its end to write.

        :raises OSError: when there are too many open files
        """
        return self._spare.pop() if self._spare else os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def give_back(self, pipe: tuple[int, int], *, empty: bool) -> None:
        """Keep or close a pipe that is no longer used."""
        if empty and len(self._spare) < SPARE_PIPES:
            self._spare.append(pipe)
        else:
            os.close(pipe[0])
            os.close(pipe[1])

    def close(self) -> None:
        """Close all unused pipes."""
        while self._spare:
            self.give_back(self._spare.pop(), empty=False)


class PairedSocket:
    """One connection of a pair.

    :ivar readable: whether a read may succeed, as far as known
    :ivar writable: the same for a write
    """

    __slots__ = ("readable", "sock", "writable")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.readable = True
        self.writable = True


class Direction:
    """The bytes from one connection of a pair to the other.

    :ivar moved: bytes delivered
    :ivar held: bytes collected but not delivered
    :ivar ended: whether the end was passed on
    """

    __slots__ = ("_eof", "_pipe", "_pipes", "ended", "held", "moved", "sink", "source")

    def __init__(self, source: PairedSocket, sink: PairedSocket, pipes: Pipes) -> None:
        self.source = source
        self.sink = sink
        self.moved = 0
        self.ended = False
        self._eof = False
        self.held = 0
        self._pipe: tuple[int, int] | None = None
        self._pipes = pipes

    def move(self) -> bool:
        """Move bytes until one side has to wait, or others should have their turn; return whether more can be moved.

        :raises OSError: when one of the connections has failed
        """
        for _ in range(TURN):
            if self.held:
                if not self._deliver():
                    return False
            elif self._eof:
                self._pass_end_on()
                return False
            elif not self._collect():
                return False
        return True

    def _collect(self) -> bool:
        if not (self.source.readable and self.sink.writable):
            return False
        if self._pipe is None:
            self._pipe = self._pipes.take()
        with suppress(BlockingIOError):
            self.held = os.splice(self.source.sock.fileno(), self._pipe[1], CHUNK, flags=FLAGS)
        return self.held > 0 or self._receive(self._pipe)

    def _receive(self, pipe: tuple[int, int]) -> bool:
        """Collect bytes without splice, which stops before urgent ones as if there were no more, or at the end."""
        try:
            data = self.source.sock.recv(SMALL)
        except BlockingIOError:
            self.source.readable = False
            self._release()
            return False
        self._eof = not data
        self.held = os.write(pipe[1], data)
        return True

    def _deliver(self) -> bool:
        assert self._pipe is not None, "it holds bytes"
        try:
            count = os.splice(self._pipe[0], self.sink.sock.fileno(), self.held, flags=FLAGS)
        except BlockingIOError:
            self.sink.writable = False
            return False
        self.held -= count
        self.moved += count
        return True

    def _pass_end_on(self) -> None:
        self._release()
        if not self.ended:
            self.ended = True
            self.sink.sock.shutdown(socket.SHUT_WR)

    def _release(self) -> None:
        if self._pipe is not None:
            self._pipes.give_back(self._pipe, empty=not self.held)
            self._pipe = None

    def close(self) -> None:
        """Drop the bytes on their way."""
        self._release()


class BufferedDirection(Direction):
    """A direction with a buffer, which goes on reading while the other connection stalls.

    :param limit: maximum bytes in the buffer
    """

    __slots__ = ("_chunks", "_limit")

    def __init__(self, source: PairedSocket, sink: PairedSocket, pipes: Pipes, limit: int) -> None:
        super().__init__(source, sink, pipes)
        self._limit = limit
        self._chunks: deque[memoryview] = deque()

    def move(self) -> bool:
        for _ in range(TURN):
            collected = self._collect()
            if not (self.held and self._deliver()) and not collected:
                if self._eof and not self.held:
                    self._pass_end_on()
                return False
        return True

    def _collect(self) -> bool:
        room = min(BLOCK, self._limit - self.held)
        if self._eof or room <= 0 or not self.source.readable:
            return False
        try:
            data = self.source.sock.recv(room)
        except BlockingIOError:
            self.source.readable = False
            return False
        if not data:
            self._eof = True
            return False
        self.held += len(data)
        if self._chunks and len(self._chunks[-1]) + len(data) <= SMALL:
            data = bytes(self._chunks.pop()) + data
        self._chunks.append(memoryview(data))
        return True

    def _deliver(self) -> bool:
        if not self.sink.writable:
            return False
        try:
            count = self.sink.sock.send(self._chunks[0])
        except BlockingIOError:
            self.sink.writable = False
            return False
        self.held -= count
        self.moved += count
        if count == len(self._chunks[0]):
            self._chunks.popleft()
        else:
            self._chunks[0] = self._chunks[0][count:]
        return True

    def _release(self) -> None:
        self._chunks.clear()


def direction(source: PairedSocket, sink: PairedSocket, pipes: Pipes, buffer: int) -> Direction:
    """Return a direction with a buffer of so many bytes; without a buffer if they are 0."""
    return BufferedDirection(source, sink, pipes, buffer) if buffer else Direction(source, sink, pipes)

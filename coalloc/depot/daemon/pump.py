"""Transport of bytes between pairs of connections, without copies through this process where possible.

All pairs of a process share one epoll object, which the event loop watches. Bytes go from socket to socket through a
pipe (splice(2)). Each end of a connection is carried over as it is: a half-close as a half-close, a reset as a reset.
"""

import asyncio
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

__all__ = ["Account", "ConnectionPair", "Ending", "Pump", "reset_on_close"]

Ending = Literal["closed", "reset", "idle", "limit", "drained"]
"""How a pair ended: both directions were closed; one connection failed or was reset; no byte came for long; the
ticket's bytes were used up; the depot shut down.
"""

CHUNK = 1 << 18
"""Maximum bytes moved at once through a pipe."""
BLOCK = 1 << 16
"""Maximum bytes received at once into a buffer."""
SMALL = 1 << 12
"""Maximum bytes received at once into a pipe, and of pieces that are joined in a buffer, as each takes some memory."""
TURN = 32
"""Maximum number of moves in one direction before others get their turn. Moves of few bytes take as long as others."""
MOST_EVENTS = 256
SPARE_PIPES = 64
"""Maximum number of unused pipes that are kept."""
FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
WATCHED = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
RESET, FINISH = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)
"""SO_LINGER with which the close of a connection sends a reset, or delivers what is left and then ends the stream."""


class Account:
    """Bytes moved in all sessions of one ticket.

    :param most: maximum; None for no limit
    """

    __slots__ = ("most", "moved")

    def __init__(self, most: int | None = None) -> None:
        self.moved = 0
        self.most = most

    @property
    def exhausted(self) -> bool:
        """Return whether the maximum is exceeded."""
        return self.most is not None and self.moved > self.most


class _Pipes:
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


class _End:
    """One connection of a pair.

    :ivar readable: whether a read may succeed, as far as known
    :ivar writable: the same for a write
    """

    __slots__ = ("pair", "readable", "sock", "writable")

    def __init__(self, sock: socket.socket, pair: "ConnectionPair") -> None:
        self.sock = sock
        self.pair = pair
        self.readable = True
        self.writable = True


class _Direction:
    """The way of bytes from one connection to the other.

    :ivar moved: bytes delivered
    :ivar held: bytes collected but not delivered
    :ivar ended: whether the end was passed on
    """

    __slots__ = ("_eof", "_pipe", "_pipes", "ended", "held", "moved", "sink", "source")

    def __init__(self, source: _End, sink: _End, pipes: _Pipes) -> None:
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


class _BufferedDirection(_Direction):
    """A direction with a buffer, which goes on reading while the other connection stalls.

    :param limit: maximum bytes in the buffer
    """

    __slots__ = ("_chunks", "_limit")

    def __init__(self, source: _End, sink: _End, pipes: _Pipes, limit: int) -> None:
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


class ConnectionPair:
    """Two connections between which bytes are carried, both ways.

    :ivar active_at: time of the last event
    """

    __slots__ = ("_on_end", "account", "active_at", "client", "down", "server", "up")

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        pipes: _Pipes,
        account: Account,
        buffer: int,
        on_end: Callable[["ConnectionPair", Ending], None],
    ) -> None:
        self.client = _End(client, self)
        self.server = _End(server, self)
        self.up = _direction(self.client, self.server, pipes, buffer)
        self.down = _direction(self.server, self.client, pipes, buffer)
        self.account = account
        self.active_at = 0.0
        self._on_end = on_end

    def move(self) -> bool:
        """Move bytes both ways; return whether more can be moved at once.

        :raises OSError: when one of the connections has failed
        """
        before = self.up.moved + self.down.moved
        try:
            more = self.up.move()
            return self.down.move() or more
        finally:
            self.account.moved += self.up.moved + self.down.moved - before

    def close(self, ending: Ending) -> None:
        """Close both connections, with a reset unless both directions have ended."""
        self._on_end(self, ending)
        for direction in (self.up, self.down):
            direction.close()
        for end in (self.client, self.server):
            if ending == "closed":
                end.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, FINISH)
            end.sock.close()


class Pump:
    """Carries bytes for all pairs of this process.

    Its functions must be called in the event loop's thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._ends: dict[int, _End] = {}
        self._pipes = _Pipes()
        self._waiting: dict[ConnectionPair, None] = {}
        """Pairs that can move more bytes at once."""
        self._loop.add_reader(self._epoll.fileno(), self._handle_events)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self._ends) // 2

    @property
    def pairs(self) -> list[ConnectionPair]:
        """All pairs, in the order of their start."""
        return list(dict.fromkeys(end.pair for end in self._ends.values()))

    def add(
        self,
        client: socket.socket,
        server: socket.socket,
        account: Account,
        on_end: Callable[[ConnectionPair, Ending], None],
        *,
        buffer: int = 0,
    ) -> ConnectionPair:
        """Carry bytes between two non-blocking sockets until both directions have ended, then close the sockets.

        :param account: counts the bytes; when it is exhausted, both connections are reset
        :param on_end: called at the end, before the sockets are closed
        :param buffer: bytes to buffer for each direction, while its receiver stalls; 0 for the least
        """
        pair = ConnectionPair(client, server, self._pipes, account, buffer, on_end)
        for end in (pair.client, pair.server):
            reset_on_close(end.sock)
            end.sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
            self._ends[end.sock.fileno()] = end
            self._epoll.register(end.sock.fileno(), WATCHED)  # reports at once what has happened before
        pair.active_at = self._loop.time()
        return pair

    def reset(self, pair: ConnectionPair, ending: Ending) -> None:
        """Reset a pair."""
        self._end(pair, ending)

    def reset_idle(self, seconds: float) -> None:
        """Reset pairs without any event for so long."""
        now = self._loop.time()
        for pair in self.pairs:
            if now - pair.active_at > seconds:
                self._end(pair, "idle")

    def reset_all(self) -> None:
        """Reset all pairs."""
        for pair in self.pairs:
            self._end(pair, "drained")

    def close(self) -> None:
        """Reset all pairs, and release everything."""
        self.reset_all()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._pipes.close()

    def _handle_events(self) -> None:
        now, pairs, failed = self._loop.time(), dict[ConnectionPair, None](), dict[ConnectionPair, None]()
        for number, events in self._epoll.poll(0, MOST_EVENTS):
            end = self._ends[number]
            end.readable |= bool(events & ~select.EPOLLOUT)
            end.writable |= bool(events & select.EPOLLOUT)
            end.pair.active_at = now
            (failed if events & select.EPOLLERR else pairs)[end.pair] = None
        for pair in failed:
            self._end(pair, "reset")
        self._move(pairs)

    def _go_on(self) -> None:
        pairs, self._waiting = self._waiting, {}
        self._move(pairs)

    def _move(self, pairs: dict[ConnectionPair, None]) -> None:
        for pair in pairs:
            if pair.client.sock.fileno() in self._ends:  # it may have ended meanwhile
                self._move_pair(pair)

    def _move_pair(self, pair: ConnectionPair) -> None:
        try:
            more = not pair.account.exhausted and pair.move()
        except OSError:
            self._end(pair, "reset")
            return
        if pair.up.ended and pair.down.ended:
            self._end(pair, "closed")
        elif pair.account.exhausted:
            self._end(pair, "limit")
        elif more:
            if not self._waiting:
                self._loop.call_soon(self._go_on)
            self._waiting[pair] = None

    def _end(self, pair: ConnectionPair, ending: Ending) -> None:
        for end in (pair.client, pair.server):
            del self._ends[end.sock.fileno()]
        self._waiting.pop(pair, None)
        pair.close(ending)


def reset_on_close(sock: socket.socket) -> None:
    """Make the close of a connection a reset, also if this process is killed: a cut-off stream must not look whole."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def _direction(source: _End, sink: _End, pipes: _Pipes, buffer: int) -> _Direction:
    return _BufferedDirection(source, sink, pipes, buffer) if buffer else _Direction(source, sink, pipes)

"""Transport of bytes between pairs of connections, without copies through this process where possible.

All pairs of a process share one epoll object, which the event loop watches. Bytes go from socket to socket through a
pipe (splice(2)). Each end of a connection is carried over as it is: a half-close as a half-close, a reset as a reset.
"""

import asyncio
import select
import socket
import struct
from collections.abc import Callable
from typing import Literal

from coalloc.depot.daemon.directions import PairedSocket, Pipes, direction

__all__ = ["Account", "ConnectionPair", "Ending", "Pump", "reset_on_close"]

Ending = Literal["closed", "reset", "idle", "limit", "drained"]
"""How a pair ended: both directions were closed; one connection failed or was reset; no byte came for long; the
ticket's bytes were used up; the depot shut down.
"""

MOST_EVENTS = 256
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


class ConnectionPair:
    """Two connections between which bytes are carried, both ways.

    :ivar active_at: time of the last event
    """

    __slots__ = ("_on_end", "account", "active_at", "client", "down", "server", "up")

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        pipes: Pipes,
        account: Account,
        buffer: int,
        on_end: Callable[["ConnectionPair", Ending], None],
    ) -> None:
        self.client = PairedSocket(client)
        self.server = PairedSocket(server)
        self.up = direction(self.client, self.server, pipes, buffer)
        self.down = direction(self.server, self.client, pipes, buffer)
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
        self.up.close()
        self.down.close()
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
        self._ends: dict[int, tuple[PairedSocket, ConnectionPair]] = {}
        self._pipes = Pipes()
        self._waiting: dict[ConnectionPair, None] = {}
        """Pairs that can move more bytes at once."""
        self._loop.add_reader(self._epoll.fileno(), self._handle_events)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self._ends) // 2

    @property
    def pairs(self) -> list[ConnectionPair]:
        """All pairs, in the order of their start."""
        return list(dict.fromkeys(pair for _, pair in self._ends.values()))

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
            self._ends[end.sock.fileno()] = end, pair
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
            end, pair = self._ends[number]
            end.readable |= bool(events & ~select.EPOLLOUT)
            end.writable |= bool(events & select.EPOLLOUT)
            pair.active_at = now
            (failed if events & select.EPOLLERR else pairs)[pair] = None
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

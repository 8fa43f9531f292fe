"""A dialer that simulates a distant server, and counts round trips instead of seconds.

Bytes from the client arrive at once. Bytes from the server, and the news that a connection is open, are held back until
no bytes have moved for a moment, and all programs that this process has started are idle. Then one round trip has
passed, and everything that is due by then is delivered. So the count does not depend on the speed of the machine. It
works with one server at a time.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coalloc.util.addresses import AddressPolicy
from coalloc.util.dialer import DirectDialer

__all__ = ["Distance"]

STILL = 6
"""Number of consecutive checks, `LOOK` seconds apart, without traffic after which a round trip has passed."""
LOOK = 0.01


@dataclass
class _Connection:
    """One connection.

    :param stands: round trip at which the client learns that it is open
    :param spoke: round trip at which the client last sent on it; None if it has not
    """

    stands: int
    spoke: int | None = None
    pumps: list[asyncio.Task[None]] = field(default_factory=list)


class Distance:
    """A dialer like `DirectDialer`, to a distant server. The end of its `with` block closes all connections.

    Connections from the server to the client are not delayed.

    :ivar trips: number of round trips that have passed
    """

    def __init__(self) -> None:
        self.trips = 0
        self._near = DirectDialer()
        self._held: list[tuple[int, Callable[[], object]]] = []
        self._moved = 0
        self._spoke = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets = contextlib.ExitStack()

    async def __aenter__(self) -> "Distance":
        self._start(self._pass_time())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sockets.close()  # tasks that had not begun have not closed theirs

    @property
    def policy(self) -> AddressPolicy:
        """Return the address policy of the underlying dialer."""
        return self._near.policy

    def under(self, policy: AddressPolicy) -> "Distance":
        """Return itself; the policy is ignored."""
        return self

    def route(self, host: str) -> str:
        """Return the route of the underlying dialer."""
        return self._near.route(host)

    async def addresses(self, host: str) -> frozenset[str]:
        """Resolve a name with the underlying dialer."""
        return await self._near.addresses(host)

    async def dial(self, host: str, port: int, seconds: float, first: bytes = b"") -> socket.socket:
        """Open a connection to the server through a relay, which listens at the server's address."""
        connection = _Connection(self.trips + 1)
        server = self._sockets.enter_context(await self._near.dial(host, port, seconds))
        with socket.create_server((host, 0), family=server.family) as listener:
            listener.setblocking(False)
            client = await self._near.dial(host, listener.getsockname()[1], seconds)
            try:
                relay, _ = await asyncio.get_running_loop().sock_accept(listener)
                relay.setblocking(False)
                self._start(self._relay(connection, self._sockets.enter_context(relay), server))
                stands = asyncio.Event()
                self._hold(connection.stands, stands.set)
                await stands.wait()
                await asyncio.get_running_loop().sock_sendall(client, first)
            except asyncio.CancelledError:
                client.close()
                raise
        return client

    async def rest(self) -> None:
        """Wait until all bytes in flight have arrived."""
        while True:
            await self._stillness()
            if not self._held:
                return

    def _start(self, work) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hold(self, due: int, release: Callable[[], object]) -> None:
        self._moved += 1
        self._held.append((due, release))

    async def _pass_time(self) -> None:
        while True:
            await self._stillness()
            if self._held:
                due = [held for held in self._held if held[0] <= self.trips]
                if not due:
                    self.trips += 1
                    due = [held for held in self._held if held[0] <= self.trips]
                self._held = [held for held in self._held if held[0] > self.trips]
                for _, release in due:
                    release()

    async def _stillness(self) -> None:
        seen, still = -1, 0
        while still < STILL:
            still = still + 1 if seen == self._moved and not _busy(Path("/proc/self")) else 0
            seen = self._moved
            await asyncio.sleep(LOOK)

    async def _relay(self, connection: _Connection, near: socket.socket, far: socket.socket) -> None:
        """Carry bytes in both directions until the client closes the connection."""
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(sock=near)
        with far, contextlib.closing(writer), contextlib.suppress(ConnectionError):
            back = loop.create_task(self._back(connection, far, writer))
            try:
                while data := await reader.read(1 << 16):
                    self._moved += 1
                    connection.spoke = self._spoke = self.trips
                    await loop.sock_sendall(far, data)
            finally:
                back.cancel()
                await asyncio.gather(back, return_exceptions=True)

    async def _back(self, connection: _Connection, far: socket.socket, near: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            while data := await loop.sock_recv(far, 1 << 20):
                self._hold(self._due(connection), lambda data=data: near.write(data))
        self._hold(self._due(connection), near.close)

    def _due(self, connection: _Connection) -> int:
        """Return the round trip at which bytes from the server arrive: one after the client's last message.

        On a data connection, where the client sends nothing, its last message on any connection counts.
        """
        spoke = self._spoke if connection.spoke is None else connection.spoke
        return max(connection.stands, spoke) + 1


def _busy(process: Path) -> bool:
    """Return whether a descendant of a process computes, waits for a disk, or waits to be run; see proc(5)."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in (process / "task").iterdir():
            for child in map(Path("/proc").joinpath, (thread / "children").read_text().split()):
                if _states(child) & {"R", "D"} or _busy(child):
                    return True
    return False


def _states(process: Path) -> set[str]:
    """Return the states of a process's threads."""
    states = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in (process / "task").iterdir():
            states.add((thread / "stat").read_text().rpartition(") ")[2][0])
    return states

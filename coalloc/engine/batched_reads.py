"""Reception of data in larger chunks: the kernel collects bytes on a data connection before it wakes this process.

A process woken for every packet needs a third of a processor for 100 Mbit/s. Bytes from a distant server may wait for
about one round trip more.
"""

import asyncio
import socket
import threading

__all__ = ["BUFFERS", "ReadBuffer"]

BUFFER_BYTES = 1024 * 1024

LEAST_SECONDS, MOST_SECONDS = 0.03, 0.1
"""Bounds of the time for which bytes are held back; within them, it is one round trip."""
MOST_BYTES = 512 * 1024
"""Maximum bytes held back, so that a source that becomes slow does not look stalled."""
PART = 4
"""Divisor of the kernel's buffer: at most a quarter of it is held back. Linux grows the buffer by the bytes read within
a round trip; a process that reads only once per round trip may keep the small initial buffer, and reach only 1 MB/s
over 80 ms.
"""
ADAPT_SECONDS = 0.1


class ReceiveBuffers(threading.local):
    """The buffer that all connections of an event loop share; each thread has its own.

    Received bytes are valid only within one callback, which delivers them.
    """

    def __init__(self) -> None:
        self.receiving = memoryview(bytearray(BUFFER_BYTES))
        """The buffer to receive into."""


BUFFERS = ReceiveBuffers()


class ReadBuffer:
    """A setting of one socket that follows its rate. The end of the data always wakes the process at once.

    :param rtt: round-trip time in seconds, if known
    :param least: minimum seconds for which bytes are held back, even from a near server
    """

    __slots__ = ("_bytes", "_held", "_marked", "_seconds", "_sock", "_time", "rate")

    def __init__(self, sock: socket.socket, rtt: float | None, least: float = LEAST_SECONDS) -> None:
        self._sock = sock
        self._seconds = min(max(least, rtt or 0.0), MOST_SECONDS)
        self._time = asyncio.get_running_loop().time
        self._marked = self._time()
        self._bytes = 0
        self._held = 1
        self.rate = 0.0
        """Bytes per second over the last moment."""

    def received(self, count: int, left: int) -> None:
        """Count `count` bytes that were read; at least `left` more will come."""
        self._bytes += count
        now = self._time()
        if now > self._marked + ADAPT_SECONDS:
            self.rate = self._bytes / (now - self._marked)
            self._hold(int(min(self.rate * self._seconds, MOST_BYTES, left)))
            self._marked, self._bytes = now, 0
        elif left < self._held:
            self._hold(left)

    def _hold(self, count: int) -> None:
        held = max(1, min(count, self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // PART))
        if held != self._held:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, held)
            self._held = held

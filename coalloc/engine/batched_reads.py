"""Reception of data in larger chunks: the kernel collects bytes on a data connection before it wakes this process.

A process woken for every packet needs a third of a processor for 100 Mbit/s. Bytes from a distant server can wait for
about as long as they were on their way.
"""

import asyncio
import socket

__all__ = ["BUFFER", "ReadBuffer"]

BUFFER = memoryview(bytearray(1024 * 1024))
"""Buffer for received bytes until they are delivered; free again whenever a callback returns."""

LEAST_SECONDS, MOST_SECONDS = 0.03, 0.1
"""Bounds of the time for which bytes may be held back, which is otherwise one round trip."""
MOST_BYTES = 512 * 1024
"""Most bytes held back, lest a source that becomes slow looks stalled."""
PART = 4
"""Largest share of the kernel's buffer that is held back, as a divisor. Linux grows a buffer by what is read within a
round trip: a process that reads everything once per round trip may keep the small initial buffer, and a rate of
1 MB/s over 80 ms.
"""
ADAPT_SECONDS = 0.1


class ReadBuffer:
    """Adapts one socket to the rate at which bytes arrive; the end of data wakes the process at once in any case.

    :param rtt: round-trip time in seconds, if known
    :param least: seconds for which bytes may be held back, however near the server is
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

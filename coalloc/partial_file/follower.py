"""Digest of a whole file, computed while the file is being fetched, by a thread that reads behind the front.

The front is the first missing byte. Bytes before it are final unless a replica turns out to be bad; then `rewind`
starts over. At the end, `finish` reads only the last bytes.
"""

import threading
from collections.abc import Callable

from coalloc.partial_file.sparse_file import BLOCK
from coalloc.util.checksums import Hasher, hasher

__all__ = ["DigestFollower", "Read"]

Read = Callable[[int, memoryview], None]
"""`read(offset, buffer)`: fill the buffer with the bytes at that offset, or raise a CoallocError."""


class DigestFollower:
    """A digest that grows with the front.

    The thread takes the lock for one block at a time, so `rewind` waits for at most one block.
    """

    def __init__(self, algorithm: str, read: Read) -> None:
        self.algorithm = algorithm
        self._read = read
        self._buffer = memoryview(bytearray(BLOCK))
        self._lock = threading.Lock()
        self._more = threading.Event()
        self._stopped = False
        self._failure: Exception | None = None
        self._front = 0
        self._start_over()
        self._thread = threading.Thread(target=self._follow, name="coget-digest", daemon=True)
        self._thread.start()

    def _start_over(self) -> None:
        self._hasher: Hasher = hasher(self.algorithm)
        self.at = 0

    def advance(self, front: int) -> None:
        """Move the front: all bytes before it have arrived. Cheap; called after every write."""
        self._front = front
        if front - self.at >= BLOCK:
            self._more.set()

    def rewind(self, front: int) -> None:
        """Move the front back, as bytes from `front` on are missing again; if they were read already, start over."""
        with self._lock:
            self._front = min(self._front, front)
            if self.at > front:
                self._start_over()

    def finish(self, size: int) -> str:
        """End the thread, and return the digest of the first `size` bytes, which must have arrived. Blocks.

        :raises CoallocError: as `read`
        """
        self.close()
        if self._failure is not None:
            raise self._failure
        while self.at < size:
            self._take_block(min(BLOCK, size - self.at))
        return self._hasher.hexdigest()

    def close(self) -> None:
        """End the thread. May be called twice."""
        self._stopped = True
        self._more.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stopped:
            self._more.wait()
            self._more.clear()
            while not self._stopped and self._follow_block():
                pass

    def _follow_block(self) -> bool:
        """Process one block if the front is far enough; return whether it was."""
        with self._lock:
            if self._front - self.at < BLOCK:
                return False
            try:
                self._take_block(BLOCK)
            except Exception as error:  # it would be lost in the thread: `finish` raises it
                self._failure = error
                self._stopped = True
            return True

    def _take_block(self, length: int) -> None:
        block = self._buffer[:length]
        self._read(self.at, block)
        self._hasher.update(block)
        self.at += length

"""Early write-back of fetched bytes, while others still arrive, so that the sync at the end finds little to do.

Otherwise the kernel would keep them for half a minute, and the end of a fetch would wait for a gigabyte to be written.
This only starts the writes: the sync waits for all of them, and also reports failures.
"""

from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from coalloc.util.disk import Disk
from coalloc.util.intervals import Intervals

__all__ = ["WriteBack"]

UNIT = 16 << 20
"""Bytes handed to the kernel at once: many for a disk, and few enough for `close` to wait for."""


class WriteBack:
    """A thread that asks the kernel to write, as that call takes a while when the disk is busy."""

    def __init__(self, fd: int, disk: Disk) -> None:
        self._fd = fd
        self._disk = disk
        self._written = Intervals()
        self._units: SimpleQueue[Intervals] = SimpleQueue()
        self._stopped = False
        self._thread: Thread | None = None

    def wrote(self, start: int, end: int) -> None:
        """Note that bytes [start, end) of the file were written. Cheap; called after every write."""
        self._written.add(start, end)
        if self._written.total >= UNIT:
            self.hand_over()

    def hand_over(self) -> None:
        """Start the write of the remaining bytes, because no more come for a while, or at all."""
        self._units.put(self._written)
        self._written = Intervals()
        if self._thread is None:
            self._thread = Thread(target=self._work, name="coget-writeback", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while not self._stopped:
            for start, end in self._units.get():
                if not self._stopped:
                    with suppress(OSError):
                        self._disk.start_writing(self._fd, start, end - start)

    def close(self) -> None:
        """End the thread; units that it has not reached are left to the sync. The file can be closed then."""
        self._stopped = True
        self._units.put(Intervals())
        if self._thread:
            self._thread.join()

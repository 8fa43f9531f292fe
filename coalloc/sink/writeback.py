"""Has fetched bytes brought to the medium while others still arrive, so that the sync at the end finds little to do.

Else the kernel would keep them for half a minute, and the end of a fetch would wait for a gigabyte to be written. This
only begins: that all has arrived is for the sync to say, which also tells of what failed meanwhile.
"""

from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from coalloc.disk import Disk
from coalloc.intervals import Intervals

__all__ = ["WriteBack"]

UNIT = 16 << 20
"""Bytes handed to the kernel at once: much for a disk, and little enough for `close` to wait for."""


class WriteBack:
    """A thread that asks the kernel, as that takes a while when the disk is busy."""

    def __init__(self, fd: int, disk: Disk) -> None:
        self._fd = fd
        self._disk = disk
        self._written = Intervals()
        self._units: SimpleQueue[Intervals] = SimpleQueue()
        self._stopped = False
        self._thread: Thread | None = None

    def wrote(self, start: int, end: int) -> None:
        """Bytes [start, end) of the file were written. Cheap; called after every write."""
        self._written.add(start, end)
        if self._written.total >= UNIT:
            self.hand_over()

    def hand_over(self) -> None:
        """Have written what was not enough so far: no more comes for a while, or at all."""
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
        """End the thread; what it has not come to is left to the sync. The file can be closed then."""
        self._stopped = True
        self._units.put(Intervals())
        if self._thread:
            self._thread.join()

"""The sparse file of fetched bytes. It does not track which bytes are present, or their sources.

Every failure of the disk is raised as a SinkError.

Bytes are written back early, while others still arrive, so that the sync at the end has little to do. Otherwise the
kernel would keep them for half a minute, and the end of a fetch would wait for a gigabyte to be written. Writing back
only starts the writes; the sync waits for all of them, and reports failures.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from coalloc.errors import DiskFull, SinkError
from coalloc.partial_file.holes import zero_runs
from coalloc.partial_file.owned_directory import OwnDirectory
from coalloc.util.checksums import hasher
from coalloc.util.disk import Disk, disk_error
from coalloc.util.intervals import Intervals

__all__ = ["BLOCK", "Data", "WriteBack"]

BLOCK = 4 << 20
"""Bytes read at once: so many that the call costs little in comparison, so few that others can wait for it."""
UNIT = 16 << 20
"""Bytes written back at once: enough for a disk to be efficient, so few that `close` can wait for them."""
WORTH = 16
"""Part of a unit for which a thread is worthwhile at the end of a file."""


class Data:
    """The open file `name` in a directory, made if it does not exist. Call `room` first.

    It has the mode and group of any new file in the directory, as it becomes the final file.

    :raises SinkError: if an existing file belongs to another user
    """

    def __init__(self, own: OwnDirectory, name: str, disk: Disk) -> None:
        self.path = own.path / name
        self._own = own
        self._disk = disk
        self._pwrite = disk.pwrite
        try:
            self._fd = _open(own, name)
        except OSError as error:
            raise disk_error(error, "write", self.path) from None
        self._writeback = WriteBack(self._fd, disk)
        self._used = Intervals()
        """Bytes that may have been written before; all others are holes until they are written."""

    def room(self, size: int, keep: bool, forget: Callable[[], None]) -> bool:
        """Set the size of the sparse file, whose blocks are allocated on writing; return whether old bytes were kept.

        Old bytes are kept only if `keep`, and if the size is the same.

        :param forget: removes all records of old bytes; called before these are overwritten
        :raises SinkError: if `size` bytes do not fit on the disk; nothing is changed then
        """
        try:
            found = os.fstat(self._fd)
            self._refuse_if_too_big(size - found.st_blocks * 512)
            if keep and found.st_size == size:
                self._used.add(0, size)
                return True
            forget()
            self._disk.truncate(self._fd, 0)
            self._disk.truncate(self._fd, size)
        except OSError as error:
            raise disk_error(error, "write", self.path) from None
        return False

    def _refuse_if_too_big(self, needed: int) -> None:
        free = self._disk.free(self._own.fd)
        if free is not None and needed > free:
            where = self.path.parent.parent.absolute()
            raise DiskFull(
                f"{where} has {free} bytes free, but {needed} more are needed",
                "free some space, or choose another disk",
            )

    def write(self, offset: int, view: memoryview) -> None:
        """Write all these bytes at their offset; long runs of zeros become holes."""
        at = 0
        for start, end in zero_runs(view):
            if self._is_hole(offset + start, offset + end):
                self._write(offset + at, view[at:start])
                at = end
        self._write(offset + at, view[at:])

    def reuse(self, start: int, end: int) -> None:
        """Record that bytes [start, end) will be written again."""
        self._used.add(start, end)

    def _is_hole(self, start: int, end: int) -> bool:
        """Return whether bytes [start, end) are a hole; make it one if they may have been written before."""
        if not self._used.within(start, end):
            return True
        try:
            self._disk.punch(self._fd, start, end - start)
        except OSError:  # not every file system can
            return False
        return True

    def _write(self, offset: int, view: memoryview) -> None:
        if not view:
            return
        try:
            written = self._pwrite(self._fd, view, offset)
            while written < len(view):  # a disk that fills up writes a part, and fails at the next call
                written += self._pwrite(self._fd, view[written:], offset + written)
        except OSError as error:
            raise disk_error(error, "write", self.path) from None
        self._writeback.wrote(offset, offset + written)

    def hand_over(self) -> None:
        """Start writing the last bytes to the disk, while they are verified; call this when all bytes have arrived."""
        self._writeback.hand_over()

    def read(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer with the bytes that begin at `offset`."""
        try:
            while buffer:
                got = self._disk.preadv(self._fd, [buffer], offset)
                if got == 0:
                    raise SinkError(f"{self.path} was shortened by another program", "run the same command again")
                buffer, offset = buffer[got:], offset + got
        except OSError as error:
            raise disk_error(error, "read", self.path) from None

    def digest(self, algorithm: str, start: int, end: int) -> str:
        """Return the digest of bytes [start, end), read block by block, in lower-case hex."""
        found = hasher(algorithm)
        buffer = memoryview(bytearray(min(BLOCK, end - start)))
        for at in range(start, end, BLOCK):
            block = buffer[: end - at]
            self.read(at, block)
            found.update(block)
        return found.hexdigest()

    def sync(self) -> os.stat_result:
        """Write all bytes to the medium, and return the file's status.

        :raises OSError: if the disk fails
        """
        self._disk.sync(self._fd)
        return os.fstat(self._fd)

    def close(self) -> None:
        """Close the file; call this only once."""
        self._writeback.close()
        os.close(self._fd)


def _open(own: OwnDirectory, name: str) -> int:
    with suppress(FileNotFoundError):
        return own.open(name, os.O_RDWR)
    return own.create(name, 0o666)


class WriteBack:
    """A thread that asks the kernel to write data to the disk, as this call blocks while the disk is busy."""

    def __init__(self, fd: int, disk: Disk) -> None:
        self._fd = fd
        self._disk = disk
        self._written = Intervals()
        self._units: SimpleQueue[Intervals] = SimpleQueue()
        self._stopped = False
        self._thread: Thread | None = None

    def wrote(self, start: int, end: int) -> None:
        """Record that bytes [start, end) of the file were written. Cheap; called after every write."""
        self._written.add(start, end)
        if self._written.total >= UNIT:
            self.hand_over()

    def hand_over(self) -> None:
        """Start writing the remaining bytes to the disk, without waiting for a whole unit, unless they are few."""
        if self._thread is None and self._written.total < UNIT // WORTH:
            return
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
        """End the thread, so that the file can be closed; the sync writes the remaining units."""
        self._stopped = True
        self._units.put(Intervals())
        if self._thread:
            self._thread.join()

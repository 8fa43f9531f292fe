"""A file that is being fetched: which ranges have arrived, their sources and their checksums.

Each byte is written only once, and the file gets its name when it is complete. The caller decides which bytes to fetch,
and whether they are right.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from zlib_ng import zlib_ng

from coalloc.model.checksums import Extent
from coalloc.partial_file.folder import DATA, JOURNAL, PartialFolder
from coalloc.partial_file.follower import DigestFollower
from coalloc.partial_file.owned_directory import OwnDirectory
from coalloc.partial_file.pieces import Pieces
from coalloc.partial_file.publishing import publish
from coalloc.partial_file.sparse_file import Data
from coalloc.util.checksums import ALGORITHMS, ROLLING, rolling
from coalloc.util.disk import Disk, disk_error
from coalloc.util.intervals import Intervals

__all__ = ["PartialFile"]


class PartialFile:
    """The bytes of `target` that have arrived, in `NAME.coget/data` beside it.

    The constructor takes the target's lock. Call `begin` next, once the size is known; `publish` after a successful
    fetch; `close` in any case. Methods marked "Reads the disk" or "Writes the disk" may take long; call them in a
    thread, as long as no bytes are written meanwhile.

    :param keep_checksums: whether each piece has its adler32
    :param within: the real path of a directory that the target must not leave by a symbolic link
    :param beside: the name of the directory; None for `NAME.coget`
    :raises TargetInUse: if another process fetches this target
    :raises SinkError: if the target cannot be written; every method raises it if the disk fails
    """

    def __init__(
        self,
        target: Path,
        *,
        keep_checksums: bool = True,
        disk: Disk | None = None,
        within: Path | None = None,
        beside: str | None = None,
    ) -> None:
        self._target = target
        self._disk = disk or Disk()
        self._keeps_adler32 = keep_checksums
        self._crc: str | None = None
        """Algorithm of the CRC that each piece has."""
        self._folder = PartialFolder(target, within, beside)
        self._data: Data | None = None
        self._follower: DigestFollower | None = None
        self._held = Intervals()
        self._pieces = Pieces()
        self._begun = False
        self.size = 0
        self.duplicate_bytes = 0
        """Number of bytes that arrived although they were present already."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def journal_path(self) -> Path:
        """The path for a journal of this fetch."""
        return self._folder.path / JOURNAL

    @property
    def directory(self) -> OwnDirectory:
        """The directory of the journal, open until `close` or `publish`."""
        return self._folder.own

    @property
    def _file(self) -> Data:
        if self._data is None:
            raise RuntimeError(f"{self._folder.path / DATA} is used before begin or after close")
        return self._data

    def begin(self, size: int, extents: Iterable[Extent] = (), algorithms: Iterable[str] = ()) -> list[Extent]:
        """Set the size of the sparse file, and take over the extents of an earlier run. Reads the disk.

        An extent with an adler32 is read, and kept if the adler32 still matches. An extent without is kept unchecked:
        the caller is responsible for it. Of overlapping extents, only the first is kept. No extent is kept if the data
        file is missing or has another size.

        :param extents: extents of an earlier run; if there are none, old data are dropped
        :param algorithms: algorithms of the whole file's checksums, the most important first; one CRC and one other are
            computed as bytes arrive
        :returns: the extents that were kept
        """
        extents, algorithms = list(extents), list(algorithms)
        self.size = size
        followed = [each for each in algorithms if each not in ROLLING]
        if crcs := [each for each in algorithms if each in ROLLING and each != "adler32"]:
            self._crc, self._pieces = crcs[0], Pieces(crcs[0])
        self._data = Data(self._folder.own, DATA, self._disk)
        had_room = self._data.room(size, bool(extents), self._forget)
        retained = [extent for extent in extents if had_room and self._adopt(extent)]
        if followed:
            self._follower = DigestFollower(followed[0], self._data.read)
            self._follower.advance(self._held.reach(0))
        self._begun = True
        return retained

    def _forget(self) -> None:
        """Remove the journal, which would describe other bytes than the file has from now on."""
        with suppress(FileNotFoundError):
            self._folder.own.unlink(JOURNAL)

    def _adopt(self, extent: Extent) -> bool:
        """Take over one extent, if it does not overlap a kept one, and its checksum matches."""
        start, end = extent.start, extent.end
        if end > self.size or self._held.within(start, end):
            return False
        adler32 = crc = None
        if self._keeps_adler32 or extent.adler32 is not None:
            adler32 = self._sum("adler32", start, end)
            if extent.adler32 not in (None, adler32):
                return False
        if self._crc:
            crc = self._sum(self._crc, start, end)
        self._held.add(start, end)
        self._pieces.add(start, end, extent.source, adler32 if self._keeps_adler32 else None, crc)
        return True

    def write(self, source: int, offset: int, view: memoryview) -> list[Extent]:
        """Write these bytes, as far as they are missing, and return the written ranges as extents."""
        gaps = self._held.gaps(offset, offset + len(view))
        if len(gaps) == 1 and gaps[0][1] - gaps[0][0] == len(view):  # the usual case: all bytes are new
            fresh = [self._keep(source, offset, view)]
        else:
            self.duplicate_bytes += len(view) - sum(end - start for start, end in gaps)
            fresh = [self._keep(source, start, view[start - offset : end - offset]) for start, end in gaps]
        if self._follower is not None:
            self._follower.advance(self._held.reach(0))
        if self._held.total == self.size:
            self._file.hand_over()
        return fresh

    def _keep(self, source: int, start: int, view: memoryview) -> Extent:
        end = start + len(view)
        adler32 = zlib_ng.adler32(view) if self._keeps_adler32 else None
        crc = None
        if self._crc:
            start_value, update, _ = rolling(self._crc)
            crc = update(view, start_value)
        self._file.write(start, view)
        self._held.add(start, end)
        self._pieces.add(start, end, source, adler32, crc)
        return Extent(start, end, source, adler32)

    def missing(self) -> list[tuple[int, int]]:
        """Return the missing ranges [start, end), in order."""
        return self._held.gaps(0, self.size)

    def pieces(self) -> list[Extent]:
        """Return the present ranges in order, adjacent ranges of a source merged. Reads the disk after a `revoke`."""
        for piece in self._pieces:
            if piece.adler32 is None and self._keeps_adler32:
                piece.adler32 = self._sum("adler32", piece.start, piece.end)
        return [Extent(piece.start, piece.end, piece.source, piece.adler32) for piece in self._pieces]

    @property
    def senders(self) -> set[int]:
        """The sources of the present bytes."""
        return {piece.source for piece in self._pieces}

    def delivered_by(self, source: int) -> list[tuple[int, int]]:
        """Return the present ranges that a source delivered, in order."""
        return [(piece.start, piece.end) for piece in self._pieces if piece.source == source]

    def revoke(self, start: int, end: int) -> None:
        """Make [start, end) missing again: its bytes were found to be wrong."""
        self._held.remove(start, end)
        self._pieces.remove(start, end)
        self._file.reuse(start, end)
        if self._follower is not None:
            self._follower.rewind(self._held.reach(0))

    def digest(self, algorithm: str, start: int = 0, end: int | None = None) -> str:
        """Return the digest of bytes [start, end), by default of all, in lower-case hex. Reads the disk.

        adler32 and CRCs are combined from the pieces that have them. The digest of the whole file named in `begin` is
        mostly computed already. For any other digest, the bytes are read; missing bytes count as zeros.
        """
        end = self.size if end is None else end
        if algorithm in ROLLING:
            return f"{self._combined(algorithm, start, end):0{ALGORITHMS[algorithm]}x}"
        whole = start == 0 and end == self.size == self._held.reach(0)
        if whole and self._follower is not None and self._follower.algorithm == algorithm:
            return self._follower.finish(end)
        return self._file.digest(algorithm, start, end)

    def _combined(self, algorithm: str, start: int, end: int) -> int:
        value, _, combine = rolling(algorithm)
        at = start
        for piece in self._pieces:
            known = piece.adler32 if algorithm == "adler32" else piece.crc if algorithm == self._crc else None
            if known is not None and start <= piece.start and piece.end <= end:
                value = combine(value, self._sum(algorithm, at, piece.start), piece.start - at)
                value = combine(value, known, piece.end - piece.start)
                at = piece.end
        return combine(value, self._sum(algorithm, at, end), end - at)

    def _sum(self, algorithm: str, start: int, end: int) -> int:
        return int(self._file.digest(algorithm, start, end), 16)

    def sync(self) -> None:
        """Write all bytes to the medium, so that `publish` takes only a moment. Writes the disk."""
        try:
            self._file.sync()
        except OSError as error:
            raise disk_error(error, "write", self._target) from None

    def publish(self, *, replace: bool = True) -> os.stat_result:
        """Give the file its name, and remove the directory; the file then survives a power cut. Writes the disk.

        :param replace: whether to replace an existing file with the target's name
        :returns: the file's state before it got the name
        :raises TargetExists: if a file exists and `replace` is False; the fetched data stay for a later run
        """
        if self.missing():
            raise RuntimeError(f"{self._target} is incomplete")
        written = publish(self._file, self._folder, self._target, self._disk, replace)
        self._let_go()
        self._folder.remove()
        return written

    def close(self) -> None:
        """End this run; may be called twice.

        Fetched bytes stay for the next run; if there are none, the directory is removed.
        """
        self._let_go()
        if not self._is_worth_keeping():
            self._folder.remove()
        self._folder.unlock()

    def _is_worth_keeping(self) -> bool:
        if self._begun:
            return bool(self._held)
        return self._folder.has_data  # data of an earlier run, as this run did not begin

    def _let_go(self) -> None:
        if self._follower is not None:
            self._follower.close()
        if self._data is not None:
            self._data.close()
            self._data = None

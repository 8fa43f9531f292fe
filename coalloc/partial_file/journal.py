"""The journal as a file that only grows, beside the data. `format` defines its bytes.

A run first calls `describe` for the file to be fetched, and `recall` for the state of an earlier run, lets the sink
check the extents, and calls `create` for a journal with the right ones. An old journal is never appended to: a rename
replaces it by the new one.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from coalloc.errors import SinkError
from coalloc.model.checksums import Checksum, Extent
from coalloc.model.replicas import Stat
from coalloc.partial_file.format import (
    Contents,
    Header,
    JournalOrigin,
    decode,
    encode_extent,
    encode_header,
    encode_origin,
    encode_revoke,
)
from coalloc.partial_file.owned_directory import OwnDirectory
from coalloc.partial_file.pieces import Pieces
from coalloc.partial_file.resume import carry_over, why_not
from coalloc.safe_text import without_login
from coalloc.util.disk import Disk, disk_error

__all__ = ["Journal", "Recollection", "describe", "recall"]

_GRAINS = 4096
"""Number of parts of a file: bytes are recorded once they are one part, which limits possible losses and writes."""


class Recollection(NamedTuple):
    """The state left by an earlier run: the header and extents to continue with, and the reason if some is not used."""

    header: Header
    extents: tuple[Extent, ...] = ()
    trouble: str | None = None


def describe(size: int, urls: Sequence[str], known: Mapping[int, Stat], checksums: Iterable[Checksum]) -> Header:
    """Return the header for a file that is to be fetched now.

    :param urls: URLs of the replicas; the header leaves their logins out
    :param known: size, version and checksums of replicas that answered, by their numbers
    :param checksums: expected checksums of the whole file
    """
    origins = (_origin(url, known.get(i)) for i, url in enumerate(urls))
    return Header(size, tuple(origins), tuple(checksums), _boot())


def _origin(url: str, stat: Stat | None) -> JournalOrigin:
    return JournalOrigin(without_login(url), *(stat.validator, stat.checksums) if stat else ())


def _boot() -> str:
    """Return an identifier of the machine's current boot; a unique one if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.urandom(16).hex()


def recall(path: Path, now: Header, own: OwnDirectory | None = None) -> Recollection:
    """Return the usable contents of the journal at `path`, if there is one.

    A copy of a damaged journal is kept beside it. An unusable journal is removed, before the data that it describes are
    overwritten.

    :param own: the directory of the journal, if it is open already
    :raises SinkError: if the disk fails, or the journal belongs to another user
    """
    try:
        with _directory(path, own) as directory:
            data = _read(directory, path.name)
            contents = decode(data)
            if contents.trouble:
                _keep(directory, f"{path.name}.broken", data)
            found = _judge(contents, now)
            if not found.extents:
                directory.unlink(path.name)
    except FileNotFoundError:
        return Recollection(now)
    except OSError as error:
        raise disk_error(error, "use", path) from None
    return found


@contextmanager
def _directory(path: Path, own: OwnDirectory | None) -> Iterator[OwnDirectory]:
    """Yield the directory of `path`: `own` if given; else open it, and close it at the end."""
    if own is not None:
        yield own
        return
    with OwnDirectory.at(path.parent) as opened:
        yield opened


def _read(directory: OwnDirectory, name: str) -> bytes:
    with open(directory.open(name, os.O_RDONLY), "rb", buffering=0) as file:
        return file.readall()


def _keep(directory: OwnDirectory, name: str, data: bytes) -> None:
    with open(directory.renew(name), "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def _judge(contents: Contents, now: Header) -> Recollection:
    damage = contents.trouble and f"the journal is ignored from byte {contents.length} on: {contents.trouble}"
    if contents.header is None:
        return Recollection(now, trouble=damage)
    reason = why_not(contents.header, now)
    if reason:
        return Recollection(now, trouble=f"partial data of an earlier run are ignored: {reason}")
    header, extents = carry_over(contents.header, contents.extents, now)
    return Recollection(header, tuple(extents), damage)


class Journal:
    """An open journal. Its methods raise SinkError when the disk fails; earlier records stay valid."""

    def __init__(self, path: Path, fd: int, size: int, disk: Disk) -> None:
        self._path = path
        self._fd: int | None = fd
        self._disk = disk
        self._at = 0
        self._pending = Pieces()
        self._waiting = 0
        self._grain = size // _GRAINS
        self._origins: list[JournalOrigin] = []

    @classmethod
    def create(
        cls,
        path: Path,
        header: Header,
        extents: Iterable[Extent] = (),
        disk: Disk | None = None,
        own: OwnDirectory | None = None,
    ) -> Self:
        """Create a journal with these extents, which replaces the journal at `path` completely or not at all.

        Only this user can read it, as URLs may contain keys.

        :param own: the directory of the journal, if it is open already
        """
        new = f"{path.name}.new"
        journal: Self | None = None
        try:
            with _directory(path, own) as directory:
                journal = cls(path, directory.renew(new), header.size, disk or Disk())
                journal._origins = list(header.origins)
                records = (encode_extent(e.start, e.end, e.source, e.adler32) for e in extents)
                journal._write(encode_header(header) + b"".join(records))
                journal._sync()  # else, after a power cut, the renamed journal could be empty, and the old one lost
                directory.rename(new, path.name)
        except (OSError, SinkError) as error:
            if journal:
                journal.close()
            if isinstance(error, OSError):
                raise disk_error(error, "write", path.with_name(new)) from None
            raise
        return journal

    def _sync(self) -> None:
        assert self._fd is not None
        self._disk.sync(self._fd)

    def append(self, extents: Iterable[Extent]) -> None:
        """Add bytes that were written. They are recorded once enough have accumulated."""
        for extent in extents:
            self._pending.add(extent.start, extent.end, extent.source, extent.adler32)
            self._waiting += extent.end - extent.start
        if self._waiting >= self._grain:
            self.flush()

    def identify(self, source: int, stat: Stat) -> None:
        """Record a replica's version and checksums, unless they are recorded already."""
        origin = self._origins[source]
        known = origin._replace(validator=stat.validator, checksums=stat.checksums)
        if known != origin:
            self._origins[source] = known
            self._write(encode_origin(source, known))

    def revoke(self, start: int, end: int) -> None:
        """Record that [start, end) is missing again."""
        self.flush()
        self._write(encode_revoke(start, end))

    def flush(self) -> None:
        """Record all bytes that were added."""
        if self._pending:
            self._write(b"".join(encode_extent(p.start, p.end, p.source, p.adler32) for p in self._pending))
            self._pending.clear()
        self._waiting = 0

    def _write(self, data: bytes) -> None:
        """Write records after the last complete one, overwriting the remains of a failed write."""
        if self._fd is None:
            raise RuntimeError(f"{self._path} is used after close")
        view, at = memoryview(data), self._at
        try:
            while view:
                written = self._disk.pwrite(self._fd, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise disk_error(error, "write", self._path) from None
        self._at = at

    def close(self) -> None:
        """Record all bytes that were added, and close the file. Never raises: bytes not recorded are fetched again."""
        if self._fd is None:
            return
        with suppress(SinkError):
            self.flush()
        os.close(self._fd)
        self._fd = None

"""File names at one server: list, inspect, make, rename, delete. The session is not bound to one file.

Several tasks can send commands without waiting for each other. A server answers them in order, and does nothing else
while it lists a directory or computes a checksum. `listing` parses the lines of a listing.
"""

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator, MutableSequence, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import Address, parse_server
from coalloc.engine.gridftp.control import ControlConnection, PendingReply
from coalloc.engine.gridftp.login import GridFTPLogin, security_for
from coalloc.engine.gridftp.machine_listing import Listing, entry, seconds_of, stamp
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.replies import Reply, digest_in
from coalloc.engine.gridftp.unix_listing import UnixListing
from coalloc.errors import ConnectionLost, IsDirectory, LimitExceeded, NotDirectory, Unsupported
from coalloc.model.listings import Entry, Omission
from coalloc.model.replicas import Stat
from coalloc.util.counts import count

__all__ = ["Storage", "described", "open_storage"]

PIECE = 256 * 1024
PATTERN = re.compile(r"[*?\[{]")
"""Characters of patterns, which servers expand in the argument of LIST."""
UNKNOWN = (500, 502, 504)
"""Reply codes to unknown commands. Globus servers also use 500 for failures, with the reason in further lines."""
NOT_WITH_THAT = 504
"""Reply code to a known command with an unsupported argument (RFC 959, 4.2.2)."""
LIST_SECONDS = 60.0
"""Maximum seconds in which a listing makes no progress, as when a server reads a large directory."""


class Storage(GridFTPLogin):
    """The file names at one server, made by `coalloc.api.storage`; may be used by several tasks at once.

    Paths are absolute, or begin with `/~/` from the login directory. Every call may raise these subclasses of
    `coalloc.errors.SourceError`: NoSuchFile, IsDirectory, NotDirectory, AlreadyThere, NotEmpty, PermissionRefused,
    NoSpace, ServerBusy; Unsupported for a path that cannot be sent; ConnectionLost and Stalled, after which the session
    is not `usable`.
    """

    def __init__(self, control: ControlConnection, address: Address, options: EngineOptions, pipelined: bool) -> None:
        super().__init__(control, address, options, pipelined)
        self._listing = asyncio.Lock()
        self._turn: AbstractAsyncContextManager[None] = nullcontext() if pipelined else self._listing
        self._listed = False
        """Whether a listing has worked; if so, the next one is requested without waiting for its data connection."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()
        await asyncio.sleep(0)  # the loop closes the socket in its next round

    @property
    def describes(self) -> bool:
        """Return whether the server supports the command for `stat` (MLST)."""
        return "MLST" in self._features

    async def stat(self, path: str) -> Entry:
        """Return the entry at `path`; for a symbolic link, most servers describe its target."""
        return _entry(await self._ask("MLST", path), path)

    async def state(self, path: str) -> Stat:
        """Return the size of the file at `path`, and its version: its time of modification, None if unknown.

        If the server does not support MLST, the path may be a directory, too.
        """
        address = await self.locate(path)
        commands = (*(("MLST",) if self.describes else ()), "SIZE", "MDTM")
        async with self._turn:
            asked = [self._submit(f"{command} {address.path}") for command in commands]
            *listed, size, modified = [await each for each in asked]
        when = modified.lines[0].strip() if modified.positive else None
        if listed:
            found = _entry(_positive(listed[0], address), path)
            if found.kind == "dir":
                raise IsDirectory(f"{path} is a directory", "name a file in it")
            # ProFTPD's facts of a symbolic link are its own, while the other commands tell about the file behind it
            length = count(size.lines[0].strip()) if size.positive else None
            return described(
                found._replace(
                    size=found.size if length is None else length, modified=seconds_of(when or "") or found.modified
                )
            )
        length = count(_positive(size, address).lines[0].strip())
        if length is None:
            raise Unsupported(f"{address.shown}: the server states an invalid size", "use another replica")
        return Stat(length, when)

    async def list(
        self, path: str, omitted: MutableSequence[Omission] | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of a directory in groups as they arrive; broken symbolic links may be missing.

        `omitted` receives the numbers of entries left out, as far as the server reports them.

        Until the listing has ended, the server does nothing else: do not await another call meanwhile. Concurrent
        listings follow each other. Leaving the iteration early closes the session, because Globus servers do not handle
        an interrupted listing well.
        """
        address = await self.locate(path)
        async with self._listing:
            listed, data = await self._begin(address)
            listed.add_done_callback(lambda _: _wake(listed, data))
            try:
                await self.secure(data)
                listing = Listing() if self._lists_facts else UnixListing()
                async for entries in self._entries(data, address, listing):
                    yield entries
                _positive(await asyncio.shield(listed), address)
                omissions = self._whole(listing, address)
            finally:
                data.close()
                if not listed.done():
                    self.close()
            self._listed = True
        if omitted is not None:
            omitted.extend(omissions)

    async def _begin(self, address: Address) -> tuple[PendingReply, socket.socket]:
        """Request a listing; return its future reply and its data connection."""
        command = f"{'MLSD' if self._lists_facts else 'LIST -a'} {address.path}"
        if not self._lists_facts and PATTERN.search(address.path):
            raise Unsupported(f"{address.shown}: the server would take the name for a pattern", "rename the directory")
        where = self._submit(self.data.command)
        listed = self._submit(command, LIST_SECONDS) if self._listed else None
        try:
            data = await self.data.connect(await where)
        except BaseException:
            if listed:
                self.close()  # the server still waits for the data connection
            raise
        return listed or self._submit(command, LIST_SECONDS), data

    @property
    def _lists_facts(self) -> bool:
        """Return whether the server supports MLSD; if not, it lists as `ls -l` does, it is assumed."""
        return "MLST" in self._features or "MLSD" in self._features

    @staticmethod
    def _whole(listing: Listing | UnixListing, address: Address) -> Sequence[Omission]:
        """Return the omissions of a finished listing."""
        try:
            return listing.close()
        except (ConnectionLost, NotDirectory, Unsupported) as error:
            raise type(error)(f"{address.shown}: {error.message}", error.remedy) from None

    async def _entries(
        self, data: socket.socket, address: Address, listing: Listing | UnixListing
    ) -> AsyncIterator[Sequence[Entry]]:
        loop = asyncio.get_running_loop()
        try:
            while piece := await loop.sock_recv(data, PIECE):
                self.control.reset_timer()
                if entries := listing.feed(piece):
                    yield entries
        except LimitExceeded as error:
            raise LimitExceeded(f"{address.shown}: {error.message}", error.remedy) from None
        except OSError as error:
            raise ConnectionLost(f"{address.shown}: the listing was lost: {error}", "try again") from None

    async def make(self, path: str) -> None:
        """Make a directory in an existing directory."""
        await self._ask("MKD", path)

    async def rename(self, old: str, new: str) -> None:
        """Rename a file or directory. As on POSIX, an existing file with the new name is replaced."""
        await self._ask_both(("RNFR", old), ("RNTO", new))

    async def link(self, target: str, path: str) -> None:
        """Make a symbolic link at `path` to an existing file or directory."""
        await self._ask_both(("SITE SYMLINKFROM", target), ("SITE SYMLINKTO", path))

    async def make_sparse(self, path: str, size: int) -> None:
        """Make a sparse file of `size` zero bytes, at least one, by sending only the last byte.

        :raises Unsupported: (or another refusal) by servers that cannot write a file from its middle
        """
        address = await self.locate(path)
        loop = asyncio.get_running_loop()
        async with self._listing:
            data = await self.data.connect(await self._submit(self.data.command))
            stored = self._submit(f"ESTO A {size - 1} {address.path}")
            stored.add_done_callback(lambda _: _wake(stored, data))
            try:
                await self.secure(data)
                with suppress(OSError):  # the reply gives the reason
                    await loop.sock_sendall(data, b"\0")
            finally:
                data.close()
            _positive(await stored, address)

    async def delete(self, path: str) -> None:
        """Delete a file, or a symbolic link."""
        await self._ask("DELE", path)

    async def remove(self, path: str) -> None:
        """Remove an empty directory."""
        await self._ask("RMD", path)

    async def touch(self, path: str, modified: float) -> None:
        """Set the modification time, in seconds since the epoch; servers store whole seconds."""
        command = "MFMT" if "MFMT" in self._features else "SITE UTIME"
        await self._ask(f"{command} {stamp(modified)}", path)

    async def checksum(self, path: str, algorithm: str, start: int, end: int) -> str | None:
        """Return the server's digest of bytes [start, end) in lower-case hex; None when it does not offer it."""
        address = await self.locate(path)
        async with self._turn:
            pending = self._checksum_of(address.path, algorithm, start, end)
            reply = None if pending is None else await pending
        if reply is None:
            return None
        if reply.code in UNKNOWN and len(reply.lines) == 1:  # the server announced CKSM, but does not support it
            if reply.code == NOT_WITH_THAT:
                self._algorithms.pop(algorithm.upper(), None)
            else:
                self._algorithms.clear()
            return None
        return digest_in(_positive(reply, address), algorithm)

    def offers(self, algorithm: str) -> bool:
        """Return whether the server announces checksums by this algorithm."""
        return algorithm.upper() in self._algorithms

    async def _ask(self, command: str, path: str) -> Reply:
        address = await self.locate(path)
        async with self._turn:
            return _positive(await self._submit(f"{command} {address.path}"), address)

    async def _ask_both(self, *commands: tuple[str, str]) -> None:
        """Send two commands, the second of which completes the first."""
        located = [(command, await self.locate(path)) for command, path in commands]
        async with self._turn:
            first, second = [self._submit(f"{command} {address.path}") for command, address in located]
            await second  # replies come in order, so the first one is here by then
        for reply, (_, address) in zip((first, second), located, strict=True):
            _positive(reply.result(), address)

    def _submit(self, command: str, patience: float | None = None) -> PendingReply:
        return self.control.submit(command, patience or self.options.connect_seconds)


async def open_storage(url: str, options: EngineOptions, proxy: Path | None = None) -> Storage:
    """Log in to the server of a URL.

    :param proxy: the file of the proxy to show, in place of the user's usual one
    """
    address = parse_server(url)
    address.refuse_tls()
    return await Storage.open(address, options, security_for(address, options, proxy), lambda _: None, pipelined=True)


def _entry(reply: Reply, path: str) -> Entry:
    """Return the entry that a reply to MLST describes."""
    line = reply.lines[1] if len(reply.lines) > 2 else ""
    return entry(line.partition("; ")[0], path.rstrip("/").rpartition("/")[2] or "/")


def described(entry: Entry) -> Stat:
    """Return the size and the version of a file that an entry describes."""
    return Stat(entry.size or 0, None if entry.modified is None else str(entry.modified))


def _positive(reply: Reply, address: Address) -> Reply:
    """Return a positive reply.

    :raises SourceError: when the reply is negative
    """
    if not reply.positive:
        raise refusal(reply, address.shown)
    return reply


def _wake(listed: PendingReply, data: socket.socket) -> None:
    """End the wait for data if the reply is negative or will not come."""
    if listed.cancelled() or listed.exception() or not listed.result().positive:
        with suppress(OSError):
            data.shutdown(socket.SHUT_RDWR)

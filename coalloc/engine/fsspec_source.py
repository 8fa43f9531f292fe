"""Sources of all other schemes: objects of `clouds`, and through fsspec local files, SFTP, and all that it opens.

Blocks are read in threads, one block ahead. Names are passed as fsspec expects them, not percent-encoded, except in
file:// URLs, which have a standard of their own (RFC 8089).

The libraries do not connect through the dialer, so no address policy can restrict them. So only URLs that the user gave
are opened: a policy that refuses any address makes `open` fail.
"""

import asyncio
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.clouds import CLOUDS, CloudObjects
from coalloc.engine.span import Deliver, Span
from coalloc.errors import (
    AddressRefused,
    ConnectionLost,
    NoSuchFile,
    PermissionRefused,
    ServerSays,
    SourceError,
    Stalled,
    UnknownHost,
    Unreachable,
    Unsupported,
    UsageError,
)
from coalloc.model.replicas import Stat
from coalloc.safe_text import hide, redact, unsafe_reason
from coalloc.util import trace
from coalloc.util.counts import count

if TYPE_CHECKING:
    from coalloc.engine.http.digests import StatedDigests

__all__ = ["BridgeSource"]

SSH = ("sftp", "ssh")
"""Schemes of SFTP, for which fsspec's own file systems accept any server's key."""
WITHOUT = ("file", "local", "memory")
"""Schemes that need no credentials."""
OURS = ("coget", "replica")
"""Schemes of coget's file system for fsspec."""
BLOCK = 4 * 1024 * 1024
MEANINGS: Sequence[tuple[type[Exception], type[SourceError], str]] = [
    (FileNotFoundError, NoSuchFile, "check the path in the URL"),
    (NotADirectoryError, NoSuchFile, "check the path in the URL"),
    (IsADirectoryError, NoSuchFile, "give the path of a file"),
    (PermissionError, PermissionRefused, "ask the admin for access"),
    (socket.gaierror, UnknownHost, "check the spelling of the host in the URL"),
    (ConnectionRefusedError, Unreachable, "check host and port in the URL"),
    (ConnectionError, ConnectionLost, "try again"),
    (TimeoutError, Stalled, "try again later"),
    (NotImplementedError, Unsupported, "use another replica"),
]
"""Meanings of a file system's exceptions: exception class, coget's error, remedy. The first match counts."""
VERSION = (
    "etag",
    "generation",
    "versionid",
    "md5hash",
    "crc32c",
    "checksum",
    "mtime",
    "lastmodified",
    "updated",
    "created",
)
"""Names that file systems use for properties that change when a file changes."""
T = TypeVar("T")


class BridgeSource(Source):
    """A file of which fsspec can read parts.

    A thread cannot be cancelled: after a cancellation, the current read runs to its end, and its result is discarded.

    :param stated: the checksums that a cloud states, by version; shared with other sessions for the same object
    :raises UsageError: when a file:// URL names a host
    """

    def __init__(
        self, url: str, options: EngineOptions, stated: "dict[str | None, StatedDigests] | None" = None
    ) -> None:
        super().__init__(url, options)
        self._stated = {} if stated is None else stated
        self._shown = redact(url)
        if url.partition(":")[0].lower() in OURS:  # it would ask coget again
            raise UsageError(f"{self._shown} is a name in coget's own file system", "leave out the coget://")
        if re.match("file://[^/]", url, re.I):
            raise UsageError(f"{self._shown} names a host, but a file is read from this machine", "write file:///PATH")
        if not re.match("(file|local|memory)://", url, re.I) and (why := unsafe_reason(url)):
            raise UsageError(f"cannot pass {self._shown} to fsspec: {why}", "correct the URL")
        self._files: Any = None
        self._path = ""
        self._cloud: CloudObjects | None = None

    async def open(self) -> Stat:
        policy = self.options.dialer.policy
        if not policy.anywhere:
            raise AddressRefused(f"{self._shown}: such a URL must come from the user, not from a server", policy.remedy)
        stat = await self._in_thread(self._stat)
        return await self._with_checksums(stat, self._cloud) if self._cloud else stat

    async def _with_checksums(self, stat: Stat, cloud: CloudObjects) -> Stat:
        """Add the checksums that a cloud states, which is asked once for each version."""
        if stat.validator not in self._stated and (request := await self._in_thread(cloud.head_request)):
            from coalloc.engine.cloud_checksums import cloud_checksums  # a slow import, which files do not need

            self._stated[stat.validator] = await cloud_checksums(cloud, request, self.options)
        stated = self._stated.get(stat.validator)
        return stat._replace(checksums=stated.usable, unused=stated.unused) if stated else stat

    def _stat(self) -> Stat:
        trace.asked(self._shown, "size and version")
        self._connect()
        info = self._files.info(self._path)
        if info["type"] != "file":
            raise NoSuchFile(f"{self._shown} is not a plain file", "give the path of a file")
        if info["size"] is None:
            raise Unsupported(f"{self._shown}: the size is not known", "use another replica")
        if (size := count(str(info["size"]))) is None:
            text = hide(str(info["size"]), self.url)[:40]
            raise Unsupported(f"{self._shown}: invalid size: {text}", "use another replica")
        return Stat(size, _validator(info))

    def _connect(self) -> None:
        scheme = self.url.partition("://")[0].lower()
        url = unquote(self.url) if scheme == "file" else self.url
        if not self.options.own and scheme not in (*CLOUDS, *WITHOUT):
            what = f"{self._shown}: {scheme}:// is read with credentials of the environment, which are not used here"
            raise PermissionRefused(what, "use another replica")
        if "::" in url:
            raise Unsupported(f"{self._shown}: fsspec reads '::' as a chain of file systems", "use another replica")
        try:
            if scheme in CLOUDS:
                own = self.options.own
                self._cloud = self._cloud or CloudObjects(self.url, self.options.connect_seconds, own=own)
                self._files, self._path = self._cloud, self._cloud.key
            elif scheme in SSH:
                self._files, self._path = self._sftp()
            else:
                from fsspec.core import url_to_fs

                self._files, self._path = url_to_fs(url, skip_instance_cache=True)
        except ImportError as error:
            remedy = "install paramiko: pip install 'coget[sftp]'" if scheme in SSH else str(error)
            raise Unsupported(f"{self._shown}: {scheme}:// needs one more package", remedy) from None
        except ValueError:
            raise Unsupported(f"{self._shown}: no engine supports {scheme}://", "check the scheme of the URL") from None

    def _sftp(self) -> tuple[Any, str]:
        """Return coget's SFTP file system, which checks host keys, and the path; ignore fsspec's registry."""
        from coalloc.engine.sftp import KnownHostsSFTP

        kwargs = KnownHostsSFTP._get_kwargs_from_urls(self.url)
        return KnownHostsSFTP(**kwargs, skip_instance_cache=True), KnownHostsSFTP._strip_protocol(self.url)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        at = span.start
        ahead = self._begin(at, span.end)
        try:
            while at < span.end:
                block = await ahead
                if not block:
                    raise ConnectionLost(
                        f"{self._shown}: the data ended at byte {at} of {span.start}-{span.end}", "try again"
                    )
                ahead = self._begin(at + len(block), span.end)
                start, at = at, min(at + len(block), max(at, span.end))
                if start < at:
                    deliver(start, at, memoryview(block)[: at - start])
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def _begin(self, start: int, end: int) -> asyncio.Task[bytes]:
        """Begin to read the first block of [start, end)."""
        return asyncio.create_task(self._in_thread(lambda: self._read(start, min(start + BLOCK, end))))

    def _read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        trace.asked(self._shown, f"bytes {start}-{end - 1}")
        if self._files is None:
            self._connect()
        block: bytes = self._files.cat_file(self._path, start, end)
        return block

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except SourceError:
            raise
        except Exception as error:  # raised by whichever library fsspec uses
            raise self._ours(error) from None

    def _ours(self, error: Exception) -> SourceError:
        message = f"{self._shown}: {hide(str(error), self.url) or type(error).__name__}"
        for foreign, ours, remedy in MEANINGS:
            if isinstance(error, foreign):
                return ours(message, remedy)
        return ServerSays(message, "read the message, or use another replica")

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return None

    async def recheck(self) -> Stat:
        return await self.open()

    async def close(self) -> None:
        self._files = None


def _validator(info: Mapping[str, Any]) -> str | None:
    """Return the properties that change with the file, without the access time, which fsspec's `ukey` may include."""
    properties = {name.lower().replace("_", ""): value for name, value in info.items()}
    known = [f"{name}={properties[name]}" for name in VERSION if properties.get(name) is not None]
    return " ".join(known) or None

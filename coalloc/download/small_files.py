"""Small files of web servers, each by one request (of WebDAV by two), over connections that are kept from file to file.

This is a short cut for runs with many files. Whenever anything is unusual, `fetch` returns None without a trace, and
the file is fetched in the usual way: when it is larger, has several replicas to compare, has data of an earlier run, or
when the server fails, or sends bytes with another checksum than the expected one.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from coalloc.download.to_disk import DownloadSettings
from coalloc.engine.base import EngineOptions
from coalloc.engine.http.answers import PARTIAL, completed, content_range, validator
from coalloc.engine.http.clients import KeptClient
from coalloc.engine.http.dav_urls import is_webdav, web_url
from coalloc.engine.http.digests import WANTED_DIGESTS, stated_digests
from coalloc.engine.http.exchange import HTTPExchange
from coalloc.engine.http.plain import PlainAnswer, PlainConnection
from coalloc.engine.http.responses import Answer
from coalloc.engine.limits.server_slots import Lease, Slots
from coalloc.engine.sessions.replica_session import server_of
from coalloc.errors import SourceError, TargetExists
from coalloc.model.checksums import Basis, Checksum
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.model.reports import PartialCopy, SourceReport, TransferReport
from coalloc.model.routes import DIRECTLY
from coalloc.partial_file import PartialFile
from coalloc.safe_text import redact
from coalloc.util.addresses import AddressPolicy
from coalloc.util.checksums import hasher
from coalloc.util.counts import count
from coalloc.util.disk import in_thread
from coalloc.util.partial_names import data_folder
from coalloc.verify import expectation

if TYPE_CHECKING:
    from coalloc.engine.http.multistatus import Properties

__all__ = ["SmallFile", "SmallFiles"]

MOST = 256 << 10
"""Maximum bytes of a small file."""
SECONDS = 10.0
"""Time limit for a request; a slower server is used in the usual way, which keeps what has arrived."""
LARGE = 3
"""Larger files or failures in a row at a server, after which most of its files are fetched in the usual way at once."""
AGAIN = 16
"""Then, every so many files, one is tried here again."""
SCHEMES = ("http", "https", "dav", "davs")
LINGER = 2.0
"""Seconds after which an idle connection is closed, because others may need its slot."""
GET = "GET", {**WANTED_DIGESTS, "Range": f"bytes=0-{MOST - 1}"}
HEAD = "HEAD", WANTED_DIGESTS
_Server = tuple[str, AddressPolicy]
_Stored = tuple[Checksum | None, os.stat_result]
"""The first checksum of a file, and its state before it got its name."""


class SmallFile(NamedTuple):
    """A complete file: the report, the version that its server stated, and the state of a file that was written."""

    report: TransferReport
    version: Stat
    written: os.stat_result | None = None


class _OtherBytes(Exception):
    """Bytes with another checksum than the expected one. Internal: the usual way finds out what is wrong."""


class Kept(NamedTuple):
    """An idle connection, and its slot at the server."""

    connection: PlainConnection | KeptClient | None
    lease: Lease

    def close(self) -> None:
        """Close the connection, and then release its slot. Called in an event loop."""
        if self.connection:
            self.connection.close()
        asyncio.get_running_loop().call_soon(self.lease.release)  # a closed transport has its socket until then


class SmallFiles:
    """The small files of one run. `close` must be called at the end."""

    def __init__(self) -> None:
        self._slots = Slots.from_environment()
        self._idle: dict[_Server, list[Kept]] = {}
        self._failed: dict[str, int] = {}
        """For each server, the number of files in a row that were too large, or failed."""

    async def fetch(
        self, file: ReplicaSet, options: EngineOptions, where: Path, settings: DownloadSettings
    ) -> SmallFile | None:
        """Fetch a file to `where`; return None if it has to be fetched in the usual way.

        :raises SinkError: if the disk fails
        :raises TargetInUse: if another process fetches to this path
        """
        if not self._suits(file, options, settings):
            return None
        (replica,) = file.replicas
        options = replace(options.named(replica.origin), vouched=file.vouched, stated=replica.stated)
        clock = asyncio.get_running_loop().time
        began = clock()
        if _is_begun(where):
            known = not file.checksums and file.size is None
            return await self._whole(replica.url, options, where, settings) if known else None
        got = await self._answered(replica.url, options, GET)
        if got is None or file.size not in (None, got[1].size):
            return None
        data, stat = got
        expected, stated = expectation(file.checksums), expectation(stat.checksums)
        basis: Basis = "given" if expected else "own word" if stated else "none"
        compared = [each for each in (expected, stated, *stat.checksums) if each]
        try:
            checksum, written = await in_thread(_store, data, where, compared, settings)
        except (_OtherBytes, TargetExists):  # the target may have been made meanwhile, with the same content
            return None
        report = _report(replica.url, where, len(data), clock() - began, checksum, basis, settings)
        sources = tuple(each._replace(unused_checksums=stat.unused) for each in report.sources)
        return SmallFile(report._replace(sources=sources), stat, written)

    async def _whole(
        self, url: str, options: EngineOptions, where: Path, settings: DownloadSettings
    ) -> SmallFile | None:
        """Return the report of an existing file if an earlier run fetched the version that the server states now."""
        got = await self._answered(url, options, HEAD)
        if got is None or settings.is_whole is None or not await in_thread(settings.is_whole, {url: got[1]}):
            return None
        report = _report(url, where, got[1].size, 0.0, None, "none", settings)
        notice = f"{where} was fetched before, and its server states the same version as then"
        there = report._replace(resumed_bytes=report.size, rate=0.0, sources=(SourceReport(redact(url)),))
        return SmallFile(there._replace(there=True, notice=notice), got[1])

    async def _answered(
        self, url: str, options: EngineOptions, request: tuple[str, Mapping[str, str]]
    ) -> tuple[bytes, Stat] | None:
        """Return the bytes of a file and its version; None if there are none, for whatever reason."""
        got, server = None, urlsplit(url).netloc
        with suppress(SourceError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                got = await self._ask(url, options, *request)
        self._failed[server] = 0 if got else self._failed.get(server, 0) + 1
        return got

    def _suits(self, file: ReplicaSet, options: EngineOptions, settings: DownloadSettings) -> bool:
        """Return whether the file may be small, and nothing is asked for that needs the usual way."""
        if len(file.replicas) != 1 or file.pieces or (file.size or 0) > MOST or options.admission or options.further:
            return False
        parts = urlsplit(file.replicas[0].url)
        if parts.scheme not in SCHEMES or options.dialer.route(parts.hostname or "") != DIRECTLY:
            return False
        failed = self._failed.get(parts.netloc, 0)
        if failed >= LARGE:
            self._failed[parts.netloc] += 1
        return settings.tries > 1 and (failed < LARGE or failed % AGAIN == 0)

    async def _ask(
        self, url: str, options: EngineOptions, method: str, headers: Mapping[str, str]
    ) -> tuple[bytes, Stat] | None:
        """Return the bytes of a file (none for HEAD) and its version; None if it is not small."""
        server, exchange = server_of(url) or "", HTTPExchange(web_url(url), options, lambda _: None)
        key = (f"{urlsplit(url).scheme}://{server}", options.dialer.policy)
        idle = self._idle.setdefault(key, [])
        kept = idle.pop() if idle else self._opened(server)
        if kept is None:
            return None
        connection: PlainConnection | KeptClient | None = None
        try:
            _continue(exchange, kept.connection)
            known = await _properties(exchange) if is_webdav(url) else None
            async with exchange.answer(method, headers) as answer:
                got = await self._read(exchange, answer, method)
                if got and (begun := exchange.detach(answer)):
                    connection = begun.connection
            if got and not isinstance(answer, PlainAnswer):
                connection = exchange.clients.detach(answer) if _by_httpx(url) else None
            if got and known:
                got = got[0], completed(got[1], known.entry.size, known.etag, known.checksums)
            if got and (listed := options.stated):
                got = got[0], completed(got[1], listed.size, listed.validator, listed.checksums)
            return got
        finally:
            await exchange.close()
            now = Kept(connection, kept.lease)
            if connection and not (self._slots and self._slots.wanted(server)):
                idle.append(now)
                asyncio.get_running_loop().call_later(LINGER, _end, now, idle)
            else:
                now.close()

    def _opened(self, server: str) -> Kept | None:
        """Return a slot for a new connection; None if none is free."""
        lease = self._slots.take(server) if self._slots else Lease()
        return Kept(None, lease) if lease else None

    async def _read(self, exchange: HTTPExchange, answer: Answer, method: str) -> tuple[bytes, Stat] | None:
        size = _size(answer)
        if size is None or "content-encoding" in answer.headers:
            return None
        stated = stated_digests(answer.headers, whole=True, bodiless=method == "HEAD")
        unused = tuple(map(exchange.hidden, stated.unused))
        stat = Stat(size, validator(answer.headers), stated.usable, unused=unused)
        if method == "HEAD":
            with exchange.border():
                async for _ in answer.aiter_raw():  # until its end, there is none: so httpx keeps the connection
                    return None
            return b"", stat
        if size > MOST:
            return None
        data = bytearray()
        with exchange.border():
            async for piece in answer.aiter_raw():
                data += piece
                if len(data) > size:
                    return None
        return (bytes(data), stat) if len(data) == size else None

    def close(self) -> None:
        """Close all connections."""
        for idle in self._idle.values():
            for kept in list(idle):
                _end(kept, idle)


def _by_httpx(url: str) -> bool:
    """Return whether all requests for a URL go over httpx, so that its connection serves the next file."""
    return url.partition("://")[0].lower() != "http"


def _continue(exchange: HTTPExchange, connection: PlainConnection | KeptClient | None) -> None:
    """Send the next requests of an exchange on an idle connection, if there is one and it can be used."""
    if isinstance(connection, KeptClient):
        exchange.clients.continue_with(connection)
    else:
        exchange.continue_on(connection)


async def _properties(exchange: HTTPExchange) -> "Properties | None":
    """Return a file's WebDAV properties, whose checksums may not be in the headers of other answers."""
    from coalloc.engine.http.webdav import stated_properties  # imported here because few servers need it

    return await stated_properties(exchange)


def _end(kept: Kept, idle: list[Kept]) -> None:
    """Close a connection that is still idle."""
    if any(each is kept for each in idle):  # one that is equal may have been kept later
        idle.remove(kept)
        kept.close()


def _size(answer: Answer) -> int | None:
    """Return the size of the file, if the response has all of it, or it is larger than a small file; else None."""
    length = count(answer.headers.get("content-length", ""))
    if length is None or "transfer-encoding" in answer.headers:
        return None
    if answer.status_code == 200:
        return length
    where = content_range(answer.headers) if answer.status_code == PARTIAL else None
    if where is None or where[2] is None or where[:2] != (0, min(where[2], MOST)) or length != where[1]:
        return None
    return where[2]


def _is_begun(where: Path) -> bool:
    """Return whether the file exists, or has data of an earlier run."""
    return os.path.lexists(where) or os.path.lexists(where.with_name(data_folder(where.name)))


def _store(data: bytes, where: Path, compared: Sequence[Checksum], settings: DownloadSettings) -> _Stored:
    """Check the bytes, write the file, and give it its name. Runs in a thread.

    :param compared: checksums that the bytes must have
    """
    algorithms = [each.algorithm for each in compared] or (["adler32"] if settings.keep_checksums else [])
    found = {algorithm: Checksum(algorithm, _digest(data, algorithm)) for algorithm in dict.fromkeys(algorithms)}
    if any(found[each.algorithm] != each for each in compared):
        raise _OtherBytes
    with PartialFile(where, keep_checksums=False, within=settings.within, beside=settings.beside) as partial:
        partial.begin(len(data))
        if data:
            partial.write(0, 0, memoryview(data))
        written = partial.publish(replace=settings.replace)
    return next(iter(found.values()), None), written


def _digest(data: bytes, algorithm: str) -> str:
    digest = hasher(algorithm)
    digest.update(memoryview(data))
    return digest.hexdigest()


def _report(
    url: str,
    where: Path,
    size: int,
    seconds: float,
    checksum: Checksum | None,
    basis: Basis,
    settings: DownloadSettings,
) -> TransferReport:
    copy = PartialCopy(0, size, size, 0.0, seconds, seconds, seconds, "whole")
    rate = size / seconds if seconds else 0.0
    source = SourceReport(redact(url), size, seconds, rate, 1, outcome="ok", copies=(copy,) if size else ())
    return TransferReport(
        str(where), size, seconds, rate, settings.policy.name, 0, 0, checksum, basis, "one request", (source,)
    )

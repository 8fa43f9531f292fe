"""Resolution of a user's arguments to items with sizes and holders, and to the servers of a collect job.

GridFTP servers can send, receive and relay; all others only send, and only to this machine. A URL is one file, or all
files below a directory if it ends with a slash. Replicas of one file come from a Metalink, or from a broker; two URLs
are two files.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from coalloc.collect.runtime.checking import FAST
from coalloc.collect.runtime.holder import Holder
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.read_only_server import AT_ONCE, ReadOnlyServer
from coalloc.collect.runtime.server import CollectServer
from coalloc.engine import open_lister
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import parse, parse_server
from coalloc.engine.gridftp.storage import Storage, described
from coalloc.engine.http.answers import condition
from coalloc.errors import (
    CoallocError,
    IsDirectory,
    NothingToFetchFrom,
    SourceError,
    UnsafeName,
    UsageError,
    VerificationError,
)
from coalloc.history.values import source_key
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.forecasts import FoundReplicas
from coalloc.model.listings import Entry
from coalloc.model.replicas import Origin, Replica, ReplicaSet, Stat
from coalloc.resolve.federated import with_caches
from coalloc.resolve.federation_lister import FederationLister
from coalloc.resolve.file_names import from_url, why_unsafe
from coalloc.resolve.inventory import walk
from coalloc.resolve.replica_urls import check, is_federated, replica_set
from coalloc.resolve.trees import entry_url, files_below
from coalloc.safe_text import redact
from coalloc.util.concurrency import gather
from coalloc.verify import expectation

__all__ = ["CollectServers", "relays"]

SCHEMES = ("ftp", "gsiftp")
READ_ONLY = ("az", "dav", "davs", "ftpes", "ftps", "gs", "http", "https", "s3")
"""Schemes of servers that only send files."""
BEGINNING = 1 << 20
"""Maximum bytes that show whether a server computes checksums; whole files are compared at the end."""


def relays(url: str) -> bool:
    """Return whether the server of a URL can receive and relay, as GridFTP servers can."""
    return url.partition("://")[0].lower() in SCHEMES


def _is_read_only(url: str) -> bool:
    """Return whether the server of a URL can only send."""
    return url.partition("://")[0].lower() in READ_ONLY


@dataclass
class CollectServers:
    """Servers by label, and the directories for staging of those that relay.

    :param outward: whether the files go to another server, which can fetch from GridFTP servers only
    """

    options: EngineOptions
    outward: bool = False
    by_label: dict[str, Holder] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)
    """URLs of directories that were left out because their listings are those of directories above them."""
    unused: dict[str, str] = field(default_factory=dict)
    """URLs of replicas that are not used, with the reason."""
    failed: dict[str, CoallocError] = field(default_factory=dict)
    """Errors of files that could not be looked up, by name, and of the user's URLs and of directories, by URL."""

    @property
    def senders(self) -> frozenset[str]:
        """Labels of the servers that only send."""
        return frozenset(label for label, server in self.by_label.items() if isinstance(server, ReadOnlyServer))

    def add(self, url: str, folder: str | None = None, origin: Origin | None = None) -> CollectServer:
        """Add and return the GridFTP server of a URL; `folder` becomes its staging directory, unless it has one.

        The origin of its first URL decides which addresses a server may have, so add the user's own URLs first.

        :raises UsageError: when the server cannot relay
        """
        if not relays(url):
            raise UsageError(
                f"{redact(url)} is not at a GridFTP server; no other server receives or relays files",
                "write ftp://HOST/ or gsiftp://HOST/",
            )
        parse_server(url)
        label, login = source_key(url), _server(url)
        known = self.by_label.setdefault(label, CollectServer(label, login, self.options.named(origin or Origin())))
        assert isinstance(known, CollectServer), "the label begins with the scheme"
        if known.url != login:
            raise UsageError(f"{label} has two logins", "use one login for each server")
        if folder is not None:
            self.folders.setdefault(label, folder)
        return known

    def add_file(
        self, url: str, origin: Origin | None = None, stated: Stat | None = None
    ) -> tuple[ReadOnlyServer, str]:
        """Add a file at a server that only sends; return the server, and the file's path there.

        :param stated: what a listing of the server states about the file
        :raises UsageError: when no such server is possible
        """
        if not _is_read_only(url):
            schemes = ", ".join(f"{scheme}://" for scheme in (*SCHEMES, *READ_ONLY, "osdf", "pelican"))
            raise UsageError(f"{redact(url)}: coget collect does not support its scheme", f"give one of {schemes}")
        if self.outward:
            raise UsageError(
                f"{redact(url)} is not at a GridFTP server, so no other server can fetch it",
                "collect it to a directory of this machine",
            )
        check(url)
        label, login = source_key(url), _server(url)
        options = self.options.named(origin or Origin())
        server = self.by_label.setdefault(label, ReadOnlyServer(label, login, options))
        assert isinstance(server, ReadOnlyServer), "the label begins with the scheme"
        path = f"/{url[len(login) :]}"
        server.add(path, url, replace(options, stated=stated))
        return server, path

    async def items(self, urls: Sequence[str], found: Sequence[FoundReplicas]) -> list[CollectItem]:
        """Return the files that the URLs name, then the files with known replicas; `failed` has the errors of others.

        :raises UsageError: when a URL cannot be used, or two files would have the same name
        :raises NothingToFetchFrom: when there are no files, and no errors
        """
        listed = await gather(*(self._attempt(redact(url), self._of_url(url)) for url in urls))
        known = await gather(*(self._attempt(each.file.name, self._of_replicas(each.file)) for each in found))
        items = [item for some in (*listed, *known) for item in some]
        _refuse_conflicts(items)
        if not items and not self.failed:
            raise NothingToFetchFrom(
                f"there are no files at {' and '.join(map(redact, urls))}", "give another directory"
            )
        return items

    async def _attempt(self, name: str, looked: Awaitable[list[CollectItem]]) -> list[CollectItem]:
        """Return the items; if they cannot be looked up, none, and add the error to `failed`."""
        try:
            return await looked
        except (SourceError, NothingToFetchFrom, VerificationError, UnsafeName) as error:
            self.failed[name] = error
            return []

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(server.close() for server in self.by_label.values()))

    async def _of_url(self, url: str) -> list[CollectItem]:
        if not relays(url):
            return await self._files_of_sender(url)
        address = parse(url)
        path = address.named
        server = self.add(url, path.rstrip("/").rpartition("/")[0] or "/")
        if path.endswith("/"):
            entries = await server.ask(lambda store: _listed(store, path.rstrip("/")))
            listed = await gather(
                *(self._attempt(name, _listed_file(server, path, name, each)) for name, each in entries)
            )
            return [item for some in listed for item in some]
        try:
            stat = await server.stat_now(path)
        except IsDirectory as error:
            raise UsageError(f"{address.shown} is a directory", "end it with / to collect everything in it") from error
        return [_item(path.rpartition("/")[2], server, path, stat, foreign=False)]

    async def _files_of_sender(self, url: str) -> list[CollectItem]:
        """Return the files of a URL of a server that only sends, or of a federation."""
        check(url)
        if not url.endswith("/") or urlsplit(url).query:
            return [replace(await self._file_of_sender(url), foreign=False)]
        lister = FederationLister(self.options) if is_federated(url) else open_lister(url, self.options)
        try:
            tree = await files_below(lister, url)
        finally:
            await lister.close()
        self.failed |= {redact(entry_url(url, folder)): error for folder, error in tree.errors.items()}
        self.loops += [redact(entry_url(url, folder)) for folder in tree.loops]
        turns = asyncio.Semaphore(AT_ONCE)

        async def look_up(name: str) -> list[CollectItem]:
            async with turns:
                return [await self._file_of_sender(entry_url(url, name), name, tree.stated.get(name))]

        found = await gather(*(self._attempt(name, look_up(name)) for name in tree.files))
        return [item for some in found for item in some]

    async def _file_of_sender(self, url: str, name: str | None = None, stated: Stat | None = None) -> CollectItem:
        """Return a file of a server or a federation, under its own name if none is given.

        :param stated: what a listing of the server states about the file
        """
        name = from_url(url) if name is None else name
        _check_name(name)
        if is_federated(url):
            return await self.replicas(
                (await with_caches(replica_set([url]), self.options.dialers))._replace(name=name)
            )
        server, path = self.add_file(url, stated=stated)
        return _item(name, server, path, await server.stat(path))

    async def _of_replicas(self, file: ReplicaSet) -> list[CollectItem]:
        return [await self.replicas(file)]

    async def replicas(self, file: ReplicaSet) -> CollectItem:
        """Return a file with its usable replicas: those of the file's known size, or else of the first one's size.

        Bytes of several replicas are mixed only if a checksum can show that they are of the same file: an expected one,
        or one from each of their servers; otherwise the first is used alone. Replicas that only the answer of another
        server names are not used.
        """
        replicas = [each for each in file.without_guests().replicas if relays(each.url) or self._may_send(each.url)]
        looked = await gather(*(self._look(each) for each in replicas))
        stats = {each.url: stat for each, stat in zip(replicas, looked, strict=True) if isinstance(stat, Stat)}
        size = file.size if file.size is not None else next((stat.size for stat in stats.values()), None)
        usable = {url: stat for url, stat in stats.items() if stat.size == size}
        if not usable or size is None:
            errors = [str(answer) for answer in looked if isinstance(answer, CoallocError)]
            sizes = [f"{redact(url)} has {stat.size} bytes, not {size}" for url, stat in stats.items()]
            why = "; ".join((*errors, *sizes))
            raise NothingToFetchFrom(
                f"{file.name} has no usable replica at a server that can take part. {why}".rstrip(),
                "choose another file",
            )
        expected = expectation(file.checksums)
        if expected is None and file.pieces is None:
            usable, expected = await self._comparable(usable, size)
        _check_name(file.name)
        _check_pieces(file.name, file.pieces, size)
        paths: dict[str, str] = {}
        versions: dict[str, str] = {}
        for url, stat in usable.items():
            label = source_key(url)
            if label in paths:
                continue  # a server takes part with one replica
            paths[label] = parse(url).named if relays(url) else _path(url)
            if version := _version(stat):
                versions[label] = version
        self.unused |= {
            redact(replica.url): _why_unused(answer, size)
            for replica, answer in zip(replicas, looked, strict=True)
            if replica.url not in usable
        }
        return CollectItem(file.name, size, paths, expected, versions, pieces=file.pieces)

    async def _comparable(self, usable: dict[str, Stat], size: int) -> tuple[dict[str, Stat], Checksum | None]:
        """Return the replicas that can be compared with the first one, which may be none; and a stated checksum.

        GridFTP servers compute checksums; these must have the same one of their first bytes.
        """
        if not all(map(relays, usable)):
            return _with_the_first_checksum(usable)
        if len(usable) == 1:
            return usable, None
        first, *_ = usable
        found = dict(zip(usable, await gather(*(self._beginning(url, size) for url in usable)), strict=True))
        alike = {url: stat for url, stat in usable.items() if url == first or found[url] == found[first] is not None}
        return alike, None

    async def _beginning(self, url: str, size: int) -> str | None:
        with suppress(SourceError):
            return await self.by_label[source_key(url)].checksum(parse(url).named, FAST, 0, min(size, BEGINNING))
        return None

    def _may_send(self, url: str) -> bool:
        return _is_read_only(url) and not self.outward

    async def _look(self, replica: Replica) -> Stat | SourceError:
        url = replica.url
        try:
            if not relays(url):
                server, path = self.add_file(url, replica.origin)
                return await server.stat(path)
            path = parse(url).named
            return await self.add(url, path.rpartition("/")[0] or "/", replica.origin).stat_now(path)
        except SourceError as error:
            return error


def _server(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0]}/"


def _path(url: str) -> str:
    return f"/{url[len(_server(url)) :]}"


def _with_the_first_checksum(usable: Mapping[str, Stat]) -> tuple[dict[str, Stat], Checksum | None]:
    """Return the replicas that state the same checksum as the first one, and this checksum; else the first alone."""
    (first, stat), *_ = usable.items()
    stated = expectation(stat.checksums)
    alike = {url: each for url, each in usable.items() if url == first or (stated and stated in each.checksums)}
    return alike, stated


def _why_unused(answer: Stat | SourceError, size: int) -> str:
    if isinstance(answer, SourceError):
        return str(answer)
    if answer.size != size:
        return f"it has {answer.size} bytes, not {size}"
    return "no checksum shows that it is the same file as the first replica; give the file's checksum in a Metalink"


def _version(stat: Stat) -> str | None:
    """Return what identifies the version of a file; None if it is unknown, or may stay when the file changes."""
    return stat.validator if condition(stat.validator) else None


async def _listed(store: Storage, top: str) -> list[tuple[str, Entry]]:
    return [found async for found in walk(store, top)]


async def _stat(server: CollectServer, path: str, entry: Entry) -> Stat:
    """Return the size and the version of a listed file; ask the server for what the listing does not have.

    :raises SourceError: if the size is not known: the entry may be a link to a directory
    """
    if entry.size is None:
        return await server.stat_now(path)
    if entry.modified is None:
        with suppress(SourceError):  # it may be refused later
            return await server.stat_now(path)
    return described(entry)


def _item(name: str, server: Holder, path: str, stat: Stat, foreign: bool = True) -> CollectItem:
    """Return a file that one server has."""
    _check_name(name)
    version = _version(stat)
    versions = {server.label: version} if version else {}
    return CollectItem(name, stat.size, {server.label: path}, expectation(stat.checksums), versions, foreign)


async def _listed_file(server: CollectServer, folder: str, name: str, entry: Entry) -> list[CollectItem]:
    return [_item(name, server, folder + name, await _stat(server, folder + name, entry))]


def _check_name(name: str) -> None:
    """Check the name of a file. :raises UnsafeName: when it is not safe"""
    if reason := why_unsafe(name):
        raise UnsafeName(f"the file name {name[:200]!r} {reason}", "fetch it separately, with coget get -o")


def _check_pieces(name: str, pieces: PieceHashes | None, size: int) -> None:
    """Check the number of hashes. :raises VerificationError: when they are of a file of another size"""
    if pieces and len(pieces.values) != -(-size // pieces.length):
        raise VerificationError(
            f"{name} has {size} bytes, but {len(pieces.values)} hashes of pieces of {pieces.length} bytes",
            "get a Metalink of this version of the file",
        )


def _refuse_conflicts(items: Sequence[CollectItem]) -> None:
    """Check that names are unique. :raises UsageError: when two files have the same name"""
    seen: dict[str, CollectItem] = {}
    for item in items:
        if other := seen.get(item.name):
            places = " and ".join(
                redact(f"{host}{path}") for each in (other, item) for host, path in each.paths.items()
            )
            raise UsageError(
                f"{places} would both become {item.name}",
                "collect them separately to different places; list replicas of one file in a Metalink",
            )
        seen[item.name] = item

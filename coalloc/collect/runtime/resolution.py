"""Resolution of a user's arguments to items with sizes and holders, and to the servers of a collect job.

A URL is one file, or all files below a directory if it ends with a slash. Replicas of one file come from a Metalink, or
from a broker; two URLs are two files.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.server import CollectServer
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import parse, parse_server
from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import CoallocError, NothingToFetchFrom, SourceError, UsageError
from coalloc.history.values import source_key
from coalloc.model.checksums import Checksum
from coalloc.model.forecasts import FoundReplicas
from coalloc.model.listings import Entry
from coalloc.model.replicas import Origin, ReplicaSet
from coalloc.resolve.file_names import why_unsafe
from coalloc.resolve.inventory import walk
from coalloc.safe_text import redact
from coalloc.util.concurrency import gather
from coalloc.verify import expectation

__all__ = ["CollectServers", "speaks"]

SCHEMES = ("ftp", "gsiftp")


def speaks(url: str) -> bool:
    """Return whether the server of a URL can take part in a collect job."""
    return url.partition("://")[0].lower() in SCHEMES


@dataclass
class CollectServers:
    """Servers by label, and their directories for staging."""

    options: EngineOptions
    by_label: dict[str, CollectServer] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)

    def add(self, url: str, folder: str | None = None, origin: Origin | None = None) -> CollectServer:
        """Add and return the server of a URL; `folder` becomes its staging directory, unless it has one already.

        The origin of its first URL decides which addresses a server may have, so add the user's own URLs first.

        :raises UsageError: when the server cannot take part
        """
        if not speaks(url):
            raise UsageError(
                f"{redact(url)} is not at a GridFTP server; coget collect supports no others",
                "write ftp://HOST/ or gsiftp://HOST/",
            )
        parse_server(url)
        label, login = source_key(url), _server(url)
        known = self.by_label.setdefault(label, CollectServer(label, login, self.options.named(origin or Origin())))
        if known.url != login:
            raise UsageError(f"{label} has two logins", "use one login for each server")
        if folder is not None:
            self.folders.setdefault(label, folder)
        return known

    async def items(self, urls: Sequence[str], found: Sequence[FoundReplicas]) -> list[CollectItem]:
        """Return the files that the URLs name, then the files with known replicas.

        :raises UsageError: when two files would have the same name
        :raises CoallocError: when a file cannot be looked up
        """
        listed = await gather(*(self._of_url(url) for url in urls))
        known = await gather(*(self.replicas(each.file) for each in found))
        items = [item for some in listed for item in some] + list(known)
        _refuse_conflicts(items)
        if not items:
            raise NothingToFetchFrom(f"{' and '.join(map(redact, urls))} has no file", "give another directory")
        return items

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(server.close() for server in self.by_label.values()))

    async def _of_url(self, url: str) -> list[CollectItem]:
        address = parse(url)
        path = address.named
        server = self.add(url, path.rstrip("/").rpartition("/")[0] or "/")
        if path.endswith("/"):
            entries = await server.ask(lambda store: _listed(store, path.rstrip("/")))
            return [_item(name, entry, {server.label: path + name}) for name, entry in entries]
        entry = await server.ask(lambda store: store.stat(path))
        if entry.kind == "dir":
            raise UsageError(f"{address.shown} is a directory", "end it with / to collect everything in it")
        return [_item(path.rpartition("/")[2], entry, {server.label: path}, foreign=False)]

    async def replicas(self, file: ReplicaSet) -> CollectItem:
        """Return a file with its usable replicas: those of the file's known size, or else of the first one's size."""
        replicas = [replica for replica in file.replicas if speaks(replica.url)]
        urls = [replica.url for replica in replicas]
        looked = await gather(*(self._look(each.url, each.origin) for each in replicas))
        entries = {url: answer for url, answer in zip(urls, looked, strict=True) if isinstance(answer, Entry)}
        size = file.size if file.size is not None else next((entry.size for entry in entries.values()), None)
        usable = {url: entry for url, entry in entries.items() if entry.size == size}
        if not usable or size is None:
            why = "; ".join(str(answer) for answer in looked if isinstance(answer, CoallocError))
            raise NothingToFetchFrom(
                f"{file.name} has no usable replica at a GridFTP server. {why}".rstrip(), "choose another file"
            )
        paths = {source_key(url): parse(url).named for url in usable}
        return _item(file.name, next(iter(usable.values())), paths, expectation(file.checksums))

    async def _look(self, url: str, origin: Origin) -> Entry | SourceError:
        path = parse(url).named
        server = self.add(url, path.rpartition("/")[0] or "/", origin)
        try:
            return await server.ask(lambda store: store.stat(path))
        except SourceError as error:
            return error


def _server(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0]}/"


async def _listed(store: Storage, top: str) -> list[tuple[str, Entry]]:
    return [found async for found in walk(store, top)]


def _item(
    name: str, entry: Entry, paths: Mapping[str, str], expected: Checksum | None = None, foreign: bool = True
) -> CollectItem:
    if reason := why_unsafe(name):
        raise UsageError(f"the file name {name[:200]!r} {reason}", "fetch it separately, with coget get -o")
    return CollectItem(name, entry.size or 0, paths, expected, entry.modified, foreign)


def _refuse_conflicts(items: Sequence[CollectItem]) -> None:
    """Check that names are unique. :raises UsageError: when two files have the same name"""
    seen: dict[str, CollectItem] = {}
    for item in items:
        if other := seen.get(item.name):
            places = " and ".join(f"{host}{path}" for each in (other, item) for host, path in each.paths.items())
            raise UsageError(
                f"{places} would both become {item.name}",
                "collect them separately to different places; list replicas of one file in a Metalink",
            )
        seen[item.name] = item

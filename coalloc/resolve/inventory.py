"""Registration with a broker of the files below a directory of a GridFTP server, with the server's own checksums.

Symbolic links to files count as files; links to directories are not followed, since they may form cycles.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple
from urllib.parse import quote

from coalloc.broker_client import Broker
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import (
    CoallocError,
    NoSuchFile,
    PermissionRefused,
    SourceError,
    Unsupported,
    UsageError,
)
from coalloc.model.checksums import Checksum
from coalloc.model.listings import Entry
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.resolve.trees import as_file, walk_folders
from coalloc.safe_text import redact
from coalloc.util.concurrency import gather

__all__ = ["Registered", "register_below", "walk"]

SESSIONS = 4
"""Number of concurrent sessions for checksums; in each session, a server computes one at a time."""
ALGORITHMS = ("sha256", "md5", "adler32")
"""Algorithms in order of preference; the first one that the server offers is used."""

Connect = Callable[[], Coroutine[None, None, Storage]]


class Registered(NamedTuple):
    """The result of a registration: the number of registered files, their bytes, and the number of new replicas.

    `refused` has the errors of other files, by dataset name: the broker refuses them, or the server does not serve
    them.
    """

    files: int
    bytes: int
    new: int
    refused: Mapping[str, CoallocError]


async def register_below(broker: Broker, name: str, url: str, connect: Connect) -> Registered:
    """Register with a broker every file below a server's directory; dataset names begin with `name`.

    :raises SourceError: when a directory cannot be listed or a file cannot be read
    :raises UsageError: when there are no files
    """
    prefix = name if name.endswith((":", "/")) else f"{name}/"
    files, troubles = await _inventory(url, connect)
    if not files:
        raise UsageError(f"{redact(url)} has no files", "give another directory")
    news, refused = await broker.register_all([(prefix + file.name, file) for file in files])
    left_out = {prefix + name: error for name, error in troubles.items()} | refused
    taken = [file for file in files if prefix + file.name not in refused]
    return Registered(len(taken), sum(file.size or 0 for file in taken), news, left_out)


async def _inventory(url: str, connect: Connect) -> tuple[list[ReplicaSet], dict[str, SourceError]]:
    """Return each file below a directory, with its relative name, its size, its URL and its checksum.

    Also return the errors, by name, of files that the server lists but does not serve.

    :param url: URL of the directory, with a slash at its end
    :param connect: function that logs in to the server
    :raises SourceError: when a directory cannot be listed or a file cannot be read
    """
    top = parse(url).named.rstrip("/")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await connect())
        files = [_described(url, name, entry) async for name, entry in walk(store, top)]
        left, troubles = iter(files), dict[str, SourceError]()
        stores = [store]
        for _ in range(min(SESSIONS, len(files)) - 1):
            stores.append(await stack.enter_async_context(await connect()))
        summed = await gather(*(_summed(each, top, left, troubles) for each in stores))
    return sorted(file for some in summed for file in some), troubles


async def walk(store: Storage, top: str) -> AsyncIterator[tuple[str, Entry]]:
    """Yield the files below `top`, with their relative paths.

    :raises LimitExceeded: when the tree exceeds the limits in depth or size
    """
    shown = (await store.locate(top or "/")).shown

    async def list_folder(folder: str) -> AsyncGenerator[Sequence[Entry], None]:
        async with aclosing(store.list(f"{top}/{folder}")) as groups:
            async for entries in groups:
                yield [as_file(entry) for entry in entries]

    async for found in walk_folders(list_folder, shown):
        yield found


def _described(url: str, name: str, entry: Entry) -> ReplicaSet:
    return ReplicaSet(name, (Replica(url + quote(name, errors="surrogateescape")),), entry.size)


async def _summed(
    store: Storage, top: str, files: Iterator[ReplicaSet], troubles: dict[str, SourceError]
) -> list[ReplicaSet]:
    """Take files one by one, and return them with their checksums; store errors of files in `troubles`."""
    found = []
    for file in files:
        try:
            path = f"{top}/{file.name}"
            size = (await store.state(path)).size if file.size is None else file.size
            found.append(file._replace(size=size, checksums=await _checksums(store, path, size)))
        except (NoSuchFile, PermissionRefused, Unsupported) as error:
            troubles[file.name] = error
    return found


async def _checksums(store: Storage, path: str, size: int) -> tuple[Checksum, ...]:
    for algorithm in ALGORITHMS if size else ():
        if value := await store.checksum(path, algorithm, 0, size):
            return (Checksum(algorithm, value),)
    return ()

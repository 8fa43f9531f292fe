"""What is below a directory of a GridFTP server, with the server's own checksums: for a catalogue.

Symbolic links to files count as files; those to directories are not followed, since they may lead in circles.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from urllib.parse import quote

from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import NoSuchFile, PermissionRefused, SourceError, Unsupported
from coalloc.model import Checksum, Entry, Replica, ReplicaSet

__all__ = ["inventory"]

SESSIONS = 4
"""In which a server is asked for checksums at once; it computes one at a time in each."""
ALGORITHMS = ("sha256", "md5", "adler32")
"""What is asked for: the first that the server offers."""

Connect = Callable[[], Coroutine[None, None, Storage]]


async def inventory(url: str, connect: Connect) -> tuple[list[ReplicaSet], dict[str, SourceError]]:
    """Each file below a directory, its name relative to it, with its size, its URL and its checksum.

    And those, by name, that the server lists but does not hand out, with the reason.

    :param url: of the directory, with a slash at its end
    :param connect: logs in at the server
    :raises SourceError: when something cannot be listed or read
    """
    top = parse(url).named.rstrip("/")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await connect())
        files = [_described(url, name, entry) async for name, entry in _walk(store, top)]
        left, troubles = iter(files), dict[str, SourceError]()
        stores = [store]
        for _ in range(min(SESSIONS, len(files)) - 1):
            stores.append(await stack.enter_async_context(await connect()))
        summed = await asyncio.gather(*(_summed(each, top, left, troubles) for each in stores))
    return sorted(file for some in summed for file in some), troubles


async def _walk(store: Storage, top: str) -> AsyncIterator[tuple[str, Entry]]:
    """The files below `top`, with their relative paths."""
    folders = deque([""])
    while folders:
        folder = folders.popleft()
        async for entries in store.list(f"{top}/{folder}"):
            for entry in entries:
                if entry.kind == "file":
                    yield folder + entry.name, entry
                elif entry.kind == "dir" and entry.link_target is None:
                    folders.append(f"{folder}{entry.name}/")


def _described(url: str, name: str, entry: Entry) -> ReplicaSet:
    return ReplicaSet(name, (Replica(url + quote(name, errors="surrogateescape")),), entry.size)


async def _summed(
    store: Storage, top: str, files: Iterator[ReplicaSet], troubles: dict[str, SourceError]
) -> list[ReplicaSet]:
    """The next files, one after the other, with their checksums."""
    found = []
    for file in files:
        try:
            found.append(file._replace(checksums=await _checksums(store, f"{top}/{file.name}", file.size or 0)))
        except (NoSuchFile, PermissionRefused, Unsupported) as error:
            troubles[file.name] = error
    return found


async def _checksums(store: Storage, path: str, size: int) -> tuple[Checksum, ...]:
    for algorithm in ALGORITHMS if size else ():
        if value := await store.checksum(path, algorithm, 0, size):
            return (Checksum(algorithm, value),)
    return ()

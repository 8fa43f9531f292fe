"""A directory of a GridFTP server as a collection, and a pool of sessions with servers."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, MutableSequence, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, relpath
from typing import NamedTuple
from urllib.parse import quote

from broker.services.auth.permissions import Reach
from broker.services.collection_paths import below, led
from broker.services.collections.trees.links import Links, inside, is_link
from broker.services.collections.trees.message_paths import Naming, called
from broker.services.network.places import Allowed
from coalloc.api import Storage, held, storage
from coalloc.errors import (
    AlreadyThere,
    IsDirectory,
    NoSuchFile,
    NotDirectory,
    PermissionRefused,
    ServerSays,
    Unsupported,
)
from coalloc.model.listings import Entry, Omission
from coalloc.util.addresses import AddressPolicy
from coalloc.util.concurrency import gather

__all__ = ["GridFTPTree", "ServerLogin", "ServerSessions"]

IDLE_SECONDS = 5.0
MOST_ABOVE = 1000
"""Most parent directories that `lineage` examines, since links may form cycles."""
MOST = 8
"""Most sessions with one server at once; further callers wait."""


class ServerLogin(NamedTuple):
    """A server with its login.

    :param source: URL of the server
    :param proxy: proxy certificate to use; None for the default one
    :param policy: policy for the addresses of the server and its data
    :param delegate: hosts that may get a limited proxy certificate
    """

    source: str
    proxy: Path | None
    policy: AddressPolicy
    delegate: frozenset[str] = frozenset()

    @property
    def allowed(self) -> Allowed:
        """The limits of sessions, as keyword arguments of `storage` and `third_party`."""
        return {"policy": self.policy, "delegate": self.delegate}


class ServerSessions:
    """A pool of at most `MOST` sessions with each server; idle ones are closed after `IDLE_SECONDS`."""

    def __init__(self) -> None:
        self._idle: defaultdict[ServerLogin, list[tuple[Storage, asyncio.TimerHandle]]] = defaultdict(list)
        self._free: defaultdict[ServerLogin, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MOST))

    @asynccontextmanager
    async def one(self, server: ServerLogin) -> AsyncIterator[Storage]:
        """Yield a session for exclusive use: an idle one if it is usable, otherwise a new one."""
        async with self._free[server]:
            session = self._take(server) or await storage(f"{server.source}/", proxy=server.proxy, **server.allowed)
            try:
                yield session
            finally:
                self._keep(server, session)

    def _take(self, server: ServerLogin) -> Storage | None:
        while self._idle[server]:
            session, timer = self._idle[server].pop()
            timer.cancel()
            if session.usable:
                return session
            session.close()
        return None

    def _keep(self, server: ServerLogin, session: Storage) -> None:
        if not session.usable:
            session.close()
            return
        timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._drop, server, session)
        self._idle[server].append((session, timer))

    def _drop(self, server: ServerLogin, session: Storage) -> None:
        self._idle[server] = [(each, timer) for each, timer in self._idle[server] if each is not session]
        session.close()

    def close(self) -> None:
        """Close the idle sessions."""
        for idle in self._idle.values():
            for session, timer in idle:
                timer.cancel()
                session.close()
        self._idle.clear()


class GridFTPTree:
    """The tree of the files and directories below `folder` at a server.

    The server follows its symbolic links. If the user may access only a part of the directory, or the collection is a
    guest collection, links that lead out are refused, as far as the server reports their targets. Otherwise, links are
    not checked.

    :param folder: absolute path, with a slash at its end
    :param name: name of the collection
    :param reach: access rights of the tree's user; None for everything that the server permits
    """

    def __init__(
        self, sessions: ServerSessions, server: ServerLogin, folder: str, name: str, reach: Reach | None = None
    ) -> None:
        self._sessions = sessions
        self.server = server
        self._folder = folder
        self._reach = reach
        self._links = Links(folder, share.folder if reach and (share := reach.collection.share) else "")
        self.naming = Naming(name, folder, server.source)

    def url(self, path: str) -> str:
        """Return the URL of a file or a directory, for `coalloc.api`."""
        return self.server.source + quote(self.at(path))

    def at(self, path: str) -> str:
        """Return the server's path for a path in the collection."""
        return below(self._folder, path)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Storage]:
        """Yield a session whose errors name paths in the collection instead of the server's."""
        async with self._sessions.one(self.server) as session:
            with called(self.naming):
                yield session

    def _limits(self, writes: bool = False) -> bool:
        """Return whether links may lead to paths that the user may not read (or write, if `writes`)."""
        return self._reach is not None and self._reach.ends(writes)

    async def _enter(self, session: Storage, path: str, writes: bool) -> str | None:
        """Return a path with all links resolved except the last component; None if links need not be checked.

        :raises PermissionRefused: when the user may not access the resolved path
        """
        if not self._limits(writes):
            return None
        above, _, name = path.rstrip("/").rpartition("/")
        folder = await self._links.folder(session, above)
        return self._permit(path, folder and join(folder, name), writes)

    async def _follow(self, session: Storage, path: str, writes: bool) -> str | None:
        """Return a path with all links resolved; None if links need not be checked.

        :raises PermissionRefused: when the user may not access the resolved path
        """
        if not self._limits(writes):
            return None
        end, _ = await self._links.end(session, path)
        return self._permit(path, end, writes)

    def _permit(self, path: str, end: str | None, writes: bool) -> str:
        """Return `end`, the resolved form of `path`. :raises PermissionRefused: unless the user may access both"""
        assert self._reach
        if end is None or not (self._reach.may(path, writes) and self._reach.may(end, writes)):
            message = f"a symbolic link on {path} leads to a place that {self._reach.caller.subject} may not "
            raise PermissionRefused(message + ("write" if writes else "read"), "ask its owner, or an admin")
        return end

    async def readable(self, path: str) -> None:
        """Check that the user may read a path, and the target if it is a link. :raises PermissionRefused: otherwise"""
        if self._limits():
            async with self._session() as session:
                await self._follow(session, path, False)

    async def writable(self, path: str) -> None:
        """Check that the user may write a file at a path.

        :raises PermissionRefused: when links on the path lead to a place that the user may not write
        :raises IsDirectory: when the path is a directory, and the user may not write to its parent
        """
        if self._reach and self._limits(writes=True):
            async with self._session() as session:
                end = await self._enter(session, path, True)
                if not self._reach.may(dirname(end or path), True) and await self._links.is_folder(session, path):
                    raise IsDirectory(
                        f"{path} is a directory", "give the path of a file in it, or end the path with a slash"
                    )

    async def end(self, path: str) -> str | None:
        """Return a path in the collection with all links resolved; None if it is outside the collection."""
        async with self._session() as session:
            return (await self._links.end(session, path))[0]

    async def stat(self, path: str) -> Entry:
        """Return the entry at a path; for a symbolic link, its target. The root has the name `/`, as in every tree.

        A link to a target that the user may not read is shown as a link without details.
        """
        async with self._session() as session:
            checks = self._enter(session, path, False), session.stat(self.at(path))
            refused, found = await asyncio.gather(*checks, return_exceptions=True)
            for wrong in (refused, found):  # refusals come first, so as not to reveal whether files exist
                if isinstance(wrong, BaseException):
                    raise wrong
            assert isinstance(found, Entry)
            if self._limits() and is_link(found):
                end, _ = await self._links.end(session, path)
                found = found if end and self._may_read(end) else _closed(found)
            base = await self._links.base(session) if self._leaves(found) else None
        found = self._led(dirname(path.rstrip("/")), found, base)
        return found._replace(name="/") if path == "/" else found

    async def list(
        self, path: str, omitted: MutableSequence[Omission] | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of a directory, in batches as they arrive. Close it to stop early."""
        doubtful: Sequence[Entry] = ()
        leaving: list[Entry] = []
        base: str | None = None
        async with self._session() as session:
            folder = await self._follow(session, path, False) or path
            async with aclosing(
                session.list(self.at(path), omitted)
            ) as listing:  # closed before the session is used again
                async for batch in listing:
                    if [entry.name for entry in batch] == [path.rstrip("/").rpartition("/")[2]]:
                        doubtful = batch  # for a file, servers list the file itself
                    else:
                        leaving += [entry for entry in batch if self._leaves(entry)]
                        yield [self._shown(path, folder, entry) for entry in batch if not self._leaves(entry)]
            if doubtful and (await session.stat(self.at(path))).kind != "dir":
                raise NotDirectory(f"{path} is not a directory", "request its status, or list its parent directory")
            leaving += doubtful
            if any(map(self._leaves, leaving)):  # needs another request, which a server accepts only after the listing
                base = await self._links.base(session)
        if leaving:
            yield [self._shown(path, folder, entry, base) for entry in leaving]

    def _shown(self, path: str, folder: str, entry: Entry, base: str | None = None) -> Entry:
        """Return an entry of a directory as the user may see it.

        :param folder: the directory's path with all links resolved, if the user may not read everything
        :param base: the collection's path at the server with all links resolved, for links that seem to leave it
        """
        found = self._led(path, entry, base)
        if not (self._limits() and is_link(found)):
            return found
        end = led(join(folder, entry.name), self._led(folder, entry, base).link_target or "")
        inner = found.link_target is not None and not found.link_target.startswith("/")
        return found if inner and end and self._may_read(end) else _closed(found)

    def _may_read(self, path: str) -> bool:
        return self._reach is None or self._reach.may(path, False)

    async def lineage(self, path: str) -> Sequence[str | None]:
        """Return the server's ids of a directory and of each directory above it.

        If the path has links, the result includes the directories above the links' targets.
        """
        places, found = [PurePosixPath(self.at(path))], dict[PurePosixPath, Entry | None]()
        async with self._session() as session:
            while places and len(found) < MOST_ABOVE:
                place = places.pop()
                new = [each for each in (place, *place.parents) if each not in found]
                stats = await gather(*(_stat(session, str(each)) for each in new))
                found |= dict(zip(new, stats, strict=True))
                places += [
                    each.parent / entry.link_target
                    for each, entry in found.items()
                    if each in new and entry and entry.link_target
                ]
        return [entry and entry.unique for entry in found.values()]

    async def held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Map each name to the first of these that the server treats as equal; create directories to find out."""
        async with self._session() as session:
            await self._follow(session, folder, True)
            return await held(session, self.at(folder).rstrip("/"), names)

    def _leaves(self, entry: Entry) -> bool:
        """Return whether an entry is a link out of the collection; valid if the collection's own path has no links."""
        target = entry.link_target
        return target is not None and target.startswith("/") and not f"{target}/".startswith(self._folder)

    def _led(self, folder: str, entry: Entry, base: str | None = None) -> Entry:
        """Return an entry of a directory; a link's target, which servers give as an absolute path, becomes relative.

        :param base: the collection's path at the server with all links resolved, if known
        """
        target = entry.link_target
        if target is None or not target.startswith("/"):
            return entry
        aim = inside(self._folder.rstrip("/") or "/", target) or (base and inside(base, target))
        return entry._replace(link_target=relpath(aim, folder or "/")) if aim else entry

    async def make(self, path: str) -> None:
        """Create a directory; its parent must exist."""
        async with self._session() as session:
            await self._enter(session, path, True)
            await session.make(self.at(path))

    async def rename(self, old: str, new: str) -> None:
        """Move a file or a directory to another path that does not exist.

        The check and the move are two steps, since servers have no exclusive rename; most do not show broken links.

        :raises AlreadyThere: when the new path exists, or the server does not clearly report that it does not
        """
        async with self._session() as session:
            for path in (old, new):
                await self._enter(session, path, True)
            try:
                await session.stat(self.at(new))
            except NoSuchFile as error:
                if error.certain:
                    await session.rename(self.at(old), self.at(new))
                    return
        raise AlreadyThere(f"{self.naming.name}:{new} exists already", "choose another name, or delete it first")

    async def replace(self, old: str, new: str) -> None:
        """Move a file or a link to another path; the server decides how to replace a file or link there."""
        async with self._session() as session:
            for path in (old, new):
                await self._enter(session, path, True)
            await session.rename(self.at(old), self.at(new))

    async def delete(self, path: str) -> None:
        """Delete a file, or a symbolic link."""
        async with self._session() as session:
            await self._enter(session, path, True)
            await session.delete(self.at(path))

    async def remove(self, path: str) -> None:
        """Remove an empty directory."""
        async with self._session() as session:
            await self._enter(session, path, True)
            await session.remove(self.at(path))

    async def checksum(self, path: str, algorithm: str, size: int) -> str | None:
        """Return the digest of a file's first `size` bytes in lower-case hex; None if the server cannot compute it."""
        async with self._session() as session:
            await self._follow(session, path, False)
            return await session.checksum(self.at(path), algorithm, 0, size)

    async def link(self, target: str, path: str) -> None:
        """Create a symbolic link; its target is relative to the link, or absolute from the collection's root.

        :raises PermissionRefused: when the target is outside the collection, or the user may not write it, since writes
            to the link would go to the target
        """
        if (aim := led(path, target)) is None:
            raise PermissionRefused(f"{path} would lead out of {self.naming.name}", "copy its target instead")
        async with self._session() as session:
            await self._enter(session, path, True)
            await self._follow(session, aim, True)
            await session.link(self.at(aim), self.at(path))  # servers expect the target as a path at the server


def _closed(entry: Entry) -> Entry:
    """Return the entry as a link without details."""
    return Entry(entry.name, "link")


async def _stat(session: Storage, path: str) -> Entry | None:
    """Return the entry at a path; None if the server does not report it."""
    try:
        return await session.stat(path)
    except (NoSuchFile, NotDirectory, PermissionRefused, ServerSays, Unsupported):
        return None

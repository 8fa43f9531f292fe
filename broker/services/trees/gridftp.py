"""A folder of a GridFTP server as a collection; sessions are kept for a moment, for whoever comes next."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, MutableSequence, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, relpath
from typing import NamedTuple
from urllib.parse import quote

from broker.services.paths import below, led
from broker.services.permissions import Reach
from broker.services.places import Allowed
from broker.services.trees.links import Links, inside, is_link
from broker.services.trees.naming import Naming, called
from coalloc.addresses import AddressPolicy
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
from coalloc.model import Entry, Omission

__all__ = ["GridFTPTree", "Server", "Sessions"]

KEPT_SECONDS = 5.0
MOST_ABOVE = 1000
"""Folders that are looked at above one: links may lead in circles."""
MOST = 8
"""Sessions with one server at once; who comes then waits for one."""


class Server(NamedTuple):
    """Where to log in, with which proxy certificate (None where none is needed), which addresses it and its data
    may have, and which hosts may be given a proxy.
    """

    source: str
    proxy: Path | None
    policy: AddressPolicy
    delegate: frozenset[str] = frozenset()

    @property
    def allowed(self) -> Allowed:
        """What sessions with it may do, as `storage` and `third_party` take it."""
        return {"policy": self.policy, "delegate": self.delegate}


class Sessions:
    """Sessions with servers: of each at most some, and those that nobody uses for a moment only."""

    def __init__(self) -> None:
        self._idle: defaultdict[Server, list[tuple[Storage, asyncio.TimerHandle]]] = defaultdict(list)
        self._free: defaultdict[Server, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MOST))

    @asynccontextmanager
    async def one(self, server: Server) -> AsyncIterator[Storage]:
        """A session for one user at a time; a kept one if there is any that still stands."""
        async with self._free[server]:
            session = self._take(server) or await storage(f"{server.source}/", proxy=server.proxy, **server.allowed)
            try:
                yield session
            finally:
                self._keep(server, session)

    def _take(self, server: Server) -> Storage | None:
        while self._idle[server]:
            session, timer = self._idle[server].pop()
            timer.cancel()
            if session.usable:
                return session
            session.close()
        return None

    def _keep(self, server: Server, session: Storage) -> None:
        if not session.usable:
            session.close()
            return
        timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._drop, server, session)
        self._idle[server].append((session, timer))

    def _drop(self, server: Server, session: Storage) -> None:
        self._idle[server] = [(each, timer) for each, timer in self._idle[server] if each is not session]
        session.close()

    def close(self) -> None:
        """End those that nobody uses."""
        for idle in self._idle.values():
            for session, timer in idle:
                timer.cancel()
                session.close()
        self._idle.clear()


class GridFTPTree:
    """What lies below `folder` at a server.

    The server follows its symbolic links. Whoever may reach a part of the folder only is refused what links lead to
    outside of that part, as far as the server says where they lead; of all others nothing is asked.

    :param folder: an absolute path, with a slash at its end
    :param name: of the collection
    :param reach: what the user may reach for whom this is; None: all that the server lets reach
    """

    def __init__(self, sessions: Sessions, server: Server, folder: str, name: str, reach: Reach | None = None) -> None:
        self._sessions = sessions
        self.server = server
        self._folder = folder
        self._reach = reach
        self._links = Links(folder)
        self.naming = Naming(name, folder, server.source)

    def url(self, path: str) -> str:
        """Of a file or a folder, as `coalloc.api` takes it."""
        return self.server.source + quote(self.at(path))

    def at(self, path: str) -> str:
        """Where at the server a path is."""
        return below(self._folder, path)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Storage]:
        """A session, whose errors name paths as users know them."""
        async with self._sessions.one(self.server) as session:
            with called(self.naming):
                yield session

    def _limits(self, writes: bool = False) -> bool:
        """Whether links may lead to where the user may not read, or not write."""
        return self._reach is not None and self._reach.ends(writes)

    async def _enter(self, session: Storage, path: str, writes: bool) -> str | None:
        """Where a path is whose last part is not followed, if links are asked about.

        :raises PermissionRefused: when the user may not reach that
        """
        if not self._limits(writes):
            return None
        above, _, name = path.rstrip("/").rpartition("/")
        folder = await self._links.folder(session, above)
        return self._permit(path, folder and join(folder, name), writes)

    async def _follow(self, session: Storage, path: str, writes: bool) -> str | None:
        """Where a path ends, if links are asked about. :raises PermissionRefused: when the user may not reach that"""
        if not self._limits(writes):
            return None
        end, _ = await self._links.end(session, path)
        return self._permit(path, end, writes)

    def _permit(self, path: str, end: str | None, writes: bool) -> str:
        """Where a path ends. :raises PermissionRefused: when the user may not reach it, or not by this path"""
        assert self._reach
        if end is None or not (self._reach.may(path, writes) and self._reach.may(end, writes)):
            said = f"a symbolic link on {path} leads to where {self._reach.caller.subject} may not "
            raise PermissionRefused(said + ("write" if writes else "read"), "ask its owner, or an admin")
        return end

    async def readable(self, path: str) -> None:
        """:raises PermissionRefused: when a path is, or leads to, what the user may not read"""
        if self._limits():
            async with self._session() as session:
                await self._follow(session, path, False)

    async def writable(self, path: str) -> None:
        """Refuse to write a file where the user may not.

        :raises PermissionRefused: when it would be there by links
        :raises IsDirectory: when a folder is there, and nothing may be written beside it
        """
        if self._reach and self._limits(writes=True):
            async with self._session() as session:
                end = await self._enter(session, path, True)
                if not self._reach.may(dirname(end or path), True) and await self._links.is_folder(session, path):
                    raise IsDirectory(f"{path} is a folder", "name the file in it, or end the path with a slash")

    async def end(self, path: str) -> str | None:
        """Where a path is when all links are followed; None outside of the collection."""
        async with self._session() as session:
            return (await self._links.end(session, path))[0]

    async def stat(self, path: str) -> Entry:
        """What is at a path; of a symbolic link what it leads to. The root is called `/`, as it is everywhere.

        A link that leads to what the user may not read is a link, and nothing else is said of it.
        """
        async with self._session() as session:
            asked = self._enter(session, path, False), session.stat(self.at(path))
            refused, found = await asyncio.gather(*asked, return_exceptions=True)
            for wrong in (refused, found):  # who may not enter is not told what is missing
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
        """What a folder has, in batches as they come; to stop early, close it."""
        doubtful: Sequence[Entry] = ()
        leaving: list[Entry] = []
        base: str | None = None
        async with self._session() as session:
            folder = await self._follow(session, path, False) or path
            async with aclosing(
                session.list(self.at(path), omitted)
            ) as listing:  # before somebody else has the session
                async for batch in listing:
                    if [entry.name for entry in batch] == [path.rstrip("/").rpartition("/")[2]]:
                        doubtful = batch  # of a file servers list that file
                    else:
                        leaving += [entry for entry in batch if self._leaves(entry)]
                        yield [self._shown(path, folder, entry) for entry in batch if not self._leaves(entry)]
            if doubtful and (await session.stat(self.at(path))).kind != "dir":
                raise NotDirectory(f"{path} is no folder", "look at it, or list the folder that it is in")
            leaving += doubtful
            if any(map(self._leaves, leaving)):  # a server that lists is asked nothing else
                base = await self._links.base(session)
        if leaving:
            yield [self._shown(path, folder, entry, base) for entry in leaving]

    def _shown(self, path: str, folder: str, entry: Entry, base: str | None = None) -> Entry:
        """An entry of a folder as the user may see it.

        :param folder: where the folder is without links, if the user may not read all
        :param base: where the collection is without links, for links that seem to leave it
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
        """What tells a folder, and each that it lies in, apart from all others at the server.

        Where links lead there, also those in which it lies by the path that it has without them.
        """
        places, found = [PurePosixPath(self.at(path))], dict[PurePosixPath, Entry | None]()
        async with self._session() as session:
            while places and len(found) < MOST_ABOVE:
                place = places.pop()
                new = [each for each in (place, *place.parents) if each not in found]
                stats = await asyncio.gather(*(_stat(session, str(each)) for each in new))
                found |= dict(zip(new, stats, strict=True))
                places += [
                    each.parent / entry.link_target
                    for each, entry in found.items()
                    if each in new and entry and entry.link_target
                ]
        return [entry and entry.unique for entry in found.values()]

    async def held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Return for each name that of these for which it is held, by making folders of these names."""
        async with self._session() as session:
            await self._follow(session, folder, True)
            return await held(session, self.at(folder).rstrip("/"), names)

    def _leaves(self, entry: Entry) -> bool:
        """Whether something is a link that leaves the collection, unless the collection's own path leads over links."""
        target = entry.link_target
        return target is not None and target.startswith("/") and not f"{target}/".startswith(self._folder)

    def _led(self, folder: str, entry: Entry, base: str | None = None) -> Entry:
        """An entry of a folder whose link, if it is one, leads from there: servers say where at the server it ends.

        :param base: where the collection is without links, if it was asked
        """
        target = entry.link_target
        if target is None or not target.startswith("/"):
            return entry
        aim = inside(self._folder.rstrip("/") or "/", target) or (base and inside(base, target))
        return entry._replace(link_target=relpath(aim, folder or "/")) if aim else entry

    async def make(self, path: str) -> None:
        """Make a folder in one that there is."""
        async with self._session() as session:
            await self._enter(session, path, True)
            await session.make(self.at(path))

    async def rename(self, old: str, new: str) -> None:
        """Give a file or a folder another path, if nothing is there.

        It is looked for just before: servers know no rename that replaces nothing, and most do not show links that
        lead nowhere.
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
        """Give a file or a link another path, in place of the file or link that is there, as servers do it."""
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
        """Remove an empty folder."""
        async with self._session() as session:
            await self._enter(session, path, True)
            await session.remove(self.at(path))

    async def checksum(self, path: str, algorithm: str, size: int) -> str | None:
        """The digest of a file's first `size` bytes, in lower-case hex; None when the server does not offer it."""
        async with self._session() as session:
            await self._follow(session, path, False)
            return await session.checksum(self.at(path), algorithm, 0, size)

    async def link(self, target: str, path: str) -> None:
        """Make a symbolic link; its target is named from the folder of the link, or from the collection's root.

        None leads out of the collection, or to where the user may not write: who may write where a link is writes
        where it leads.
        """
        if (aim := led(path, target)) is None:
            raise PermissionRefused(f"{path} would lead out of {self.naming.name}", "copy what it leads to")
        async with self._session() as session:
            await self._enter(session, path, True)
            await self._follow(session, aim, True)
            await session.link(self.at(aim), self.at(path))  # servers want to hear where among all of their files


def _closed(entry: Entry) -> Entry:
    """A link of which nothing is said but that it is there."""
    return Entry(entry.name, "link")


async def _stat(session: Storage, path: str) -> Entry | None:
    """What is at a path; None where the server does not say."""
    try:
        return await session.stat(path)
    except (NoSuchFile, NotDirectory, PermissionRefused, ServerSays, Unsupported):
        return None

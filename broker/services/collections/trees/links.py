"""The resolution of symbolic links of a collection at a server.

A server that does not report links is assumed to have none. Changes between a check and the action after it are not
detected.
"""

import asyncio
from posixpath import dirname, join

from coalloc.api import Storage
from coalloc.errors import NoSuchFile, NotDirectory, PermissionRefused, ServerSays, Unsupported
from coalloc.model.listings import Entry
from coalloc.util.concurrency import gather

__all__ = ["Links", "inside", "is_link"]

FRESH = 0.1
"""Seconds for which a resolved directory is cached, to save a round trip for each of its files."""
MOST = 40
"""Most links on one path, as in Linux, since links may form cycles; also the most directories in the cache."""


class Links:
    """The symbolic links below one directory of a server.

    :param root: root of the collection, an absolute path at the server
    :param shared: path from the root of a guest collection's host to the shared directory, the end of `root`; "" for
        no guest collection
    """

    def __init__(self, root: str, shared: str = "") -> None:
        self._root = root.rstrip("/") or "/"
        self._shared = _above(self._root, shared)
        self._base: str | None = None
        self._turn = asyncio.Lock()
        self._folders: dict[str, tuple[float, str | None]] = {}

    async def base(self, session: Storage) -> str:
        """Return the server's path of the collection's root, with all links resolved."""
        if self._base is None:
            self._base = await _walk(session, self._root, "/")
        return self._base

    async def folder(self, session: Storage, path: str) -> str | None:
        """Return a directory's path in the collection, with all links resolved; None if it is outside the collection.

        :raises PermissionRefused: when that cannot be determined
        """
        path = path.rstrip("/") or "/"
        async with self._turn:  # concurrent callers get the same answer
            now = asyncio.get_running_loop().time()
            known = self._folders.get(path)
            if known is None or now > known[0] + FRESH:
                if len(self._folders) > MOST:
                    self._folders.clear()
                known = self._folders[path] = (asyncio.get_running_loop().time(), await self._folder(session, path))
        return known[1]

    async def _folder(self, session: Storage, path: str) -> str | None:
        names = path.strip("/").split("/")
        below = [join("/", *names[: count + 1]) for count in range(len(names)) if path != "/"]
        await self._own(session)
        facts = await gather(*(_look(session, self._at(each)) for each in below))
        if not any(map(is_link, facts)):
            return path
        base = await self.base(session)
        return inside(base, await _walk(session, join(base, *names), path))

    async def _own(self, session: Storage) -> None:
        """Check that the path from the host collection to the shared directory has no link. :raises PermissionRefused:

        Otherwise, the owner of a guest collection could replace its directory by a link to another place.
        """
        if any(map(is_link, await gather(*(_look(session, each) for each in self._shared)))):
            raise PermissionRefused("the shared directory is a symbolic link, or lies behind one", "ask its owner")

    async def end(self, session: Storage, path: str) -> tuple[str | None, Entry | None]:
        """Return a path with all links resolved, None if it is outside the collection; and the entry at the path."""
        path = path.rstrip("/") or "/"
        if path == "/":
            await self._own(session)
            return path, await _look(session, self._root)
        folder, there = await gather(self.folder(session, dirname(path)), _look(session, self._at(path)))
        if folder is None or not is_link(there):
            return folder and join(folder, path.rpartition("/")[2]), there
        base = await self.base(session)
        place = base.rstrip("/") + join(folder, path.rpartition("/")[2])
        return inside(base, await _walk(session, place, path)), there

    async def is_folder(self, session: Storage, path: str) -> bool:
        """Return whether a path is a directory, or a link to one."""
        there = await _look(session, self._at(path))
        return there is not None and there.kind == "dir"

    def _at(self, path: str) -> str:
        return self._root.rstrip("/") + path


def _above(root: str, shared: str) -> list[str]:
    """Return the paths at the server of a shared directory and of the directories above it, up to its host's.

    >>> _above("/data/pub/x", "/pub/x/"), _above("/data", "")
    (['/data/pub', '/data/pub/x'], [])
    """
    names = _names(shared)
    host = root.rstrip("/").removesuffix("/" + "/".join(names)) if names else root
    return [join(host or "/", *names[: count + 1]) for count in range(len(names))]


def is_link(entry: Entry | None) -> bool:
    """Return whether an entry is a symbolic link."""
    return entry is not None and (entry.link_target is not None or entry.kind == "link")


def inside(base: str, place: str) -> str | None:
    """Return the path in a collection for a path at the server; None if it is outside the collection.

    :param base: the server's path of the collection's root

    >>> inside("/data", "/data/a"), inside("/data", "/data"), inside("/", "/a"), inside("/data", "/data2")
    ('/a', '/', '/a', None)
    """
    if place == base:
        return "/"
    around = base.rstrip("/") + "/"
    return "/" + place.removeprefix(around) if place.startswith(around) else None


async def _look(session: Storage, place: str) -> Entry | None:
    """Return the entry at a path of the server; None if it does not exist, or the server does not report it.

    A broken link counts as not existing.
    """
    if not session.describes:
        return None
    try:
        return await session.stat(place)
    except (NoSuchFile, NotDirectory, PermissionRefused):
        return None


async def _walk(session: Storage, place: str, named: str) -> str:
    """Return a path of the server with all links resolved, which takes a round trip for each link.

    :param named: the path in the collection, for messages
    :raises PermissionRefused: when there are too many links, or the server does not report a link's target
    """
    real: list[str] = []
    left = _names(place)
    known: dict[str, Entry | None] = {}
    for _ in range(MOST):
        try:
            known |= await _all(session, [place for place in _ahead(real, left) if place not in known])
        except (ServerSays, Unsupported):  # their messages would reveal the server's path
            raise PermissionRefused(
                f"{named}: its server does not report the target of a link in it", "avoid it"
            ) from None
        while left:
            name = left.pop(0)
            if name == "..":
                real = real[:-1]
                break  # the paths after this step have not been looked up
            there = known[_place([*real, name])]
            if not is_link(there):
                real.append(name)
                continue
            if there is None or there.link_target is None:
                raise PermissionRefused(f"{named}: its server does not report the target of a link on it", "avoid it")
            left = _names(there.link_target) + left
            real = [] if there.link_target.startswith("/") else real
            break
        else:
            return _place(real)
    raise PermissionRefused(f"{named}: there are too many symbolic links on it", "use the path without links")


def _ahead(real: list[str], left: list[str]) -> list[str]:
    """Return the paths of the next components, up to the first `..`."""
    down = left[: left.index("..")] if ".." in left else left
    return [_place([*real, *down[: count + 1]]) for count in range(len(down))]


async def _all(session: Storage, places: list[str]) -> dict[str, Entry | None]:
    return dict(zip(places, await gather(*(_look(session, each) for each in places)), strict=True))


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _place(names: list[str]) -> str:
    return "/" + "/".join(names)

"""Bookmarks: users' own names for paths of collections."""

from typing import Any
from uuid import UUID, uuid4

from broker.errors import Conflict, NoBookmark
from broker.models.collections import Bookmark
from broker.storage.collections import CollectionStore as Stored
from broker.storage.database import Database, retried

__all__ = ["Bookmarks"]


class Bookmarks:
    """The bookmarks of all users; each user sees their own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, owner: str) -> list[Bookmark]:
        """Return the bookmarks of a user, by name."""
        async with self._database.read() as connection:
            return await Stored(connection).bookmarks(owner)

    async def one(self, owner: str, number: UUID) -> Bookmark:
        """Return a bookmark. :raises NoBookmark: when the user has no such bookmark"""
        for each in await self.all(owner):
            if each.id == number:
                return each
        raise _none(number)

    @retried
    async def add(self, owner: str, name: str, collection: UUID, path: str) -> Bookmark:
        """Add a bookmark, and return it. :raises Conflict: when the user has a bookmark of that name"""
        bookmark = Bookmark(id=uuid4(), name=name, collection_id=collection, path=path, pinned=False)
        async with self._database.write() as connection:
            if not await Stored(connection).add_bookmark(owner, bookmark):
                raise _taken(name)
        return bookmark

    @retried
    async def change(self, owner: str, number: UUID, values: dict[str, Any]) -> Bookmark:
        """Rename, pin or unpin a bookmark. :raises NoBookmark: :raises Conflict: when the name is taken"""
        async with self._database.write() as connection:
            stored = Stored(connection)
            others = [each for each in await stored.bookmarks(owner) if each.id != number]
            if "name" in values and values["name"] in {each.name for each in others}:
                raise _taken(values["name"])
            if values and not await stored.change_bookmark(owner, str(number), values):
                raise _none(number)
        return await self.one(owner, number)

    @retried
    async def remove(self, owner: str, number: UUID) -> None:
        """Remove a bookmark. :raises NoBookmark: when the user has no such bookmark"""
        async with self._database.write() as connection:
            if not await Stored(connection).remove_bookmark(owner, str(number)):
                raise _none(number)


def _none(number: UUID) -> NoBookmark:
    return NoBookmark(f"there is no bookmark {number}", "choose one from the list of your bookmarks")


def _taken(name: str) -> Conflict:
    return Conflict(f"there is a bookmark {name} already", "choose another name, or remove that one")

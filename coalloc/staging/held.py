"""Which names a directory of a server holds for one, asked by making directories of these names in one of ours."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import AlreadyThere, NoSuchFile, ServerSays, SourceError
from coalloc.partial import private

__all__ = ["held"]


async def held(store: Storage, folder: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return for each name which of them it is held for, in a directory that need not be there.

    :raises SourceError: if no directory can be made there
    """
    private = await _private(store, folder)
    found: dict[str, str] = {}
    made: list[str] = []
    try:
        for number, name in enumerate(names):
            path, found[name] = f"{private}/{name}", name
            try:
                await store.make(path)
            except AlreadyThere:
                found[name] = await _maker(store, path, names)
            else:
                made.append(path)
                await store.make(f"{path}/{number}")
                made.append(f"{path}/{number}")
    finally:
        for path in (*reversed(made), private):
            with suppress(SourceError):
                await store.remove(path)
    return found


async def _private(store: Storage, folder: str) -> str:
    """Make a directory in this one, or in the nearest above it that is there."""
    name = private()
    while True:
        try:
            await store.make(f"{folder}/{name}")
        except NoSuchFile:
            if folder in ("", "/~"):
                raise
            folder = folder.rpartition("/")[0]
        else:
            return f"{folder}/{name}"


async def _maker(store: Storage, path: str, names: Sequence[str]) -> str:
    """The name by which a directory was made: it has one in it, called after that name's number."""
    listed = [entry.name async for entries in store.list(path) for entry in entries]
    made_by = {str(number): name for number, name in enumerate(names)}
    if len(listed) != 1 or listed[0] not in made_by:
        raise ServerSays(f"{path} has other content than was put there", "name another destination with --to")
    return made_by[listed[0]]

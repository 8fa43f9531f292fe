"""A test for names that a server treats as equal: it makes directories with these names in a private directory."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import AlreadyThere, NoSuchFile, ServerSays, SourceError
from coalloc.util.partial_names import private

__all__ = ["held"]


async def held(store: Storage, folder: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return, for each name, the first name that the directory treats as equal; the directory need not exist.

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
    """Make a private directory in `folder`, or in its nearest existing parent; return its path."""
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
    """Return the name with which a directory was made; the directory's only entry is that name's number."""
    listed = [entry.name async for entries in store.list(path) for entry in entries]
    made_by = {str(number): name for number, name in enumerate(names)}
    if len(listed) != 1 or listed[0] not in made_by:
        raise ServerSays(
            f"{path} does not have the content that was written to it", "choose another destination with --to"
        )
    return made_by[listed[0]]

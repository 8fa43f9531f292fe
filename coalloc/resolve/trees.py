"""The files below a server's directory, by the listings of all directories in it."""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Container, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple
from urllib.parse import quote

from coalloc.engine.lister import Lister
from coalloc.errors import CoallocError, LimitExceeded, SourceError, UnsafeName, Unsupported
from coalloc.model.listings import Entry
from coalloc.model.replicas import Stat
from coalloc.resolve.file_names import why_unsafe
from coalloc.safe_text import redact
from coalloc.util.listing_limits import DEEPEST, MOST_BELOW, MOST_NAMES

__all__ = ["FoundTree", "WalkedTree", "as_file", "entry_url", "files_below", "walk_folders"]

ListFolder = Callable[[str], AsyncGenerator[Sequence[Entry], None]]
"""`list_folder(folder)`: the entries of a directory below the top, "" or a path with a slash at its end, in groups."""
SAME, SAME_EMPTY = 3, 10
"""Directories in a row with the same entries and the same path from one to the next, which show that it is a loop; more
of them if there are only directories in it, as arrays of several dimensions may have.
"""


class FolderListing(NamedTuple):
    """The entries of one directory: a number for all of them, and whether there is a file among them."""

    entries: int
    has_files: bool


class FoundTree(NamedTuple):
    """The files below a directory, by their paths from it, what listings state about them, and what was left out.

    `loops` have the same listing as a directory above them: a link to a parent makes such a directory, and web servers
    do not show that it is a link. `errors` are of directories that could not be listed, by path.
    """

    files: list[str]
    loops: list[str]
    errors: dict[str, CoallocError]
    stated: dict[str, Stat]


def entry_url(directory: str, name: str) -> str:
    """Return the URL of a file or directory below a directory; the key of an object is taken literally.

    >>> entry_url("http://host/run/", "a b"), entry_url("s3://runs/", "a b")
    ('http://host/run/a%20b', 's3://runs/a b')
    """
    literal = directory.partition(":")[0].lower() in ("az", "gs", "s3")
    return directory + (name if literal else quote(name, errors="surrogateescape"))


async def files_below(lister: Lister, url: str) -> FoundTree:
    """Return the files below the directory at `url`, which ends with a slash.

    :raises LimitExceeded: when the tree exceeds the limits in depth or size
    :raises SourceError: when nothing of the directory can be listed
    """
    listed: dict[str, FolderListing] = {}
    loops: dict[str, None] = {}
    errors: dict[str, CoallocError] = {}

    async def list_folder(folder: str) -> AsyncGenerator[Sequence[Entry], None]:
        if _is_in(folder, loops):
            return
        seen: dict[Entry, None] = {}
        try:
            async with aclosing(lister.list(entry_url(url, folder))) as groups:
                async for entries in groups:
                    seen.update(dict.fromkeys(entries))
                    yield [as_file(entry) for entry in entries if entry.kind != "dir"]
        except SourceError as error:
            if not (folder or seen):
                raise
            errors[folder or "./"] = error
        for entry in seen:
            if entry.kind == "other":
                errors[f"{folder}{entry.name}"] = Unsupported(
                    "it is neither file nor directory", "remove it at the server"
                )
        listed[folder] = FolderListing(hash(frozenset(seen)), any(entry.kind in ("file", "link") for entry in seen))
        if loop := next(_loops(folder, listed), None):
            loops[loop] = None
            return
        yield [entry for entry in seen if entry.kind == "dir" and not _is_refused(folder, entry, errors)]

    found = [(name, entry.stated) async for name, entry in walk_folders(list_folder, redact(url))]
    stated = {name: each for name, each in found if each}
    return FoundTree([name for name, _ in found if not _is_in(name, loops)], list(loops), errors, stated)


def as_file(entry: Entry) -> Entry:
    """Return a link as a file of unknown size, as the stated size and time may be those of the link itself.

    Where it leads is not known: a link to a directory is refused when it is fetched.
    """
    return entry._replace(kind="file", size=None, modified=None) if entry.kind == "link" else entry


def _is_in(path: str, folders: Container[str]) -> bool:
    return any(path[: at + 1] in folders for at, letter in enumerate(path) if letter == "/")


def _is_refused(folder: str, entry: Entry, errors: dict[str, CoallocError]) -> bool:
    """Return whether a directory has a name that leads elsewhere, or could not be made here; add the error."""
    if reason := why_unsafe(entry.name):
        errors[f"{folder}{entry.name}/"] = UnsafeName(f"the directory name {entry.name[:200]!r} {reason}", "rename it")
    return reason is not None


def _loops(folder: str, listed: Mapping[str, FolderListing]) -> Iterator[str]:
    """Yield the second of the last directories in a row that are the same, and below each other by the same path.

    >>> one, other = FolderListing(1, True), FolderListing(2, True)
    >>> list(_loops("a/l/l/", {"a/": one, "a/l/": one, "a/l/l/": one}))
    ['a/l/']
    >>> list(_loops("a/l/l/", {"a/": other, "a/l/": one, "a/l/l/": one}))
    []
    >>> list(_loops("0/0/0/", dict.fromkeys(["0/", "0/0/", "0/0/0/"], FolderListing(1, False))))
    []
    """
    parts = folder.split("/")[:-1]
    for length in range(1, len(parts) // (SAME - 1) + 1):
        cycle = ["".join(f"{part}/" for part in parts[:end]) for end in range(len(parts) - length + 1, len(parts) + 1)]
        same = SAME if any(each in listed and listed[each].has_files for each in cycle) else SAME_EMPTY
        if len(parts) < length * (same - 1):
            continue
        above = ["".join(f"{part}/" for part in parts[: len(parts) - length * n]) for n in range(same)]
        repeated = all(parts[len(parts) - length * (n + 1) :][:length] == parts[-length:] for n in range(same - 1))
        if repeated and all(listed.get(each) == listed[folder] for each in above):
            yield above[same - 2]


class WalkedTree:
    """The limits of a tree that is listed: a server could invent entries without end.

    :param shown: the top directory, for messages
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._entries = self._length = 0

    def enter(self, folder: str) -> None:
        """Begin with a directory, named by its path from the top with a slash at its end.

        :raises LimitExceeded: when it is too deep
        """
        if folder.count("/") > DEEPEST:
            path = f"{self._shown.rstrip('/')}/{quote(folder, errors='surrogateescape')}"
            raise LimitExceeded(
                f"{path} is more than {DEEPEST} directories deep",
                "give its subdirectories one by one, unless its listings repeat",
            )

    def add(self, folder: str, names: Sequence[str]) -> None:
        """Add entries of a directory. :raises LimitExceeded: when there are too many in all"""
        self._entries += len(names)
        self._length += sum(len(folder) + len(name) for name in names)
        if self._entries > MOST_BELOW or self._length > MOST_NAMES:
            what = f"{MOST_BELOW} files and directories, or {MOST_NAMES} characters of their names"
            raise LimitExceeded(
                f"{self._shown} has more than {what}: stopped in {folder or '/'}", "give its subdirectories one by one"
            )


async def walk_folders(list_folder: ListFolder, shown: str) -> AsyncGenerator[tuple[str, Entry], None]:
    """Yield the files below a directory, with their relative paths. Links to directories are not followed.

    :param shown: the directory, for messages
    :raises LimitExceeded: when the tree exceeds the limits in depth or size
    """
    folders, tree = deque([""]), WalkedTree(shown)
    while folders:
        folder = folders.popleft()
        tree.enter(folder)
        async with aclosing(list_folder(folder)) as listing:
            async for entries in listing:
                tree.add(folder, [entry.name for entry in entries])
                for entry in entries:
                    if entry.kind == "file":
                        yield folder + entry.name, _trimmed(entry)
                    elif entry.kind == "dir" and entry.link_target is None:
                        folders.append(f"{folder}{entry.name}/")


def _trimmed(entry: Entry) -> Entry:
    """Return a file's entry without properties that are not needed, which may be long."""
    return entry._replace(permissions=None, user=None, group=None, link_target=None, unique=None)

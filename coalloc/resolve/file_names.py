"""File names from outside: names that are safe to create below a directory, and checks that each file has its own path.

Files that would share a path, because a file system treats their names as equal, are detected before any transfer.
File systems may ignore case (exFAT, NTFS, some directories of ext4), the encoding of accents, or trailing blanks,
and may have short names. Only a test on the file system can tell, but it is done only for similar names. Pure, except
for this test.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from coalloc.errors import UsageError
from coalloc.util.listing_limits import DEEPEST
from coalloc.util.partial_names import data_folder

__all__ = ["UNPRINTABLE", "Held", "from_url", "refuse_collisions", "why_hidden", "why_unsafe"]

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters, line ends, changes of the writing direction, and code points that are not characters."""

NOT_AS_IT_IS = re.compile(f"{UNPRINTABLE.pattern}|[%/\\\\]")
"""Characters that are percent-encoded in names from URLs that cannot be kept as they are."""
WITH_QUERY = ("dav", "davs", "http", "https", "osdf", "pelican", "stash")
"""Schemes of URLs in which `?` ends the path."""
LONGEST = 4096
"""Maximum characters of a relative path."""
UNNAMED = "download"
Held = Callable[[str, Sequence[str]], Awaitable[Mapping[str, str]]]
"""`await held(folder, names)`: for each name, the first of these names that the directory treats as equal.

The directory is a path below the destination; it need not exist.
"""
MOST_FOLDERS = 100_000
"""Maximum number of directory paths held in memory at once; even a few names may have very many."""
SHOWN = 200
"""Maximum characters of a name in a message."""
SHORT = re.compile(r"~\d")
"""Pattern of short names, which FAT makes for long names. A short name counts as similar to any name."""


def from_url(url: str) -> str:
    """Return the last component of the URL's path, percent-decoded, and safe to create in a directory.

    `?` and `#` end the path only in `WITH_QUERY`. A name with a slash, a backslash, a control character or bytes that
    are not UTF-8 stays percent-encoded as far as needed, and so does a name that looks like such a one: so different
    names stay different, and can be decoded.

    >>> from_url("ftp://host/data/run%201#2.dat"), from_url("http://host/a%2F..%2Fb?c/d"), from_url("http://host/")
    ('run 1#2.dat', 'a%2F..%2Fb', 'download')
    >>> from_url("http://host/one%0Aline"), from_url("http://host/one%250Aline"), from_url("http://host/100%25")
    ('one%0Aline', 'one%250Aline', '100%')
    """
    parts = urlsplit(url)
    path = parts.path if parts.scheme in WITH_QUERY else url.partition("://")[2].partition("/")[2]
    name = unquote(path.rpartition("/")[2], errors="surrogateescape")
    if name in ("", ".", ".."):
        return UNNAMED
    return NOT_AS_IT_IS.sub(_encoded, name) if _must_be_encoded(name) else name


def _must_be_encoded(name: str) -> bool:
    """Return whether a name has a character that a file must not have in its name, if need be after decoding it."""
    while not (UNPRINTABLE.search(name) or "/" in name or "\\" in name):
        shorter = unquote(name, errors="surrogateescape")
        if shorter == name:
            return False
        name = shorter
    return True


def _encoded(found: re.Match[str]) -> str:
    return quote(found[0].encode(errors="surrogateescape"), safe="")


def why_unsafe(name: str) -> str | None:
    """Return the reason why a relative path must not be created below a directory, or None if it may be.

    The reason is the end of a sentence that begins with the name.

    >>> why_unsafe("2024/run 1.dat"), why_unsafe("a/../../b")
    (None, "has an empty, '.' or '..' component")
    """
    *folders, _ = parts = name.split("/")
    if not name:
        return "is empty"
    if name.startswith("/") or re.match("[A-Za-z]:(/|$)", name):
        return "is absolute"
    if "\\" in name:
        return "has a backslash"
    if found := UNPRINTABLE.search(name):
        return f"has {_kind(found[0])}"
    if not {"", ".", ".."}.isdisjoint(parts):
        return "has an empty, '.' or '..' component"
    if len(folders) > DEEPEST or len(name) > LONGEST:
        return f"has more than {DEEPEST} directories or {LONGEST} characters"
    return None


def _kind(unprintable: str) -> str:
    """Return what a character is that `UNPRINTABLE` finds, or a byte of no character."""
    match unicodedata.category(unprintable):
        case "Cs":
            return "bytes that are not UTF-8"
        case "Cf":
            return "a character that changes the writing direction"
    return "a control character"


def why_hidden(name: str) -> str | None:
    """Return why a name from outside must not be created in the home directory or one that the user did not name.

    Programs read hidden files as their settings, and take a name that begins with a dash as an option. The result is
    None if the name may be created.

    >>> why_hidden(".ssh/authorized_keys"), why_hidden("-rf"), why_hidden("2024/.x")
    ("begins with '.'", "begins with '-'", None)
    """
    return f"begins with {name[0]!r}" if name[:1] in (".", "-") else None


class PathUse(NamedTuple):
    """A use of a path, and the name of the file that needs it."""

    kind: Literal["file", "folder", "partial"]
    name: str


async def refuse_collisions(names: Sequence[str], held: Held, partial: bool = True, short: bool = True) -> None:
    """Check that each of these files has a path of its own.

    :param names: paths below one destination
    :param partial: whether partial data are also stored below the destination, in `NAME.coget/`
    :param short: whether names may be short names, as on file systems of this machine
    :raises UsageError: if two files have the same path, or a file has the path of a directory that another one needs
    """
    uses: dict[str, list[PathUse]] = defaultdict(list)
    for path, use in _uses(names):
        if partial or use.kind != "partial":
            uses[path].append(use)
    for similar in _similar(uses, short=short and any(map(SHORT.search, uses))):
        for same in await _one(similar, held):
            _refuse([use for path in same for use in uses[path]])


def _uses(names: Sequence[str]) -> Iterator[tuple[str, PathUse]]:
    folders = set()
    for name in names:
        yield name, PathUse("file", name)
        yield data_folder(name), PathUse("partial", name)
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            if len(folders) > MOST_FOLDERS:
                raise UsageError(
                    f"the files would be in more than {MOST_FOLDERS} directories, {name[:SHOWN]!r} and others",
                    "fetch them in smaller groups",
                )
            yield folder, PathUse("folder", name)
            folder = folder.rpartition("/")[0]


def _similar(paths: Collection[str], short: bool) -> list[list[str]]:
    """Return groups of paths that could be the same; if `short`, all paths of one depth form a group."""
    alike: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in paths:
        parts = path.split("/")
        alike[("",) * len(parts) if short else tuple(map(_core, parts))].append(path)
    return list(alike.values())


@lru_cache(maxsize=100_000)
def _core(name: str) -> str:
    """Return a name without the properties that some file systems ignore; to be safe, it removes more than needed."""
    if name.isascii():
        return name.casefold().rstrip(" .")
    spelled = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    return "".join(char for char in spelled if unicodedata.category(char)[0] not in "CM").rstrip(" .")


async def _one(paths: Sequence[str], held: Held) -> list[list[str]]:
    """Return groups of paths that are the same. All `paths` have the same number of components."""
    parts, depth = [list(paths)], paths[0].count("/") + 1 if len(paths) > 1 else 0
    for level in range(depth):
        split: list[list[str]] = []
        for part in parts:
            names = list(dict.fromkeys(path.split("/")[level] for path in part))
            folder = "/".join(part[0].split("/")[:level])
            known = await held(folder, names) if len(names) > 1 else {names[0]: names[0]}
            places: defaultdict[str, list[str]] = defaultdict(list)
            for path in part:
                places[known[path.split("/")[level]]].append(path)
            split += places.values()
        parts = split
    return parts


def _refuse(uses: Sequence[PathUse]) -> None:
    """Raise UsageError if one path cannot have these uses. Several files may use the same directory."""
    count = Counter(use.kind for use in uses)
    first = {kind: next((use.name for use in uses if use.kind == kind), "") for kind in count}
    if count["file"] > 1:
        one, other = [use.name for use in uses if use.kind == "file"][:2]
        why = f"{one} and {other} would be the same file: the file system treats their names as equal"
    elif count["file"] and count["folder"]:
        why = f"{first['file']} would be a file and also the directory of {first['folder']}"
    elif count["partial"] and len(count) > 1:
        other = first.get("file") or first["folder"]
        why = f"{other} would have the path of the partial data of {first['partial']}"
    else:
        return
    raise UsageError(why, "fetch them separately to different places")

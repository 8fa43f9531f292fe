"""The ways in which servers may read the path of a URL, and the names that file systems may treat as the same; pure.

Servers differ in what they decode, how often, and what they leave out. Every result that some server might reach is a
reading of the path, so that permissions can be checked for all of them.
"""

import re
from posixpath import normpath
from unicodedata import normalize
from urllib.parse import unquote_to_bytes

__all__ = ["folded", "readings"]

UNKNOWN = frozenset({"/~"})
"""The readings of a path whose meaning only the server knows."""
MOST = 200
"""Most readings of a path; a path with more was made to hide one of them."""
LONGEST = 4096
"""Most characters of a path that is analysed: no file system takes longer ones."""
PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.+=@,~-]*)*", re.ASCII)
"""Paths with only one reading."""
ENCODED_SLASH = re.compile("%(?=2f|5c)", re.IGNORECASE)
STREAM = re.compile(r":.*\$.*")
"""A suffix that names a stream of a file in NTFS, or a folder as a stream."""


def readings(path: str) -> frozenset[str]:
    """Return all readings of the path of a URL; `/~` if only the server knows what it means.

    >>> sorted(readings("/a/%252e%252e/b"))
    ['/a/%252e%252e/b', '/a/%2e%2e/b', '/a/../b', '/b']
    >>> sorted(readings("/a;x=1/b")), readings("/%c0%ae/b")
    (['/a/b', '/a;x=1/b'], frozenset({'/~'}))
    """
    if PLAIN.fullmatch(path):
        return frozenset({path})
    if len(path) > LONGEST:
        return UNKNOWN
    found, new = {path}, {path}
    while new:
        try:
            new = {made for each in new for made in _read(each)} - found
        except UnicodeDecodeError:
            return UNKNOWN
        found |= new
        if len(found) > MOST or any("\0" in each for each in new):
            return UNKNOWN
    return frozenset(found)


def _read(path: str) -> set[str]:
    """Return the paths that one step of some server may make of a path."""
    return {
        _decoded(path),
        _decoded(ENCODED_SLASH.sub("%25", path)),
        path.replace("\\", "/"),
        re.sub(";[^/]*", "", path),
        re.sub("[?#].*", "", path, flags=re.DOTALL),
        _without_dots(path),
        normpath(path),
    }


def _decoded(path: str) -> str:
    """Return a path with its percent-encoding decoded once.

    :raises UnicodeDecodeError: when the result is not UTF-8; some servers read it in another way
    """
    return unquote_to_bytes(path).decode()


def _without_dots(path: str) -> str:
    """Return a path as RFC 3986 (5.2.4) resolves it; a slash after a slash counts as a folder without a name.

    >>> _without_dots("/a//../b"), _without_dots("/../a")
    ('/a/b', '/a')
    """
    parts: list[str] = []
    for part in path.split("/")[1:]:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def folded(name: str) -> str:
    """Return a form that is equal for all names that some file system may treat as the same.

    Such names may differ in case, in forms of Unicode, in dots and blanks at the end, and in suffixes that name a
    stream of NTFS.

    >>> folded("PRIV. "), folded("\\uff50riv"), folded("priv::$INDEX_ALLOCATION")
    ('priv', 'priv', 'priv')
    """
    return normalize("NFKC", normalize("NFKC", STREAM.sub("", name)).casefold()).rstrip(". ")

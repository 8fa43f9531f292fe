"""How servers may read the path of a URL, and which names a file system may hold for one; pure.

Servers differ in what they decode, how often, and what they leave out; whatever some server might make of a path is a
reading of it, so that none leads where another would not.
"""

import re
from posixpath import normpath
from unicodedata import normalize
from urllib.parse import unquote_to_bytes

__all__ = ["folded", "readings"]

UNKNOWN = frozenset({"/~"})
"""Where only the server knows what is meant."""
MOST = 200
"""Readings of a path; more are made up to hide one."""
LONGEST = 4096
"""Characters of a path that is read at all: no file system takes longer ones."""
PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.+=@,~-]*)*", re.ASCII)
"""Paths that there is one way to read."""
ENCODED_SLASH = re.compile("%(?=2f|5c)", re.IGNORECASE)
STREAM = re.compile(r":.*\$.*")
"""What names a stream of a file in NTFS, or a folder as one."""


def readings(path: str) -> frozenset[str]:
    """Return how servers may read the path of a URL; `/~` if only the server knows.

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
    """Return what one step of some server makes of a path."""
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
    """:raises UnicodeDecodeError: when that is no text, which some servers read as something else"""
    return unquote_to_bytes(path).decode()


def _without_dots(path: str) -> str:
    """Return a path as RFC 3986 (5.2.4) resolves it, where a slash behind a slash is a folder without a name.

    >>> _without_dots("/a//../b"), _without_dots("/../a")
    ('/a/b', '/a')
    """
    kept: list[str] = []
    for part in path.split("/")[1:]:
        if part == "..":
            kept = kept[:-1]
        elif part != ".":
            kept.append(part)
    return "/" + "/".join(kept)


def folded(name: str) -> str:
    """Return what all names have in common that some file system may hold for one.

    Case, forms of Unicode, dots and blanks at the end, and what names a stream of NTFS.

    >>> folded("PRIV. "), folded("\\uff50riv"), folded("priv::$INDEX_ALLOCATION")
    ('priv', 'priv', 'priv')
    """
    return normalize("NFKC", normalize("NFKC", STREAM.sub("", name)).casefold()).rstrip(". ")

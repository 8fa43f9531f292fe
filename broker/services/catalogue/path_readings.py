"""All interpretations of a URL's path by servers ("readings"), and names that file systems may treat as the same.

Servers differ in what they decode, how often, and what they ignore. Permissions must be checked for every result that
some server might reach.
"""

import re
from posixpath import normpath
from unicodedata import normalize
from urllib.parse import unquote_to_bytes

__all__ = ["folded", "readings"]

UNKNOWN = frozenset({"/~"})
"""The readings of a path that only the server can interpret."""
MOST = 200
"""Most readings of a path; a path with more is probably crafted to hide one."""
LONGEST = 4096
"""Most characters of a path that is analysed; file systems allow no longer paths."""
PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.+=@,~-]*)*", re.ASCII)
"""Paths with only one reading."""
ENCODED_SLASH = re.compile("%(?=2f|5c)", re.IGNORECASE)
STREAM = re.compile(r":.*\$.*")
"""A suffix that names an NTFS stream of a file or directory."""


def readings(path: str) -> frozenset[str]:
    """Return all readings of a URL's path; only `/~` if the server alone can interpret it.

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
    """Return the results of all single steps with which servers interpret a path."""
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

    :raises UnicodeDecodeError: when the result is not UTF-8, which servers interpret differently
    """
    return unquote_to_bytes(path).decode()


def _without_dots(path: str) -> str:
    """Return a path without dot segments (RFC 3986, 5.2.4); two slashes enclose a directory with an empty name.

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
    """Return a canonical form that is equal for all names that some file system may treat as the same.

    Such names may differ in case, Unicode normal form, final dots and blanks, and suffixes of NTFS streams.

    >>> folded("PRIV. "), folded("\\uff50riv"), folded("priv::$INDEX_ALLOCATION")
    ('priv', 'priv', 'priv')
    """
    return normalize("NFKC", normalize("NFKC", STREAM.sub("", name)).casefold()).rstrip(". ")

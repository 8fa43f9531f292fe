"""The names of files in the file system `coget://`. Pure.

A name is one of these, after the scheme:

- `SCOPE:NAME`: a dataset of the user's broker
- `https://a/x`: one URL, of a replica or a Metalink; also the path of a Metalink
- `https://a/x|ftp://b/x`: the replicas of one file
- with roots, a relative path that is appended to each root
"""

from collections.abc import Sequence
from urllib.parse import quote, unquote, urlsplit

__all__ = ["child", "directory", "listed_at", "sources"]

SEPARATOR = "|"
LISTABLE = ("ftp", "gsiftp")
"""Schemes of servers that list directories."""


def sources(path: str, roots: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the sources that a path without the scheme names.

    >>> sources("https://a/x|ftp://b/x"), sources("scope:x")
    (('https://a/x', 'ftp://b/x'), ('scope:x',))
    >>> sources("d/x y", ["https://a/top/", "ftp://b"]), sources("", ["https://a/x"])
    (('https://a/top/d/x%20y', 'ftp://b/d/x%20y'), ('https://a/x',))
    """
    if not roots:
        return tuple(path.split(SEPARATOR))
    return tuple(_below(root, path) if path else root for root in roots)


def _below(root: str, path: str) -> str:
    """Return the URL of a path below a root, before the root's query, which may be a token.

    >>> _below("https://a/top?token=1", "x")
    'https://a/top/x?token=1'
    """
    address, mark, query = root.partition("?")
    return f"{address.rstrip('/')}/{quote(path)}{mark}{query}"


def listed_at(urls: Sequence[str]) -> str | None:
    """Return the first of these URLs whose server can list a directory; None if there is none."""
    return next((url for url in urls if urlsplit(url).scheme in LISTABLE), None)


def directory(url: str) -> str:
    """Return the path of a URL as its server knows it."""
    return unquote(urlsplit(url).path).rstrip("/") or "/"


def child(path: str, name: str, *, relative: bool) -> str:
    """Return the path of an entry of a directory.

    :param relative: whether the path is below roots, and so not a URL

    >>> child("ftp://a/d", "x y", relative=False), child("d", "x y", relative=True), child("", "x", relative=True)
    ('ftp://a/d/x%20y', 'd/x y', 'x')
    """
    named = name if relative else quote(name)
    return f"{path}/{named}" if path else named

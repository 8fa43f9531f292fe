"""Rewriting of messages so that they name paths in collections, and do not reveal the collections' directories."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote, unquote

from coalloc.errors import CoallocError

__all__ = ["Naming", "called", "named"]


class Naming(NamedTuple):
    """The name of a collection, its directory with a slash at the end, and its server's URL; empty for this machine."""

    name: str
    folder: str
    server: str = ""

    def of(self, message: str) -> str:
        """Return a message in which paths below the directory are replaced by NAME:PATH or PATH in the collection.

        >>> Naming("runs", "/data/", "ftp://host:2811").of("ftp://host:2811/data/a%20b: it says 550 /data/a b")
        'runs:/a b: it says 550 /a b'
        >>> Naming("here", "/srv/").of("cannot write /srv/a: disk full")
        'cannot write here:/a: disk full'
        """
        if not self.server:
            return _without(self.folder, message, f"{self.name}:")
        url = re.escape(self.server + quote(self.folder.rstrip("/")))
        text, found = re.subn(
            rf"{url}(/\S*|(?![\w.-]))", lambda path: f"{self.name}:{unquote(path[1]) or '/'}", message
        )
        return (
            _without(self.folder, text, "") if found else message
        )  # otherwise the message is about another server or directory


def _without(folder: str, message: str, instead: str) -> str:
    """Return a message with the directory replaced at the beginning of paths, but not within other names."""
    base = re.escape(folder.rstrip("/"))
    return re.sub(rf"(?<![\w.:~\]-]){base}(/|(?![\w-]))", f"{instead}/", message) if base else message


def named(message: str, namings: Iterable[Naming]) -> str:
    """Return a message rewritten for several collections; if directories are nested, the inner one is replaced."""
    for naming in sorted(namings, key=lambda each: (not each.server, -len(each.folder))):
        message = naming.of(message)
    return message


@contextmanager
def called(*namings: Naming) -> Iterator[None]:
    """Rewrite the messages of errors that the block raises."""
    try:
        yield
    except CoallocError as error:
        error.message = named(error.message, namings)
        error.args = (error.message,)
        raise

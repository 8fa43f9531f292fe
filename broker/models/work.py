"""Planned work items, their results, and the encoding of paths as text that both databases can store."""

import hashlib
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

import orjson

from broker.models.tasks import Details, Event, Item, Work, WorkKind, WorkState

__all__ = ["LINKED", "ErrorSide", "PlannedWork", "WorkResult", "restored", "storable"]

ErrorSide = Literal["", "source", "destination"]
LINKED = 1
"""The phase that creates symbolic links: after all copies, since servers require that a link's target exists."""
SIGN = "\uf8ff"
"""The escape sign before the code of a character that a database cannot store: a private-use character."""
ODD = re.compile("[\0\ud800-\udfff\uf8ff]")
ESCAPED = re.compile(f"{SIGN}([0-9a-f]{{4}})")


class PlannedWork(NamedTuple):
    """A planned work item."""

    kind: WorkKind
    source: str
    destination: str = ""
    size: int = 0
    details: Details = Details()
    phase: int = 0

    @classmethod
    def of(cls, kind: WorkKind, item: Item) -> Self:
        """Return the first work item for a submitted item."""
        details = Details(checksum=item.checksum, recursive=item.recursive)
        if item.symlink:
            return cls("link", item.source, item.destination, details=details, phase=LINKED)
        return cls(kind, item.source, item.destination, details=details)

    @property
    def key(self) -> str:
        """The identity of the work: a hash of its kind and its paths."""
        what = orjson.dumps((self.kind, storable(self.source), storable(self.destination)))
        return hashlib.blake2b(what, digest_size=16).hexdigest()


class WorkResult(NamedTuple):
    """The result of a work item, or of one attempt if its state is `pending` again.

    :param pause: seconds until the next attempt
    :param counts: increments of the task's counters
    :param size: size of the file in bytes, if the plan did not know it
    :param side: collection at which the error arose: `source`, `destination`, or empty if unknown
    """

    work: Work
    state: WorkState
    checksum: str | None = None
    error_code: str | None = None
    error: str | None = None
    pause: float = 0.0
    counts: Mapping[str, int] = {}
    children: tuple[PlannedWork, ...] = ()
    events: tuple[Event, ...] = ()
    side: ErrorSide = ""
    size: int | None = None


def storable(path: str) -> str:
    """Return a path as text for the database.

    Names that are not valid UTF-8 have surrogates for their bytes. Surrogates, NUL and `SIGN` become `SIGN` and a code.

    >>> ascii(storable("caf\\udce9")), storable("x")
    ("'caf\\\\uf8ffdce9'", 'x')
    """
    return ODD.sub(lambda found: f"{SIGN}{ord(found[0]):04x}", path)


def restored(text: str) -> str:
    """Return the path for a string from `storable`.

    >>> restored(storable("caf\\udce9\\uf8ff")) == "caf\\udce9\\uf8ff"
    True
    """
    return ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if SIGN in text else text

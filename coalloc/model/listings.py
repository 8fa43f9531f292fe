"""Entries of directories on servers. No behaviour, no I/O.

Sizes are bytes.
"""

from typing import Literal, NamedTuple

from coalloc.model.replicas import Stat

__all__ = ["Entry", "Kind", "Omission"]

Kind = Literal["file", "dir", "link", "other"]


class Entry(NamedTuple):
    """A name on a server and its properties; None for properties that the server does not report.

    For a symbolic link, most servers report the `kind` of its target; then only `link_target` shows that it is a link.
    `unique` identifies the file at the server, independent of the path. `modified` is in seconds since the epoch,
    `permissions` are octal, such as "0644". `stated` are version and checksums of a file, if the listing has such.
    """

    name: str
    kind: Kind
    size: int | None = None
    modified: int | None = None
    permissions: str | None = None
    user: str | None = None
    group: str | None = None
    link_target: str | None = None
    unique: str | None = None
    stated: Stat | None = None


class Omission(NamedTuple):
    """Entries missing from a listing: entries that the server counts but does not name, or lines without a name.

    :param example: one of the lines; empty for entries that are not named
    """

    kind: Literal["hidden", "nameless"]
    entries: int
    example: str = ""

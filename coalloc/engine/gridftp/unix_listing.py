"""Parser of LIST replies in the form of `ls -la`, for FTP servers without MLSD, such as vsftpd. Pure.

    drwxr-xr-x    2 1000     1000         4096 Feb 29 12:00 sub
    -rw-r--r--    1 1000     1000           12 Feb 29  2024 name with spaces

The times have no zone, so they are not used.
"""

import re

from coalloc.engine.gridftp.replies import LineReader
from coalloc.errors import ConnectionLost, LimitExceeded, NotDirectory, Unsupported
from coalloc.model.listings import Entry, Kind, Omission
from coalloc.safe_text import one_line
from coalloc.util.listing_limits import MOST_ENTRIES, MOST_LISTED

__all__ = ["UnixListing"]

LINE = re.compile(
    r"(?P<kind>[-a-z])[-a-zA-Z]{9}[.+@]? +\d+ +\S+ +\S+ +(?P<size>\d{1,18}) "
    r"+[A-Za-z]{3} +\d{1,2} +(\d{4}|\d{1,2}:\d\d) (?P<name>.+)",
    re.DOTALL,
)
KINDS: dict[str, Kind] = {"-": "file", "d": "dir", "l": "file"}
"""Kinds by the first letter; what a link leads to is not known, so it counts as a file, which may be refused later."""


class UnixListing:
    """A parser of a listing's bytes, with the methods of `listing.Listing`.

    >>> listing = UnixListing()
    >>> found = listing.feed(b"total 8\\r\\n-rw-r--r-- 1 ftp ftp 12 Feb 29  2024 a b\\r\\nlrwxrwxrwx 1 0 0 1 Feb")
    >>> [(each.name, each.kind, each.size) for each in found]
    [('a b', 'file', 12)]
    >>> [(each.name, each.size, each.link_target) for each in listing.feed(b" 29 12:00 l -> x\\r\\n")]
    [('l', None, 'x')]
    """

    def __init__(self) -> None:
        self._lines = LineReader()
        self._bytes = self._entries = 0
        self._itself = False
        self._nameless, self._example = 0, ""

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that this data completes.

        :raises LimitExceeded: when a line or the listing is too long
        """
        self._bytes += len(data)
        texts = (line.decode("utf-8", "surrogateescape").rstrip("\r\n") for line in self._lines.feed(data))
        lines = [text for text in texts if text.strip() and not re.fullmatch(r"total \d+", text)]
        entries = [entry for text in lines if (entry := self._entry(text))]
        self._entries += len(entries)
        if self._bytes > MOST_LISTED or self._entries + self._nameless > MOST_ENTRIES:
            raise LimitExceeded(
                f"its listing has more than {MOST_ENTRIES} entries or {MOST_LISTED} bytes",
                "choose a directory with fewer entries, or give the files one by one",
            )
        self._itself |= any(entry.name == "." for entry in entries)
        return [entry for entry in entries if entry.name not in (".", "..")]

    def close(self) -> list[Omission]:
        """Return what a finished listing left out: lines that are not understood, as of a name with a line break.

        :raises ConnectionLost: when it ended in the middle of a line
        :raises Unsupported: when no line is understood
        :raises NotDirectory: when it has no entry for the directory itself: some servers report success and send
            nothing, if they cannot read a directory
        """
        if self._lines.pending:
            raise ConnectionLost("its listing ended in the middle of a line", "try again")
        if self._nameless and not self._entries:
            raise Unsupported(f"its listing is not understood: {self._example}", "give the files one by one")
        if not self._itself:
            raise NotDirectory("it is no directory, or cannot be read", "check the path, and its permissions")
        return [Omission("nameless", self._nameless, self._example)] if self._nameless else []

    def _entry(self, text: str) -> Entry | None:
        found = LINE.fullmatch(text)
        if not found:
            self._nameless += 1
            self._example = self._example or one_line(text[:100])
            return None
        name, kind = found["name"], KINDS.get(found["kind"], "other")
        if found["kind"] != "l":
            return Entry(name, kind, int(found["size"]))
        name, _, target = name.partition(" -> ")
        return Entry(name, kind, link_target=target or None)

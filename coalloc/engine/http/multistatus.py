"""A parser of WebDAV's answers about files and directories (RFC 4918): `PROPFIND` with Depth 0 or 1. No I/O.

    <response><href>/data/run%201.root</href>
      <propstat><prop><getcontentlength>12</getcontentlength><resourcetype/></prop>
        <status>HTTP/1.1 200 OK</status></propstat></response>

A directory may have a million entries, so its answer is parsed in pieces as they arrive. It is not to be trusted: DTDs
and entities are refused, sizes are limited, and an entry counts only if it is in the directory that was asked for.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple, Never
from urllib.parse import unquote_to_bytes, urlsplit

from coalloc.engine.http.digests import stated_digests
from coalloc.engine.listing_xml import ListingParser
from coalloc.errors import ConnectionLost, LimitExceeded, Unsupported
from coalloc.model.checksums import Checksum
from coalloc.model.listings import Entry, Omission
from coalloc.model.replicas import Stat
from coalloc.safe_text import one_line
from coalloc.util.counts import count
from coalloc.util.listing_limits import MOST_ENTRIES, MOST_LISTED

__all__ = ["QUESTION", "Multistatus", "Properties"]

DAV, OWNCLOUD, DCACHE = "{DAV:}", "{http://owncloud.org/ns}", "{http://www.dcache.org/2013/webdav}"
QUESTION = (
    b'<?xml version="1.0" encoding="utf-8"?>'
    b'<propfind xmlns="DAV:" xmlns:o="http://owncloud.org/ns" xmlns:d="http://www.dcache.org/2013/webdav"><prop>'
    b"<resourcetype/><getcontentlength/><getlastmodified/><getetag/><o:checksums/><d:Checksums/>"
    b"</prop></propfind>"
)
"""Body of a request: only these properties, as servers may state dozens of each entry."""

PROPERTIES = frozenset(f"{DAV}{name}" for name in ("resourcetype", "getcontentlength", "getlastmodified", "getetag"))
SHAPE: Mapping[str, frozenset[str]] = {
    f"{DAV}multistatus": frozenset({f"{DAV}response"}),
    f"{DAV}response": frozenset({f"{DAV}href", f"{DAV}propstat"}),
    f"{DAV}propstat": frozenset({f"{DAV}prop", f"{DAV}status"}),
    f"{DAV}prop": PROPERTIES | {f"{OWNCLOUD}checksums", f"{DCACHE}Checksums"},
    f"{DAV}resourcetype": frozenset({f"{DAV}collection"}),
    f"{OWNCLOUD}checksums": frozenset({f"{OWNCLOUD}checksum"}),
}
"""Child elements that are read, by their parent."""
COLLECTION = f"{DAV}collection"
"""Element that marks a directory."""
MAX_NAMESPACE, MAX_RESPONSE = 256, 64 * 1024
"""Maximum characters of a namespace's name and of the text about one entry."""
MANY_NAMES = 1_000
"""Number of names from which on the parser forgets them; it would keep every name that a server makes up."""
ABSOLUTE = re.compile(r"(?i)https?://[^/?#]*")
ALGORITHM = re.compile(r"([\w-]+):([0-9A-Fa-f]+)")
EXAMPLE = 200
"""Maximum characters of the example of an omission."""


class Properties(NamedTuple):
    """A name at a server, its version, and the checksums of its content that the server states."""

    entry: Entry
    etag: str | None = None
    checksums: tuple[Checksum, ...] = ()


class Multistatus(ListingParser):
    """The parser of an answer, which is fed to it in pieces.

    >>> parser = Multistatus("http://host/data/", "the server")
    >>> start = b'<multistatus xmlns="DAV:"><response><href>/data/a%20b</href><propstat><prop><getcontentlength>7'
    >>> parser.feed(start)
    []
    >>> (found,) = parser.feed(b"</getcontentlength></prop><status>HTTP/1.1 200 OK</status></propstat></response>")
    >>> found.entry.name, found.entry.kind, found.entry.size
    ('a b', 'file', 7)

    :param url: the URL of the directory or file that was asked for
    :param where: the same for messages
    :ivar itself: the properties of this URL itself, once they were read
    """

    def __init__(self, url: str, where: str) -> None:
        super().__init__(MOST_LISTED, separator="}")
        self._parser.StartNamespaceDeclHandler = self._namespace
        self._where = where
        self.itself: Properties | None = None
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._path = _segments(parts.path)
        self._ignored = self._found = self._left_out = self._length = 0
        self._open: list[str] = []
        self._text: list[str] = []
        self._example = ""
        self._names = set[str]()
        self._entries: list[Properties] = []
        self._response = _Response()

    def feed(self, data: bytes) -> list[Properties]:
        """Return the entries that this data completes.

        :raises Unsupported: if it is not such an answer
        :raises LimitExceeded: if it is too long
        """
        self._parse(data)
        entries, self._entries = self._entries, []
        return entries

    def close(self) -> list[Omission]:
        """Return what the finished answer left out: entries that are not in the directory, or have no usable name.

        :raises ConnectionLost: if the answer has ended too early
        """
        if self._open:
            raise ConnectionLost(f"{self._where}: the listing ended too early", "try again")
        self._finish()
        return [Omission("nameless", self._left_out, self._example)] if self._left_out else []

    def _start(self, tag: str, _attributes: list[str]) -> None:
        if len(self._parser.intern) > MANY_NAMES:
            self._parser.intern.clear()
        name = f"{{{tag}" if "}" in tag else tag
        if not self._open and name != f"{DAV}multistatus":
            self._refuse(f"it is a <{name[:EXAMPLE]}>")
        if self._ignored or (self._open and name not in SHAPE.get(self._open[-1], ())):
            self._ignored += 1
            return
        self._open.append(name)
        self._text.clear()
        if name == COLLECTION:
            self._response.properties[COLLECTION] = ""

    def _take_text(self, text: str) -> None:
        if self._ignored:
            return
        self._length += len(text)
        if self._length > MAX_RESPONSE:
            self._refuse(f"it has an entry of more than {MAX_RESPONSE} characters")
        self._text.append(text)

    def _end(self, _tag: str) -> None:
        if self._ignored:
            self._ignored -= 1
            return
        name, text = self._open.pop(), "".join(self._text).strip()
        self._text.clear()
        response = self._response
        if name == f"{DAV}href":
            response.href = text
        elif name == f"{DAV}status":
            response.status = text
        elif name == f"{DAV}propstat":
            response.end_properties()
        elif name == f"{DAV}response":
            self._add(response)
            self._response, self._length = _Response(), 0
        elif text:
            response.properties[name] = f"{response.properties.get(name, '')} {text}".strip()

    def _add(self, response: "_Response") -> None:
        self._found += 1
        if self._found > MOST_ENTRIES:
            raise self._too_long(f"{MOST_ENTRIES} entries")
        name = self._name(response.href)
        if not response.described:
            name = None
        if name == "" and self.itself is None:
            self.itself = response.read(_text(self._path[-1]) if self._path else "/")
        elif name is None or name == "" or name in self._names:
            self._left_out += 1
            self._example = self._example or one_line(response.href, EXAMPLE)
        else:
            self._names.add(name)
            self._entries.append(response.read(name))

    def _name(self, href: str) -> str | None:
        """Return the name in the directory that a reference means; empty for the directory, None for anything else.

        The path may have characters that should be encoded, also `?` and `#`, as some servers write them.
        """
        if at := ABSOLUTE.match(href):
            try:
                host = urlsplit(at[0]).hostname
            except ValueError:
                return None
            if host != self._host:
                return None
            href = href[at.end() :]
        if not href.startswith("/"):
            return None
        *folder, name = path = _segments(href) or [b""]
        if self._path == [each for each in path if each]:
            return ""
        known = name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name
        return _text(name) if known and folder == self._path else None

    def _namespace(self, _prefix: str | None, name: str | None) -> None:
        if name and len(name) > MAX_NAMESPACE:
            self._refuse(f"it has a namespace of more than {MAX_NAMESPACE} characters")

    def _refuse(self, why: str) -> Never:
        raise Unsupported(f"{self._where}: the answer is not one of WebDAV: {why}", "check the URL")

    def _too_long(self, what: str) -> LimitExceeded:
        return LimitExceeded(f"{self._where}: the listing has more than {what}", "give its subdirectories one by one")


class _Response:
    """The properties of one reference. Servers list those that they do not have with another status than 200.

    :ivar described: whether there are others
    """

    def __init__(self) -> None:
        self.href = self.status = ""
        self.described = False
        self.properties: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def end_properties(self) -> None:
        if re.match(r"HTTP/\S+ 2", self.status) or not self.status:
            self._known |= self.properties
            self.described = True
        self.properties, self.status = {}, ""

    def read(self, name: str) -> Properties:
        known = self._known
        stated = dict(ALGORITHM.findall(known.get(f"{OWNCLOUD}checksum", known.get(f"{OWNCLOUD}checksums", ""))))
        sums = ",".join(filter(None, (known.get(f"{DCACHE}Checksums"), *map("=".join, stated.items()))))
        entry = Entry(
            name,
            "dir" if COLLECTION in known else "file",
            None if COLLECTION in known else count(known.get(f"{DAV}getcontentlength", "")),
            _seconds(known.get(f"{DAV}getlastmodified", "")),
        )
        etag, usable = known.get(f"{DAV}getetag"), stated_digests({"digest": sums}, whole=True).usable if sums else ()
        if usable and entry.size is not None:
            entry = entry._replace(stated=Stat(entry.size, etag, usable))
        return Properties(entry, etag, usable)


def _segments(path: str) -> list[bytes]:
    """Return the decoded components of a path; a slash in one of them was encoded."""
    return [unquote_to_bytes(part) for part in path.split("/") if part]


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _seconds(date: str) -> int | None:
    """Return the seconds since the epoch of a date as in HTTP, or in ISO 8601, as some servers write it."""
    from email.utils import parsedate_to_datetime  # imported here because it takes time to import

    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            when = parse(date)
            return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError):
            continue
    return None

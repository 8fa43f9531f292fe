"""Parser of the pages with which web servers list a directory: nginx, Apache, Python and others. Pure.

Each link to a direct child of the directory is an entry; a slash at its end makes it a directory. All other links are
ignored: to parents, to other directories and hosts, and those with a query, which sort the page.
"""

import re
from calendar import timegm
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from coalloc.errors import LimitExceeded, Unsupported
from coalloc.model.listings import Entry
from coalloc.util.listing_limits import MOST_ENTRIES

__all__ = ["IndexPage", "child"]

MOST_PENDING = 64 * 1024
"""Maximum characters of a tag or comment that has not ended."""
LONGEST = 8 * 1024
"""Maximum characters of a link, and of the text after it that is looked at."""
PROPERTIES = re.compile(
    r"(?P<date>\d\d-[A-Z][a-z]{2}-\d{4}|\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d)\s+(?P<size>\d+(?!\S))?"
)
DATES = ("%d-%b-%Y %H:%M", "%Y-%m-%d %H:%M")


class IndexPage(HTMLParser):
    """A parser of one page.

    >>> page = IndexPage("http://host/d/")
    >>> page.feed_text('<a href="../">..</a> <a href="a%20b">a b</a> 01-Feb-2024 10:00 12\\n<a href="sub/">sub</a>')
    >>> [(each.name, each.kind, each.size, each.modified) for each in page.take() + page.end()]
    [('a b', 'file', 12, 1706781600), ('sub', 'dir', None, None)]

    :param url: URL of the page, after redirects
    """

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._entries: list[Entry] = []
        self._seen: set[str] = set()
        self._last: Entry | None = None
        self._inside = False
        self._text = ""

    def feed_text(self, text: str) -> None:
        """Parse the next part of the page.

        :raises LimitExceeded: if it has too many entries, or a tag without end
        :raises Unsupported: if it is no HTML
        """
        with _valid():
            self.feed(text)
        if len(self.rawdata) > MOST_PENDING or len(self._seen) > MOST_ENTRIES:
            raise LimitExceeded(
                f"its listing has more than {MOST_ENTRIES} entries, or a tag of more than {MOST_PENDING} characters",
                "give the files one by one",
            )

    def take(self) -> list[Entry]:
        """Return the entries that are complete since the last call."""
        entries, self._entries = self._entries, []
        return entries

    def end(self) -> list[Entry]:
        """End the page; return the last entries."""
        if "<" in self.rawdata:  # cut off; to parse it would take the square of its length
            raise Unsupported("its listing ended in the middle of a tag", "try again")
        with _valid():
            self.close()
        self._finish()
        return self.take()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(" ")
        if tag != "a":
            return
        self._finish()
        found = child(self._url, dict(attrs).get("href") or "")
        if found and found.name not in self._seen:
            self._seen.add(found.name)
            self._last, self._inside = found, True

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._inside = False

    def handle_data(self, data: str) -> None:
        self._add(data)

    def _add(self, text: str) -> None:
        """Add to the text after the link of the last entry."""
        if self._last and not self._inside and len(self._text) < LONGEST:
            self._text += text[:LONGEST]

    def _finish(self) -> None:
        """Complete the last entry with the properties in the text after its link."""
        if self._last:
            self._entries.append(_with_properties(self._last, self._text))
        self._last, self._text = None, ""


@contextmanager
def _valid() -> Iterator[None]:
    try:
        yield
    except AssertionError:  # of the library, for invalid declarations
        raise Unsupported("its listing is no valid HTML", "give the files one by one") from None


def child(url: str, link: str) -> Entry | None:
    """Return the direct child of a directory to which a link on its page leads; None if it leads elsewhere.

    >>> child("http://host/d/", "a/"), child("http://host/d/", "/d/x%3F").name
    (Entry(name='a', kind='dir', size=None, modified=None, permissions=None, user=None, group=None, link_target=None, \
unique=None, stated=None), 'x?')
    >>> [child("http://host/d/", link) for link in ("../", "/", "?C=N", "http://other/d/x", "a/b", "..%2Fx", "#a", "")]
    [None, None, None, None, None, None, None, None]
    """
    if len(link) > LONGEST:
        return None
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, link.strip()))
        same = (here.scheme, here.hostname, here.port) == (there.scheme, there.hostname, there.port)
    except ValueError:
        return None
    folder, path = (unquote(parts.path, errors="surrogateescape") for parts in (here, there))
    if not same or there.query or there.fragment or not path.startswith(folder):
        return None
    name = path[len(folder) :]
    kind = "dir" if name.endswith("/") else "file"
    name = name.removesuffix("/")
    return None if name in ("", ".", "..") or "/" in name else Entry(name, "dir" if kind == "dir" else "file")


def _with_properties(entry: Entry, text: str) -> Entry:
    found = PROPERTIES.search(text)
    if not found:
        return entry
    return entry._replace(size=int(found["size"]) if found["size"] else None, modified=_seconds(found))


def _seconds(found: re.Match[str]) -> int | None:
    for form in DATES:
        try:
            return timegm(datetime.strptime(f"{found['date']} {found['time']}", form).timetuple())
        except ValueError:
            continue
    return None

"""Parser of MLST and MLSD replies about files and directories (RFC 3659), and of timestamps. Pure.

    Type=file;Modify=20240229120000;Size=12;UNIX.mode=0644;UNIX.owner=ann; name with spaces

`storage` sends the commands.
"""

import re
from calendar import timegm
from datetime import UTC, datetime
from urllib.parse import unquote

from coalloc.engine.gridftp.replies import LineReader
from coalloc.errors import ConnectionLost, LimitExceeded
from coalloc.model.listings import Entry, Kind, Omission
from coalloc.safe_text import one_line
from coalloc.util.counts import count
from coalloc.util.listing_limits import MOST_ENTRIES, MOST_LISTED

__all__ = ["Listing", "entry", "seconds_of", "stamp"]

KINDS: dict[str, Kind] = {"file": "file", "dir": "dir", "cdir": "dir", "pdir": "dir"}
LINK = ("os.unix=slink", "os.unix=symlink")
DIGITS = re.compile("[0-9]{14}")
HERE = ("cdir", "pdir")
"""Types of the listed directory and of its parent."""


class Listing:
    """A parser of a listing's bytes, which leaves out the entries of the directory itself and its parent.

    >>> listing = Listing()
    >>> listing.feed(b"Type=cdir;X.count=4; .\\r\\nType=file;Size=1; a b\\r\\nType=d")
    [Entry(name='a b', kind='file', size=1, modified=None, permissions=None, user=None, group=None, link_target=None, \
unique=None, stated=None)]
    >>> [entry.name for entry in listing.feed(b"ir; c\\r\\nnothing\\r\\n")]
    ['c']
    >>> listing.close()
    [Omission(kind='hidden', entries=1, example=''), Omission(kind='nameless', entries=1, example='nothing')]
    """

    def __init__(self) -> None:
        self._lines = LineReader()
        self._bytes = self._entries = self._seen = 0
        self._counted = 0
        self._around: set[str] = set()
        """Types (cdir, pdir) of the listed directory and its parent, once their entries were seen."""
        self._folder: str | None = None
        self._nameless, self._example = 0, ""

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that this data completes.

        :raises LimitExceeded: when a line or the listing is too long
        """
        self._bytes += len(data)
        found = [each for line in self._lines.feed(data) if line.strip() and (each := self._entry(line))]
        self._entries += len(found)
        if self._bytes > MOST_LISTED or self._entries + self._nameless > MOST_ENTRIES:
            raise LimitExceeded(
                f"its listing has more than {MOST_ENTRIES} entries or {MOST_LISTED} bytes",
                "choose a directory with fewer entries, or give the files one by one",
            )
        return found

    def close(self) -> list[Omission]:
        """Return the entries that a finished listing left out.

        Globus servers count broken links, but do not list them; they count and list `.` and `..`.

        :raises ConnectionLost: when the listing ended in the middle of a line
        """
        if self._lines.pending:
            raise ConnectionLost("its listing ended in the middle of a line", "try again")
        omissions = []
        if (hidden := self._counted - self._seen) > 0:
            omissions.append(Omission("hidden", hidden))
        if self._nameless:
            omissions.append(Omission("nameless", self._nameless, self._example))
        return omissions

    def _entry(self, line: bytes) -> Entry | None:
        fact_text, blank, path = line.decode("utf-8", "surrogateescape").partition("; ")
        facts = _facts(fact_text) if blank else {}
        kind = facts.get("type", "").lower()
        folder, slash, name = path.rpartition("/")
        here = name in ("", ".", "..")
        which = kind if kind in HERE else "pdir" if name == ".." else "cdir"
        around = kind in HERE or (here and kind == "dir")
        if around and which not in self._around and (which == "cdir" or here or slash):
            self._around.add(which)
            self._seen += 1
            if which == "cdir":
                self._counted = count(facts.get("x.count", "")) or 0
            return None
        if not blank or around or here or (slash and not self._styled(folder)):
            self._nameless += 1
            if self._nameless == 1:
                self._example = one_line(line.decode("utf-8", "backslashreplace"))
            return None
        self._seen += 1
        return entry(fact_text, name)

    def _styled(self, folder: str) -> bool:
        """Return whether `folder` is the listed directory, as some servers write the whole path in each line."""
        if self._folder is None and folder.startswith("/"):
            self._folder = folder
        return folder == self._folder


def entry(facts: str, name: str) -> Entry:
    """Return the entry that these facts describe.

    >>> entry("Type=file;Size=3;Modify=19700101000010;UNIX.mode=0644;", "x")[1:5]
    ('file', 3, 10, '0644')
    >>> entry("Type=OS.unix=slink:/target;", "x")[1], entry("Type=OS.unix=slink:/target;", "x").link_target
    ('link', '/target')
    """
    known = _facts(facts)
    kind, _, target = known.get("type", "").partition(":")
    size, mode = known.get("size", ""), known.get("unix.mode", "")
    return Entry(
        name,
        kind="link" if kind.lower() in LINK else KINDS.get(kind.lower(), "other"),
        size=count(size),
        modified=seconds_of(known.get("modify", "")),
        permissions=mode or None,
        user=known.get("unix.owner") or known.get("unix.uid"),
        group=known.get("unix.group") or known.get("unix.gid"),
        link_target=unquote(known.get("unix.slink") or target, errors="surrogateescape") or None,
        unique=known.get("unique"),
    )


def _facts(facts: str) -> dict[str, str]:
    pairs = (fact.partition("=") for fact in facts.split(";") if "=" in fact)
    return {name.lower(): value for name, _, value in pairs}


def seconds_of(text: str) -> int | None:
    """Return a server's timestamp (UTC) as seconds since the epoch; None if it is none."""
    if not DIGITS.match(text):
        return None
    try:
        return timegm((int(text[:4]), *(int(text[at : at + 2]) for at in (4, 6, 8, 10, 12)), 0, 0, 0))
    except ValueError:
        return None


def stamp(modified: float) -> str:
    """Format seconds since the epoch as a server's timestamp (UTC).

    >>> stamp(10)
    '19700101000010'
    """
    return f"{datetime.fromtimestamp(modified, UTC):%Y%m%d%H%M%S}"

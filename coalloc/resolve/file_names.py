"""File names from outside, made or checked to be safe to create below a directory. Pure."""

import re
from urllib.parse import unquote, urlsplit

from coalloc.util.listing_limits import DEEPEST

__all__ = ["UNPRINTABLE", "from_url", "why_hidden", "why_unsafe"]

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters, line ends, changes of the writing direction, and code points that are no characters."""

LONGEST = 4096
"""Most characters of a relative path."""
UNNAMED = "download"


def from_url(url: str) -> str:
    """Return the last component of the URL's path, percent-decoded, without anything that could leave a directory.

    Only in http(s) do `?` and `#` end the path.

    >>> from_url("ftp://host/data/run%201#2.dat"), from_url("http://host/a%2F..%2Fb?c/d"), from_url("http://host/")
    ('run 1#2.dat', 'a_.._b', 'download')
    """
    parts = urlsplit(url)
    path = parts.path if parts.scheme in ("http", "https") else url.partition("://")[2].partition("/")[2]
    name = unquote(path.rpartition("/")[2])
    safe = UNPRINTABLE.sub("_", name).replace("/", "_").replace("\\", "_")
    return UNNAMED if safe in ("", ".", "..") else safe


def why_unsafe(name: str) -> str | None:
    """Return the reason why a relative path must not be created below a directory, or None if it may.

    The reason is worded as the end of a sentence that begins with the name.

    >>> why_unsafe("2024/run 1.dat"), why_unsafe("a/../../b")
    (None, "has an empty, '.' or '..' component")
    """
    *folders, _ = parts = name.split("/")
    if not name:
        return "is empty"
    if name.startswith("/") or re.match("[A-Za-z]:(/|$)", name):
        return "is absolute"
    if UNPRINTABLE.search(name) or "\\" in name:
        return "has a backslash or a control character"
    if not {"", ".", ".."}.isdisjoint(parts):
        return "has an empty, '.' or '..' component"
    if len(folders) > DEEPEST or len(name) > LONGEST:
        return f"has more than {DEEPEST} folders or {LONGEST} characters"
    return None


def why_hidden(name: str) -> str | None:
    """Return why a name from outside must not be created in the home directory, or in one that the user did not name.

    Programs read hidden files as their settings, and a name that begins with a dash as an option. The result is None if
    the name may be created.

    >>> why_hidden(".ssh/authorized_keys"), why_hidden("-rf"), why_hidden("2024/.x")
    ("begins with '.'", "begins with '-'", None)
    """
    return f"begins with {name[0]!r}" if name[:1] in (".", "-") else None

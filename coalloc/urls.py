"""URLs as people may see them, and as other programs may be told them."""

import re
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["redact", "why_not_told"]

PLAIN = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+-]*")
"""User names, and hosts. A program that passes them on takes one that begins with a dash for an option."""
NUMERIC = re.compile(r"[0-9A-Fa-f:.]+(%25[A-Za-z0-9._-]+|%[A-Za-z0-9._-]+)?")
"""What stands between the brackets of a host."""


def redact(url: str) -> str:
    """The URL without its password, for messages, reports and files.

    Over http and https a user name alone may be a token, and goes, too.

    >>> redact("ftp://ann:secret@host/file"), redact("https://token@host/file")
    ('ftp://ann@host/file', 'https://host/file')

    Never fails: messages about malformed URLs show them too.

    >>> redact("ftp://ann:secret@[host/file")
    'ftp://[host/file'
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # all before an @ may be a password
        return re.sub("//[^/]*@", "//", url)
    user, at, host = parts.netloc.rpartition("@")
    if at and parts.scheme in ("http", "https"):
        return urlunsplit(parts._replace(netloc=host))
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}"))


def why_not_told(url: str) -> str | None:
    """Why no other program is told a URL: a user name or a host that could be more than a name; None if it is.

    >>> why_not_told("sshftp://ann@host.example:22/x"), why_not_told("ftp://[2001:db8::1]/x")
    (None, None)
    >>> why_not_told("sshftp://-oProxyCommand=id@host/x")
    "the user name '-oProxyCommand=id' is not made of letters, digits and ._@+- alone"
    >>> why_not_told("sshftp://%2DoX@host/x"), why_not_told("sshftp://-oX/x")
    ("the user name '-oX' is not made of letters, digits and ._@+- alone", \
"the host '-ox' is not made of letters, digits and ._@+- alone")
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises
    except ValueError:
        return "its host or port is impossible"
    authority = url.partition("://")[2].partition("/")[0]
    if parts.scheme not in ("http", "https") and re.search(r"[?#\\]", authority):
        return "its host is followed by no path"  # programs disagree on where it ends
    if "@-" in unquote(authority):
        return "a '-' follows an '@'"  # programs that end the user name at the first @ take it for a host
    login, at, place = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    host = parts.hostname or ""
    bracketed = place.startswith("[")
    for what, said, kind in (
        ("user name", unquote(user), PLAIN if at else None),
        ("host", host if bracketed else unquote(host), NUMERIC if bracketed else PLAIN),
    ):
        if kind and not kind.fullmatch(said):
            return f"the {what} {said!r} is not made of letters, digits and ._@+- alone"
    return "the password has a control character" if re.search(r"[\x00-\x20\x7f\"]", unquote(password)) else None

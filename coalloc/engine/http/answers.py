"""Parser of HTTP responses about a file: its range and version, or the error; `digests` reads checksums. No I/O."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from coalloc.errors import (
    NoSuchFile,
    PermissionRefused,
    ServerBusy,
    ServerSays,
    SourceError,
    Unsupported,
)
from coalloc.model.checksums import Checksum
from coalloc.model.replicas import Stat
from coalloc.model.validators import identifies
from coalloc.util.counts import count

__all__ = [
    "BUSY",
    "DENIED",
    "PARTIAL",
    "closes",
    "completed",
    "condition",
    "content_range",
    "refusal",
    "retry_after",
    "validator",
]

Headers = Mapping[str, str]

PARTIAL = 206
DENIED = (401, 403)
"""Status codes of a server that wants another credential, or one at all."""
BUSY = (429, 503)
"""Status codes for too many requests, and for being out of service, mostly for the same reason."""


def validator(headers: Headers) -> str | None:
    """Return the validator of the file's version: the entity tag, or else the modification time; None if absent."""
    return headers.get("etag") or headers.get("last-modified")


def condition(seen: str | None) -> dict[str, str]:
    """Return the header that restricts a range request to the version with this validator.

    Empty for a weak tag, which does not identify a version, and for a non-ASCII one, which cannot be sent back
    unchanged.
    """
    return {"If-Range": seen} if seen and identifies(seen) and seen.isascii() else {}


def completed(stat: Stat, size: int | None, tag: str | None, checksums: Iterable[Checksum]) -> Stat:
    """Return a server's information with checksums that it states elsewhere, if they are of the same version.

    :param size: the size that it states there, None if unknown; `tag`: the entity tag there
    """
    if size not in (None, stat.size):
        return stat
    if tag and stat.validator and '"' in stat.validator and _plain(tag) != _plain(stat.validator):
        return stat
    stated = {checksum.algorithm: checksum for checksum in (*checksums, *stat.checksums)}
    return stat._replace(checksums=tuple(stated.values()))


def _plain(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')


def closes(headers: Headers) -> bool:
    """Return whether the server closes the connection after this response."""
    return "close" in headers.get("connection", "").lower()


def content_range(headers: Headers) -> tuple[int, int, int | None] | None:
    """Return the range [start, end) of a 206 response, and the file's size, None if the server does not know it.

    >>> content_range({"content-range": "bytes 10-19/100"})
    (10, 20, 100)
    """
    match = re.fullmatch(r"bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)", headers.get("content-range", "").strip())
    if match is None:
        return None
    first, last, size = (count(each) for each in match.groups())
    if first is None or last is None or (size is None and match[3] != "*"):
        return None
    return first, last + 1, size


def retry_after(headers: Headers) -> float | None:
    """Return the seconds until the server wants the next request (RFC 9110, 10.2.3); None when it does not say.

    A date is compared with the server's own clock, if the response has it.

    >>> retry_after({"retry-after": "120"})
    120.0
    >>> retry_after({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "Fri, 31 Dec 1999 23:59:29 GMT"})
    30.0
    """
    value = headers.get("retry-after", "").strip()
    if re.fullmatch("[0-9]{1,9}", value):
        return float(value)
    then, now = _date(value), _date(headers.get("date", "")) or datetime.now(UTC)
    return None if then is None else max(0.0, (then - now).total_seconds())


def _date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime  # imported here because few servers state a time to wait

    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def refusal(
    status: int, reason: str, headers: Headers, shown: str, hidden: Callable[[str], str], login: str = ""
) -> SourceError:
    """Return the error for a status other than 200 or 206.

    :param shown: the URL without secrets
    :param hidden: function that hides the secrets of URLs in the server's text
    :param login: remedy if the server refuses access
    """
    message = f"{shown}: the server says {status} {hidden(reason)}".rstrip()
    if status in DENIED:
        return PermissionRefused(message, login or "ask the admin for access")
    if status == 407:
        return PermissionRefused(message, "give user and password of the proxy in HTTP_PROXY or HTTPS_PROXY")
    if status in (404, 410):
        return NoSuchFile(message, "check the path in the URL")
    if status in (405, 501, 505):
        return Unsupported(message, "use another replica")
    if status in BUSY or "retry-after" in headers:
        until = f" (Retry-After: {hidden(headers['retry-after'])})" if "retry-after" in headers else ""
        return ServerBusy(f"{message}{until}", retry_after=retry_after(headers))
    return ServerSays(message, "try again later, or use another replica")

"""What an HTTP answer says of a file: its place in it, its version, its digests, or why there is none. No I/O.

Digests stand in `Repr-Digest` (RFC 9530) or the older `Digest` (RFC 3230), which grid storage speaks. Servers write
their values in base64, or against the RFC in hex.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from coalloc.checksums import ALGORITHMS, normalise
from coalloc.counts import count
from coalloc.errors import (
    NoSuchFile,
    PermissionRefused,
    ServerBusy,
    ServerSays,
    SourceError,
    Unsupported,
)
from coalloc.model import Checksum

__all__ = [
    "BUSY",
    "PARTIAL",
    "WANTED_DIGESTS",
    "closes",
    "condition",
    "content_range",
    "digests",
    "is_strong",
    "refusal",
    "retry_after",
    "validator",
]

Headers = Mapping[str, str]

WANTED_DIGESTS = {"Want-Digest": "adler32, md5;q=0.8, sha-256;q=0.6", "Want-Repr-Digest": "sha-256=3, adler=2, md5=1"}
PARTIAL = 206
BUSY = (429, 503)
"""Too many requests; out of service, mostly for having too many."""
ALIASES = {"adler": "adler32", "sha": "sha1"}


def validator(headers: Headers) -> str | None:
    """What changes with the file: the entity tag, or else the time of the last change."""
    return headers.get("etag") or headers.get("last-modified")


def is_strong(seen: str | None) -> bool:
    """Return whether this names one version of the file (RFC 9110, 8.8.1): a date may be that of two."""
    return seen is not None and seen.startswith('"')


def condition(seen: str | None) -> dict[str, str]:
    """The header that asks for a part of the version with this validator only.

    A weak tag does not name a version, and one that is not ASCII cannot be said back byte for byte.
    """
    return {} if seen is None or seen.startswith("W/") or not seen.isascii() else {"If-Range": seen}


def closes(headers: Headers) -> bool:
    """Whether the server ends the connection after this answer."""
    return "close" in headers.get("connection", "").lower()


def content_range(headers: Headers) -> tuple[int, int, int | None] | None:
    """The bytes [start, end) that a 206 carries and the file's size, None where the server does not know it.

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


def digests(headers: Headers) -> tuple[Checksum, ...]:
    """The digests of the whole file that the server tells; those it writes in no known way are left out.

    >>> digests({"digest": "ADLER32=03da0195", "repr-digest": "adler=:A9oBlQ==:"})
    (Checksum(algorithm='adler32', value='03da0195'),)
    """
    found = {}
    for item in f"{headers.get('digest', '')},{headers.get('repr-digest', '')}".split(","):
        name, _, value = item.strip().partition("=")
        algorithm = normalise(ALIASES.get(name.strip().lower(), name))
        said = algorithm and _hex(value.partition(";")[0].strip().strip(":"), ALGORITHMS[algorithm])
        if algorithm and said:
            found[algorithm] = Checksum(algorithm, said)
    return tuple(found.values())


def _hex(value: str, digits: int) -> str | None:
    if re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", value):
        return value.lower()
    try:
        raw = b64decode(value, validate=True)
    except ValueError:
        return None
    return raw.hex() if len(raw) * 2 == digits else None


def retry_after(headers: Headers) -> float | None:
    """Seconds after which the server wants to be asked again (RFC 9110, 10.2.3); None when it does not say.

    A date is held against the server's own clock, where it tells that.

    >>> retry_after({"retry-after": "120"})
    120.0
    >>> retry_after({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "Fri, 31 Dec 1999 23:59:29 GMT"})
    30.0
    """
    said = headers.get("retry-after", "").strip()
    if re.fullmatch("[0-9]{1,9}", said):
        return float(said)
    then, now = _date(said), _date(headers.get("date", "")) or datetime.now(UTC)
    return None if then is None else max(0.0, (then - now).total_seconds())


def _date(said: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def refusal(status: int, reason: str, headers: Headers, shown: str, hidden: Callable[[str], str]) -> SourceError:
    """The error that a status other than 200 or 206 stands for.

    :param shown: the URL as it is shown
    :param hidden: what hides the secrets of URLs in what the server says
    """
    said = f"{shown}: the server says {status} {hidden(reason)}".rstrip()
    if status in (401, 403):
        return PermissionRefused(said, "ask the owner for access, or log in: https://USER:PASSWORD@HOST/...")
    if status == 407:
        return PermissionRefused(said, "give user and password of the proxy in HTTP_PROXY or HTTPS_PROXY")
    if status in (404, 410):
        return NoSuchFile(said, "check the path in the URL")
    if status in (405, 501, 505):
        return Unsupported(said, "use another replica")
    if status in BUSY or "retry-after" in headers:
        until = f" (Retry-After: {hidden(headers['retry-after'])})" if "retry-after" in headers else ""
        return ServerBusy(f"{said}{until}", retry_after=retry_after(headers))
    return ServerSays(said, "try again later, or use another replica")

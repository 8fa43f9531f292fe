"""Checksums of the whole file that an HTTP response states, and those that cannot be used, with the reason. No I/O.

- `Repr-Digest` (RFC 9530) and the older `Digest` (RFC 3230), which grid storage uses; servers write their values in
  base64 or, contrary to the RFCs, in hex
- `Content-Digest` (RFC 9530), if the response is about the whole file
- `x-goog-hash` of Google Cloud Storage, unless it is of the compressed form in which the file is stored
- `x-amz-checksum-*` of S3, unless they are composed of the checksums of an upload's parts
- the entity tag of Amazon S3, where Amazon documents it as the md5: neither a multipart upload, nor encrypted by other
  keys than S3's own, nor in a directory bucket
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from coalloc.model.checksums import Checksum
from coalloc.safe_text import escaped
from coalloc.util.checksums import ALGORITHMS, normalise

__all__ = ["WANTED_DIGESTS", "StatedDigests", "stated_digests"]

WANTED_DIGESTS = {
    "Want-Digest": "adler32, crc32c;q=0.9, md5;q=0.8, sha-256;q=0.6, sha-512;q=0.4",
    "Want-Repr-Digest": "sha-256=5, sha-512=4, crc32c=3, adler=2, md5=1",
}
ALIASES = {"adler": "adler32", "sha": "sha1"}
AMAZON = "x-amz-checksum-"
MOST_UNUSED, LONGEST_NAME = 8, 20
"""Maximum number of checksums named as unused, and of characters of a name."""


class StatedDigests(NamedTuple):
    """The checksums that a server states.

    :param usable: at most one for each algorithm
    :param unused: "NAME (REASON)" of each other one
    """

    usable: tuple[Checksum, ...] = ()
    unused: tuple[str, ...] = ()


def stated_digests(headers: Mapping[str, str], *, whole: bool, bodiless: bool = False) -> StatedDigests:
    """Return the checksums of the whole file that these headers state.

    :param whole: whether the response is about the whole file, not about a range
    :param bodiless: whether it answers HEAD: its `Content-Digest` is that of no bytes (RFC 9530, B.2)

    >>> stated_digests({"digest": "ADLER32=03da0195", "repr-digest": "adler=:A9oBlQ==:"}, whole=False).usable
    (Checksum(algorithm='adler32', value='03da0195'),)
    >>> stated_digests({"digest": "whirlpool=00,md5=?"}, whole=True).unused
    ('whirlpool (unknown algorithm)', 'md5 (unknown notation)')
    """
    found: dict[str, set[str]] = {}
    unused: dict[str, None] = {}
    for name, value, doubt in (*_listed(headers, whole and not bodiless), *_of_amazon(headers, whole)):
        algorithm = normalise(ALIASES.get(name.lower(), name))
        digest = algorithm and _hex(value, ALGORITHMS[algorithm])
        if algorithm and digest and not doubt:
            found.setdefault(algorithm, set()).add(digest)
        elif name or value:
            reason = doubt or ("unknown notation" if algorithm else "unknown algorithm")
            unused[f"{escaped(name[:LONGEST_NAME])} ({reason})"] = None
    usable = [Checksum(algorithm, *values) for algorithm, values in found.items() if len(values) == 1]
    several = [f"{algorithm} (several values)" for algorithm, values in found.items() if len(values) > 1]
    return StatedDigests(tuple(usable), (*several, *unused)[:MOST_UNUSED])


def _listed(headers: Mapping[str, str], whole: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the value, and the reason not to use it, if there is one, of each item of the lists."""
    stored = headers.get("x-goog-stored-content-encoding", "identity")
    doubts = {
        "digest": "",
        "repr-digest": "",
        **({"content-digest": ""} if whole else {}),  # else it is about the range
        "x-goog-hash": "" if stored in ("identity", "") else "of the compressed file",
    }
    for header, doubt in doubts.items():
        for item in headers.get(header, "").split(","):
            name, _, value = item.strip().partition("=")
            yield name.strip(), value.partition(";")[0].strip().strip(":"), doubt


def _of_amazon(headers: Mapping[str, str], whole: bool) -> Iterator[tuple[str, str, str]]:
    composite = headers.get(f"{AMAZON}type", "").upper() == "COMPOSITE"
    for header, value in headers.items():
        name = header.lower().removeprefix(AMAZON)
        if name == header.lower() or name in ("type", "mode", "algorithm"):
            continue
        if composite or "-" in value:
            yield name, value, "composed of the checksums of parts"
        else:
            yield name, value.strip(), "" if whole else "perhaps of a range"
    if (tag := re.fullmatch('"([0-9a-f]{32})"', headers.get("etag", ""))) and _has_md5_as_tag(headers):
        yield "md5", tag[1], ""


def _has_md5_as_tag(headers: Mapping[str, str]) -> bool:
    return (
        headers.get("server") == "AmazonS3"
        and headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
        and "x-amz-server-side-encryption-customer-algorithm" not in headers
        and headers.get("x-amz-storage-class") != "EXPRESS_ONEZONE"
    )


def _hex(value: str, digits: int) -> str | None:
    """Return a value in hex or base64 as lower-case hex; None if it is neither, or has another length.

    >>> _hex("A9oBlQ==", 8), _hex("03DA0195", 8), _hex("03da01", 8)
    ('03da0195', '03da0195', None)
    """
    if re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", value):
        return value.lower()
    try:
        raw = b64decode(value, validate=True)
    except ValueError:
        return None
    return raw.hex() if len(raw) * 2 == digits else None

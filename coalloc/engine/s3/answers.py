"""Parser of S3 answers: the checksums of an object, and the errors. No I/O."""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence

from coalloc.errors import (
    LoginRefused,
    NoSuchFile,
    PermissionRefused,
    ReplicaChanged,
    ServerBusy,
    SourceError,
    Unsupported,
)
from coalloc.model.checksums import Checksum
from coalloc.util.checksums import ALGORITHMS

__all__ = ["LONGEST_ERROR", "ExpiredLogin", "checksums", "error_code", "refusal", "region"]

LONGEST_ERROR = 16 * 1024
"""Maximum bytes of an error document that are read."""
CHECKSUM_HEADERS = {f"x-amz-checksum-{name}": name for name in ("crc32", "crc32c", "crc64nvme", "sha1", "sha256")}
"""Algorithms by header. Those that `util.checksums` does not support are ignored."""
MD5_TAG = re.compile('"([0-9a-f]{32})"')
MD5_ENCRYPTIONS = (None, "AES256")
"""Encryptions with which an entity tag is the MD5 sum; with keys of KMS or of the user it is not."""
EXPRESS = "--x-s3"
"""End of the names of directory buckets, whose entity tags are not MD5 sums."""
LOG_IN = "log in again, or give valid keys in AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
ACCESS = "ask the bucket's owner for access, or choose other keys with AWS_PROFILE"
REGION = "set the bucket's region in AWS_REGION or in config.toml ([s3.NAME])"
BUCKET = "check the bucket's name, and the server in AWS_ENDPOINT_URL or config.toml ([s3.NAME])"


class ExpiredLogin(LoginRefused):
    """A refusal of keys that were valid until some time ago."""


MEANINGS: Sequence[tuple[type[SourceError], str, str]] = [
    (NoSuchFile, BUCKET, "NoSuchBucket InvalidBucketName"),
    (NoSuchFile, "check the key in the URL", "NoSuchKey NoSuchVersion"),
    (PermissionRefused, ACCESS, "AccessDenied AllAccessDisabled AccountProblem"),
    (LoginRefused, LOG_IN, "InvalidAccessKeyId SignatureDoesNotMatch InvalidSecurity"),
    (ExpiredLogin, LOG_IN, "ExpiredToken InvalidToken TokenRefreshRequired"),
    (LoginRefused, "set the clock of this machine", "RequestTimeTooSkewed"),
    (ServerBusy, "try again later", "SlowDown ServiceUnavailable RequestLimitExceeded Busy"),
    (Unsupported, "restore the object from its archive, or use another replica", "InvalidObjectState"),
    (Unsupported, REGION, "PermanentRedirect TemporaryRedirect Redirect AuthorizationHeaderMalformed"),
    (ReplicaChanged, "start again", "PreconditionFailed"),
]
"""Meanings of error codes: coget's error, remedy, codes."""
BY_CODE = {code: (error, remedy) for error, remedy, codes in MEANINGS for code in codes.split()}


def checksums(headers: Mapping[str, str], bucket: str) -> tuple[Checksum, ...]:
    """Return the checksums of the whole object. Those composed of checksums of its parts are left out.

    >>> tag = '"9e107d9d372bb6826bd81d3542a419d6"'
    >>> checksums({"etag": tag, "x-amz-checksum-crc32": "QU+jOQ==-2"}, "runs")
    (Checksum(algorithm='md5', value='9e107d9d372bb6826bd81d3542a419d6'),)
    >>> checksums({"etag": tag, "x-amz-server-side-encryption": "aws:kms"}, "runs")
    ()
    """
    found = []
    if headers.get("x-amz-checksum-type", "FULL_OBJECT") == "FULL_OBJECT":
        for header, algorithm in CHECKSUM_HEADERS.items():
            if value := _hex(headers.get(header, ""), ALGORITHMS.get(algorithm, 0)):
                found.append(Checksum(algorithm, value))
    tag = MD5_TAG.fullmatch(headers.get("etag", ""))
    if tag and _has_md5_tag(headers) and not bucket.endswith(EXPRESS):
        found.append(Checksum("md5", tag[1]))
    return tuple(found)


def _has_md5_tag(headers: Mapping[str, str]) -> bool:
    own_key = "x-amz-server-side-encryption-customer-algorithm" in headers
    return headers.get("x-amz-server-side-encryption") in MD5_ENCRYPTIONS and not own_key


def _hex(text: str, digits: int) -> str | None:
    try:
        raw = b64decode(text, validate=True)
    except ValueError:  # composed ones end with -N
        return None
    return raw.hex() if raw and len(raw) * 2 == digits else None


def error_code(document: bytes) -> str:
    """Return the code in an error document; empty if it has none.

    >>> error_code(b"<Error><Code>NoSuchKey</Code></Error>")
    'NoSuchKey'
    """
    found = re.search(rb"<Code>([A-Za-z.]{1,64})</Code>", document)
    return found[1].decode() if found else ""


def region(headers: Mapping[str, str], document: bytes) -> str | None:
    """Return the bucket's region in an answer to a request with another one; None if it does not say."""
    found = re.search(rb"<Region>([a-z0-9-]{1,63})</Region>", document)
    return headers.get("x-amz-bucket-region") or (found[1].decode() if found else None)


def refusal(code: str, shown: str, usual: Callable[[], SourceError]) -> SourceError:
    """Return the error for an error code.

    :param shown: the URL
    :param usual: function that returns the error for the HTTP status
    """
    if code not in BY_CODE:
        return usual()
    error, remedy = BY_CODE[code]
    return error(f"{shown}: the server says {code}", remedy)

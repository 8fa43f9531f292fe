"""Parser of s3:// URLs, and the HTTP URL of an object. No I/O.

The key is taken literally, as by the AWS tools: `s3://bucket/a%20b` is not the object "a b".
"""

import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from coalloc.errors import UsageError
from coalloc.safe_text import redact

__all__ = ["S3Object", "S3Place", "is_region", "object_url", "parse", "parse_prefix"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
DNS_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
"""Bucket names that can be the first label of a host, for which a wildcard certificate is valid."""
REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DOTS = re.compile(r"(^|/)\.\.?(/|$)")


class S3Object(NamedTuple):
    """An object as the URL names it. `name` is a bucket, or the name of a rule in config.toml."""

    name: str
    key: str


class S3Place(NamedTuple):
    """The service that has a bucket.

    :param endpoint: URL of a service other than AWS; None for AWS
    :param virtual: whether the bucket is a part of the host's name at an endpoint, too
    """

    bucket: str
    region: str
    endpoint: str | None = None
    virtual: bool = False


def parse(url: str) -> S3Object:
    """Return the object that a URL names.

    :raises UsageError: when it is not s3://BUCKET/KEY, or when HTTP cannot name the key
    """
    name, _, key = url.partition("://")[2].partition("/")
    if not NAME.fullmatch(name) or not key:
        raise UsageError(
            f"{redact(re.sub('//.*@', '//', url))} does not name an object",
            "write s3://BUCKET/KEY, and name the server in AWS_ENDPOINT_URL or in config.toml ([s3.NAME])",
        )
    if DOTS.search(key):
        raise UsageError(f"{redact(url)}: HTTP cannot name a key with the part '.' or '..'", "rename the object")
    return S3Object(name, key)


def parse_prefix(url: str) -> S3Object:
    """Return the bucket of a directory's URL, and the beginning of its keys, which is empty for the whole bucket.

    :raises UsageError: when it is not s3://BUCKET/ or s3://BUCKET/PREFIX/
    """
    name, _, key = url.partition("://")[2].partition("/")
    return parse(url) if key else parse(f"s3://{name}/x")._replace(key="")


def object_url(place: S3Place, key: str) -> str:
    """Return the HTTP URL of an object.

    >>> object_url(S3Place("runs", "eu-west-1"), "a b")
    'https://runs.s3.eu-west-1.amazonaws.com/a%20b'
    >>> object_url(S3Place("runs", "us-east-1", "http://localhost:9000/"), "a+b")
    'http://localhost:9000/runs/a%2Bb'
    """
    path = quote(key, safe="/~")
    bucket = quote(place.bucket, safe="")
    fits = bool(DNS_LABEL.fullmatch(place.bucket))
    if place.endpoint is None:
        domain = "amazonaws.com.cn" if place.region.startswith("cn-") else "amazonaws.com"
        host = f"s3.{place.region}.{domain}"
        return f"https://{bucket}.{host}/{path}" if fits else f"https://{host}/{bucket}/{path}"
    endpoint = place.endpoint.rstrip("/")
    if place.virtual and fits:
        parts = urlsplit(endpoint)
        return f"{parts.scheme}://{bucket}.{parts.netloc}{parts.path}/{path}"
    return f"{endpoint}/{bucket}/{path}"


def is_region(text: str) -> bool:
    """Return whether a server's text can be the name of a region, which becomes a part of a host's name."""
    return bool(REGION.fullmatch(text))

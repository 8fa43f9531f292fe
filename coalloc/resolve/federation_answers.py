"""URLs of Pelican federations (`pelican://`, `osdf://`, `stash://`), and what their servers answer. No I/O.

A federation publishes the address of its director. The director answers a request for an object with a redirect; its
headers name the caches that have the object, or can get it, the nearest first:

    Link: <https://cache.example/ns/x>; rel="duplicate"; pri=1; depth=2, <https://other.example/ns/x>; ...; pri=2
    X-Pelican-Namespace: namespace=/ns, require-token=true, collections-url=https://origin.example
    X-Pelican-Authorization: issuer=https://issuer.example/ns
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from coalloc.errors import Unsupported, UsageError
from coalloc.model.replicas import Federation
from coalloc.safe_text import redact, unsafe_reason
from coalloc.util.addresses import AddressClass, class_of
from coalloc.util.counts import count
from coalloc.util.dialer import numeric

__all__ = [
    "ObjectURL",
    "caches",
    "collections_of",
    "director_of",
    "federation_of",
    "is_protected",
    "parse",
    "stated_reason",
]

OSDF = "osg-htc.org"
"""The federation of osdf:// and stash:// URLs."""
FLAGS = ("directread", "skipstat", "prefercached")
"""Parameters that the director understands."""
MOST_CACHES = 16
"""Maximum number of caches that are used; directors name six."""
MOST_ISSUERS, LONGEST_ISSUER = 4, 300
LINK = re.compile(r"<([^<>]*)>((?:[^,\"]|\"[^\"]*\")*)")
SAFE = "/%:@!$&'()*+,;=~"
"""Characters that stay as they are in the path of a URL."""
HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


class ObjectURL(NamedTuple):
    """A parsed URL of an object: the host of its federation, its path, and the parameters for the director."""

    federation: str
    path: str
    query: str = ""

    @property
    def shown(self) -> str:
        """The URL for messages."""
        return f"pelican://{self.federation}{self.path}"

    @property
    def discovery(self) -> str:
        """The URL of the document that describes the federation."""
        return f"https://{self.federation}/.well-known/pelican-configuration"

    def at(self, server: str) -> str:
        """Return the URL of the object at a server, whose own URL is given."""
        parts = urlsplit(server)
        return f"{parts.scheme}://{parts.netloc}{self.path}"


def parse(url: str) -> ObjectURL:
    """Return the parts of an object's URL.

    >>> parse("pelican://fed.example:8444/ns/a b?directread")
    ObjectURL(federation='fed.example:8444', path='/ns/a%20b', query='directread')
    >>> parse("osdf:///ns/x") == parse("osdf://ns/x") == parse("stash:///ns/x")
    True

    :raises UsageError: if it names no federation or no object, or has parameters that coget does not support
    """
    parts = urlsplit(url)
    federation, path = (
        (parts.netloc, parts.path) if parts.scheme == "pelican" else (OSDF, f"/{parts.netloc}{parts.path}")
    )
    path = f"/{quote(path, safe=SAFE).lstrip('/')}"
    if not HOST.fullmatch(federation) or "@" in parts.netloc:
        raise UsageError(f"{redact(url)} names no federation", "write pelican://FEDERATION/NAMESPACE/OBJECT")
    if path == "/":
        raise UsageError(f"{redact(url)} names no object", f"write {parts.scheme}://.../NAMESPACE/OBJECT")
    _check_parameters(url, parts.query)
    return ObjectURL(federation, path, parts.query)


def _check_parameters(url: str, query: str) -> None:
    given = parse_qs(query, keep_blank_values=True)
    for name, values in given.items():
        if name not in FLAGS or len(values) > 1:
            why = "is given twice" if name in FLAGS else "is not supported"
            raise UsageError(f"{redact(url)}: the parameter {name[:40]!r} {why}", f"use {', '.join(FLAGS)}, or none")
    if {"directread", "prefercached"} <= given.keys():
        raise UsageError(f"{redact(url)} asks for both directread and prefercached", "leave out one of them")


def director_of(document: bytes, shown: str) -> str | None:
    """Return the URL of the director in a federation's document; None if its host itself serves the objects.

    :raises Unsupported: if the document is invalid
    """
    try:
        director = json.loads(document).get("director_endpoint") or None
        usable = director is None or is_protected(director)
    except (ValueError, AttributeError, TypeError, RecursionError):
        usable = False
    if not usable:
        raise Unsupported(f"{shown} is not the description of a federation", "check the host of the URL")
    return director


def is_protected(url: str) -> bool:
    """Return whether bytes from this URL cannot be changed on their way: by TLS, or as they stay on this machine."""
    if unsafe_reason(url):
        return False
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0 or parts.scheme not in ("http", "https"):
        return False
    address = numeric(parts.hostname)
    return parts.scheme == "https" or (address is not None and class_of(address) == AddressClass.LOOPBACK)


def caches(headers: Mapping[str, str]) -> list[tuple[str, int | None]]:
    """Return the servers that the director names in Link or else Location, each with its priority, the best first.

    >>> caches({"link": '<https://b/x>; rel="duplicate"; pri=2, <https://a/x>; rel=duplicate; pri=1, <c>; rel=next'})
    [('https://a/x', 1), ('https://b/x', 2)]
    >>> caches({"location": "https://a/x?authz=..."})
    [('https://a/x?authz=...', None)]
    """
    found: dict[str, int | None] = {}
    for url, parameters in LINK.findall(headers.get("link", "")):
        given = dict(_pairs(parameters, ";"))
        if "duplicate" in given.get("rel", "").lower().split():
            found.setdefault(url.strip(), count(given.get("pri", "")))
    if not found and "location" in headers:
        found[headers["location"].strip()] = None
    ordered = sorted(found.items(), key=lambda each: (each[1] is None, each[1] or 0))
    return ordered[:MOST_CACHES]


def federation_of(url: ObjectURL, headers: Mapping[str, str]) -> Federation:
    """Return what the director states about tokens for an object.

    >>> headers = {"x-pelican-namespace": "namespace=/ns, require-token=true", "x-pelican-authorization": "issuer=https://i"}
    >>> federation_of(parse("pelican://fed.example/ns/x"), headers)
    Federation(host='fed.example', needs_token=True, issuers=('https://i',))
    """
    namespace = dict(_pairs(headers.get("x-pelican-namespace", ""), ","))
    stated = ",".join(headers.get(f"x-pelican-{name}", "") for name in ("authorization", "token-generation"))
    issuers = dict.fromkeys(value[:LONGEST_ISSUER] for name, value in _pairs(stated, ",") if name == "issuer" and value)
    return Federation(
        url.federation, namespace.get("require-token", "").lower() in ("true", "1", "t"), (*issuers,)[:MOST_ISSUERS]
    )


def collections_of(headers: Mapping[str, str]) -> str | None:
    """Return the URL of the server that lists the directories of a namespace; None if the director states none.

    >>> collections_of({"x-pelican-namespace": "namespace=/ns, collections-url=https://origin.example:8443"})
    'https://origin.example:8443'
    """
    return dict(_pairs(headers.get("x-pelican-namespace", ""), ",")).get("collections-url")


def _pairs(text: str, separator: str) -> list[tuple[str, str]]:
    """Return the parameters in a header: names in lower case, values without quotation marks."""
    pairs = (each.partition("=") for each in text.split(separator))
    return [(name.strip().lower(), value.strip().strip('"')) for name, equals, value in pairs if equals]


def stated_reason(body: bytes) -> str:
    """Return the reason in a director's error; empty if it states none.

    >>> stated_reason(b'{"status": "error", "msg": "Object not found at any cache"}'), stated_reason(b"<html>")
    ('Object not found at any cache', '')
    """
    try:
        reason = json.loads(body).get("msg")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return reason[:LONGEST_ISSUER] if isinstance(reason, str) else ""

"""Checks of replica URLs that do not depend on their scheme; each engine checks its own URLs further."""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from coalloc.errors import NothingToFetchFrom, UsageError
from coalloc.model.replicas import Origin, Replica, ReplicaSet
from coalloc.resolve.file_names import UNPRINTABLE, from_url
from coalloc.safe_text import redact, unsafe_reason

__all__ = ["admitted", "check", "is_federated", "is_opaque", "replica_set", "without_copy"]

NETWORK = ("dav", "davs", "ftp", "ftpes", "ftps", "gsiftp", "http", "https")
"""Schemes allowed in documents and servers' answers: their engines read no local files and start no programs."""
FEDERATED = ("osdf", "pelican", "stash")
"""Schemes of objects in federations, whose directors name the replicas."""

LONGEST, SHOWN = 8 * 1024, 200
"""Maximum characters of a URL (servers accept fewer), and characters of a refused URL shown in a message."""


def replica_set(urls: Sequence[str]) -> ReplicaSet:
    """Return the replicas of one file, which is named after the first URL; drop repeated URLs.

    :raises UsageError: if a URL is malformed
    """
    distinct = tuple(dict.fromkeys(urls))
    for url in distinct:
        check(url)
    return ReplicaSet(from_url(distinct[0]), tuple(Replica(url) for url in distinct))


def admitted(file: ReplicaSet, origin: Origin) -> ReplicaSet:
    """Return a file from a document or a server, without replicas that only the user may name, such as local files.

    >>> file = ReplicaSet("x", (Replica("http://a/x"), Replica("file:///etc/passwd")))
    >>> [replica.url for replica in admitted(file, Origin("document")).replicas]
    ['http://a/x']
    """
    replicas, left_out = [], []
    for replica in file.replicas:
        if why := _why_not_admitted(replica.url):
            left_out.append((redact(replica.url), f"left out: {why}"))
        else:
            replicas.append(replica._replace(origin=origin))
    return file._replace(replicas=tuple(replicas), left_out=(*file.left_out, *left_out), origin=origin)


def _why_not_admitted(url: str) -> str | None:
    if reason := _why_malformed(url):
        return f"it is not a URL: {reason}"
    scheme = url.partition(":")[0].lower()
    if scheme not in NETWORK:
        return f"{scheme}:// URLs are allowed on the command line only, not from a document or server"
    return unsafe_reason(url) if urlsplit(url).hostname else "it names no host"


def without_copy(file: ReplicaSet) -> NothingToFetchFrom:
    """Return the error for a file without replicas, which says why each was left out."""
    why = "; ".join(f"{url}: {why}" for url, why in file.left_out[:5]) or "the catalogue names none"
    return NothingToFetchFrom(f"{file.name} has no copy that coget can fetch: {why}", "give its URL")


def is_federated(url: str) -> bool:
    """Return whether a URL names an object of a federation."""
    return url.partition("://")[0].lower() in FEDERATED


def is_opaque(url: str) -> bool:
    """Return whether this is a URI without a host, such as file:/x or data:,x, which is ignored instead of refused."""
    return bool(re.match("[A-Za-z][A-Za-z0-9+.-]*:(?!//)", url)) and len(url) <= LONGEST and not UNPRINTABLE.search(url)


def check(url: str) -> None:
    """Refuse a malformed URL: one without a scheme, with control characters, or with an impossible host or port.

    :raises UsageError: if the URL is malformed; the message does not contain the password
    """
    reason = _why_malformed(url)
    if reason:
        shown = redact(re.sub("//.*@", "//", url[:LONGEST]))[:SHOWN]
        raise UsageError(
            f"'{shown}' is not a URL: {reason}", "write it as SCHEME://HOST[:PORT]/PATH, like ftp://host/data/x"
        )


def _why_malformed(url: str) -> str | None:
    if len(url) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    if not re.match("[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://", url):  # fsspec chains with ::
        return "it does not begin with a scheme"
    if UNPRINTABLE.search(url):
        return "it has a control character"
    try:
        port = urlsplit(url).port
    except ValueError:
        port = 0
    return "its host or port is impossible" if port == 0 else None

"""Replicas of an object of a Pelican federation, such as the OSDF: each cache that its director names is a replica.

The federation's answers are data. The bytes of its servers must be safe from changes on their way, and they may not
have addresses of a more internal class than the servers that name them.
"""

from collections.abc import Sequence
from typing import NoReturn
from urllib.parse import urlsplit

from coalloc.errors import NoSuchFile, PermissionRefused, ServerSays, SourceError, Unsupported
from coalloc.model import Federation, Origin, Replica, ReplicaSet
from coalloc.resolve import http_documents
from coalloc.resolve.federation_answers import (
    ObjectURL,
    caches,
    director_of,
    federation_of,
    is_protected,
    parse,
    said,
)
from coalloc.resolve.file_names import from_url
from coalloc.resolve.http_documents import DirectAnswer
from coalloc.resolve.replica_urls import FEDERATED, admitted, replica_set
from coalloc.safe_text import redact
from coalloc.util.addresses import class_of
from coalloc.util.dialer import Dialer

__all__ = ["with_caches"]

MAX_BYTES = 64 * 1024
"""Maximum bytes of a federation's document."""
REDIRECTS = (301, 302, 303, 307, 308)


async def with_caches(sources: Sequence[str], dialers: Sequence[Dialer]) -> ReplicaSet:
    """Return the replicas of one file at these URLs; for an object of a federation, these are its caches.

    An object is left out if its federation fails and there are other sources.

    :param dialers: dialers over all routes to the servers
    :raises UsageError: if a URL is malformed
    :raises SourceError: if all sources are objects whose federations fail
    """
    objects = {url: parse(url) for url in sources if urlsplit(url).scheme in FEDERATED}
    files, errors = dict[str, ReplicaSet](), dict[str, SourceError]()
    for url in dict.fromkeys(sources):
        try:
            files[url] = await _cached(objects[url], dialers) if url in objects else replica_set([url])
        except SourceError as error:
            errors[url] = error
    if not files:
        raise next(iter(errors.values()))
    replicas = {replica.url: replica for file in reversed(files.values()) for replica in reversed(file.replicas)}
    left_out = [each for file in files.values() for each in file.left_out]
    left_out += [(redact(url), error.message) for url, error in errors.items()]
    first = sources[0]
    name = _name(objects[first]) if first in objects else from_url(first)
    return ReplicaSet(name, tuple(reversed(replicas.values())), left_out=tuple(left_out))


def _name(url: ObjectURL) -> str:
    return from_url(url.at(url.discovery))


async def _cached(url: ObjectURL, dialers: Sequence[Dialer]) -> ReplicaSet:
    """Return the object's replicas at the servers that its federation names.

    :raises SourceError: if the federation does not answer, or does not know the object
    """
    document = await http_documents.get(url.discovery, MAX_BYTES, dialers, "the description of a federation")
    if not document.secure:
        raise Unsupported(f"{url.discovery} redirects to http", "check the host of the URL")
    director = director_of(document.content, url.discovery)
    if director is None:
        itself = Replica(url.at(url.discovery), origin=Origin(federation=Federation(url.federation, False, ())))
        return ReplicaSet(_name(url), (itself,))
    led = [dialer.under(dialer.policy.named_by(document.address)) for dialer in dialers]
    answer = await http_documents.answer_of(url.at(director) + (f"?{url.query}" if url.query else ""), led)
    federation = federation_of(url, answer.headers)
    named = caches(answer.headers) if answer.status in REDIRECTS else []
    if not named:
        _refuse(url, answer, federation)
    # The addresses of caches are bounded by the more public one of the servers that lead to them.
    addresses = [address for address in (document.address, answer.address) if address]
    origin = Origin("server", min(addresses, key=class_of) if len(addresses) == 2 else None, federation)
    file = ReplicaSet(_name(url), tuple(Replica(server, priority) for server, priority in named))
    return _protected(admitted(file, origin))


def _protected(file: ReplicaSet) -> ReplicaSet:
    """Return the file without servers whose bytes others could change on their way."""
    usable = tuple(replica for replica in file.replicas if is_protected(replica.url))
    why = "left out: it is named by a federation, but is not https"
    left_out = [(redact(replica.url), why) for replica in file.replicas if replica not in usable]
    return file._replace(replicas=usable, left_out=(*file.left_out, *left_out))


def _refuse(url: ObjectURL, answer: DirectAnswer, federation: Federation) -> NoReturn:
    """Raise the error for an answer that names no server."""
    reason = said(answer.body) or str(answer.status)
    if answer.status == 404:
        raise NoSuchFile(f"{url.shown}: the director of the federation says: {reason}", "check the path in the URL")
    if isinstance(answer.error, PermissionRefused) and federation.issuers:
        issuers = " or ".join(federation.issuers)
        raise PermissionRefused(f"{url.shown} needs a token from {issuers}", "get one, and set BEARER_TOKEN")
    if answer.error:
        raise answer.error
    raise ServerSays(
        f"{url.shown}: the director of the federation names no server, and says: {reason}", "try again later"
    )

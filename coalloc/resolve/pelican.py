"""Objects of Pelican federations, such as the OSDF: each cache that the director of a federation names is a replica.

The federation's answers are data. The bytes of its servers must be safe from changes on their way, and they may not
have addresses of a more internal class than the servers that name them.
"""

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple, NoReturn

from coalloc.errors import NoSuchFile, PermissionRefused, ServerSays, SourceError, Unsupported
from coalloc.model.replicas import Federation, Origin, Replica, ReplicaSet
from coalloc.resolve.federation_answers import (
    ObjectURL,
    caches,
    director_of,
    federation_of,
    is_protected,
    parse,
    stated_reason,
)
from coalloc.resolve.federation_requests import FederationAnswer, answer_of
from coalloc.resolve.replica_urls import admitted, is_federated
from coalloc.safe_text import redact
from coalloc.util.addresses import AddressPolicy, class_of
from coalloc.util.dialer import Dialer

__all__ = ["DirectorAnswer", "ask_director", "expanded", "refuse"]

REDIRECTS = (301, 302, 303, 307, 308)
KEPT_SECONDS, MOST_KEPT = 600.0, 64
"""Seconds for which a federation's document is kept, and maximum number of those that are kept."""

_documents: dict[tuple[str, AddressPolicy], tuple[float, FederationAnswer]] = {}
"""Documents by federation and policy, with the time when they came: many objects of a federation need it once."""


class DirectorAnswer(NamedTuple):
    """A director's answer, and the origin of the names in it."""

    answer: FederationAnswer
    origin: Origin


async def expanded(file: ReplicaSet, dialers: Sequence[Dialer]) -> ReplicaSet:
    """Return the file with the caches of each object of a federation in the place of the object's URL.

    An object is left out if its federation fails and there are other replicas.

    :param dialers: dialers over all routes to the servers
    :raises UsageError: if a URL is malformed
    :raises SourceError: if all replicas are objects whose federations fail
    """
    replicas: dict[str, Replica] = {}
    left_out, errors = [*file.left_out], list[SourceError]()
    for replica in file.replicas:
        if not is_federated(replica.url):
            replicas.setdefault(replica.url, replica)
            continue
        try:
            found = await _cached(parse(replica.url), dialers)
        except SourceError as error:
            errors.append(error)
            left_out.append((redact(replica.url), error.message))
            continue
        left_out += found.left_out
        for each in found.replicas:
            replicas.setdefault(each.url, each)
    if errors and len(errors) == len(file.replicas):
        raise errors[0]
    return file._replace(replicas=tuple(replicas.values()), left_out=tuple(left_out))


async def _cached(url: ObjectURL, dialers: Sequence[Dialer]) -> ReplicaSet:
    """Return the object's replicas at the servers that its federation names.

    :raises SourceError: if the federation does not answer, or does not know the object
    """
    asked = await ask_director("GET", url, dialers)
    if asked is None:
        itself = Replica(url.at(url.discovery), origin=Origin(federation=Federation(url.federation, False, ())))
        return ReplicaSet("", (itself,))
    answer, origin = asked
    named = caches(answer.headers) if answer.status in REDIRECTS else []
    if not named:
        refuse(url, asked)
    return _protected(admitted(ReplicaSet("", tuple(Replica(*each) for each in named)), origin))


def _protected(file: ReplicaSet) -> ReplicaSet:
    """Return the file without servers whose bytes others could change on their way."""
    usable = tuple(replica for replica in file.replicas if is_protected(replica.url))
    why = "left out: it is named by a federation, but is not https"
    left_out = [(redact(replica.url), why) for replica in file.replicas if replica not in usable]
    return file._replace(replicas=usable, left_out=(*file.left_out, *left_out))


async def ask_director(
    method: Literal["GET", "PROPFIND"], url: ObjectURL, dialers: Sequence[Dialer]
) -> DirectorAnswer | None:
    """Return the answer of a federation's director; None if the federation has none, and serves its objects itself.

    :raises SourceError: if the federation does not answer
    """
    document = await _document(url, dialers)
    director = director_of(document.body, url.discovery)
    if director is None:
        return None
    led = [dialer.under(dialer.policy.named_by(document.address)) for dialer in dialers]
    query = f"?{url.query}" if url.query else ""
    headers = {"Depth": "0"} if method == "PROPFIND" else {}
    answer = await answer_of(method, url.at(director) + query, led, headers, follows=False)
    # The more public one of the servers that lead to a name bounds its addresses.
    known = [address for address in (document.address, answer.address) if address]
    address = min(known, key=class_of) if len(known) == 2 else None
    return DirectorAnswer(answer, Origin("server", address, federation_of(url, answer.headers)))


async def _document(url: ObjectURL, dialers: Sequence[Dialer]) -> FederationAnswer:
    """Return the document that describes a federation, which may be some minutes old."""
    key, now = (url.federation, dialers[0].policy), time.monotonic()
    came, known = _documents.get(key, (0.0, None))
    if known and now < came + KEPT_SECONDS:
        return known
    document = await answer_of("GET", url.discovery, dialers, {}, follows=True)
    if document.error:
        raise document.error
    if not document.secure:
        raise Unsupported(f"{url.discovery} redirects to http", "check the host of the URL")
    director_of(document.body, url.discovery)  # raises, so that no wrong document is kept
    if len(_documents) >= MOST_KEPT:
        _documents.clear()
    _documents[key] = now, document
    return document


def refuse(url: ObjectURL, asked: DirectorAnswer) -> NoReturn:
    """Raise the error for an answer that names no server."""
    answer, federation = asked.answer, asked.origin.federation
    reason = stated_reason(answer.body) or str(answer.status)
    if answer.status == 404:
        raise NoSuchFile(f"{url.shown}: the director of the federation says: {reason}", "check the path in the URL")
    if isinstance(answer.error, PermissionRefused) and federation and federation.issuers:
        issuers = " or ".join(federation.issuers)
        raise PermissionRefused(f"{url.shown} needs a token from {issuers}", "get one, and set BEARER_TOKEN")
    if answer.error:
        raise answer.error
    what = f"{url.shown}: the director of the federation names no server, and says: {reason}"
    raise ServerSays(what, "try again later")

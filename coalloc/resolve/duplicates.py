"""Further replicas of a file that its server names by `Link` headers, or in a Metalink to which one leads (RFC 6249).

They come from a server, so they get what any server's answer gets: only network schemes, restricted addresses, and no
login of the user. Their own links are not followed. `download.agreement` decides which of them may be used.
"""

import asyncio
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from coalloc.engine.http.links import WebLink
from coalloc.errors import CoallocError, UsageError
from coalloc.model.replicas import NamedBy, Origin, Replica, ReplicaSet
from coalloc.resolve.http_documents import METALINKS, HeadAnswer, get
from coalloc.resolve.replica_urls import admitted
from coalloc.safe_text import redact
from coalloc.util.addresses import USUAL_PORTS, class_of, policy_of
from coalloc.util.dialer import Dialer

__all__ = ["with_duplicates"]

MOST = 16
"""Maximum number of further replicas; those with the best priorities are used."""
SECONDS, BYTES = 3.0, 4 * 1024 * 1024
"""Limits for the Metalink, for which the transfer waits."""
WORST = 1_000_000
SHOWS_LOGIN = "left out: your certificate is shown only to servers that you name"


async def with_duplicates(file: ReplicaSet, answer: HeadAnswer, dialers: Sequence[Dialer]) -> ReplicaSet:
    """Return the file with the replicas, hashes and pieces to which the answer of its only server leads.

    A Metalink that cannot be read, or contradicts the server, is left out, with the reason.
    """
    origin, (own,) = Origin("server", answer.address), file.replicas
    named = [_replica(link, by) for link, by in answer.links if "duplicate" in link.relations]
    described, left_out = await _described(file, answer, dialers)
    found = admitted(file._replace(replicas=tuple(named), left_out=(), origin=origin), origin)
    others = _distinct((*found.replicas, *described.replicas), {own.url, *answer.targets})
    usable = [replica for replica in others if urlsplit(replica.url).scheme != "gsiftp"]
    usable.sort(key=lambda replica: replica.priority or WORST)
    refused = [(redact(replica.url), SHOWS_LOGIN) for replica in others if replica not in usable]
    return file._replace(
        replicas=(own, *usable[:MOST]),
        checksums=described.checksums,
        pieces=described.pieces,
        left_out=(*found.left_out[:MOST], *described.left_out[:MOST], *refused[:MOST], *left_out),
        vouched=described.vouched,
    )


def _replica(link: WebLink, by: NamedBy) -> Replica:
    return Replica(link.url.partition("#")[0], link.priority, link.location, named_by=by)


def _distinct(replicas: Iterable[Replica], known: Iterable[str]) -> list[Replica]:
    """Return the replicas at places other than these URLs, each place once."""
    seen, found = {_place(url) for url in known}, []
    for replica in replicas:
        if (place := _place(replica.url)) not in seen:
            seen.add(place)
            found.append(replica)
    return found


def _place(url: str) -> tuple[str, str, int | None, str]:
    """Return what distinguishes replicas: scheme, host, port and path. The query may be a token."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or USUAL_PORTS.get(parts.scheme), parts.path


async def _described(
    file: ReplicaSet, answer: HeadAnswer, dialers: Sequence[Dialer]
) -> tuple[ReplicaSet, tuple[tuple[str, str], ...]]:
    """Return the file as the first Metalink describes it, or without replicas and hashes, and the reason."""
    nothing = file._replace(replicas=(), left_out=())
    described = [
        (link, by) for link, by in answer.links if "describedby" in link.relations and link.media_type in METALINKS
    ]
    if not described:
        return nothing, ()
    link, by = described[0]
    try:
        async with asyncio.timeout(SECONDS):
            return await _read(file, link, by, answer, dialers), ()
    except (CoallocError, TimeoutError) as error:
        why = error.message if isinstance(error, CoallocError) else f"it did not come within {SECONDS:g} s"
        return nothing, ((redact(link.url), f"left out: {why}"),)


async def _read(
    file: ReplicaSet, link: WebLink, by: NamedBy, answer: HeadAnswer, dialers: Sequence[Dialer]
) -> ReplicaSet:
    """Return the file's description in a Metalink.

    :raises CoallocError: if the Metalink cannot be read, or is of another file
    """
    from coalloc.resolve import metalink  # imported here because few transfers need a parser of XML

    origin = Origin("server", answer.address)
    asked = admitted(ReplicaSet(file.name, (Replica(link.url),)), origin)
    scheme = link.url.partition(":")[0].lower()
    if asked.left_out or scheme not in (("https",) if by.secure else ("http", "https")):
        raise UsageError(f"a Metalink is not fetched from there, as {by.url} named it", "give its URL")
    restricted = [dialer.under(policy_of(origin, dialer.policy)) for dialer in dialers]
    document, address, secure, _ = await get(link.url, BYTES, restricted)
    files = metalink.read(document, redact(link.url))
    found = files[0] if len(files) == 1 else next((each for each in files if each.name == file.name), None)
    if found is None:
        raise UsageError(f"it does not describe {file.name}", "use another Metalink")
    stated = {checksum.algorithm: checksum.value for checksum in answer.checksums}
    if any(stated.get(each.algorithm, each.value) != each.value for each in found.checksums):
        raise UsageError("its checksum is not the one that the server states", "use another Metalink")
    if None not in (found.size, answer.size) and found.size != answer.size:
        raise UsageError(
            "its size is not the one that the server states: it is of another version", "use another Metalink"
        )
    known = answer.address and address and min(answer.address, address, key=class_of)
    secure = secure and by.secure
    naming = NamedBy(redact(link.url), redirecting=False, secure=secure)
    found = admitted(found, Origin("server", known or None))
    return found._replace(
        replicas=tuple(replica._replace(named_by=naming) for replica in found.replicas),
        vouched=secure and bool(found.checksums or found.pieces),
    )

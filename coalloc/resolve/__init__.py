"""Resolution of the user's arguments to replica sets, before any replica's server is contacted, and of target paths.

The engines find sizes later, during the download.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coalloc.credentials import Credentials
from coalloc.engine.first_answers import FirstAnswers
from coalloc.errors import CoallocError, Stalled, UsageError
from coalloc.model.forecasts import FoundReplicas
from coalloc.model.replicas import DATASET, Origin, ReplicaSet
from coalloc.resolve.catalogue_names import is_catalogued, refuse_several
from coalloc.resolve.federated import with_caches
from coalloc.resolve.file_names import refuse_collisions
from coalloc.resolve.replica_urls import admitted, check, is_federated, replica_set
from coalloc.resolve.targets import bounds, target
from coalloc.safe_text import redact
from coalloc.util.dialer import Dialer, DirectDialer

if TYPE_CHECKING:
    from coalloc.resolve.http_documents import HeadAnswer

__all__ = ["Ask", "Fetch", "bounds", "ends_as_metalink", "refuse_collisions", "resolve", "target"]

Ask = Callable[[Sequence[str]], Awaitable[list[FoundReplicas]]]
"""`await ask(names)`: the broker's replicas of these datasets."""

Fetch = Callable[[str, int], Awaitable[tuple[bytes, str | None]]]
"""`await fetch(url, limit)`: a whole document, fetched by an engine, and the numeric address of its server, if known.

It raises UsageError if the document is longer than `limit` bytes.
"""

DOCUMENT_SECONDS = 600.0
"""Maximum seconds for a Metalink to arrive."""
METALINKS = (".meta4", ".metalink")
"""Suffixes of Metalink URLs."""


async def resolve(
    sources: Sequence[str],
    fetch_document: Fetch,
    ask: Ask | None = None,
    dialers: Sequence[Dialer] = (),
    first: FirstAnswers | None = None,
    credentials: Credentials | None = None,
    whole: bool = False,
) -> list[FoundReplicas]:
    """Resolve `sources`: replica URLs of one file, one Metalink as a path or URL, or a broker's datasets.

    An object of a Pelican federation is resolved to its caches.

    With a broker, a source that is neither a URL nor a file is a dataset; without a broker, it is a Metalink's path. A
    URL is a Metalink if it ends in .meta4 or .metalink, or if it is the only source, is http(s), and its server says
    so. Any other URL is a replica; if it is the only source and http(s), its server may name further replicas.

    A name in a catalogue, such as a DOI, has the copies that the catalogue names. Several names, and URLs beside them,
    are of one file, if their checksums agree.

    :param fetch_document: function that fetches Metalinks by protocols other than http(s)
    :param ask: function that asks the broker, if there is one
    :param dialers: dialers for http servers, over all routes; none for direct connections to any address
    :param first: keeps the answer of a server that was asked whether its URL is a Metalink, for the source
    :param credentials: those that web servers may get; None for those in the URL only
    :param whole: whether a name in a catalogue may stand for several files
    :raises UsageError: if a source is none of these, or a Metalink is malformed or not alone
    :raises SourceError: if a Metalink cannot be fetched from its server
    """
    if not sources or "" in sources:
        raise UsageError("no source was given", "give one or more replica URLs, or a Metalink file")
    if any(map(is_catalogued, sources)):
        return await _catalogued(sources, ask, dialers or (DirectDialer(),), credentials, whole)
    for source in sources:
        if "://" in source:
            check(source)
    if ask and all(map(_may_be_dataset, sources)):
        return _checked(await ask(sources))
    files = await _files(sources, fetch_document, dialers or (DirectDialer(),), first, credentials)
    return [FoundReplicas(file, {}) for file in files]


async def _catalogued(
    sources: Sequence[str], ask: Ask | None, dialers: Sequence[Dialer], credentials: Credentials | None, whole: bool
) -> list[FoundReplicas]:
    """Return the files of names in catalogues; those of several names, and URLs beside them, as one file."""
    names = [source for source in dict.fromkeys(sources) if is_catalogued(source)]
    urls = [source for source in sources if source not in names]
    if others := [source for source in urls if "://" not in source or is_federated(source) or ends_as_metalink(source)]:
        raise UsageError(f"{redact(others[0])} was given with {redact(names[0])}", "give it alone, or URLs of copies")
    alone = len(names) == 1 and not urls
    try:
        found = [await _of_catalogue(name, ask, dialers, credentials, alone and whole) for name in names]
    except CoallocError as error:
        if other := next(filter(None, (_other_meaning(name, ask is not None) for name in names)), None):
            error.remedy = f"{error.remedy}; {other}" if error.remedy else other
        raise
    for name, files in zip(names, found, strict=True):
        if len(files) > 1 and not (alone and whole):
            raise refuse_several(redact(name), [each.file.name for each in files])
    if alone:
        return found[0]
    from coalloc.resolve.catalogues.merging import merged

    file = merged([files[0].file for files in found], [redact(name) for name in names])
    typed = replica_set(urls).replicas if urls else ()
    known = {replica.url for replica in typed}
    kept = tuple(replica for replica in file.replicas if replica.url not in known)
    return [FoundReplicas(file._replace(replicas=(*typed, *kept)), {})]


def _other_meaning(name: str, has_broker: bool) -> str | None:
    """Return how to write a name if a local file, or a dataset of the broker, may be meant."""
    if os.path.lexists(name):
        return f"for the local file of that name, write ./{redact(name)}"
    if has_broker and DATASET.fullmatch(name) and not name.lower().startswith("coget:"):
        return f"for a dataset of your broker, write coget:{redact(name)}"
    return None


async def _of_catalogue(
    name: str, ask: Ask | None, dialers: Sequence[Dialer], credentials: Credentials | None, whole: bool
) -> list[FoundReplicas]:
    if name.lower().startswith("coget:"):
        if ask is None:
            raise UsageError(f"{name} is a name of a broker, but none is configured", "give --broker, or COGET_BROKER")
        dataset = name.partition(":")[2]
        if not DATASET.fullmatch(dataset):
            raise UsageError(f"{name} is not a name of a dataset", "write it as coget:SCOPE:NAME")
        return _checked(await ask([dataset]))
    from coalloc.resolve import catalogues  # imported here because it imports all of http

    return [FoundReplicas(file, {}) for file in await catalogues.files_of(name, dialers, credentials, whole)]


def _may_be_dataset(source: str) -> bool:
    return bool(DATASET.fullmatch(source)) and not os.path.exists(source)  # noqa: PTH110 - never raises


def _checked(files: Sequence[FoundReplicas]) -> list[FoundReplicas]:
    """Return the broker's files without replicas that only the user may name, such as local files.

    :raises UsageError: if several files have the same name
    """
    names = [found.file.name for found in files]
    if twice := [found.dataset for found in files if names.count(found.file.name) > 1]:
        raise UsageError(
            f"{' and '.join(map(str, twice))} would be written to the same file", "fetch them separately, with -o"
        )
    return [found._replace(file=admitted(found.file, found.file.origin)) for found in files]


async def _files(
    sources: Sequence[str],
    fetch_document: Fetch,
    dialers: Sequence[Dialer],
    first: FirstAnswers | None,
    credentials: Credentials | None,
) -> list[ReplicaSet]:
    if any(map(is_federated, sources)):
        return [await with_caches(replica_set(sources), dialers)]
    documents = [source for source in sources if "://" not in source or ends_as_metalink(source)]
    if not documents and (len(sources) > 1 or not _is_http(sources[0])):
        return [replica_set(sources)]
    if not documents:
        from coalloc.resolve import http_documents  # imported here because it imports all of http

        answer = await http_documents.head(sources[0], dialers, first, credentials)
        if not answer.is_metalink:
            return [await _with_duplicates(replica_set(sources), answer, dialers)]
    if len(sources) > 1:
        raise UsageError(
            f"{redact(documents[0])} was given with other sources, but a Metalink must be the only one",
            "give one Metalink, or only replica URLs of one file",
        )
    try:
        async with asyncio.timeout(DOCUMENT_SECONDS):
            return await _read(sources[0], fetch_document, dialers, credentials)
    except TimeoutError:
        what = f"{redact(sources[0])} did not arrive within {DOCUMENT_SECONDS:g} s"
        raise Stalled(what, "try again later, or give a copy of the Metalink") from None


async def _read(
    source: str, fetch_document: Fetch, dialers: Sequence[Dialer], credentials: Credentials | None
) -> list[ReplicaSet]:
    from coalloc.resolve import metalink  # imported here because few transfers need a parser of XML

    if "://" not in source:
        # One byte more than the limit, so that `read` detects a file that is too large.
        files, origin, secure = metalink.read(_local(source, metalink.MAX_BYTES + 1), source), Origin("document"), True
    elif _is_http(source):
        from coalloc.resolve import http_documents

        document, address, secure, _ = await http_documents.get(source, metalink.MAX_BYTES, dialers, credentials)
        files, origin = metalink.read(document, redact(source)), Origin("server", address)
    else:
        document, address = await fetch_document(source, metalink.MAX_BYTES)
        files, origin, secure = metalink.read(document, redact(source)), Origin("server", address), False
    return [_vouched(admitted(file, origin), secure) for file in files]


def _vouched(file: ReplicaSet, secure: bool) -> ReplicaSet:
    """Return the file, marked as vouched for if it has hashes, and its document came over a secure connection."""
    return file._replace(vouched=secure and bool(file.checksums or file.pieces))


def _local(path: str, limit: int) -> bytes:
    remedy = "give replica URLs, like ftp://host/data/x, or a Metalink 4 file"
    try:
        with Path(path).open("rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{redact(path)} is neither a URL nor a readable file: {reason}", remedy) from None


async def _with_duplicates(file: ReplicaSet, answer: "HeadAnswer", dialers: Sequence[Dialer]) -> ReplicaSet:
    if not answer.links:
        return file
    from coalloc.resolve.duplicates import with_duplicates  # imported here because few servers name duplicates

    return await with_duplicates(file, answer, dialers)


def _is_http(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")


def ends_as_metalink(url: str) -> bool:
    """Return whether a URL names a Metalink by its suffix."""
    return urlsplit(url).path.lower().endswith(METALINKS)

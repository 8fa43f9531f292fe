"""JSON documents of catalogues: fetched within limits, and read without trust in their shape."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from coalloc.credentials import Credentials
from coalloc.errors import NotAllowed, NothingToFetchFrom, UsageError
from coalloc.model import Checksum, Origin, Replica, ReplicaSet
from coalloc.resolve.file_names import why_unsafe
from coalloc.resolve.http_documents import FetchedDocument, get
from coalloc.resolve.replica_urls import admitted
from coalloc.safe_text import redact
from coalloc.util import checksums
from coalloc.util.addresses import class_of, policy_of
from coalloc.util.counts import count
from coalloc.util.dialer import Dialer

__all__ = ["DocumentReader", "described", "mapping", "sequence", "size_of", "text"]

MOST_BYTES = 32 * 1024 * 1024
"""Maximum length of an answer."""
UNREADABLE = "try again later, or give the URLs of the file"


@dataclass(frozen=True)
class DocumentReader:
    """A reader of the answers of catalogues; `origin` and `secure` describe the answers that led to the next URL."""

    dialers: tuple[Dialer, ...]
    credentials: Credentials | None
    origin: Origin = field(default_factory=Origin)
    secure: bool = True

    async def fetched(self, url: str, headers: Mapping[str, str] | None = None) -> FetchedDocument:
        """Return a document.

        :param headers: further headers; with these, no redirect is followed, as they may be secret
        :raises SourceError: if it cannot be fetched
        """
        if self.origin.kind == "server":
            refused = admitted(ReplicaSet("", (Replica(url),)), self.origin).left_out
            scheme = urlsplit(url).scheme
            if refused or scheme not in (("https",) if self.secure else ("http", "https")):
                raise NotAllowed(f"{redact(url)}: a catalogue may not lead there", "give the URLs of the file")
        dialers = [dialer.under(policy_of(self.origin, dialer.policy)) for dialer in self.dialers]
        credentials = self.credentials and self.credentials.named(self.origin)
        return await get(url, MOST_BYTES, dialers, credentials, headers=headers, what="an answer of a catalogue")

    async def json(self, url: str) -> tuple[Any, "DocumentReader"]:
        """Return a JSON document, and the reader for the URLs that it names.

        :raises NothingToFetchFrom: if it is not JSON
        :raises SourceError: if it cannot be fetched
        """
        found = await self.fetched(url)
        try:
            return json.loads(found.content), self.after(found)
        except (ValueError, RecursionError):
            raise NothingToFetchFrom(f"{redact(url)} does not answer with JSON", UNREADABLE) from None

    def after(self, found: FetchedDocument) -> "DocumentReader":
        """Return the reader for the URLs that a document names. Of all servers, the most public one counts."""
        known = found.address
        if self.origin.kind == "server":
            known = min(known, self.origin.address, key=class_of) if known and self.origin.address else None
        return replace(self, origin=Origin("server", known), secure=self.secure and found.secure)

    def file(
        self,
        name: str,
        urls: Sequence[str],
        size: int | None,
        sums: Sequence[Checksum],
        left_out: Sequence[tuple[str, str]] = (),
    ) -> ReplicaSet:
        """Return a file that a document names, without replicas that only the user may name.

        :raises UsageError: if its name is not harmless
        """
        if reason := why_unsafe(name):
            raise UsageError(f"the file name {name[:200]!r} of a catalogue {reason}", "give the URLs of the file")
        replicas = tuple(Replica(url) for url in dict.fromkeys(urls))
        file = ReplicaSet(name, replicas, size, tuple(sums), left_out=tuple(left_out))
        return admitted(file, self.origin)._replace(vouched=self.secure and bool(sums))


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> Sequence[Any]:
    """Return a JSON array; an empty one for any other value."""
    return value if isinstance(value, list) else ()


def text(value: Any) -> str:
    """Return a string, or the first one of an array, as Solr has arrays of one; empty for any other value."""
    first = next(iter(value), None) if isinstance(value, list) else value
    return first if isinstance(first, str) else ""


def size_of(value: Any) -> int | None:
    """Return a size in bytes; None for a value that is none."""
    first = next(iter(value), None) if isinstance(value, list) else value
    return None if isinstance(first, bool) or not isinstance(first, int | str) else count(str(first)[:40])


def described(pairs: Sequence[tuple[str, str]], where: str) -> tuple[Checksum, ...]:
    """Return the checksums of a file by pairs of algorithm and value, without unsupported algorithms.

    :raises UsageError: if one of them has two values
    """
    found: dict[str, Checksum] = {}
    for each in _supported(pairs):
        if found.setdefault(each.algorithm, each) != each:
            raise UsageError(f"{where} has two {each.algorithm} checksums", "give the URLs of the file")
    return tuple(found.values())


def _supported(pairs: Sequence[tuple[str, str]]) -> Iterator[Checksum]:
    for algorithm, value in pairs:
        if checksums.normalise(algorithm) is not None:
            yield checksums.checksum(algorithm, value)

"""JSON documents of catalogues: fetched within limits, and read without trust in their shape."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from coalloc.credentials import Credentials
from coalloc.engine.http.exchange import Signer
from coalloc.errors import NotAllowed, NothingToFetchFrom, TooMuch, UsageError
from coalloc.model.checksums import Checksum
from coalloc.model.replicas import Origin, Replica, ReplicaSet
from coalloc.resolve.file_names import why_unsafe
from coalloc.resolve.http_documents import FetchedDocument, get
from coalloc.resolve.replica_urls import admitted, check
from coalloc.safe_text import redact
from coalloc.util import checksums
from coalloc.util.addresses import class_of, policy_of
from coalloc.util.counts import count
from coalloc.util.dialer import Dialer

__all__ = ["DocumentReader", "described", "mapping", "sequence", "size_of", "text"]

MOST_BYTES, MOST_VALUES = 16 * 1024 * 1024, 1_000_000
"""Maximum length of an answer, and about the maximum number of its values, which take far more memory than its text."""
MOST_DOCUMENTS, MOST_BYTES_IN_ALL, MOST_VALUES_IN_ALL = 20_000, 128 * 1024 * 1024, 3_000_000
"""Limits for all answers about one name."""
MOST_COPIES = 100
"""Maximum number of URLs of a file that are read."""
UNREADABLE = "try again later, or give the URLs of the file"


@dataclass
class DocumentBudget:
    """The numbers of answers, of bytes and of JSON values that may still come about one name."""

    documents: int = MOST_DOCUMENTS
    bytes: int = MOST_BYTES_IN_ALL
    values: int = MOST_VALUES_IN_ALL

    def spend(self, documents: int = 0, length: int = 0, values: int = 0) -> None:
        """Count answers, bytes and values. :raises TooMuch: if these are too many"""
        self.documents -= documents
        self.bytes -= length
        self.values -= values
        if self.documents < 0 or self.bytes < 0 or self.values < 0:
            raise TooMuch(
                f"a catalogue gives more than {MOST_DOCUMENTS} answers, {MOST_BYTES_IN_ALL} bytes or "
                f"{MOST_VALUES_IN_ALL} values about one name",
                "fetch its parts one by one",
            )


@dataclass(frozen=True)
class DocumentReader:
    """A reader of the answers of catalogues; `origin` and `secure` describe the answers that led to the next URL.

    All readers that come from one share its budget.
    """

    dialers: tuple[Dialer, ...]
    credentials: Credentials | None
    origin: Origin = field(default_factory=Origin)
    secure: bool = True
    budget: DocumentBudget = field(default_factory=DocumentBudget)

    def of_others(self) -> "DocumentReader":
        """Return the reader for a service that the user did not name: it gets only what a rule or netrc has for it."""
        return replace(self, credentials=self.credentials and self.credentials.named(Origin("server")))

    async def fetched(
        self, url: str, headers: Mapping[str, str] | None = None, signer: Signer | None = None
    ) -> FetchedDocument:
        """Return a document.

        :param headers: further headers
        :param signer: author of secret headers; with these or other headers, no redirect is followed
        :raises NotAllowed: if a catalogue must not lead there
        :raises SourceError: if it cannot be fetched
        """
        if self.origin.kind == "server":
            refused = admitted(ReplicaSet("", (Replica(url),)), self.origin).left_out
            scheme = url.partition(":")[0].lower()
            if refused or scheme not in (("https",) if self.secure else ("http", "https")):
                raise NotAllowed(f"{redact(url)[:200]}: a catalogue may not lead there", "give the URLs of the file")
        check(url)
        self.budget.spend(documents=1)
        dialers = [dialer.under(policy_of(self.origin, dialer.policy)) for dialer in self.dialers]
        credentials = self.credentials and self.credentials.named(self.origin)
        found = await get(url, MOST_BYTES, dialers, credentials, headers, signer, "an answer of a catalogue")
        self.budget.spend(length=len(found.content))
        return found

    async def json(self, url: str) -> tuple[Any, "DocumentReader"]:
        """Return a JSON document, and the reader for the URLs that it names.

        :raises NothingToFetchFrom: if it is not JSON
        :raises SourceError: if it cannot be fetched
        """
        found = await self.fetched(url)
        values = sum(map(found.content.count, (b",", b"[", b"{")))
        self.budget.spend(values=values)
        if values > MOST_VALUES:
            raise TooMuch(f"{redact(url)} answers with more than {MOST_VALUES} values", UNREADABLE)
        try:
            return json.loads(found.content), self.after(found)
        except (ValueError, RecursionError):
            raise NothingToFetchFrom(f"{redact(url)} does not answer with JSON", UNREADABLE) from None

    def after(self, found: FetchedDocument) -> "DocumentReader":
        """Return the reader for the URLs that a document names."""
        return self.under(replace(self, origin=Origin("server", found.address), secure=found.secure))

    def under(self, other: "DocumentReader") -> "DocumentReader":
        """Return the reader for what the answers of both have led to. Of all servers, the most public one counts."""
        known = other.origin.address
        if self.origin.kind == "server":
            known = min(known, self.origin.address, key=class_of) if known and self.origin.address else None
        return replace(self, origin=Origin("server", known), secure=self.secure and other.secure)

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
        replicas = tuple(Replica(url) for url in dict.fromkeys(urls[:MOST_COPIES]))
        file = ReplicaSet(name, replicas, size, tuple(sums), left_out=tuple(left_out))
        return admitted(file, self.origin)._replace(vouched=self.secure and bool(sums))


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> Sequence[Any]:
    """Return a JSON array; an empty one for any other value."""
    return value if isinstance(value, list) else ()


def text(value: Any) -> str:
    """Return a string, or the first one of an array, as Solr has arrays of one.

    It is empty for any other value, and for a string with half a character, which no URL or file name can have.
    """
    first = next(iter(value), None) if isinstance(value, list) else value
    return first if isinstance(first, str) and not re.search("[\ud800-\udfff]", first) else ""


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

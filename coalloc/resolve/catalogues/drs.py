"""GA4GH's Data Repository Service (DRS) v1: objects, and bundles, which are directories of objects."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from coalloc.config import CatalogueSettings
from coalloc.errors import NothingToFetchFrom, SourceError, TooMuch, UsageError
from coalloc.model.replicas import ReplicaSet
from coalloc.resolve.catalogues.documents import DocumentReader, described, mapping, sequence, size_of, text
from coalloc.resolve.replica_urls import check
from coalloc.safe_text import redact
from coalloc.util.concurrency import gather

__all__ = ["files_of"]

COMPACT = re.compile(r"drs://((?:[a-z0-9_-]+/)?[a-z0-9._]+):(?![0-9]+/)(.+)", re.I)
"""An accession with its prefix, and perhaps a provider, which has no dot, as hosts have."""
API = "/ga4gh/drs/v1"
DEEPEST = 32
"""Maximum number of bundles within each other."""
AT_ONCE = 8
"""Number of objects of a bundle that are asked for at once."""
MOST_METHODS = 100
"""Maximum number of access methods of an object that are read."""


async def files_of(source: str, reader: DocumentReader, settings: CatalogueSettings) -> list[ReplicaSet]:
    """Return the file of an object, or the files of a bundle with their paths below it.

    :raises UsageError: if the name is malformed
    :raises SourceError: if the server does not answer, or does not know it
    """
    base, name, reader = await _place(source, reader, settings)
    service = _Service(base, reader)
    document, following = await service.object(name)
    if document.get("contents"):  # some servers give an empty one with each file
        return await service.below(document)
    return [await service.file(document, name, "", following)]


async def _place(source: str, reader: DocumentReader, settings: CatalogueSettings) -> tuple[str, str, DocumentReader]:
    """Return the address of the service, the object's id there, and the reader for it."""
    compact = COMPACT.fullmatch(source)
    if compact and compact[1].lower() in settings.drs:
        return settings.drs[compact[1].lower()], unquote(compact[2]), reader
    if compact:
        document, following = await reader.of_others().json(
            f"{settings.identifiers}/{compact[1]}:{quote(compact[2], safe='')}"
        )
        resources = sequence(mapping(mapping(document).get("payload")).get("resolvedResources"))
        for each in map(mapping, resources):
            base, found, name = text(each.get("compactIdentifierResolvedUrl")).partition(f"{API}/objects/")
            if found and name:
                return base + API, unquote(name), following
        raise NothingToFetchFrom(
            f"{source}: no DRS server is known for {compact[1]}",
            f'add its address to config.toml: [names.drs], "{compact[1]}" = "https://HOST{API}"',
        )
    check(source)
    host, name = urlsplit(source).netloc, unquote(source.partition("://")[2].partition("/")[2])
    if not host or not name or "@" in host:
        raise UsageError(f"{redact(source)} is not a DRS name", "write it as drs://HOST/ID, or drs://PREFIX:ACCESSION")
    return settings.drs.get(host.lower(), f"https://{host}{API}"), name, reader


class BundleEntry(NamedTuple):
    """An entry of a bundle: its path below the first bundle, and what the bundle states about it."""

    path: str
    stated: Mapping[str, Any]


class BundleAnswer(NamedTuple):
    """The meaning of an entry: files, or entries of a further bundle."""

    files: list[ReplicaSet]
    entries: list[BundleEntry]


def _id_in(entry: Mapping[str, Any], base: str) -> str:
    """Return the id in the first URI of an entry that is an object of the same server.

    >>> _id_in({"drs_uri": ["drs://other/1", "drs://h/a%20b"]}, "https://h/ga4gh/drs/v1")
    'a b'
    """
    stated = entry.get("drs_uri")
    uris = map(text, stated if isinstance(stated, list) else [stated])
    here = f"drs://{urlsplit(base).netloc}/"
    return next((unquote(uri.removeprefix(here)) for uri in uris if uri.startswith(here)), "")


class _Service:
    """A DRS server."""

    def __init__(self, base: str, reader: DocumentReader) -> None:
        self._base = base
        self._reader = reader

    async def object(self, name: str) -> tuple[Mapping[str, Any], DocumentReader]:
        """Return an object, and the reader for the URLs that it names."""
        document, following = await self._reader.json(self._url(name))
        return mapping(document), following

    async def below(self, bundle: Mapping[str, Any]) -> list[ReplicaSet]:
        """Return the files of a bundle and of those within it, with their paths below it.

        An object that the server does not give is a file without a replica.
        """
        files: list[ReplicaSet] = []
        level = self._entries("", bundle)
        for _ in range(DEEPEST):
            left, answers = iter(enumerate(level)), [BundleAnswer([], [])] * len(level)

            async def work(
                left: Iterator[tuple[int, BundleEntry]] = left, answers: list[BundleAnswer] = answers
            ) -> None:
                for place, entry in left:
                    answers[place] = await self._answered(entry)

            await gather(*(work() for _ in range(min(AT_ONCE, len(level)))))
            files += [file for answer in answers for file in answer.files]
            level = [entry for answer in answers for entry in answer.entries]
            if not level:
                return files
        raise TooMuch(f"a DRS bundle has more than {DEEPEST} bundles within each other", "fetch its parts")

    async def _answered(self, entry: BundleEntry) -> BundleAnswer:
        """Return what an entry of a bundle is: a file, or a bundle with entries."""
        path, number = entry.path, text(entry.stated.get("id")) or _id_in(entry.stated, self._base)
        if entry.stated.get("contents") or (not number and "contents" in entry.stated):
            return BundleAnswer([], self._entries(f"{path}/", entry.stated))
        if not number:
            return BundleAnswer(
                [self._reader.file(path, [], None, (), [("the bundle", "it names no object for it")])], []
            )
        try:
            document, following = await self.object(number)
            if document.get("contents"):
                return BundleAnswer([], self._entries(f"{path}/", document))
            return BundleAnswer([await self.file(document, number, path, following)], [])
        except (SourceError, NothingToFetchFrom) as error:
            return BundleAnswer(
                [self._reader.file(path, [], None, (), [(f"object {number[:100]}", error.message)])], []
            )

    def _entries(self, folder: str, bundle: Mapping[str, Any]) -> list[BundleEntry]:
        """Return the entries of a bundle. :raises TooMuch: when their paths, which repeat the folder, are too long"""
        entries = []
        for each in map(mapping, sequence(bundle.get("contents"))):
            name = text(each.get("name"))
            self._reader.budget.spend(length=len(folder) + len(name))
            entries.append(BundleEntry(folder + name, each))
        return entries

    async def file(self, found: Mapping[str, Any], name: str, path: str, following: DocumentReader) -> ReplicaSet:
        """Return the file of an object with this id.

        :param path: its path in the bundle; empty for its own name
        """
        urls: list[str] = []
        left_out: list[tuple[str, str]] = []
        for method in map(mapping, sequence(found.get("access_methods"))[:MOST_METHODS]):
            access, number = mapping(method.get("access_url")), text(method.get("access_id"))
            if not access.get("url") and number:
                try:
                    answer, led = await self._reader.json(f"{self._url(name)}/access/{quote(number, safe='')}")
                except (SourceError, NothingToFetchFrom) as error:
                    left_out.append((f"access {number[:100]}", error.message))
                    continue
                access, following = mapping(answer), following.under(led)
            url = text(access.get("url"))
            if url and access.get("headers"):
                left_out.append((redact(url), "left out: it needs headers of its own"))
            elif url:
                urls.append(url)
        sums = [
            (text(each.get("type")), text(each.get("checksum")))
            for each in map(mapping, sequence(found.get("checksums")))
        ]
        own = path or text(found.get("name")) or re.split("[/:]", name)[-1]
        return following.file(own, urls, size_of(found.get("size")), described(sums, name), left_out)

    def _url(self, name: str) -> str:
        return f"{self._base}/objects/{quote(name, safe='')}"

"""ESGF: the search interface of an index node, which names the copies at all data nodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from coalloc.errors import NoSuchFile, TooMuch, UsageError
from coalloc.model.replicas import ReplicaSet
from coalloc.resolve.catalogues.documents import DocumentReader, described, mapping, sequence, size_of, text
from coalloc.resolve.catalogues.merging import merged

__all__ = ["files_of"]

SERVICES = ("HTTPServer", "GridFTP")
"""Services that give the file itself; OPENDAP gives its values, and Globus is no URL."""
PAGE, MOST_FILES = 500, 100_000
"""Number of documents of an answer, and maximum number of documents of a name."""
FIELDS = "id,title,size,checksum,checksum_type,url"
FoundDocument = tuple[Mapping[str, Any], DocumentReader]
"""A document, and the reader for the URLs that it names."""


async def files_of(source: str, reader: DocumentReader, index: str) -> list[ReplicaSet]:
    """Return the files of a dataset, or one file, with the copies at all nodes.

    :param index: address of the search interface
    :raises UsageError: if the name is malformed, or the nodes' copies differ
    :raises SourceError: if the index does not answer, or does not know the name
    """
    name = source.partition(":")[2].partition("|")[0]
    if not name or "*" in name:
        raise UsageError(f"{source[:200]!r} is not the id of a dataset or file", "write it as esgf:ID, without *")
    datasets = [text(each.get("id")) for each, _ in await _found(reader, index, type="Dataset", instance_id=name)]
    copies: dict[str, list[ReplicaSet]] = {}
    for dataset in filter(None, dict.fromkeys(datasets)):
        found = await _found(reader, index, type="File", dataset_id=dataset)
        _refuse_twins([document for document, _ in found])
        _add(found, copies)
    if not copies:
        _add(await _found(reader, index, type="File", instance_id=name), copies)
    if not copies:
        raise NoSuchFile(f"ESGF's index knows no files of {name}", "check the id, or another index in config.toml")
    return [merged(each, [f"{file.name} at {_node(file)}" for file in each], sure=True) for each in copies.values()]


def _refuse_twins(documents: Sequence[Mapping[str, Any]]) -> None:
    """Check that the files of a dataset at one node have names of their own, as those of one name count as copies."""
    seen: dict[str, str] = {}
    for document in documents:
        title, number = text(document.get("title")), text(document.get("id"))
        if seen.setdefault(title, number) != number:
            raise UsageError(f"the dataset has two files {title[:200]!r} at one node", "name the files one by one")


def _add(found: Iterable[FoundDocument], copies: dict[str, list[ReplicaSet]]) -> None:
    for document, following in found:
        file = _file(document, following)
        copies.setdefault(file.name, []).append(file)


async def _found(reader: DocumentReader, index: str, **wanted: str) -> list[FoundDocument]:
    """Return all documents that an index finds."""
    found: list[FoundDocument] = []
    while True:
        fixed = {
            "format": "application/solr+json",
            "distrib": "true",
            "fields": FIELDS,
            "limit": PAGE,
            "offset": len(found),
        }
        answer, following = await reader.json(f"{index}?{urlencode(fixed | wanted)}")
        response = mapping(mapping(answer).get("response"))
        documents = sequence(response.get("docs"))
        found += [(mapping(each), following) for each in documents]
        if len(found) > MOST_FILES:
            raise TooMuch(f"ESGF's index names more than {MOST_FILES} files", "name the files one by one")
        if not documents or len(found) >= (size_of(response.get("numFound")) or 0):
            return found


def _file(document: Mapping[str, Any], following: DocumentReader) -> ReplicaSet:
    name = text(document.get("title"))
    urls = []
    for each in sequence(document.get("url")):
        url, _, service = text(each).partition("|")
        if service.rpartition("|")[2] in SERVICES:
            urls.append(url)
    kinds, values = document.get("checksum_type"), document.get("checksum")
    pairs = zip(_texts(kinds), _texts(values), strict=False)
    return following.file(name, urls, size_of(document.get("size")), described(list(pairs), name))


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [text(each) for each in sequence(value)]


def _node(file: ReplicaSet) -> str:
    return file.replicas[0].url.split("/")[2] if file.replicas else "a node without usable URLs"

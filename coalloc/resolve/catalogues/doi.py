"""DOIs: the record of DataCite, then that of the repository, which names the files.

Repositories: those that run InvenioRDM, such as Zenodo, and those that run Dataverse. For others, the files are those
that DataCite's record names by `contentUrl`.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from coalloc.errors import NoSuchFile, NothingToFetchFrom, UsageError
from coalloc.model.replicas import ReplicaSet
from coalloc.resolve.catalogues.documents import DocumentReader, described, mapping, sequence, size_of, text
from coalloc.resolve.file_names import from_url
from coalloc.resolve.replica_urls import check
from coalloc.safe_text import redact

__all__ = ["files_of"]

NAME = re.compile(
    r"(?:doi:|https?://(?:dx\.)?doi\.org/)(?P<doi>10\.[0-9.]{1,40}/[^#\s]{1,500})(?:#(?P<file>.+))?", re.I
)
RECORD = re.compile(r"/(?:records?/|doi/10\.\d+/zenodo\.)([0-9]{1,19}|[a-z0-9]{5}-[a-z0-9]{5})/?$", re.I)


async def files_of(source: str, reader: DocumentReader, datacite: str) -> list[ReplicaSet]:
    """Return the files of a DOI, or the one that a fragment names.

    :param datacite: address of DataCite's REST interface
    :raises UsageError: if the DOI is malformed, or has no such file
    :raises SourceError: if it is not known, or its repository does not answer
    """
    named = NAME.fullmatch(source)
    if named is None:
        raise UsageError(f"{source[:200]!r} is not a DOI", "write it as doi:10.PREFIX/SUFFIX, or doi:...#FILE")
    doi, wanted = unquote(named["doi"]).rstrip("/"), named["file"]
    files = await _files(doi, reader, datacite)
    if wanted is None:
        return files
    exact = [file for file in files if file.name == wanted]
    found = exact or [file for file in files if quote(file.name) == wanted]
    if not found:
        names = ", ".join(repr(file.name[:100]) for file in files[:20])
        raise UsageError(f"doi:{doi} has no file {wanted[:200]!r}; it has {names}", f"write doi:{doi}#NAME")
    return [found[0]._replace(name=found[0].name.rpartition("/")[2])]


async def _files(doi: str, reader: DocumentReader, datacite: str) -> list[ReplicaSet]:
    try:
        document, reader = await reader.json(f"{datacite}/dois/{quote(doi, safe='/')}")
    except NoSuchFile:
        raise NoSuchFile(f"doi:{doi} is not a DOI of DataCite", "give the URLs of its files") from None
    record = mapping(mapping(mapping(document).get("data")).get("attributes"))
    page = text(record.get("url"))
    try:
        parts = urlsplit(page)
        dataset = parse_qs(parts.query, max_num_fields=20).get("persistentId")
    except ValueError:
        raise NothingToFetchFrom(f"doi:{doi} leads to no URL", "give the URLs of its files") from None
    base = f"{parts.scheme}://{parts.netloc}"
    if invenio := RECORD.search(parts.path):
        return await _of_invenio(f"{base}/api/records/{invenio[1]}", reader, doi)
    if dataset:
        return await _of_dataverse(base, dataset[0], reader, doi)
    contents = record.get("contentUrl")
    urls = [*filter(None, map(text, contents if isinstance(contents, list) else [contents]))]
    if not urls:
        raise NothingToFetchFrom(
            f"doi:{doi} leads to {redact(page)[:200] or 'no page'}, which is not a repository that coget can read",
            "open that page, and give the URLs of its files",
        )
    for url in urls:
        check(url)
    return _distinct([reader.file(from_url(url), [url], None, ()) for url in urls], doi)


async def _of_invenio(record: str, reader: DocumentReader, doi: str) -> list[ReplicaSet]:
    document, following = await reader.json(record)
    listed = mapping(document).get("files")
    if not isinstance(listed, list):
        document, following = await reader.json(f"{record}/files")
        listed = mapping(document).get("entries")
    files = []
    for entry in map(mapping, sequence(listed)):
        name, links = text(entry.get("key")), mapping(entry.get("links"))
        algorithm, _, value = text(entry.get("checksum")).partition(":")
        url = text(links.get("content")) or text(links.get("self"))
        sums = described([(algorithm, value)] if value else [], name)
        files.append(following.file(name, [url] if url else [], size_of(entry.get("size")), sums))
    return _distinct(files, doi)


async def _of_dataverse(base: str, dataset: str, reader: DocumentReader, doi: str) -> list[ReplicaSet]:
    version = f"{base}/api/datasets/:persistentId/versions/:latest-published"
    document, following = await reader.json(f"{version}?persistentId={quote(dataset, safe='')}")
    listed = sequence(mapping(mapping(document).get("data")).get("files"))
    return _distinct([_dataverse_file(mapping(each), base, following) for each in listed], doi)


def _dataverse_file(entry: Mapping[str, Any], base: str, following: DocumentReader) -> ReplicaSet:
    """Return a file of a Dataverse. A table is fetched as it was uploaded, as the checksum is that of the upload."""
    data = mapping(entry.get("dataFile"))
    name, size, query = text(entry.get("label")) or text(data.get("filename")), size_of(data.get("filesize")), ""
    if data.get("originalFileFormat"):
        name, size, query = (
            text(data.get("originalFileName")) or name,
            size_of(data.get("originalFileSize")),
            "original",
        )
    stated = mapping(data.get("checksum"))
    pairs = [(text(stated.get("type")), text(stated.get("value"))), ("md5", text(data.get("md5")))]
    sums = described([pair for pair in pairs if all(pair)], name)
    folder, number = text(entry.get("directoryLabel")), size_of(data.get("id"))
    url = f"{base}/api/access/datafile/{number}" + (f"?format={query}" if query else "")
    return following.file(f"{folder}/{name}" if folder else name, [] if number is None else [url], size, sums)


def _distinct(files: list[ReplicaSet], doi: str) -> list[ReplicaSet]:
    if not files:
        raise NothingToFetchFrom(f"the record of doi:{doi} names no file", "it may be restricted; open it in a browser")
    if len({file.name for file in files}) < len(files):
        raise UsageError(f"doi:{doi} has two files of the same name", "give the URLs of the files")
    return files

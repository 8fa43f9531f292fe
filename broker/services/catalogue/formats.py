"""Parsers of catalogue formats, from lines to entries or errors.

- `ndjson`: the broker's exports: `{"name", "size", "checksums", "replicas": [{"endpoint", "path", "state"}]}`.
- `csv`: a header with `name`, and any of `size`, algorithms, `endpoint`, `path`, `url`, `state`; one replica a line.
- `rucio`: the stream of Rucio's replica listing: `scope`, `name`, `bytes`, `adler32`, `md5`, `rses`, `states`.
- `metalink`: a Metalink 4 document, which is read as a whole.
- `checksums`: the output of sha256sum, md5sum and similar programs. The length of the value determines the algorithm; 8
  digits are adler32. If an endpoint is given, it has a replica of each file.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from pydantic import Field, TypeAdapter, ValidationError

from broker.errors import BrokerError, Invalid, NotFound
from broker.models.base import Size, Wire
from broker.models.catalogue import PORTS, CatalogueReplica, Dataset, Endpoint, ReplicaState
from broker.models.faults import why
from broker.models.names import Did, Named, ReplicaPath
from broker.models.strict_json import document
from coalloc.model.replicas import ReplicaSet

__all__ = ["LONGEST_LINE", "CatalogueEntry", "Context", "Format", "entries_of_files", "parser"]

Format = Literal["ndjson", "csv", "rucio", "metalink", "checksums"]
LONGEST_LINE = 1 << 20
ALGORITHMS = {8: "adler32", 32: "md5", 40: "sha1", 64: "sha256", 128: "sha512"}
"""Algorithms by the number of hex digits."""
LISTED = re.compile(r"^\\?([0-9A-Fa-f]{8,128})\s+\*?(\S.*)$")


class CatalogueEntry(NamedTuple):
    """A dataset, its replicas with a state (`replicas`), and its replicas without one (`mentioned`)."""

    dataset: Dataset
    replicas: tuple[CatalogueReplica, ...] = ()
    mentioned: tuple[CatalogueReplica, ...] = ()


class Context(NamedTuple):
    """The parameters of an import.

    :param endpoints: existing endpoints, by name
    :param endpoint: endpoint of the files, for a list of checksums
    :param scope: default scope of names
    """

    endpoints: Mapping[str, Endpoint]
    endpoint: str | None = None
    scope: str = ""


class _EntryReplica(Wire):
    """A replica in an entry."""

    endpoint: Named | None = None
    path: ReplicaPath | None = None
    url: str | None = None
    state: ReplicaState | None = None
    reason: str = ""
    verified_at: float | None = None


class _Line(Wire):
    """An entry in the form of an export."""

    name: Did
    size: Size | None = None
    checksums: dict[str, str] = Field(default_factory=dict)
    replicas: list[_EntryReplica] = Field(default_factory=list)


LINE = TypeAdapter(_Line)


def parser(form: Format, context: Context) -> Callable[[str], CatalogueEntry | None]:
    """Return a function that parses one line after the other, and returns None for a line without an entry.

    The function raises a BrokerError for an invalid line.
    """
    reading: Mapping[str, Callable[[Context], Callable[[str], CatalogueEntry | None]]] = {
        "ndjson": lambda context: lambda line: _entry(_json(line), context),
        "csv": _csv,
        "rucio": lambda context: lambda line: _rucio(_json(line), context),
        "checksums": lambda context: lambda line: _listed(line, context),
    }
    read = reading[form](context)

    def reader(line: str) -> CatalogueEntry | None:
        try:
            return read(line) if line.strip() else None
        except ValidationError as error:
            raise _faulty(error) from None
        except (ValueError, csv.Error, RecursionError) as error:  # all other errors of invalid lines
            raise Invalid(f"cannot parse it: {error}"[:300], "write it as docs/reference/broker.md shows") from None

    return reader


def entries_of_files(
    files: Iterable[ReplicaSet], context: Context
) -> Iterator[tuple[int, CatalogueEntry | BrokerError]]:
    """Yield the entries of a Metalink's files, or their errors, numbered from 1."""
    for number, file in enumerate(files, 1):
        try:
            places = [{"url": replica.url} for replica in file.replicas]
            digests = {checksum.algorithm: checksum.value for checksum in file.checksums}
            entry = {"name": file.name, "size": file.size, "checksums": digests, "replicas": places}
            yield number, _entry(entry, context)
        except ValidationError as error:
            yield number, _faulty(error)
        except BrokerError as error:
            yield number, error


def _json(line: str) -> Mapping[str, Any]:
    try:
        value = document(line)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"it is not JSON: {error}", "write one JSON object per line") from None
    if not isinstance(value, dict):
        raise Invalid("it is JSON, but not an object", "write one JSON object per line")
    return value


def _entry(entry: Mapping[str, Any], context: Context) -> CatalogueEntry:
    read = LINE.validate_python(entry)
    name = read.name if ":" in read.name or not context.scope else f"{context.scope}:{read.name}"
    dataset = Dataset.model_validate({"name": name, "size": read.size, "checksums": read.checksums})
    stated = tuple(_replica(name, place, context) for place in read.replicas if place.state)
    mentioned = tuple(_replica(name, place, context) for place in read.replicas if not place.state)
    return CatalogueEntry(dataset, stated, mentioned)


def _replica(name: str, place: _EntryReplica, context: Context) -> CatalogueReplica:
    endpoint, path = place.endpoint or context.endpoint, place.path
    if place.url is not None:
        endpoint, path = _placed(place.url, context.endpoints)
    if endpoint is None:
        raise Invalid("a replica has neither endpoint nor url", "give one of the two")
    fields = place.model_dump(include={"state", "reason", "verified_at"}, exclude_none=True)
    return CatalogueReplica.model_validate({"dataset": name, "endpoint": endpoint, "path": path, **fields})


def _placed(url: str, endpoints: Mapping[str, Endpoint]) -> tuple[str, str]:
    """Return the endpoint with the longest directory that contains a URL, and the path below that directory.

    :raises Invalid: when the URL is malformed
    :raises NotFound: when no endpoint contains it
    """
    try:
        parts = urlsplit(url)
        port, host, path = parts.port, (parts.hostname or "").lower(), unquote(parts.path)
    except ValueError as error:
        raise Invalid(f"{url[:200]} is not a URL: {error}", "write SCHEME://HOST[:PORT]/PATH") from None
    below = [
        (len(endpoint.prefix), name, path[len(endpoint.prefix) :])
        for name, endpoint in endpoints.items()
        if (endpoint.scheme, endpoint.host.strip("[]")) == (parts.scheme, host)
        and (endpoint.port or PORTS[endpoint.scheme]) == (port or PORTS[endpoint.scheme])
        and path.startswith(endpoint.prefix)
    ]
    if not below:
        raise NotFound(f"no endpoint contains {url[:200]}", "make an endpoint for that server, then import again")
    _, name, rest = max(below)
    return name, rest


def _csv(context: Context) -> Callable[[str], CatalogueEntry | None]:
    columns: list[str] = []

    def read(line: str) -> CatalogueEntry | None:
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if not columns:
            if "name" not in cells:
                raise Invalid("the header has no column called name", "begin with a line like name,size,adler32,url")
            columns.extend(cells)
            return None
        if len(cells) != len(columns):
            raise Invalid(f"it has {len(cells)} cells, the header {len(columns)}", "quote values that contain commas")
        row = {name: cell for name, cell in zip(columns, cells, strict=True) if cell}
        place = {name: row.pop(name) for name in ("endpoint", "path", "url", "state") if name in row}
        name, size = row.pop("name", ""), row.pop("size", None)
        here = [place] if {"endpoint", "url"} & place.keys() else []
        return _entry({"name": name, "size": size, "checksums": row, "replicas": here}, context)

    return read


def _rucio(entry: Mapping[str, Any], context: Context) -> CatalogueEntry:
    name = f"{entry.get('scope') or context.scope}:{entry.get('name')}"
    digests = {name: entry[name] for name in ("adler32", "md5") if entry.get(name)}
    states, rses = entry.get("states") or {}, entry.get("rses") or {}
    if not isinstance(rses, dict) or not isinstance(states, dict):
        raise Invalid("its rses or states are not an object", "list replicas with Rucio's POST /replicas/list")
    places = [
        {"endpoint": rse, "state": states.get(rse), **_path_at(urls, context.endpoints.get(rse))}
        for rse, urls in rses.items()
    ]
    return _entry({"name": name, "size": entry.get("bytes"), "checksums": digests, "replicas": places}, context)


def _path_at(urls: object, endpoint: Endpoint | None) -> dict[str, str]:
    """Return `path` below an RSE's directory, from the first URL inside the directory; empty if there is none."""
    for url in urls if isinstance(urls, list) else []:
        path = unquote(urlsplit(str(url)).path)
        if endpoint and path.startswith(endpoint.prefix):
            return {"path": path[len(endpoint.prefix) :]}
    return {}


def _listed(line: str, context: Context) -> CatalogueEntry:
    match = LISTED.match(line.strip())
    algorithm = match and ALGORITHMS.get(len(match[1]))
    if not match or not algorithm:
        raise Invalid("it does not have a checksum and a path", "write lines as sha256sum does")
    path = match[2].removeprefix("./").lstrip("/")
    place = [{"path": path}] if context.endpoint else []
    return _entry({"name": path, "checksums": {algorithm: match[1].lower()}, "replicas": place}, context)


def _faulty(error: ValidationError) -> Invalid:
    faults = [(".".join(str(part) for part in each["loc"] if part != "[key]"), why(each)) for each in error.errors()]
    message = "; ".join(f"{place}: {what}" for place, what in faults[:3])
    return Invalid(message, "write it as docs/reference/broker.md shows")

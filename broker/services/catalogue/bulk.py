"""Import and export of catalogues as streams of any length, with bounded memory. An import can be repeated safely."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from functools import partial
from itertools import islice
from typing import IO

import orjson

from broker.errors import BrokerError, Invalid, TooLarge
from broker.models.callers import Caller, Role
from broker.models.catalogue import CatalogueReplica, Dataset
from broker.services.auth.quotas import Quotas
from broker.services.catalogue.datasets import Catalogue
from broker.services.catalogue.formats import LONGEST_LINE, CatalogueEntry, Context, Format, entries_of_files, parser
from broker.services.network.places import Places
from broker.services.uploaded_files import files_of
from broker.subprocesses import JobKind, SeparateProcess, Turns

__all__ = ["Bulk"]

CHUNK = 1000
"""Entries in one transaction."""
EXPORTED = re.compile(r'\{"end": ?true, ?"count": ?\d+\}\s*$')
"""The last line of an export."""
REPORT_IN_MEMORY = 1 << 20
LARGEST_METALINK = 16 << 20
READING = JobKind("the document", "send it in parts")
Chunk = list[tuple[int, CatalogueEntry | BrokerError]]
"""Entries, or their errors, each with the number of its line."""


class Bulk:
    """Import and export of the catalogue.

    :param apart: subprocess that parses Metalinks, which cannot be read line by line
    :param large: turns for the parts of imports and exports
    """

    def __init__(
        self, catalogue: Catalogue, places: Places, apart: SeparateProcess, large: Turns, quotas: Quotas
    ) -> None:
        self._catalogue = catalogue
        self._places = places
        self._apart = apart
        self._large = large
        self._quotas = quotas

    async def read(
        self,
        by: str,
        form: Format,
        body: AsyncIterator[bytes],
        endpoint: str | None,
        scope: str,
        role: Role = "curator",
    ) -> AsyncIterator[bytes]:
        """Store all valid entries; yield a line of JSON for each refused entry, then a line with the counts.

        Each transaction stores 1000 entries. After an interruption, the same import can be sent again.

        :param by: subject that imports
        :param endpoint: endpoint of the files, for a list of checksums
        :param scope: default scope of names
        :raises NotFound: when there is no such endpoint
        :raises Invalid: when the document is not a Metalink
        :raises TooManyRequests: when the subject has added too many rows in this hour
        """
        if role != "admin":
            self._large.admit(by, "imports")
        if endpoint is not None:
            await self._places.endpoint(endpoint)
        known = {name: placed.endpoint for name, placed in (await self._places.map()).by_name.items()}
        context = Context(known, endpoint, scope)
        counts = {"read": 0, "kept": 0, "changed": 0, "refused": 0}
        with closing(tempfile.SpooledTemporaryFile(REPORT_IN_MEMORY)) as report:
            async for read in self._readers(by, form, body, context):
                async with self._large.turn(by, "imports", admitted=True):
                    chunk = await asyncio.to_thread(read)
                    self._quotas.take(by, role, len(chunk))
                    await self._keep((by, role), chunk, counts, report)
            report.seek(0)
            for line in report:
                yield line
        yield orjson.dumps({"end": True, **counts}, option=orjson.OPT_APPEND_NEWLINE)

    async def _readers(
        self, by: str, form: Format, body: AsyncIterator[bytes], context: Context
    ) -> AsyncIterator[Callable[[], Chunk]]:
        """Yield functions, each of which parses the next 1000 entries."""
        if form == "metalink":
            files = await self._apart.run(READING, by, files_of, await _whole(body))
            entries = entries_of_files(files, context)
            for _ in range(0, len(files), CHUNK):
                yield lambda: list(islice(entries, CHUNK))
            return
        read, number = parser(form, context), 0
        async for lines in _in_parts(_lines(body)):
            yield partial(_entries, read, lines, number)
            number += len(lines)

    async def _keep(
        self,
        by: tuple[str, Role],
        chunk: Chunk,
        counts: dict[str, int],
        report: IO[bytes],
    ) -> None:
        entries = [(number, entry) for number, entry in chunk if isinstance(entry, CatalogueEntry)]
        result = await self._catalogue.keep(by[0], [entry for _, entry in entries], "import", by[1])
        refused = [(number, error) for number, error in chunk if isinstance(error, BrokerError)]
        refused += [(entries[i][0], error) for i, error in result.refused.items()]
        for number, error in sorted(refused, key=lambda each: each[0]):
            message = error.message.encode(errors="replace").decode()  # lone surrogates cannot be sent
            fault = {"code": error.code, "message": message, "remedy": error.remedy}
            report.write(orjson.dumps({"line": number, "error": fault}, option=orjson.OPT_APPEND_NEWLINE))
        counts["read"] += len(chunk)
        counts["kept"] += len(chunk) - len(refused)
        counts["refused"] += len(refused)
        counts["changed"] += result.changed

    async def write(self, prefix: str, caller: Caller) -> AsyncIterator[bytes]:
        """Yield datasets by prefix as `ndjson`, with the replicas that the caller may see; then the count."""
        after, count = "", 0
        while True:
            async with self._large.turn(caller.subject, "exports", admitted=True):
                page = await self._catalogue.pages(prefix, after, CHUNK, caller)
            if not page:
                break
            yield b"".join(_line(dataset, replicas) for dataset, replicas in page)
            after, count = page[-1][0].name, count + len(page)
        yield orjson.dumps({"end": True, "count": count}, option=orjson.OPT_APPEND_NEWLINE)


def _line(dataset: Dataset, replicas: Iterable[CatalogueReplica]) -> bytes:
    places = [
        {name: value for name, value in replica.__dict__.items() if name != "dataset" and value not in (None, "")}
        for replica in replicas
    ]
    return orjson.dumps({**dataset.__dict__, "replicas": places}, option=orjson.OPT_APPEND_NEWLINE)


async def _in_parts(lines: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    part: list[bytes] = []
    async for line in lines:
        part.append(line)
        if len(part) >= CHUNK:
            yield part
            part = []
    if part:
        yield part


def _entries(read: Callable[[str], CatalogueEntry | None], lines: Iterable[bytes], before: int) -> Chunk:
    """Return the entries of lines, with their line numbers; lines without an entry are left out.

    :param before: number of the lines before the first one
    """
    found = ((number, _read(read, line)) for number, line in enumerate(lines, before + 1))
    return [(number, entry) for number, entry in found if entry is not None]


def _read(read: Callable[[str], CatalogueEntry | None], line: bytes) -> CatalogueEntry | BrokerError | None:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return Invalid("it is not UTF-8", "write names in UTF-8")
    try:
        return None if EXPORTED.match(text) else read(text)
    except BrokerError as error:
        return error


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream. :raises TooLarge: when a line is too long"""
    rest = b""
    async for piece in body:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LONGEST_LINE:
            raise TooLarge(f"a line is longer than {LONGEST_LINE} bytes", "check that the file has the named format")
    if rest:
        yield rest


async def _whole(body: AsyncIterator[bytes]) -> bytes:
    document = bytearray()
    async for piece in body:
        document += piece
        if len(document) > LARGEST_METALINK:
            raise TooLarge(f"the Metalink is longer than {LARGEST_METALINK} bytes", "send it in parts")
    return bytes(document)

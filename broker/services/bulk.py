"""Whole catalogues in and out, as streams: any length, little memory, and again as often as one likes."""

import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from itertools import islice
from typing import IO

import orjson

from broker.errors import BrokerError, Invalid, TooLarge
from broker.models.access import Caller, Role
from broker.models.catalogue import Dataset, Replica
from broker.services.catalogue import Catalogue
from broker.services.formats import LONGEST_LINE, Context, Entry, Format, entries_of_document, parser
from broker.services.places import Places

__all__ = ["Bulk"]

CHUNK = 1000
"""Entries in one transaction."""
EXPORTED = re.compile(r'\{"end": ?true, ?"count": ?\d+\}\s*$')
"""What an export ends with."""
REPORT_IN_MEMORY = 1 << 20
LARGEST_METALINK = 64 << 20


class Bulk:
    """Import and export of the catalogue."""

    def __init__(self, catalogue: Catalogue, places: Places) -> None:
        self._catalogue = catalogue
        self._places = places

    async def read(
        self,
        by: str,
        form: Format,
        body: AsyncIterator[bytes],
        endpoint: str | None,
        scope: str,
        role: Role = "curator",
    ) -> AsyncIterator[bytes]:
        """Keep all entries that make sense; yields a line of JSON for each that was refused, then the counts.

        A thousand entries are kept together: who is interrupted sends the same again.

        :raises NotFound: when there is no such endpoint
        :raises Invalid: for a list of checksums without an endpoint, or a document that is no Metalink
        """
        if endpoint is not None:
            await self._places.endpoint(endpoint)
        known = {name: placed.endpoint for name, placed in (await self._places.map()).by_name.items()}
        context = Context(known, endpoint, scope)
        counts = {"read": 0, "kept": 0, "changed": 0, "refused": 0}
        with closing(tempfile.SpooledTemporaryFile(REPORT_IN_MEMORY)) as report:
            async for chunk in _chunks(form, body, context):
                await self._keep((by, role), chunk, counts, report)
            report.seek(0)
            for line in report:
                yield line
        yield orjson.dumps({"end": True, **counts}, option=orjson.OPT_APPEND_NEWLINE)

    async def _keep(
        self,
        by: tuple[str, Role],
        chunk: list[tuple[int, Entry | BrokerError]],
        counts: dict[str, int],
        report: IO[bytes],
    ) -> None:
        entries = [(number, entry) for number, entry in chunk if isinstance(entry, Entry)]
        kept = await self._catalogue.keep(by[0], [entry for _, entry in entries], "import", by[1])
        refused = [(number, error) for number, error in chunk if isinstance(error, BrokerError)]
        refused += [(entries[i][0], error) for i, error in kept.refused.items()]
        for number, error in sorted(refused, key=lambda each: each[0]):
            message = error.message.encode(errors="replace").decode()  # of what is no Unicode, too
            fault = {"code": error.code, "message": message, "remedy": error.remedy}
            report.write(orjson.dumps({"line": number, "error": fault}, option=orjson.OPT_APPEND_NEWLINE))
        counts["read"] += len(chunk)
        counts["kept"] += len(chunk) - len(refused)
        counts["refused"] += len(refused)
        counts["changed"] += kept.changed

    async def write(self, prefix: str, caller: Caller) -> AsyncIterator[bytes]:
        """Datasets that begin so with what replicas are there for the caller, as `ndjson` is read; then the count."""
        after, count = "", 0
        while page := await self._catalogue.pages(prefix, after, CHUNK, caller):
            yield b"".join(_line(dataset, replicas) for dataset, replicas in page)
            after, count = page[-1][0].name, count + len(page)
        yield orjson.dumps({"end": True, "count": count}, option=orjson.OPT_APPEND_NEWLINE)


def _line(dataset: Dataset, replicas: Iterable[Replica]) -> bytes:
    places = [
        {name: value for name, value in replica.__dict__.items() if name != "dataset" and value not in (None, "")}
        for replica in replicas
    ]
    return orjson.dumps({**dataset.__dict__, "replicas": places}, option=orjson.OPT_APPEND_NEWLINE)


async def _chunks(
    form: Format, body: AsyncIterator[bytes], context: Context
) -> AsyncIterator[list[tuple[int, Entry | BrokerError]]]:
    if form == "metalink":
        files = entries_of_document(await _whole(body), context)
        while chunk := list(islice(files, CHUNK)):
            yield chunk
        return
    read = parser(form, context)
    chunk = []
    number = 0
    async for line in _lines(body):
        number += 1
        entry = _read(read, line)
        if entry is not None:
            chunk.append((number, entry))
        if len(chunk) >= CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _read(read: Callable[[str], Entry | None], line: bytes) -> Entry | BrokerError | None:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return Invalid("it is not UTF-8", "write names in UTF-8")
    try:
        return None if EXPORTED.match(text) else read(text)
    except BrokerError as error:
        return error


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream that comes in any pieces. :raises TooLarge: for one that does not end"""
    rest = b""
    async for piece in body:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LONGEST_LINE:
            raise TooLarge(f"a line is longer than {LONGEST_LINE} bytes", "is this the format that was named?")
    if rest:
        yield rest


async def _whole(body: AsyncIterator[bytes]) -> bytes:
    document = bytearray()
    async for piece in body:
        document += piece
        if len(document) > LARGEST_METALINK:
            raise TooLarge(f"the Metalink is longer than {LARGEST_METALINK} bytes", "send it in parts")
    return bytes(document)

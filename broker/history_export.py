"""The history of transfers as a table: CSV as a stream, Parquet through a temporary file."""

import asyncio
import csv
import io
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import IO, Any, get_args

from broker.errors import Invalid
from broker.models.history import TransferRecord
from broker.reports.data import harmless
from broker.subprocesses import JobKind, SeparateProcess, framed, frames

__all__ = ["CSV", "PARQUET", "csv_of", "parquet_of", "write_parquet"]

CSV = "text/csv"
PARQUET = "application/vnd.apache.parquet"
WRITING = JobKind("the table", "request csv, or a shorter period")
PIECE = 1 << 20
COLUMNS = tuple(TransferRecord.model_fields)

Pages = AsyncIterator[list[TransferRecord]]


async def csv_of(pages: Pages) -> AsyncIterator[bytes]:
    """Yield the table as CSV: a header, then a line for each transfer."""
    yield _lines([COLUMNS])
    async for page in pages:
        yield _lines([[getattr(each, name) for name in COLUMNS] for each in page])


def _lines(rows: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([harmless(value) for value in row] for row in rows)
    return text.getvalue().encode()


async def parquet_of(pages: Pages, apart: SeparateProcess, subject: str) -> Iterator[bytes]:
    """Return the chunks of a Parquet file that has one row group per page.

    :param apart: process that writes the file, which takes a hundred MB of memory
    :param subject: user who requested the file
    :raises Invalid: when pyarrow is not installed
    """
    target = tempfile.NamedTemporaryFile(prefix="coget-parquet-")  # noqa: SIM115 - it is closed when it was sent
    try:
        with tempfile.NamedTemporaryFile(prefix="coget-parquet-") as source:
            async for page in pages:
                source.write(await asyncio.to_thread(framed, [each.__dict__ for each in page]))
            source.flush()
            await apart.run(WRITING, subject, write_parquet, source.name, target.name)
    except BaseException:
        target.close()
        raise
    return _pieces(target)


def write_parquet(source: str, target: str) -> None:
    """Write a Parquet file from the lists of rows in another file.

    :raises Invalid: when pyarrow is not installed
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise Invalid(
            "this broker cannot write Parquet", "request csv, or ask its admin to run: pip install 'coget[parquet]'"
        ) from None
    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    fields = TransferRecord.model_fields.items()
    schema = pyarrow.schema([(name, _arrow(field.annotation, kinds)) for name, field in fields])
    with open(source, "rb") as rows, pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for page in frames(rows):
            writer.write_table(pyarrow.Table.from_pylist(page, schema))


def _arrow(annotation: Any, kinds: dict[type, Any]) -> Any:
    """Return the Arrow type of a field; for an optional field, its type without None; for a literal, text."""
    options = [annotation, *get_args(annotation)]
    return next((kinds[option] for option in options if option in kinds), kinds[str])


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(PIECE):
            yield piece

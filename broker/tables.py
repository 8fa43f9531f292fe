"""The history as a table: CSV as it is read, Parquet by way of a file that is gone with the answer."""

import asyncio
import csv
import io
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import IO, Any, get_args

from broker.apart import Apart, Kind, framed, frames
from broker.errors import Invalid
from broker.models.history import TransferRecord
from broker.reports.data import harmless

__all__ = ["CSV", "PARQUET", "csv_of", "parquet_of", "write_parquet"]

CSV = "text/csv"
PARQUET = "application/vnd.apache.parquet"
WRITING = Kind("the table", "ask for csv, or for a shorter time")
PIECE = 1 << 20
COLUMNS = tuple(TransferRecord.model_fields)

Pages = AsyncIterator[list[TransferRecord]]


async def csv_of(pages: Pages) -> AsyncIterator[bytes]:
    """A header, then a line a transfer."""
    yield _lines([COLUMNS])
    async for page in pages:
        yield _lines([[getattr(each, name) for name in COLUMNS] for each in page])


def _lines(rows: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([harmless(value) for value in row] for row in rows)
    return text.getvalue().encode()


async def parquet_of(pages: Pages, apart: Apart, subject: str) -> Iterator[bytes]:
    """The pieces of a Parquet file, a group of rows for each page.

    :param apart: where it is written: what does that takes a hundred MB
    :param subject: for whom
    :raises Invalid: where pyarrow is not installed
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
    """Write a Parquet file of the lists of rows that are in another file.

    :raises Invalid: where pyarrow is not installed
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise Invalid("this broker cannot write Parquet", "ask for csv; pip install 'coget[parquet]' there") from None
    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    fields = TransferRecord.model_fields.items()
    schema = pyarrow.schema([(name, _arrow(field.annotation, kinds)) for name, field in fields])
    with open(source, "rb") as rows, pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for page in frames(rows):
            writer.write_table(pyarrow.Table.from_pylist(page, schema))


def _arrow(annotation: Any, kinds: dict[type, Any]) -> Any:
    """The Arrow type of a field; one that may be missing is of the other type, a literal text."""
    options = [annotation, *get_args(annotation)]
    return next((kinds[option] for option in options if option in kinds), kinds[str])


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(PIECE):
            yield piece

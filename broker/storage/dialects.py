"""Differences between SQLite and PostgreSQL: the database's clock, rows as one JSON parameter, searches and inserts.

Times that one process writes and another compares with the current time come from the database's clock, since clocks of
hosts may differ by hours. These times decide whether a worker is alive, a deadline has passed, work may be retried, or
bytes may be transferred. Durations within one process are measured by its own clock.

Many rows are sent as one JSON parameter, which the database reads as a table, so that a request for 10,000 names does
not need 10,000 queries. Many result rows are read as one JSON value, because SQLite returns single rows, and its thread
waits for Python's lock at each.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Select,
    Subquery,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    extract,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

__all__ = ["ALWAYS", "Columns", "among", "clock", "contains", "gathered", "insert", "read_clock", "tabled"]

ALWAYS = literal(1) == literal(1)
"""A true condition for the WHERE that SQLite needs between SELECT and ON CONFLICT, as it would read ON as a join."""
Columns = Mapping[str, TypeEngine[Any]]
"""Names and types of columns, in the order of the values in a row."""


def contains(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """Return the condition that a column contains a string, ignoring case; no character is a wildcard."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return func.lower(column).like(func.lower(f"%{escaped}%"), escape="\\")


def insert(connection: AsyncConnection, table: Table) -> Any:
    """Return an INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)


def clock(connection: AsyncConnection) -> ColumnElement[float]:
    """Return an SQL expression for the time at which the statement runs, in seconds since the epoch.

    All processes that use one SQLite file run on one host, so SQLite uses that host's time.
    """
    if connection.dialect.name == "sqlite":
        return literal(time.time(), Double)
    return cast(extract("epoch", func.clock_timestamp()), Double)


async def read_clock(connection: AsyncConnection) -> float:
    """Read the database's time, in seconds since the epoch."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float((await connection.execute(select(clock(connection)))).scalar_one())


def tabled(
    connection: AsyncConnection, rows: Sequence[Sequence[Any]], columns: Columns, name: str = "given"
) -> Subquery:
    """Return the rows as a subquery with this name and these columns, in their order."""
    document = orjson.dumps([tuple(row) for row in rows]).decode()
    if connection.dialect.name == "sqlite":
        each = func.json_each(bindparam(None, document, type_=Text)).table_valued("value", name="each")
        fields = [func.json_extract(each.c.value, f"$[{i}]") for i in range(len(columns))]
        typed = [field.label(column) for column, field in zip(columns, fields, strict=True)]
    else:
        value = bindparam(None, document, type_=Text)
        each = func.jsonb_array_elements(cast(value, JSONB)).table_valued("value", name="each")
        texts = [each.c.value.op("->>", return_type=Text())(i) for i in range(len(columns))]
        typed = [cast(field, kind).label(column) for field, (column, kind) in zip(texts, columns.items(), strict=True)]
    return select(*typed).subquery(name)


def among(connection: AsyncConnection, column: Column[int], numbers: Sequence[int]) -> ColumnElement[bool]:
    """Return the condition that a column has one of these values, sent as one parameter; it can use an index."""
    if connection.dialect.name == "sqlite":
        each = func.json_each(orjson.dumps(numbers).decode()).table_valued("value", name="one")
        return column.in_(select(each.c.value))
    return column == any_(bindparam(None, numbers, type_=ARRAY(BigInteger)))


async def gathered(connection: AsyncConnection, question: Select[Any], documents: Collection[str] = ()) -> list[Any]:
    """Return the result rows of a query as lists, in order; only for columns of text and integers.

    :param documents: columns with JSON text, which is parsed
    """
    found = question.subquery("found")
    is_sqlite = connection.dialect.name == "sqlite"
    read: Callable[[ColumnElement[Any]], ColumnElement[Any]] = func.json if is_sqlite else partial(cast, type_=JSON)
    fields = [read(each) if each.name in documents else each for each in found.c]
    rows = (
        func.json_group_array(func.json_array(*fields)) if is_sqlite else func.json_agg(func.json_build_array(*fields))
    )
    document = (await connection.execute(select(cast(rows, Text)).select_from(found))).scalar()
    return list(orjson.loads(document)) if document else []

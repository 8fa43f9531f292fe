"""The content of a report, independent of its presentation: facts, tables and figures, with their units.

Values have base units (bytes, seconds, bytes per second, shares from 0 to 1, moments in seconds since the epoch); the
presentation converts them for readers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Action", "Column", "Fact", "Figure", "Report", "ReportLink", "Table", "Unit", "Value"]

Unit = Literal["text", "count", "number", "bytes", "rate", "seconds", "share", "moment", "factor"]
"""Units of values: rates are bytes per second, factors are like 1.5 x, numbers have no unit."""
Value = str | int | float | bool | None


@dataclass(frozen=True)
class Fact:
    """One important number, with its label."""

    label: str
    value: Value
    unit: Unit = "number"
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    :param name: name in CSV and JSON
    :param title: title for readers
    :param link: name of the column that has the addresses of its cells; that column is not shown to readers
    """

    name: str
    title: str
    unit: Unit = "text"
    link: str = ""


@dataclass(frozen=True)
class Action:
    """A button in each row of a table, for curators, which sends a form to an address.

    :param fields: columns whose values the form contains
    """

    label: str
    address: str
    fields: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of values, in the order of the columns.

    :param note: reason why there are no or few rows, or a restriction on what they are
    :param stale: for each row, whether it is too old to be believed; by default none is
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    note: str = ""
    stale: Sequence[bool] = ()
    action: Action | None = None

    def records(self) -> list[dict[str, Value]]:
        """Return the rows as mappings from column names to values."""
        return [dict(zip((each.name for each in self.columns), row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Figure:
    """A drawing of a table.

    :param spec: specification for Vega-Lite, with the values to draw; empty if there are too few data
    :param alternative: a sentence with the content, for readers who cannot see it
    :param note: reason why it is not drawn, or what of the table is left out
    """

    name: str
    title: str
    table: Table
    spec: Mapping[str, Any]
    alternative: str
    note: str = ""


@dataclass(frozen=True)
class ReportLink:
    """A link from a report to another one, or to another part of the same."""

    label: str
    address: str


@dataclass(frozen=True)
class Report:
    """A whole page.

    :param lead: its content and how to read it, in a sentence or two
    :param links: links to follow, such as to older entries
    """

    name: str
    title: str
    lead: str
    at: float
    facts: Sequence[Fact] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    links: Sequence[ReportLink] = ()

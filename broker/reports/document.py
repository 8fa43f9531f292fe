"""The content of a report, independent of its presentation: facts, tables and figures, with their units.

Values have base units (bytes, seconds, bytes per second, shares from 0 to 1, moments in seconds since the epoch); the
presentation converts them for readers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Action", "Column", "Fact", "Figure", "Report", "ReportLink", "Table", "Unit", "Value"]

Unit = Literal["text", "count", "number", "bytes", "rate", "seconds", "share", "moment", "factor"]
"""Units of values; a rate is in bytes per second, a factor is shown like "1.5 x", and a number has no unit."""
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
    :param link: name of the column with the URLs of its cells; readers do not see that column
    """

    name: str
    title: str
    unit: Unit = "text"
    link: str = ""


@dataclass(frozen=True)
class Action:
    """A button in each row of a table, for curators, which sends a form to a URL.

    :param fields: columns whose values the form contains
    """

    label: str
    address: str
    fields: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of values, in the order of the columns.

    :param note: reason why there are no or few rows, or an explanation of the selection
    :param stale: for each row, whether it is too old to be reliable; if empty, no row is
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
    :param alternative: content as a sentence, for readers who cannot see the drawing
    :param note: reason why it is not drawn, or a list of the rows that are left out
    """

    name: str
    title: str
    table: Table
    spec: Mapping[str, Any]
    alternative: str
    note: str = ""


@dataclass(frozen=True)
class ReportLink:
    """A link from a report to another report, or to another page of the same report."""

    label: str
    address: str


@dataclass(frozen=True)
class Report:
    """A whole page.

    :param lead: summary and reading instructions, in one or two sentences
    :param links: links to other pages, such as to older entries
    """

    name: str
    title: str
    lead: str
    at: float
    facts: Sequence[Fact] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    links: Sequence[ReportLink] = ()

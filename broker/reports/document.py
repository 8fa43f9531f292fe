"""What a report says, however it is shown: facts, tables and figures, with their units.

Values are as the field has them inside (bytes, seconds, bytes per second, shares from 0 to 1, moments in seconds since
the epoch); who shows them writes them for people.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Action", "Column", "Fact", "Figure", "Link", "Report", "Table", "Unit", "Value"]

Unit = Literal["text", "count", "number", "bytes", "rate", "seconds", "share", "moment", "factor"]
"""How a value is written: rates are bytes per second, factors like 1.5 x, numbers have no unit."""
Value = str | int | float | bool | None


@dataclass(frozen=True)
class Fact:
    """One number that matters, with what it is."""

    label: str
    value: Value
    unit: Unit = "number"
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    :param name: in CSV and JSON
    :param title: for people
    :param link: the name of the column in which the address of its cells is; that one is not shown to people
    """

    name: str
    title: str
    unit: Unit = "text"
    link: str = ""


@dataclass(frozen=True)
class Action:
    """What a curator may do about a row: a button, whose form is sent to an address.

    :param fields: what the form says, taken from these columns
    """

    label: str
    address: str
    fields: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of values, in the order of the columns.

    :param note: why there are none or few, or what they are not
    :param stale: of each row, whether it is too old to be believed; none unless given
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    note: str = ""
    stale: Sequence[bool] = ()
    action: Action | None = None

    def records(self) -> list[dict[str, Value]]:
        """The rows by the names of their columns."""
        return [dict(zip((each.name for each in self.columns), row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Figure:
    """A drawing of a table.

    :param spec: Vega-Lite, with the values that are drawn; empty where too few data say anything
    :param alternative: what it shows, in a sentence, for who cannot see it
    :param note: why it is not drawn, or what of the table is not
    """

    name: str
    title: str
    table: Table
    spec: Mapping[str, Any]
    alternative: str
    note: str = ""


@dataclass(frozen=True)
class Link:
    """Where one goes on from a report: another one, or another part of the same."""

    label: str
    address: str


@dataclass(frozen=True)
class Report:
    """A whole page.

    :param lead: what it shows and how it is to be read, in a sentence or two
    :param links: where one goes on, such as to what is older
    """

    name: str
    title: str
    lead: str
    at: float
    facts: Sequence[Fact] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    links: Sequence[Link] = ()

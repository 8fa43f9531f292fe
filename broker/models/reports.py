"""Reports on the wire."""

from typing import Any

from broker.models.base import Moment, Wire

__all__ = ["Document"]

Cell = str | int | float | bool | None


class Fact(Wire):
    """One number that matters."""

    label: str
    value: Cell
    unit: str
    note: str


class Column(Wire):
    """A column of a table, and in which unit its values are."""

    name: str
    title: str
    unit: str


class Table(Wire):
    """Rows, in the order of the columns."""

    name: str
    title: str
    note: str
    columns: list[Column]
    rows: list[list[Cell]]


class Figure(Wire):
    """A drawing of a table, as Vega-Lite has them; `note` says why there is none."""

    name: str
    title: str
    alternative: str
    note: str
    spec: dict[str, Any]
    table: Table


class Link(Wire):
    """Where one goes on: the name of a report, with its query."""

    label: str
    address: str


class Document(Wire):
    """A report; rates are bytes per second, shares from 0 to 1, moments seconds since the epoch."""

    name: str
    title: str
    lead: str
    at: Moment
    facts: list[Fact]
    figures: list[Figure]
    tables: list[Table]
    links: list[Link]

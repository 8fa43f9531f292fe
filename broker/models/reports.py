"""Wire types of reports."""

from typing import Any

from broker.models.base import Moment, Wire

__all__ = ["ReportDocument"]

Cell = str | int | float | bool | None


class FactDocument(Wire):
    """A key value of a report."""

    label: str
    value: Cell
    unit: str
    note: str


class ColumnDocument(Wire):
    """A column of a table, with the unit of its values."""

    name: str
    title: str
    unit: str


class TableDocument(Wire):
    """A table; the cells of each row are in the order of the columns."""

    name: str
    title: str
    note: str
    columns: list[ColumnDocument]
    rows: list[list[Cell]]


class FigureDocument(Wire):
    """A drawing of a table as a Vega-Lite specification; if the specification is empty, `note` has the reason."""

    name: str
    title: str
    alternative: str
    note: str
    spec: dict[str, Any]
    table: TableDocument


class LinkDocument(Wire):
    """A link to another report: its name, with its query."""

    label: str
    address: str


class ReportDocument(Wire):
    """A report. Rates are in bytes per second, shares from 0 to 1, times in seconds since the epoch."""

    name: str
    title: str
    lead: str
    at: Moment
    facts: list[FactDocument]
    figures: list[FigureDocument]
    tables: list[TableDocument]
    links: list[LinkDocument]

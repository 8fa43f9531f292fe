"""Reports as data: the document as JSON, and each of its tables as CSV."""

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

from broker.reports.document import Figure, Report, Table, Value

__all__ = ["csv_of", "document", "figure_of", "part", "part_of", "table_of", "tables_of"]

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def document(report: Report) -> Mapping[str, Any]:
    """Return all of a report for JSON; moments in seconds since the epoch, rates in bytes per second, shares 0 to 1."""
    return {
        "name": report.name,
        "title": report.title,
        "lead": report.lead,
        "at": report.at,
        "facts": [
            {"label": each.label, "value": _plain(each.value), "unit": each.unit, "note": each.note}
            for each in report.facts
        ],
        "figures": [_figure(each) for each in report.figures],
        "tables": [_table(each) for each in report.tables],
        "links": [{"label": each.label, "address": each.address} for each in report.links],
    }


def part(each: Figure | Table) -> Mapping[str, Any]:
    """Return a table, or a figure with its specification and table, for JSON."""
    return _table(each) if isinstance(each, Table) else _figure(each)


def _figure(each: Figure) -> Mapping[str, Any]:
    return {
        "name": each.name,
        "title": each.title,
        "alternative": each.alternative,
        "note": each.note,
        "spec": each.spec,
        "table": _table(each.table),
    }


def _table(table: Table) -> Mapping[str, Any]:
    columns = [{"name": each.name, "title": each.title, "unit": each.unit} for each in table.columns]
    rows = [[_plain(value) for value in row] for row in table.rows]
    return {"name": table.name, "title": table.title, "note": table.note, "columns": columns, "rows": rows}


def csv_of(table: Table) -> str:
    """Return a table as CSV: a header with the names of the columns, then a line for each row; unknown values are
    empty.

    Text that a spreadsheet would take for a formula gets an apostrophe in front, since it may come from other users.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([each.name for each in table.columns])
    writer.writerows([harmless(value) for value in row] for row in table.rows)
    return text.getvalue()


def figure_of(report: Report, name: str) -> Figure | None:
    """Return the figure of this name if it is drawn."""
    return next((each for each in report.figures if each.name == name and each.spec), None)


def part_of(report: Report, name: str) -> Figure | Table | None:
    """Return the figure or table of this name."""
    figures: dict[str, Figure | Table] = {each.name: each for each in report.figures}
    return figures.get(name) or table_of(report, name)


def table_of(report: Report, name: str) -> Table | None:
    """Return the table of this name, or the table behind the figure of this name."""
    return tables_of(report).get(name)


def tables_of(report: Report) -> Mapping[str, Table]:
    """Return the tables, and the tables behind figures, by name."""
    return {
        **{each.table.name: each.table for each in report.figures},
        **{each.name: each.table for each in report.figures},
        **{each.name: each for each in report.tables},
    }


def harmless(value: Value) -> Value:
    """Return a value that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def _plain(value: Value) -> Value:
    """Return a value, with None instead of infinity or NaN, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value

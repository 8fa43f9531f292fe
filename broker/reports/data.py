"""Reports as data: whole documents for JSON, and single tables as CSV."""

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

from broker.reports.document import Figure, Report, Table, Value

__all__ = ["csv_of", "document", "figure_of", "part", "part_of", "table_of", "tables_of"]

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def document(report: Report) -> Mapping[str, Any]:
    """Return a whole report for JSON: moments in epoch seconds, rates in bytes per second, shares from 0 to 1."""
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
    """Return a table as CSV: a header with the names of the columns, then a line for each row; None is empty.

    Text that looks like a formula to a spreadsheet gets an apostrophe in front, since users supply it.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([each.name for each in table.columns])
    writer.writerows([harmless(value) for value in row] for row in table.rows)
    return text.getvalue()


def figure_of(report: Report, name: str) -> Figure | None:
    """Return the figure of this name; None if there is none, or it is not drawn."""
    return next((each for each in report.figures if each.name == name and each.spec), None)


def part_of(report: Report, name: str) -> Figure | Table | None:
    """Return the figure or table of this name; None if there is none."""
    figures: dict[str, Figure | Table] = {each.name: each for each in report.figures}
    return figures.get(name) or table_of(report, name)


def table_of(report: Report, name: str) -> Table | None:
    """Return the table of this name, or the table of the figure with this name; None if there is none."""
    return tables_of(report).get(name)


def tables_of(report: Report) -> Mapping[str, Table]:
    """Return all tables by name; a figure's table is also under the figure's name."""
    return {
        **{each.table.name: each.table for each in report.figures},
        **{each.name: each.table for each in report.figures},
        **{each.name: each for each in report.tables},
    }


def harmless(value: Value) -> Value:
    """Return a value, with an apostrophe before text that a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def _plain(value: Value) -> Value:
    """Return a value; None for infinity and NaN, which JSON lacks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value

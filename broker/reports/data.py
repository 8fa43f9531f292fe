"""A report as data: the same document as JSON, and each of its tables as CSV."""

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

from broker.reports.document import Figure, Report, Table, Value

__all__ = ["csv_of", "document", "figure_of", "part", "part_of", "table_of", "tables_of"]

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def document(report: Report) -> Mapping[str, Any]:
    """All of it, for JSON; moments in seconds since the epoch, rates in bytes per second, shares from 0 to 1."""
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
    """A table; or a figure: what is drawn, and how."""
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
    """A header with the columns' names, then a line a row; what is not known is empty.

    Words that a spreadsheet would take for a formula have an apostrophe before them: others may have said them.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([each.name for each in table.columns])
    writer.writerows([harmless(value) for value in row] for row in table.rows)
    return text.getvalue()


def figure_of(report: Report, name: str) -> Figure | None:
    """The figure of this name, if it is drawn."""
    return next((each for each in report.figures if each.name == name and each.spec), None)


def part_of(report: Report, name: str) -> Figure | Table | None:
    """The figure or table of this name."""
    figures: dict[str, Figure | Table] = {each.name: each for each in report.figures}
    return figures.get(name) or table_of(report, name)


def table_of(report: Report, name: str) -> Table | None:
    """The table of this name, or what the figure of this name is drawn from."""
    return tables_of(report).get(name)


def tables_of(report: Report) -> Mapping[str, Table]:
    """The tables, and what figures are drawn from, by their names."""
    return {
        **{each.table.name: each.table for each in report.figures},
        **{each.name: each.table for each in report.figures},
        **{each.name: each for each in report.tables},
    }


def harmless(value: Value) -> Value:
    """Return a value that no program for tables takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def _plain(value: Value) -> Value:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value

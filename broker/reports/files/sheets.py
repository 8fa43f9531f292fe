"""Reports as PDF, typeset by Typst, with vector figures, and with table headings and page numbers on each page.

Typst gets the content of reports as data rather than markup, and loads no other file.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from broker.errors import Invalid
from broker.reports.document import Figure, Report, Table, Unit, Value
from broker.reports.drawing import vectors
from broker.reports.files.pages import MOST, shown
from broker.reports.words import written
from coalloc.safe_text import escaped

__all__ = ["sheets"]

MAIN = "file.typ"
BREAKS = re.compile(r"([/._:=&?@,-]+|\S{16})(?=\S)")
"""Places where URLs and long names may break in a narrow column."""


def sheets(reports: Sequence[Report], title: str, lead: str = "") -> bytes:
    """Return all reports as one PDF, each on a new page; the same reports give the same bytes.

    :param lead: introduction, in a sentence
    :raises Invalid: when typst is not installed
    """
    try:
        import typst
    except ImportError:
        raise Invalid("PDF needs typst, which is not installed", "run: pip install 'coget[pdf]'") from None
    with TemporaryDirectory(prefix="coget-report-") as name:
        folder = Path(name)
        (folder / MAIN).write_bytes(files("broker").joinpath("templates", MAIN).read_bytes())
        content = {
            "title": escaped(title),
            "lead": escaped(lead),
            "reports": [_report(each, folder) for each in reports],
        }
        (folder / "reports.json").write_text(json.dumps(content))
        made: bytes = typst.compile(folder / MAIN, root=folder, format="pdf", timestamp=0)
    return made


def _report(report: Report, folder: Path) -> Mapping[str, Any]:
    return {
        "title": escaped(report.title),
        "lead": escaped(report.lead),
        "at": f"As of {written(report.at, 'moment')}.",
        "facts": [
            {"label": escaped(each.label), "value": written(each.value, each.unit), "note": escaped(each.note)}
            for each in report.facts
        ],
        "figures": [_figure(each, f"{report.name}-{place}.pdf", folder) for place, each in enumerate(report.figures)],
        "tables": [_table(each) for each in report.tables],
    }


def _figure(figure: Figure, file: str, folder: Path) -> Mapping[str, str]:
    content = {"title": escaped(figure.title), "note": escaped(figure.note), "alternative": escaped(figure.alternative)}
    if not figure.spec:
        return {**content, "file": ""}
    (folder / file).write_bytes(vectors(figure))
    return {**content, "file": file}


def _table(table: Table) -> Mapping[str, Any]:
    columns = shown(table)
    stale = table.stale or [False] * len(table.rows)
    few = f"The first {MOST} of {len(table.rows):,} rows." if len(table.rows) > MOST else ""
    return {
        "title": escaped(table.title),
        "note": " ".join(filter(None, (escaped(table.note), few)))
        or ("" if table.rows else "There is nothing to show."),
        "columns": [{"title": escaped(each.title), "number": each.unit != "text"} for _, each in columns],
        "rows": [
            {"cells": [_cell(row[place], each.unit) for place, each in columns], "stale": old}
            for row, old in zip(table.rows[:MOST], stale, strict=False)
        ],
    }


def _cell(value: Value, unit: Unit) -> str:
    """Return a cell's text, with places where long names may break, and no break between a number and its unit."""
    text = written(value, unit)
    return BREAKS.sub("\\1\u200b", text) if unit == "text" else text.replace(" ", "\u00a0")

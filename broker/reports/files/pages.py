"""Reports as one HTML file, with figures and styles, without scripts."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from broker.reports.charts.palette import stylesheet
from broker.reports.document import Column, Figure, Report, Table
from broker.reports.drawing import svg
from broker.reports.words import written

__all__ = ["MOST", "page", "shown"]

MOST = 200
"""Most rows of a table in a file; CSV has all rows."""
TEMPLATES = Environment(
    loader=PackageLoader("broker"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
STYLE = stylesheet() + files("broker").joinpath("templates", "file.css").read_text()
HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{HASH}'"


def page(reports: Sequence[Report], title: str, lead: str = "") -> str:
    """Return all reports as one HTML page, in light or dark mode as the browser prefers.

    :param lead: introduction, in a sentence
    """
    return TEMPLATES.get_template("file.html").render(
        reports=reports, title=title, lead=lead, style=Markup(STYLE), policy=POLICY, most=MOST
    )


def shown(table: Table) -> list[tuple[int, Column]]:
    """Return the columns that readers see, with their positions; columns of URLs are hidden."""
    hidden = {each.link for each in table.columns}
    return [(place, each) for place, each in enumerate(table.columns) if each.name not in hidden]


def _drawing(figure: Figure) -> Markup | str:
    return Markup(svg(figure)) if figure.spec else ""


def _filters() -> dict[str, Any]:
    return {"shown": shown, "drawing": _drawing, "written": written}


TEMPLATES.filters |= _filters()

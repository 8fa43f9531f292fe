"""The renderer of HTML pages, with protection against framing and injection.

Templates escape all values. A page loads nothing from other hosts. Its form may be sent only to this host, and be
redirected to one other origin (browsers apply the policy to redirects, too). Login pages have no script; report pages
have one, from this host.
"""

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import escape
from starlette.responses import HTMLResponse

from broker.reports.charts.palette import stylesheet
from broker.reports.document import Fact, Table, Value
from broker.reports.words import written

__all__ = ["STATIC", "PageFile", "page", "parts", "shown"]

TEMPLATES = Environment(
    loader=PackageLoader("broker"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
STYLE = files("broker").joinpath("templates", "style.css").read_text()
HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = ("default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'")
PLAIN = "; ".join((f"style-src 'sha256-{HASH}'", *POLICY))
SCRIPTED = "; ".join(("style-src 'self'", "script-src 'self'", "connect-src 'self'", *POLICY))
LOCAL = re.compile(r"[a-z][a-z-]{0,40}(\?[!#-;=?-\[\]_a-z~]*)?")
SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageFile(NamedTuple):
    """A file that pages load."""

    kind: str
    content: bytes


def local(address: str) -> str:
    """Return a report's relative URL if it is safe; otherwise an empty string, which links to the current page."""
    return address if LOCAL.fullmatch(address) else ""


def slug(label: str) -> str:
    """Return a label in the form of an element id.

    >>> slug("Moved today")
    'moved-today'
    """
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def number(value: Value) -> str:
    """Return the number, as text, by which a cell is sorted; empty for other values.

    >>> number(0.5), number(True), number(None)
    ('0.5', '1', '')
    """
    return f"{value + 0}" if isinstance(value, int | float) and math.isfinite(value) else ""


def _named(name: str, kind: str, before: str = "") -> tuple[str, PageFile]:
    """Return a file, and its name with a hash of the content, so that browsers may cache it."""
    content = before.encode() + files("broker").joinpath("static", name).read_bytes()
    stem, _, suffix = name.partition(".")
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:12]}.{suffix}", PageFile(kind, content)


STYLED, SCRIPT = _named("reports.css", "text/css", stylesheet()), _named("reports.js", "text/javascript")
STATIC: dict[str, PageFile] = dict((STYLED, SCRIPT))
"""Files of pages, by name."""
TEMPLATES.filters |= {"local": local, "number": number, "slug": slug}
TEMPLATES.globals |= {"written": written, "styled": STYLED[0], "script": SCRIPT[0]}


def page(name: str, status: int = 200, goes_to: str = "", **values: Any) -> HTMLResponse:
    """Render a template as a page without a script.

    :param goes_to: origin to which the response to its form may redirect
    """
    text = TEMPLATES.get_template(f"{name}.html").render(style=STYLE, **values)
    return HTMLResponse(text, status, {**SAFE, "Content-Security-Policy": f"{PLAIN} {goes_to}".rstrip()})


def shown(name: str, /, **values: Any) -> HTMLResponse:
    """Render a template as a page with the script and stylesheet of reports."""
    text = TEMPLATES.get_template(f"{name}.html").render(**values)
    return HTMLResponse(text, headers={**SAFE, "Content-Security-Policy": SCRIPTED})


def parts(facts: Sequence[Fact], tables: Sequence[Table], acts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the HTML of facts, table rows and notes, by the ids of the page's elements."""
    macros: Any = TEMPLATES.get_template("parts.html").module
    found: dict[str, object] = {}
    for fact in facts:
        found[f"fact-{slug(fact.label)}"] = escape(written(fact.value, fact.unit))
        found[f"says-{slug(fact.label)}"] = escape(fact.note)
    for table in tables:
        found[f"rows-{table.name}"] = macros.rows(table, acts)
        found[f"note-{table.name}"] = macros.note(table)
    return {name: str(text).strip() for name, text in found.items()}

"""The few pages that people see: rendered here, without a script, and safe from being framed or fed.

What is put into a template is escaped; a page loads nothing from anywhere, and its form goes nowhere but back, and to
where the answer will send the browser (browsers ask that of redirects, too).
"""

import base64
import hashlib
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

__all__ = ["page"]

TEMPLATES = Environment(
    loader=PackageLoader("broker"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
STYLE = files("broker").joinpath("templates", "style.css").read_text()
HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{HASH}'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'self'",
    )
)


def page(name: str, status: int = 200, goes_to: str = "", **values: Any) -> HTMLResponse:
    """A page of this name.

    :param goes_to: the origin to which the answer to its form may lead
    """
    headers = {
        "Content-Security-Policy": f"{POLICY} {goes_to}".rstrip(),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
    text = TEMPLATES.get_template(f"{name}.html").render(style=STYLE, **values)
    return HTMLResponse(text, status, headers)

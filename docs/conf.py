"""The documentation site: Sphinx makes it from README.md and docs/. `make docs` runs it.

The source directory is the repository, so that a link on a page leads to the same file here, in an editor and on a web
page of the repository. The navigation is made of the tables in README.md: each row is a group of pages.
"""

import re
import shutil
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HOUSE = Path(__file__).parents[1]
SETUP = ConfigParser()
SETUP.read(HOUSE / "setup.cfg")

project, version = SETUP["metadata"]["name"], SETUP["metadata"]["version"]
html_title = f"{project} {version}"
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_show_sphinx = False
html_copy_source = False
html_use_index = False
html_show_search_summary = False  # browsers let no page from disk read other pages
myst_heading_anchors = 6
default_role = "literal"  # docstrings have code in single backticks
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

TABLE = re.compile(r"^\| (?P<kind>[a-z ]+) \| pages \|\n\|.*\n(?P<rows>(?:\|.*\n)+)", re.MULTILINE)
LINE = re.compile(r"^\*\*(?P<name>Tutorials|Contribute):\*\* (?P<pages>(?:.+\n)+)", re.MULTILINE)
PAGE = re.compile(r"\]\(([\w/-]+\.md)\)")
PARAMETERS = re.compile(r"<dl>\n(?:<dd>.*</dd>\n?)+</dl>")


def groups(readme: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the groups of the navigation, each with its title and the paths of its pages."""
    lines = {found["name"]: PAGE.findall(found["pages"]) for found in LINE.finditer(readme)}
    yield "Tutorials", lines["Tutorials"]
    for table in TABLE.finditer(readme):
        for row in table["rows"].splitlines():
            yield f"{table['kind'].capitalize()}: {row.split('|')[1].strip()}", PAGE.findall(row)
    yield "Contribute", lines["Contribute"]


def add_navigation(app: Sphinx, name: str, text: list[str]) -> None:
    """Append the navigation to the start page."""
    if name == root_doc:
        for title, pages in groups(text[0]):
            text[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""])


def skip_fields(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skip fields of named tuples, which the signature shows; their docstrings are numbers."""
    return True if type(member).__name__ == "_tuplegetter" else None


def mend_roles(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Mend what screen readers stumble over: headings without a level, code without focus, lists of parameters."""
    navigation = "furo_navigation_tree"
    context[navigation] = context[navigation].replace('role="heading"', 'role="heading" aria-level="2"')
    body = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    body = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    context["body"] = PARAMETERS.sub(lambda found: _in_blocks(found[0]), body)


def _in_blocks(parameters: str) -> str:
    blocks = parameters.replace("<dl>", '<div class="parameters">').replace("</dl>", "</div>")
    return blocks.replace("<dd>", "<div>").replace("</dd>", "</div>")


def copy_start_page(app: Sphinx, error: Exception | None) -> None:
    """Copy the start page to the name under which servers and people look for it."""
    if not error and app.builder.name == "html":
        shutil.copyfile(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Add the handlers above."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("html-page-context", mend_roles, priority=900)  # after the theme
    app.connect("build-finished", copy_start_page)

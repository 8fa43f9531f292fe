"""The documentation site: its navigation, its reference of the Python API, and the built pages in a browser."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import coalloc.api
import coalloc.planner
from tests.support.chromium import PHONE, chromium, visit
from tests.support.effort import LONG

HOUSE = Path(__file__).parents[1]
RESOURCE = re.compile(
    r"<(?:img|script|iframe|source|video)\b[^>]*\bsrc=[\"']?(?:https?:)?//"
    r"|<link\b(?![^>]*\brel=[\"']?(?:canonical|author))[^>]*\bhref=[\"']?(?:https?:)?//"
    r"|(?:@import\s*|url\(\s*)[\"']?(?:https?:)?//"
)
"""A resource of another host, in HTML or CSS; links that a reader may follow are none."""
AUTO = re.compile(r"^\.\. auto\w+:: (\w+)$", re.MULTILINE)
"""A documented name on a reference page."""
SHOWN = ("index", "docs/reference/cli", "docs/reference/python", "docs/howto/broker")


def configuration():
    place = importlib.util.spec_from_file_location("site_configuration", HOUSE / "docs/conf.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_navigation_has_every_page_once():
    named = [page for _, pages in configuration().groups((HOUSE / "README.md").read_text()) for page in pages]
    pages = {str(path.relative_to(HOUSE)) for path in [*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md")]}
    assert sorted(named) == sorted(pages - {"README.md"}), "list the page in a table of README.md"


@pytest.mark.parametrize(("module", "page"), [(coalloc.api, "python"), (coalloc.planner, "python-planner")])
def test_the_reference_describes_every_public_name(module, page):
    parts = (HOUSE / f"docs/reference/{page}.md").read_text().split(".. currentmodule:: ")
    described = [name for part in parts if part.startswith(f"{module.__name__}\n") for name in AUTO.findall(part)]
    assert sorted(described) == sorted(module.__all__)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not LONG:
        pytest.skip("building the site takes 20 s: make test-long does")
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-c", "docs"]
    done = subprocess.run(
        [*command, "-d", built / "doctrees", ".", built / "site"], cwd=HOUSE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return built / "site"


@pytest.mark.long
def test_the_site_loads_nothing_from_another_host(site):
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(files) > 50
    found = {path.name: match[0] for path in files if (match := RESOURCE.search(path.read_text()))}
    assert found == {}


@pytest.mark.long
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, {"width": 1280, "height": 900}], ids=["phone", "desk"])
async def test_pages_from_disk_are_accessible_and_fit(site, colours, size):
    async with (
        chromium() as browser,
        visit(browser, site.as_uri(), color_scheme=colours, viewport=size) as visitor,
    ):
        for page in SHOWN:
            await visitor.open(f"/{page}.html")
            assert await visitor.faults() == [], page
            assert await visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page


@pytest.mark.long
async def test_the_search_works_from_disk(site):
    async with chromium() as browser, visit(browser, site.as_uri()) as visitor:
        await visitor.open("/index.html")
        await visitor.page.get_by_placeholder("Search").first.fill("resume")
        await visitor.page.keyboard.press("Enter")
        await visitor.page.locator("#search-results").get_by_role("link", name="Interrupt and resume").first.click()
        await visitor.page.get_by_role("heading", name="Interrupt and resume a download").wait_for()

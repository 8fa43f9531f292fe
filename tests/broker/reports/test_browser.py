"""Reports in a real browser, over the demonstration: each page in the registry."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, StorageState, expect

from broker.config.settings import Settings
from broker.demo.decisions import DOWNLOADS
from broker.demo.filling import fill
from broker.demo.world import World, world
from broker.factory import Factory
from broker.jobs.scoring import Scoring
from broker.models.callers import NewToken
from broker.reports.registry import REPORTS
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.support.broker import BrokerProcess
from tests.support.chromium import PHONE, Visitor, chromium, visit
from tests.support.effort import LONG, effort
from tests.support.programs import LATE

pytestmark = pytest.mark.asyncio(loop_scope="module")
MARKUP = '<img src=x onerror="alert(1)"><script>alert(2)</script><b>bold</b>'
KINDS = {"csv": "text/csv", "json": "application/json", "svg": "image/svg+xml", "png": "image/png"}
UNSCORED = """
from broker.jobs.scoring import Scoring
async def step(self):
    return False
Scoring.step = step
"""
"""Code that stops the scorer of a broker: it would slow the browser down, and pages would depend on its progress."""
SPARSE = effort(8, 1)
"""Divisor of the numbers of transfers and downloads in the demonstration."""
LEADS = re.compile(r"[a-z][a-z-]*\?.+")


class Shown(NamedTuple):
    """A broker with data, the tokens of an admin and of two users, and the path of each report."""

    process: BrokerProcess
    admin: str
    ann: str
    eve: str
    paths: dict[str, str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("shown")
    database = f"sqlite:///{folder / 'broker.sqlite'}"
    upgrade(addressed(database))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("broker.jobs.scoring.TURNS", 0.0)  # nobody else wants a turn
        patch.setattr("broker.demo.filling.world", _sparse)
        patch.setattr("broker.demo.decisions.DOWNLOADS", DOWNLOADS // SPARSE)
        admin, ann, eve = asyncio.run(_filled(database))
        (folder / "sitecustomize.py").write_text(LATE + UNSCORED)
        patch.setenv("PYTHONPATH", str(folder))
        started = BrokerProcess(database, folder, admin)
    with started as process:
        _malice(process)
        yield Shown(process, admin, ann, eve, _paths(process.client()))


def _sparse(seed: int) -> World:
    """Return the world of the demonstration, with fewer transfers over its busy links."""
    made = world(seed)
    links = [link._replace(a_day=max(link.a_day / SPARSE, min(link.a_day, 1.0))) for link in made.links]
    return made._replace(links=links)


async def _filled(database: str) -> list[str]:
    factory = Factory.of(Settings(database))
    try:
        await fill(factory, 1, time.time())
        scoring = Scoring(factory.database, factory.forecasting.compiled)
        for _ in range(2):  # of all pairs it would take a minute
            await scoring.step()
        roles = (("root", "admin"), ("ann", "transfer"), ("eve", "transfer"))
        new = [NewToken(subject=subject, role=role) for subject, role in roles]
        return [(await factory.tokens.issue("tests", each)).token for each in new]
    finally:
        await factory.database.close()


def _malice(process: BrokerProcess) -> None:
    """Return hostile text that a page must not interpret."""
    client, now = process.client(), time.time()
    source, sink = [each["name"] for each in client.get("/broker/v1/collections").json()["collections"]][:2]
    task = {"submission_id": str(uuid4()), "source": source, "destination": sink, "label": MARKUP}
    items = [{"source": "/none", "destination": "/none"}]
    assert client.post("/broker/v1/tasks", json={**task, "items": items}).status_code == 202
    dataset = client.get("/broker/v1/datasets?limit=1").json()["datasets"][0]["name"]
    replica = client.get(f"/broker/v1/datasets/{dataset}").json()["replicas"][0]
    place = client.get(f"/broker/v1/endpoints/{replica['endpoint']}").json()
    bad = {"dataset": dataset, "endpoint": replica["endpoint"], "reason": MARKUP}
    assert client.post("/broker/v1/replicas/bad", json=bad).status_code < 300
    moved = {"source": place["name"], "sink": place["site"], "started": now - 9, "ended": now - 1, "bytes": 10**9}
    for number, outcome in enumerate(["failed"] * 6 + ["corrupt"] * 6 + ["ok"] * 6):
        sent = {**moved, "id": f"m{number}", "outcome": outcome, "error": MARKUP}
        if outcome == "ok":
            del sent["error"]
        assert client.post("/broker/v1/transfers", json=sent).json()["accepted"] == 1


def _paths(client: httpx.Client) -> dict[str, str]:
    """Return the path of each report; for a report with a subject, follow a link from another report."""
    paths = {kind.name: f"/reports/{kind.name}" for kind in REPORTS.values() if kind.listed}
    new = list(paths)
    while new and set(paths) < set(REPORTS):
        document = client.get(f"/broker/v1{paths[new.pop()]}").json()
        for table in [*document["tables"], *(figure["table"] for figure in document["figures"])]:
            for cell in (cell for row in table["rows"] for cell in row):
                if isinstance(cell, str) and LEADS.fullmatch(cell):
                    name = cell.partition("?")[0]
                    if name in REPORTS and name not in paths:
                        paths[name] = f"/reports/{cell}"
                        new.append(name)
    return paths


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def logged_in(browser: Browser, served: Shown) -> StorageState:
    """Return the stored state of an admin's browser session."""
    async with visit(browser, served.process.url) as somebody:
        await somebody.login(served.admin)
        return await somebody.context.storage_state()


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(browser: Browser, served: Shown, logged_in: StorageState) -> AsyncIterator[Visitor]:
    """A browser session of an admin."""
    async with visit(browser, served.process.url, storage_state=logged_in) as somebody:
        yield somebody


async def _column(page: Page, table: str, number: int) -> list[str]:
    return await page.locator(f"#table-{table} tbody tr:visible td:nth-child({number})").all_inner_texts()


@pytest.mark.sampled(4)
@pytest.mark.long
@pytest.mark.parametrize("name", REPORTS)
async def test_each_page_is_readable_by_everybody(visitor, served, name):
    page = visitor.page
    assert await visitor.open(served.paths[name]) == 200
    assert await page.locator("h1").count() == 1
    assert await page.locator("main").inner_text()
    assert await visitor.faults() == []
    await page.emulate_media(color_scheme="dark")
    assert not LONG or await visitor.faults() == []
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
    assert await visitor.faults() == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REPORTS)
async def test_foreign_markup_is_text_and_all_downloads_work(visitor, served, name):
    await visitor.open(served.paths[name])
    strange = "main img, main script, main b, main [onerror], body > script, iframe, object, embed"
    assert await visitor.page.locator(strange).count() == 0, "words of others are text"
    links = await visitor.page.locator("a[download]").all()
    assert len(links) >= 1
    for link in links:
        address = await link.get_attribute("href") or ""
        answer = await visitor.page.request.get(visitor.home + address)
        assert answer.status == 200, address
        assert answer.headers["content-type"].startswith(KINDS[address.partition("?")[0].rpartition(".")[2]])


async def test_the_overview_is_kept_up_to_date_as_it_was_sorted(visitor, served):
    page = visitor.page
    await visitor.open("/reports/overview")
    today = page.locator("#fact-transfers-today")
    before, moment = await today.inner_text(), time.time()
    owner = page.locator("#table-tasks th", has_text="Owner")
    await owner.get_by_role("button").click()
    moved = {"id": "live", "source": "ftp://a.example", "sink": "b", "bytes": 1, "started": moment - 1, "ended": moment}
    answer = await asyncio.to_thread(served.process.client().post, "/broker/v1/transfers", json=moved)
    assert answer.json()["accepted"] == 1
    await expect(today).not_to_have_text(before)
    assert await owner.get_attribute("aria-sort") == "ascending"
    owners = await _column(page, "tasks", 2)
    assert owners == sorted(owners)


@pytest.mark.parametrize("name", ["replicas", "overview", "tasks"])
async def test_text_of_users_is_shown_unchanged(visitor, served, name):
    await visitor.open(served.paths[name])
    assert MARKUP in await visitor.page.locator("main").inner_text()


async def test_tables_are_sorted_by_a_click_and_by_keys(visitor):
    page = visitor.page
    await visitor.open("/reports/audit")
    who = page.locator("#table-changes th", has_text="User")
    await who.get_by_role("button").click()
    assert await who.get_attribute("aria-sort") == "ascending"
    names = await _column(page, "changes", 3)
    assert names == sorted(names, key=str.lower)
    await page.keyboard.press("Enter")
    assert await who.get_attribute("aria-sort") == "descending"
    assert await _column(page, "changes", 3) == sorted(names, key=str.lower, reverse=True)
    number = page.locator("#table-changes th", has_text="Number").get_by_role("button")
    await number.focus()
    await page.keyboard.press("Space")
    await page.keyboard.press("Space")
    numbers = [int(text.replace(",", "")) for text in await _column(page, "changes", 1)]
    assert numbers == sorted(numbers)
    assert await page.locator("#table-changes [aria-sort]").count() == 1


async def test_tables_show_the_rows_that_are_wanted(visitor):
    page = visitor.page
    await visitor.open("/reports/audit")
    rows = len(await _column(page, "changes", 1))
    await page.get_by_label("Rows with").fill("LOG IN")
    actions = await _column(page, "changes", 4)
    assert 0 < len(actions) < rows
    assert set(actions) == {"log in"}
    assert await page.locator(".filter output").inner_text() == f"{len(actions)} of {rows}"
    await page.get_by_label("Rows with").fill("")
    assert len(await _column(page, "changes", 1)) == rows


async def test_a_table_comes_as_a_file(visitor):
    await visitor.open("/reports/audit")
    async with visitor.page.expect_download() as coming:
        await visitor.page.get_by_role("link", name="Download changes as CSV").click()
    file = await coming.value
    assert file.suggested_filename == "changes.csv"
    text = await asyncio.to_thread(Path(await file.path()).read_text)
    assert text.startswith("id,at,subject,action,thing")


async def test_older_changes_are_a_page_further(visitor):
    page = visitor.page
    await visitor.open("/reports/audit")
    newest = await _column(page, "changes", 1)
    await page.get_by_label("Action", exact=True).fill("log in")
    await page.get_by_role("button", name="Show").click()
    assert set(await _column(page, "changes", 4)) == {"log in"}
    if len(newest) == 200:
        await visitor.open("/reports/audit")
        await page.get_by_role("link", name="Older").click()
        assert not set(newest) & set(await _column(page, "changes", 1))
        await page.get_by_role("link", name="Newer").click()
        assert await _column(page, "changes", 1) == newest


async def test_the_first_key_leads_past_the_menu(visitor):
    await visitor.open("/reports/audit")
    await visitor.page.keyboard.press("Tab")
    await visitor.page.keyboard.press("Enter")
    assert await visitor.page.evaluate("document.activeElement.id") == "main"


async def test_without_a_script_pages_can_still_be_read(browser, served):
    async with visit(browser, served.process.url, java_script_enabled=False) as somebody:
        await somebody.login(served.admin, "/reports/audit")
        assert await somebody.page.locator("#table-changes tbody tr").count() > 5
        assert await somebody.page.locator("th button").count() == 0
        assert not await somebody.page.get_by_label("Rows with").is_visible()


async def test_after_logout_the_back_button_shows_the_login(browser, served):
    async with visit(browser, served.process.url) as somebody:
        await somebody.login(served.admin, "/reports/audit")
        assert await somebody.faults() == []
        await somebody.page.get_by_role("button", name="Log out").click()
        await somebody.page.get_by_text("You have logged out").wait_for()
        assert await somebody.faults() == []
        await somebody.page.go_back()
        await somebody.page.get_by_label("token").wait_for()
        await somebody.open("/reports/audit")
        await somebody.page.get_by_label("token").wait_for()
        assert await somebody.page.locator("table").count() == 0


async def test_a_session_that_ended_leads_to_the_login_and_back(browser, served):
    async with visit(browser, served.process.url) as somebody:
        await somebody.login(served.admin, "/reports/audit")
        await somebody.context.clear_cookies(name="coget-session")
        await somebody.open("/reports/audit?subject=root")
        await somebody.page.get_by_role("button", name="Continue as root").click()
        await somebody.page.get_by_role("button", name="Log out").wait_for()
        assert somebody.page.url.endswith("/reports/audit?subject=root")


async def test_users_see_no_data_of_others_and_no_links_to_reports_for_admins(browser, served):
    async with visit(browser, served.process.url) as somebody:
        await somebody.login(served.eve)
        for name, path in served.paths.items():
            if REPORTS[name].admin:
                assert await somebody.page.locator(f"header a[href='/reports/{name}']").count() == 0
                assert await somebody.open(path) == 403
            else:
                await somebody.open(path)
                seen = await somebody.page.locator("main").inner_text()
                words = [] if name == "replicas" else re.findall(r"\w+", seen)  # remarks in the catalogue are public
                assert not {"ann", "ben", "cleo", "root"} & set(words), path
        somebody.complaints.clear()  # the browser tells of what was refused, too

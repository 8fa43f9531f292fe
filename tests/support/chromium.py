"""A real browser: Debian's Chromium for machines without a screen, and its user.

    async with chromium() as browser:
        async with visit(browser, "http://127.0.0.1:8000") as visitor:
            await visitor.login(token)
            await visitor.open("/reports/audit")

The end of the `visit` block fails the test if a page caused an error or a warning on the browser's console, an
exception, a dialog, or a request to another host.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, Request, async_playwright, expect

from tests.support.effort import effort
from tests.support.waiting import PATIENCE

__all__ = ["PHONE", "Visitor", "chromium", "visit"]

PROGRAM = "/usr/bin/chromium-headless-shell"
"""The headless program: it has the engine of the full browser, which takes three times as long for each page."""
PHONE = {"width": 390, "height": 844}
SERIOUS = ("serious", "critical")
LIMIT = 1000 * PATIENCE
"""Time limit of each step in milliseconds."""
expect.set_options(timeout=LIMIT)
ROWS = effort(20, 10**6)
"""Number of rows of a table that axe-core checks: thousands of similar cells would take it 20 s."""
TAKE = """most => [...document.querySelectorAll('tbody')].flatMap(
    body => [...body.rows].slice(most).map(row => { row.remove(); return [body, row]; }))"""
GIVE_BACK = "taken => taken.forEach(([body, row]) => body.append(row))"


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start the browser. If it is not installed, skip the test, or fail it in CI."""
    if not shutil.which(PROGRAM):
        package = "chromium-headless-shell"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{package} is not installed: apt-get install {package}")
    async with async_playwright() as playwright:
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=root)
        try:
            yield browser
        finally:
            await browser.close()


class Visitor:
    """A user of the browser.

    :param home: URL of the broker
    :ivar complaints: errors and warnings of the browser about pages
    """

    def __init__(self, home: str, context: BrowserContext, page: Page) -> None:
        self.home = home
        self.context = context
        self.page = page
        self.complaints: list[str] = []
        page.on(
            "console", lambda message: message.type in ("error", "warning") and self.complaints.append(message.text)
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._request)
        page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.home).netloc and not request.url.startswith("data:"):
            self.complaints.append(f"a request to another host: {request.url}")

    async def open(self, path: str) -> int:
        """Open a path of the broker; return the status of the response."""
        answer = await self.page.goto(self.home + path)
        assert answer is not None
        return answer.status

    async def login(self, token: str, path: str = "/reports") -> None:
        """Open a page that redirects to the login form, log in, and wait for the page."""
        await self.open(path)
        await self.page.get_by_label("token").fill(token)
        await self.page.get_by_role("button", name="Log in").click()
        await self.page.get_by_role("button", name="Log out").wait_for()

    async def faults(self) -> list[dict[str, Any]]:
        """Return serious and critical findings of axe-core on the page."""
        taken = await self.page.evaluate_handle(TAKE, ROWS)
        found = await Axe().run(self.page, options={"resultTypes": ["violations"], "preload": False})
        await self.page.evaluate(GIVE_BACK, taken)
        return [
            {"id": each["id"], "help": each["help"], "nodes": [node["html"] for node in each["nodes"][:5]]}
            for each in found.response["violations"]
            if each["impact"] in SERIOUS
        ]


@asynccontextmanager
async def visit(browser: Browser, home: str, **settings: Any) -> AsyncIterator[Visitor]:
    """Open a new session in the browser, without cookies.

    :param settings: arguments of Playwright's `new_context`: `color_scheme`, `viewport`, `java_script_enabled`...
    """
    context = await browser.new_context(**settings)
    context.set_default_timeout(LIMIT)
    try:
        visitor = Visitor(home, context, await context.new_page())
        yield visitor
    finally:
        await context.close()
    assert not visitor.complaints

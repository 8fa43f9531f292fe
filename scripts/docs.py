"""`make docs`: the reference page of the reports with its pictures, from demonstration data with a fixed seed.

The clock is fixed, so that a picture changes only if its report changes.
"""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import UUID

import httpx
import uvicorn
from PIL import Image
from playwright.async_api import Browser

from broker.config.settings import Settings
from broker.demo.filling import fill
from broker.factory import Factory
from broker.jobs.scoring import Scoring
from broker.main import create_app
from broker.models.callers import NewToken
from broker.reports.registry import REPORTS
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.support.chromium import PHONE, chromium, visit

__all__ = ["PAGE", "PICTURES", "main"]

DOCS = Path(__file__).parents[1] / "docs" / "reference"
PAGE, PICTURES = DOCS / "reports.md", DOCS / "reports"
SEED, NOW = 1, 1_795_000_000.0
DESK = {"width": 1100, "height": 800}
TALLEST = 1600
"""Largest height of a picture in pixels; longer reports are cut off."""
COLOURS = 128
MOST = 20
"""Number of reports of one kind from which the longest is chosen."""
HEAD = """# Reports

These are all reports of a broker, with the data of `coget-broker demo`, as an admin sees them. The
[how-to](../howto/reports.md) explains how to use them. `make docs` generates this page and its
pictures.
"""


class Shot(NamedTuple):
    """A picture of a report, and the browser's settings for it."""

    name: str
    path: str
    browser: Mapping[str, Any]


def main() -> None:
    """Write all pictures and the page."""
    chance = Random(SEED)
    with ExitStack() as stack:
        stack.enter_context(patch("time.time", return_value=NOW))
        ids = stack.enter_context(patch("broker.storage.tasks.uuid4"))
        ids.side_effect = lambda: UUID(int=chance.getrandbits(128), version=4)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        database = f"sqlite:///{folder}/demo.sqlite"
        upgrade(addressed(database))
        asyncio.run(_make(Settings(database)))


async def _make(settings: Settings) -> None:
    PICTURES.mkdir(exist_ok=True)
    async with _served(settings) as (home, token):
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=f"{home}/broker/v1/reports/", headers=headers, timeout=60) as client:
            documents = await _documents(client)
        async with chromium() as browser:
            async with visit(browser, home) as visitor:
                await visitor.login(token)
                session = await visitor.context.storage_state()
            for shot in _shots(documents):
                await _take(browser, home, session, shot)
    PAGE.write_text(HEAD + "".join(_section(name, document) for name, (_, document) in documents.items()))


@asynccontextmanager
async def _served(settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """Serve the demonstration; yield its address and an admin's token."""
    factory = Factory.of(settings)
    await fill(factory, SEED, NOW)
    await Scoring(factory.database, factory.forecasting.compiled).all()
    issued = await factory.tokens.issue("coget-broker", NewToken(subject="admin", role="admin"))
    server = uvicorn.Server(uvicorn.Config(create_app(factory), log_level="warning"))
    listening = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", issued.token
    finally:
        server.should_exit = True
        await serving


async def _documents(client: httpx.AsyncClient) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return the path and document of each report, by name; links in other reports supply missing parameters."""
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for kind in sorted(REPORTS.values(), key=lambda kind: not kind.listed):
        ways = [kind.name] if kind.listed else _links(kind.name, [document for _, document in found.values()])
        told = [(way, (await client.get(way)).raise_for_status().json()) for way in ways]
        found[kind.name] = max(told, key=lambda each: _rows(each[1]))  # the report with the most rows
    return {name: found[name] for name in REPORTS}


def _tables(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*document["tables"], *(figure["table"] for figure in document["figures"])]


def _rows(document: Mapping[str, Any]) -> int:
    return sum(len(table["rows"]) for table in _tables(document))


def _links(name: str, documents: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return at most `MOST` links to a report in the documents."""
    values = [value for each in documents for table in _tables(each) for row in table["rows"] for value in row]
    found = [value for value in values if isinstance(value, str) and value.startswith(f"{name}?")]
    return list(dict.fromkeys(found))[:MOST]


def _shots(documents: Mapping[str, tuple[str, Mapping[str, Any]]]) -> list[Shot]:
    """Return a picture of each report in light mode, and of the first also in dark mode and on a phone."""
    desk = {"viewport": DESK, "color_scheme": "light"}
    found = [Shot(name, path, desk) for name, (path, _) in documents.items()]
    first = found[0]
    dark = Shot(f"{first.name}-dark", first.path, {**desk, "color_scheme": "dark"})
    return [*found, dark, Shot(f"{first.name}-phone", first.path, {**desk, "viewport": PHONE})]


async def _take(browser: Browser, home: str, session: Any, shot: Shot) -> None:
    async with visit(browser, home, **shot.browser, storage_state=session, reduced_motion="reduce") as visitor:
        await visitor.open(f"/reports/{shot.path}")
        height = await visitor.page.evaluate("document.documentElement.scrollHeight")
        width = shot.browser["viewport"]["width"]
        taken = await visitor.page.screenshot(
            full_page=True,
            clip={"x": 0, "y": 0, "width": width, "height": min(height, TALLEST)},
            animations="disabled",
            caret="hide",
        )
    few = Image.open(BytesIO(taken)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(PICTURES / f"{shot.name}.png", optimize=True)


def _section(name: str, document: Mapping[str, Any]) -> str:
    title = REPORTS[name].title
    return f"\n## {title}\n{document['lead']}\n\n![{title}](reports/{name}.png)\n"


if __name__ == "__main__":
    main()

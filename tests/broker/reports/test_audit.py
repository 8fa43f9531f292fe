"""The audit log as a report: in pages, of one user or of one kind of change."""

import time

import pytest

from broker.reports import audit
from broker.storage.tokens import TokenStore
from tests.support.browser import Page

MANY = 7


@pytest.fixture
async def noted(broker, monkeypatch):
    """Changes by two users, of which a page shows three."""
    monkeypatch.setattr(audit, "PAGE", 3)
    async with broker.factory.database.write() as connection:
        for number in range(MANY):
            action = "put site" if number % 2 else "remove site"
            await TokenStore(connection).note(time.time(), "zoe" if number else "yan", action, f"<b>{number}</b>")


def _things(page: Page) -> list[str]:
    return [cell for cell in page.text.split("<td>") if cell.startswith("&lt;b&gt;")]


def _lead(page: Page, word: str) -> str | None:
    found = [line for line in page.text.split("<a ") if f">{word}</a>" in line]
    return found[0].partition('href="')[2].partition('"')[0].replace("&amp;", "&") if found else None


async def test_one_goes_from_page_to_page_and_back(sitting, root, noted):
    await sitting.login(root, "/reports/audit?action=put+site&subject=zoe")
    page, seen = await sitting.open("/reports/audit?subject=zoe"), []
    while True:
        seen += _things(page)
        if (further := _lead(page, "Older")) is None:
            break
        page = await sitting.open(f"/reports/{further}")
    assert [cell[9] for cell in seen] == ["6", "5", "4", "3", "2", "1"]
    back = _lead(page, "Newer")
    assert back is not None
    page = await sitting.open(f"/reports/{back}")
    assert [cell[9] for cell in _things(page)] == ["6", "5", "4"]


async def test_changes_are_found_by_subject_and_action(admin, noted):
    for query, number in (({"subject": "yan"}, 1), ({"action": "put site"}, 3), ({"subject": "nobody"}, 0)):
        (table,) = (await admin.get("/broker/v1/reports/audit", params=query)).json()["tables"]
        assert len(table["rows"]) == number

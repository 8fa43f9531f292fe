"""A browser session over httpx, and access to reports for each kind of reader."""

import httpx
import pytest

from broker.jobs.scoring import Scoring
from broker.models.callers import NewToken
from tests.broker.conftest import HERE, Broker
from tests.support.browser import Page

__all__ = ["Sitting"]


class Sitting:
    """A browser session: cookies, redirects, forms."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client = broker.with_headers({})
        self.client.follow_redirects = True
        self.seen: list[str] = []
        self.client.event_hooks["request"].append(self._note)

    async def _note(self, request: httpx.Request) -> None:
        self.seen.append(str(request.url))

    async def open(self, path: str) -> Page:
        return Page(await self.client.get(path))

    async def login(self, token: str, path: str = "/reports/audit") -> Page:
        """Ask for a page, and log in where that leads to."""
        page = await self.open(path)
        return await self.send(page, token=token)

    async def send(self, page: Page, decision: str = "allow", **fields: str) -> Page:
        assert page.action, page.text
        return Page(await self.client.post(page.action, data={**page.fields, **fields, "decision": decision}))

    def cookie(self, name: str) -> str:
        return next(each.value or "" for each in self.client.cookies.jar if each.name == name)


@pytest.fixture
def sitting(broker: Broker) -> Sitting:
    return Sitting(broker)


@pytest.fixture
async def root(broker: Broker) -> str:
    """An admin's token."""
    return (await broker.factory.tokens.issue("tests", NewToken(subject="root", role="admin"))).token


@pytest.fixture
async def ann(broker: Broker) -> str:
    """A user's token."""
    return (await broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer", site="CERN"))).token


@pytest.fixture
def unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the broker's scorer; tests insert the scores."""

    async def nothing(_: Scoring) -> bool:
        return False

    monkeypatch.setattr(Scoring, "step", nothing)


def local(page: Page) -> str:
    """Return a page's local path."""
    assert page.url.startswith(HERE)
    return page.url.removeprefix(HERE)

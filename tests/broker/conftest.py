"""A broker on SQLite, and the same on PostgreSQL: every test that asks for one runs on both."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.config import Settings
from broker.factory import Factory
from broker.main import create_app
from broker.models.access import NewToken
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.support.postgres import Postgres, named, postgres

HERE = "http://broker.example"
DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Databases with tables, by kind, as they are made: copies are quicker than upgrades."""
    return {"folder": tmp_path_factory.mktemp("templates")}


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path, templates: dict[str, Any]) -> Iterator[str]:
    """The URL of a database with tables and nothing in them."""
    if request.param == "sqlite":
        template = templates["folder"] / "template.sqlite"
        if not template.exists():
            upgrade(addressed(f"sqlite:///{template}"))
        yield f"sqlite:///{shutil.copy(template, tmp_path / 'broker.sqlite')}"
        return
    running: Postgres = request.getfixturevalue("server")
    if "postgresql" not in templates:
        templates["postgresql"] = running.create()
        upgrade(addressed(templates["postgresql"]))
    url = running.create(named(templates["postgresql"]))
    yield url
    running.drop(url)


@pytest.fixture(params=DATABASES)
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.sqlite'}"
        return
    running: Postgres = request.getfixturevalue("server")
    url = running.create()
    yield url
    running.drop(url)


class Broker:
    """A broker that runs, and clients of each role."""

    def __init__(self, factory: Factory, app: Any) -> None:
        self.factory = factory
        self.app = app
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._open: list[httpx.AsyncClient] = []

    async def client(self, role: str, site: str = "") -> httpx.AsyncClient:
        """One that has a token of that role, and whose transfers go to that site."""
        issued = await self.factory.access.issue("tests", NewToken(subject=f"a-{role}", role=role, site=site))
        return self.with_headers({"Authorization": f"Bearer {issued.token}"})

    def with_headers(self, headers: dict[str, str]) -> httpx.AsyncClient:
        """One that sends these."""
        client = httpx.AsyncClient(transport=self._transport, base_url=HERE, headers=headers)
        self._open.append(client)
        return client

    async def settled(self) -> None:
        """Wait until all that was reported is known."""
        await self.factory.forecasting.look()
        await asyncio.gather(*self.factory.forecasting._making.values())

    async def close(self) -> None:
        """Close all clients."""
        await asyncio.gather(*(client.aclose() for client in self._open))


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Broker]:
    """A broker with these settings, whose forecasters are not compiled: that would take longer than the tests."""
    factory = Factory.of(settings, compiled=False)
    app = create_app(factory)
    async with app.router.lifespan_context(app):
        broker = Broker(factory, app)
        try:
            yield broker
        finally:
            await broker.close()


@pytest.fixture
async def broker(database: str) -> AsyncIterator[Broker]:
    async with running(Settings(database)) as started:
        yield started


@pytest.fixture
async def admin(broker: Broker) -> httpx.AsyncClient:
    return await broker.client("admin")


@pytest.fixture
async def stocked(admin: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client of a broker that knows two sites, three endpoints, and one dataset at all of them."""
    await stock(admin.put)
    return admin


async def stock(put: Callable[..., Any]) -> None:
    """Two sites, three endpoints, one dataset at all of them."""
    for name, latitude, longitude in (("CERN", 46.2, 6.05), ("FNAL", 41.8, -88.3)):
        site = {"name": name, "latitude": latitude, "longitude": longitude}
        assert (await put(f"/broker/v1/sites/{name}", json=site)).status_code == 200
    for name, site_name, scheme, prefix in (
        ("cern-1", "CERN", "ftp", "/data"),
        ("cern-2", "CERN", "gsiftp", "/"),
        ("fnal-1", "FNAL", "https", "/store/"),
    ):
        endpoint = {"name": name, "site": site_name, "scheme": scheme, "host": f"{name}.example", "prefix": prefix}
        assert (await put(f"/broker/v1/endpoints/{name}", json=endpoint)).status_code == 200
    dataset = {"name": "run1:2024/a.root", "size": 1_000_000_000, "checksums": {"adler32": "01020304"}}
    assert (await put("/broker/v1/datasets/run1:2024/a.root", json=dataset)).status_code == 200
    for name in ("cern-1", "cern-2", "fnal-1"):
        replica = {"dataset": "run1:2024/a.root", "endpoint": name}
        assert (await put("/broker/v1/replicas", json=replica)).status_code == 200

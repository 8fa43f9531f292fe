"""A broker on SQLite, and the same on PostgreSQL: every test that asks for one runs on both in `make test-long`.

In `make test` those do that are about the database; of the others each runs on one of the two, always the same.
"""

import asyncio
import shutil
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.config.settings import Settings
from broker.factory import Factory
from broker.main import create_app
from broker.models.callers import NewToken
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.broker.worlds import Servers, two_servers
from tests.support.days import at_noon
from tests.support.effort import DATABASE, leave_to_long_form
from tests.support.postgres import Postgres, named, postgres
from tests.support.statements import share

HERE = "http://broker.example"
DATABASES = ("sqlite", "postgresql")
ABOUT_THE_DATABASE = {
    "test_backup",
    "test_clocks",
    "test_database",
    "test_horizon",
    "test_leases",
    "test_lost_workers",
    "test_retried",
    "test_schema",
    "test_work",
}
"""Modules whose tests always run on both databases."""

share()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop, or mark as `long`, one of the two forms of each test that is not about the database."""
    pairs: dict[str, dict[str, pytest.Item]] = {}
    for item in items:
        if (kind := _database_of(item)) and item.path.stem not in ABOUT_THE_DATABASE:
            pairs.setdefault(DATABASE.sub("", item.nodeid), {})[kind] = item
    twofold = {name: forms for name, forms in pairs.items() if len(forms) == len(DATABASES)}
    others = {forms[DATABASES[zlib.crc32(name.encode()) % 2]] for name, forms in twofold.items()}
    leave_to_long_form(config, items, others)


def _database_of(item: pytest.Item) -> str | None:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return params.get("database") or params.get("empty_database")


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock of this process to noon, so that no day ends while the test runs."""
    at_noon(monkeypatch)


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Two GridFTP servers for the directories of all tests of a module, which must not stop them."""
    with two_servers(tmp_path_factory.mktemp("servers")) as started:
        yield started


class Templates:
    """Databases to copy, made on first use: a copy is quicker than an upgrade and requests.

    :param folder: where those of SQLite are
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[Postgres | None, bool], str] = {}

    def get(self, server: Postgres | None, stocked: bool) -> str:
        """The file or the name of a database with tables.

        :param server: the server with the database; None for a file of SQLite
        :param stocked: whether they hold the data of `stock`
        """
        kind = (server, stocked)
        if kind not in self._made:
            file = self._folder / f"{'stocked' if stocked else 'empty'}.sqlite"
            url = server.create() if server else f"sqlite:///{file}"
            upgrade(addressed(url))
            if stocked:
                asyncio.run(_stocked(url))
            self._made[kind] = named(url) if server else str(file)
        return self._made[kind]


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path, templates: Templates) -> Iterator[str]:
    """The URL of a database with tables; empty, or with the data of `stock` for tests that ask for `stocked`."""
    server: Postgres | None = request.getfixturevalue("server") if request.param == "postgresql" else None
    template = templates.get(server, "stocked" in request.fixturenames)
    if server is None:
        yield f"sqlite:///{shutil.copy(template, tmp_path / 'broker.sqlite')}"
        return
    url = server.create(template)
    yield url
    server.drop(url)


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
    """A running broker, and clients of each role."""

    def __init__(self, factory: Factory, app: Any) -> None:
        self.factory = factory
        self.app = app
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._open: list[httpx.AsyncClient] = []

    async def client(self, role: str, site: str = "") -> httpx.AsyncClient:
        """Return a client with a token of that role, whose transfers go to that site."""
        issued = await self.factory.tokens.issue("tests", NewToken(subject=f"a-{role}", role=role, site=site))
        return self.with_headers({"Authorization": f"Bearer {issued.token}"})

    def with_headers(self, headers: dict[str, str]) -> httpx.AsyncClient:
        """Return a client that sends these headers."""
        client = httpx.AsyncClient(transport=self._transport, base_url=HERE, headers=headers)
        self._open.append(client)
        return client

    async def settled(self) -> None:
        """Wait until all reported transfers are processed."""
        await self.factory.forecasting.look()
        await self.factory.forecasting._links.all_made()

    async def close(self) -> None:
        """Close all clients."""
        await asyncio.gather(*(client.aclose() for client in self._open))


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Broker]:
    """A broker with these settings and interpreted forecasters: compiling takes longer than the tests."""
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
    """A client of a broker that knows two sites, three endpoints, and one dataset at all of them: `database` does."""
    return admin


async def _stocked(url: str) -> None:
    async with running(Settings(url)) as broker:
        await stock((await broker.client("admin")).put)


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

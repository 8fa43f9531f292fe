"""Credentials in the environment of a worker: they are an admin's, and no task spends them."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.models.catalogue import CatalogueReplica, Dataset, Endpoint
from broker.models.tasks import Item
from coalloc.credentials import Credentials, Presenter
from tests.broker.worlds import Servers, World, working, world_at
from tests.support.web import ranges, redirect, web_server

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # no database matters here
CONTENT = os.urandom(4000)


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


def give_all(home: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process a token, a login, a rule and a certificate for the server at this port."""
    folder = home / ".config" / "coget"
    folder.mkdir(parents=True)
    files = {
        home / ".netrc": "machine 127.0.0.1 login root password hush",
        folder / "tokens.toml": f'[hosts."127.0.0.1:{port}"]\nheaders = ["X-Key: hush"]\n',
    }
    for path, text in files.items():
        path.touch(0o600)
        path.write_text(text)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("BEARER_TOKEN", "hush")


@pytest.mark.parametrize("place", ["/x", "/moved"])
async def test_a_task_spends_no_credential_of_the_workers_environment(world, tmp_path, monkeypatch, place):
    file = ranges(CONTENT)
    async with web_server(lambda heard: file(heard) if heard.path == "/x" else redirect("/x")) as server:
        port = int(server.url.rpartition(":")[2])
        give_all(tmp_path / "admin", port, monkeypatch)
        presenter = Presenter(f"{server.url}/x", Credentials())
        assert set(await presenter.headers(presenter.first)) == {"Authorization", "X-Key"}, "a user's coget sends them"
        where = Endpoint(name="web", site="here", scheme="http", host="127.0.0.1", port=port, prefix="/")
        await world.factory.places.put_endpoint("root", where)
        await world.factory.catalogue.put("root", Dataset(name="web:x", size=len(CONTENT)))
        await world.factory.catalogue.put_replica("root", CatalogueReplica(dataset="web:x", endpoint="web", path=place))
        items = [Item(source="/web/x", destination="/x")]
        task = await world.over(await world.submit("TRANSFER", items, "local", "catalogue", verify_checksum=False))
    assert task.status == "SUCCEEDED", task.error
    assert (world.local / "x").read_bytes() == CONTENT
    assert server.heard
    assert not any("hush" in request or request.header("Authorization") for request in server.heard)

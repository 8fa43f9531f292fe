"""Redirects by a replica's server: never into a collection that the task's owner may not read."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from broker.models.callers import Caller
from broker.models.catalogue import CatalogueReplica, Dataset, Endpoint
from broker.models.collections import NewCollection
from broker.models.tasks import Item
from broker.storage.collections import CollectionStore
from coalloc.errors import Unreachable
from tests.broker.worlds import Servers, World, working, world_at
from tests.support.scripted import raw_server

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # decisions here need no database
SECRET = os.urandom(4000)


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    """A task's source that is also in bob's collection, which has no grants."""
    async with world_at(servers, database, tmp_path) as world, working(world):
        (world.source.root / "secret").write_bytes(SECRET)
        async with world.factory.database.write() as connection:
            private = NewCollection(name="private", endpoint="source")
            await CollectionStore(connection).put(uuid4(), "bob", private, time.time())
        yield world


def files(asked: list[str]) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A web server where every file is the secret; it records requests."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        method, path = request.decode().split()[:2]
        asked.append(path)
        content = SECRET
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode())
        writer.write(content if method == "GET" else b"")
        await writer.drain()

    return serve


def leading(*targets: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A web server that redirects from /0 to /1 and so on, and from the last one to a given target."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
        target = targets[int(path.strip("/"))]
        writer.write(
            f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()

    return serve


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("path", "hops", "status"),
    [
        ("{open}", [], "SUCCEEDED"),
        ("{open}", ["/1", "/2"], "SUCCEEDED"),
        ("{secret}", [], "FAILED"),
        ("{secret}", ["/1", "/2"], "FAILED"),
        ("/{secret}", [], "FAILED"),
        ("{folder}/x/../secret", [], "FAILED"),
        ("{folder}/%73ecret", [], "FAILED"),
    ],
)
async def test_no_redirect_leads_into_a_closed_collection(world, path, hops, status):
    asked: list[str] = []
    target = path.format(open="/open", secret=world.source.root / "secret", folder=world.source.root)
    async with raw_server(files(asked)) as port, raw_server(leading(*hops, f"http://127.0.0.1:{port}{target}")) as evil:
        where = Endpoint(name="evil", site="here", scheme="http", host="127.0.0.1", port=evil, prefix="/")
        await world.factory.places.put_endpoint("root", where)
        await world.factory.catalogue.put("root", Dataset(name="evil:0", size=len(SECRET)))
        await world.factory.catalogue.put_replica(
            "root", CatalogueReplica(dataset="evil:0", endpoint="evil", path="/0")
        )
        items = [Item(source="/evil/0", destination="/x")]
        number = await world.submit("TRANSFER", items, "local", "catalogue", verify_checksum=False)
        task = await world.over(number)
    assert task.status == status, task.error
    if status == "FAILED":
        assert asked == []
        assert "a redirect leads into a collection that ann may not read" in task.error
    assert (world.local / "x").exists() == (status == "SUCCEEDED")


async def test_the_check_of_a_redirect_returns_the_looked_up_addresses(world):
    replicas, here = world.factory.replicas, socket.gethostname().lower()
    root, ann = world.source.root, Caller(subject="ann", role="reader")
    found = await replicas.leads(ann, f"http://{here}:8080/open")
    assert set(found) == {each[4][0] for each in socket.getaddrinfo(here, None)}
    assert await replicas.leads(ann, "http://192.0.2.1/open") == ()
    assert await replicas.leads(ann, "http://lost.invalid/open") == ()
    with pytest.raises(Unreachable, match=r"cannot look up the addresses of lost\.invalid"):
        await replicas.leads(ann, f"http://lost.invalid{root}/secret")


async def test_a_replica_at_a_host_that_cannot_be_looked_up_is_not_read(world):
    lost = Endpoint(name="lost", site="here", scheme="ftp", host="lost.invalid", prefix="/")
    await world.factory.places.put_endpoint("root", lost)
    await world.factory.catalogue.put("eve", Dataset(name="lost:x", size=1))
    inside = CatalogueReplica(dataset="lost:x", endpoint="lost", path=f"{world.source.root}/secret")
    await world.factory.catalogue.put_replica("eve", inside)
    with pytest.raises(Unreachable, match=r"cannot look up the addresses of lost\.invalid"):
        await world.factory.replicas.to_read("lost:x", "here", Caller(subject="ann", role="reader"))

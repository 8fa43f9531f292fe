"""A broker with two real GridFTP servers, a collection at each, a directory of workers, and the catalogue."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

import sqlalchemy as sa

from broker.background import worker_of
from broker.config.settings import Settings
from broker.factory import Factory
from broker.models.callers import Caller
from broker.models.catalogue import CatalogueReplica, Dataset, Endpoint, Site
from broker.models.collections import NewCollection
from broker.models.tasks import Item, NewTask, Options, Task
from broker.storage.collections import CollectionStore
from coalloc.util.addresses import Network, parse_networks
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import PATIENCE, until

__all__ = [
    "ANN",
    "Folder",
    "Server",
    "Servers",
    "World",
    "add_replica",
    "begun",
    "endpoint_name",
    "held",
    "read",
    "register",
    "two_servers",
    "working",
    "world_at",
    "world_of",
    "world_with",
    "write",
]

LOOPBACK = parse_networks(["127.0.0.0/8", "::1/128"])
ANN = Caller(subject="ann", role="transfer")
Servers = tuple[GridFTPServer, GridFTPServer]
"""A server of sources and a server of destinations."""


class Server(Protocol):
    """A GridFTP server, local or remote, whose files can be seen from here."""

    root: Path
    host: str
    port: int

    def url(self, path: str) -> str: ...

    def end_sessions(self) -> None: ...


class Folder:
    """A directory of a running server, as if the server served nothing else.

    :ivar root: the directory
    """

    def __init__(self, server: GridFTPServer, root: Path) -> None:
        root.mkdir()
        self.root = root.resolve()
        self.host, self.port = server.host, server.port
        self._server = server

    def url(self, path: str) -> str:
        return self._server.url(str(self.root / path))

    def end_sessions(self) -> None:
        self._server.end_sessions()


class World(NamedTuple):
    """A broker with a worker, two servers with a collection each, and a directory of the worker's."""

    factory: Factory
    source: Server
    sink: Server
    local: Path
    collections: dict[str, UUID]

    async def submit(
        self, kind: str, items: list[Item], to: str | None = "sink", origin: str = "source", **options: object
    ) -> str:
        """Submit a task as ann; return its id."""
        new = NewTask(
            owner="ann",
            kind=kind,
            submission_id=uuid4(),
            source=self.collections[origin],
            destination=to and self.collections[to],
            deadline=time.time() + 3600,
            options=Options(**options),
            items=tuple(items),
        )
        return (await self.factory.tasks.submit(new)).task

    async def task(self, number: str) -> Task:
        return await self.factory.tasks.one(ANN, number)

    async def moved(self, number: str, files: int) -> None:
        """Wait until this many files of a task have arrived."""

        async def arrived() -> bool:
            return (await self.task(number)).files_transferred >= files

        await until(arrived)

    async def over(self, number: str, seconds: float = PATIENCE) -> Task:
        """Return the finished task, or raise TimeoutError with its state."""
        task: Task | None = None

        async def ended() -> bool:
            nonlocal task
            task = await self.task(number)
            return task.status != "ACTIVE"

        try:
            await until(ended, seconds)
        except TimeoutError:
            raise TimeoutError(f"not over after {seconds:g} s: {task}; {await self._work(number)}") from None
        assert task is not None
        return task

    async def _work(self, number: str) -> Sequence[tuple[object, ...]]:
        """Return the number of a task's work items by state, attempt and worker."""
        asked = sa.text(
            "SELECT kind, state, attempt, lost, worker, max(not_before), count(*) FROM work WHERE task_id = :task "
            "GROUP BY kind, state, attempt, lost, worker"
        )
        async with self.factory.database.read() as connection:
            return [tuple(row) for row in await connection.execute(asked, {"task": number})]

    async def done(self, kind: str, items: list[Item], to: str | None = "sink", **options: object) -> Task:
        """Submit a task; return it when it is over."""
        return await self.over(await self.submit(kind, items, to, **options))


@asynccontextmanager
async def world_of(database: str, tmp_path: Path, network: tuple[Network, ...] = LOOPBACK) -> AsyncIterator[World]:
    """Build all of it, except for a worker."""
    with two_servers(tmp_path) as servers:
        async with world_with(database, tmp_path, *servers, network) as world:
            yield world


@contextmanager
def two_servers(folder: Path) -> Iterator[Servers]:
    """Start a server for sources, and one for destinations at another address."""
    with GridFTPServer(folder / "from") as source, GridFTPServer(folder / "to", "127.0.0.2") as sink:
        yield source, sink


def world_at(
    servers: Servers, database: str, tmp_path: Path, network: tuple[Network, ...] = LOOPBACK
) -> AbstractAsyncContextManager[World]:
    """Build the same world with directories of running servers, which must outlive it."""
    source, sink = Folder(servers[0], tmp_path / "from"), Folder(servers[1], tmp_path / "to")
    return world_with(database, tmp_path, source, sink, network)


@asynccontextmanager
async def world_with(
    database: str, tmp_path: Path, source: Server, sink: Server, network: tuple[Network, ...] = LOOPBACK
) -> AsyncIterator[World]:
    """Build the same world with running servers."""
    (tmp_path / "local").mkdir()
    factory = Factory.of(Settings(database, site="here", network=network), compiled=False)
    numbers = {name: uuid4() for name in ("source", "sink", "local", "catalogue")}
    await factory.places.put_site("root", Site(name="here"))
    for name, server in (("source", source), ("sink", sink)):
        where = {"scheme": "ftp", "host": server.host, "port": server.port, "prefix": f"{server.root}/"}
        await factory.places.put_endpoint("root", Endpoint(name=name, site="here", write_priority=1, **where))
    async with factory.database.write() as connection:
        kept = CollectionStore(connection)
        for name in ("source", "sink"):
            await kept.put(numbers[name], "ann", NewCollection(name=name, endpoint=name), time.time())
        folder = NewCollection(name="local", kind="local", base=f"{tmp_path / 'local'}/", site="here")
        await kept.put(numbers["local"], "ann", folder, time.time())
        await kept.put(numbers["catalogue"], "ann", NewCollection(name="all", kind="catalogue"), time.time())
    yield World(factory, source, sink, tmp_path / "local", numbers)
    factory.trees.close()
    await factory.database.close()


@asynccontextmanager
async def working(world: World) -> AsyncIterator[None]:
    """Run a worker in this process."""
    running = asyncio.create_task(worker_of(world.factory).run())
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def held(world: World, name: str = "sink", **values: object) -> None:
    """Change a collection."""
    async with world.factory.database.write() as connection:
        kept = CollectionStore(connection)
        (found,) = await kept.all({str(world.collections[name])})
        current = {field: getattr(found, field) for field in NewCollection.model_fields}
        await kept.put(found.id, "ann", NewCollection(**{**current, **values}), time.time())


async def begun(world: World, number: str, count: int) -> None:
    """Wait until this many bytes of a task have arrived."""

    async def arrived() -> bool:
        return (await world.task(number)).bytes_transferred >= count

    await until(arrived)


async def register(world: World, name: str, content: bytes, *servers: Server, told: bool = True) -> None:
    """Register a dataset with a replica at each of these servers, and its checksum if given."""
    checksums = {"sha256": hashlib.sha256(content).hexdigest()} if told else {}
    await world.factory.catalogue.put("root", Dataset(name=name, size=len(content), checksums=checksums))
    for server in servers:
        path = server.root / name.partition(":")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        await add_replica(world, name, server)


async def add_replica(world: World, name: str, server: Server) -> None:
    """Register a replica of a dataset at a server, and an endpoint for it."""
    endpoint = endpoint_name(server)
    where = {"scheme": "ftp", "host": server.host, "port": server.port, "prefix": f"{server.root}/"}
    await world.factory.places.put_endpoint("root", Endpoint(name=endpoint, site="here", **where))
    await world.factory.catalogue.put_replica("root", CatalogueReplica(dataset=name, endpoint=endpoint))


def endpoint_name(server: Server) -> str:
    """Return the name of a server's endpoint; servers at different addresses may have the same port."""
    return f"{server.host}-{server.port}"


def write(root: Path, files: dict[str, int]) -> dict[str, bytes]:
    """Create files of these sizes below a directory; return their contents."""
    written = {}
    for name, size in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        written[name] = os.urandom(size)
        (root / name).write_bytes(written[name])
    return written


def read(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

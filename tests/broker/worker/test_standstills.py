"""A task whose source refuses the login: it says so, since when, and goes on when the login works again."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.models.catalogue import CatalogueReplica, Dataset, Endpoint
from broker.models.submissions import TaskRecord
from broker.models.tasks import Item
from tests.broker.worlds import Folder, Server, Servers, World, register, working, world_at, write
from tests.support.scripted import ftp_server
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # the facts are stored in test_work.py


async def test_a_source_that_refuses_the_login_is_named_until_it_lets_in_again(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    async with world_at(servers, database, tmp_path) as world, ftp_server(PASS=b"530 Login incorrect.\r\n") as url:
        write(world.source.root, {"a": 10})
        await move(world, world.source, int(url.split(":")[2].partition("/")[0]))
        async with working(world):
            number = await world.submit("TRANSFER", [Item(source="/a", destination="/a")])
            await until(lambda: refused(world, number))
            task = await world.task(number)
            collections = {str(each.id): each for each in await world.factory.collections.all()}
            found = TaskRecord.of(task, collections, task.error_since + 60.0).standstill
            assert found.message.startswith("source refuses the login since ")
            assert found.since == task.error_since
            assert "renew the credential" in found.remedy
            await move(world, world.source, world.source.port)
            assert (await world.over(number)).status == "SUCCEEDED"


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_a_dataset_whose_servers_all_refuse_the_login_waits_for_one_of_them(
    servers: Servers, database: str, tmp_path: Path, to: str
) -> None:
    async with world_at(servers, database, tmp_path) as world, AsyncExitStack() as stack:
        await world.factory.catalogue.put("root", Dataset(name="cms:a", size=10))
        for name in ("one", "two"):
            url = await stack.enter_async_context(ftp_server(PASS=b"530 Login incorrect.\r\n"))
            where = {"scheme": "ftp", "host": "127.0.0.1", "port": int(url.split(":")[2].partition("/")[0])}
            await world.factory.places.put_endpoint("root", Endpoint(name=name, site="here", prefix="/", **where))
            await world.factory.catalogue.put_replica("root", CatalogueReplica(dataset="cms:a", endpoint=name))
        async with working(world):
            item = Item(source="/cms/a", destination="/a")
            number = await world.submit("TRANSFER", [item], to, "catalogue")
            await until(lambda: refused(world, number))
            task = await world.task(number)
            assert (task.status, task.error_side) == ("ACTIVE", "source")


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_destination_that_refuses_the_login_of_a_dataset_copy_is_named(
    servers: Servers, database: str, tmp_path: Path, replicas: int
) -> None:
    """Each source's error is then one of the destination."""
    async with world_at(servers, database, tmp_path) as world, AsyncExitStack() as stack:
        others = [Folder(servers[0], tmp_path / "other")] if replicas == 2 else []
        await register(world, "cms:a", b"x" * 1000, world.source, *others)
        url = await stack.enter_async_context(ftp_server(PASS=b"530 Login incorrect.\r\n"))
        await move(world, world.source, int(url.split(":")[2].partition("/")[0]), "sink")
        async with working(world):
            item = Item(source="/cms/a", destination="/a")
            number = await world.submit("TRANSFER", [item], "sink", "catalogue", skip_source_errors=True)
            await until(lambda: refused(world, number))
            task = await world.task(number)
            assert (task.status, task.error_side) == ("ACTIVE", "destination"), task.error


async def refused(world: World, number: str) -> bool:
    return (await world.task(number)).error_code == "AUTH"


async def move(world: World, server: Server, port: int, name: str = "source") -> None:
    """Give an endpoint another port."""
    where = {"scheme": "ftp", "host": server.host, "port": port, "prefix": f"{server.root}/"}
    await world.factory.places.put_endpoint("root", Endpoint(name=name, site="here", write_priority=1, **where))
    world.factory.places._until = 0.0

"""Servers whose data connections go to other hosts: allowed only where an admin has listed those."""

from functools import partial

import pytest

from broker.models.tasks import Item
from tests.broker.worlds import ANN, endpoint_name, read, register, working, world_with, write
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import until

APART = "127.0.0.77"
"""The data host of a server in these tests."""


@pytest.fixture(params=["source", "sink"])
async def world(request, database, tmp_path):
    """A world in which one server's data are at another host, and no network is permitted."""
    apart = {request.param: ("-data-interface", APART)}
    with (
        GridFTPServer(tmp_path / "from", options=apart.get("source", ())) as source,
        GridFTPServer(tmp_path / "to", "127.0.0.2", options=apart.get("sink", ())) as sink,
    ):
        async with world_with(database, tmp_path, source, sink, network=()) as made, working(made):
            yield made, request.param


async def allow(world, name, *hosts):
    known = await world.factory.places.endpoint(name)
    await world.factory.places.put_endpoint("root", known.model_copy(update={"data_hosts": hosts}))


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_data_come_from_a_host_that_an_admin_listed(world, to):
    made, end = world
    written = write(made.source.root, {"a": 300_000})
    await allow(made, end, "elsewhere.invalid", APART)
    task = await made.done("TRANSFER", [Item(source="/a", destination="/b")], to)
    assert task.status == "SUCCEEDED"
    assert read(made.local if to == "local" else made.sink.root)["b"] == written["a"]


async def refusals(world, number):
    """Return the errors of a task."""
    return (await world.factory.tasks.events(ANN, number, True, 10, 0))[0]


async def test_data_come_from_no_other(world):
    made, end = world
    write(made.source.root, {"a": 300_000})
    await allow(made, end, "127.0.0.78")
    await allow(made, {"source": "sink", "sink": "source"}[end], APART)  # no permission for this server
    if end == "source":  # a connection from here takes the server's own address instead
        task = await made.done("TRANSFER", [Item(source="/a", destination="/b")], "local")
        assert task.status == "SUCCEEDED"
        return
    number = await made.submit("TRANSFER", [Item(source="/a", destination="/b")], "sink")
    message = (await until(partial(refusals, made, number)))[0].details
    assert f"another host, {APART}" in message
    assert not read(made.sink.root)
    assert not (made.local / "b").exists()


async def test_a_dataset_comes_from_there_too(world):
    made, end = world
    content = write(made.local, {"x": 200_000})["x"]
    await register(made, "run:a", content, made.source)
    if end == "source":
        known = await made.factory.places.endpoint(endpoint_name(made.source))
        listed = known.model_copy(update={"data_hosts": (APART,)})
        await made.factory.places.put_endpoint("root", listed)
    else:
        await allow(made, end, APART)
    for to in ("sink", "local"):
        task = await made.over(
            await made.submit("TRANSFER", [Item(source="/run/a", destination="/b")], to, origin="catalogue")
        )
        assert task.status == "SUCCEEDED"
        assert read(made.local if to == "local" else made.sink.root)["b"] == content

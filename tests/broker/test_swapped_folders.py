"""Folders of workers that others can write: what is put on a path after it was checked leads nowhere."""

import pytest

from broker.models.tasks import Item
from broker.tasks import downloading
from tests.broker.worlds import ANN, working, world_of, write
from tests.support.waiting import until


@pytest.fixture
async def world(database, tmp_path):
    async with world_of(database, tmp_path) as world, working(world):
        yield world


def swapping(world, name, elsewhere):
    """The look at the path, after which `name` is exchanged for a link."""
    look = downloading._reached

    async def looked(sink, work):
        await look(sink, work)
        folder = world.local / name
        if not folder.is_symlink():
            folder.rename(folder.with_name("moved"))
            folder.symlink_to(elsewhere)

    return looked


@pytest.mark.parametrize("outside", [True, False])
async def test_nothing_is_fetched_or_discarded_through_a_link(world, tmp_path, monkeypatch, outside):
    elsewhere = tmp_path / "elsewhere" if outside else world.local / "private"
    (elsewhere / "x.coget").mkdir(parents=True)
    (elsewhere / "x.coget" / "data").write_bytes(b"precious")
    write(world.source.root, {"x": 1000})
    (world.local / "folder").mkdir()
    monkeypatch.setattr(downloading, "_reached", swapping(world, "folder", elsewhere))
    number = await world.submit("TRANSFER", [Item(source="/x", destination="/folder/x")], "local")

    async def trouble():
        return (await world.task(number)).error

    told = await until(trouble)
    assert "local:/folder/x" in told
    assert "symbolic link" in told or "link" in told
    await world.factory.tasks.cancel(ANN, number)
    assert [path.name for path in elsewhere.iterdir()] == ["x.coget"]
    assert (elsewhere / "x.coget" / "data").read_bytes() == b"precious"

"""Writes into a directory of workers: to the exact path, and through no symbolic link."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.models.tasks import Item
from tests.broker.worlds import Servers, World, read, working, world_at, write

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # decisions here need no database
SECRET = ".bashrc"


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("/.bashrc", "/home"),
        ("/.bashrc", "/home/"),
        ("/.bashrc", "/home/.bashrc"),
        ("/.bashrc", "/home/new/.bashrc"),
        ("/d/", "/home/"),
        ("/d/", "/home"),
        ("/with/folder/", "/"),
        ("/with/file/", "/"),
    ],
)
async def test_no_link_leads_out(world, tmp_path, source, destination):
    write(world.source.root, {SECRET: 10, "d/.bashrc": 10, "with/folder/home/.bashrc": 10, "with/file/home": 10})
    kept = write(tmp_path / "outside", {SECRET: 5})
    (world.local / "home").symlink_to(tmp_path / "outside")
    task = await world.done("TRANSFER", [Item(source=source, destination=destination)], to="local")
    assert task.status == "FAILED"
    assert read(tmp_path / "outside") == kept


async def test_a_link_to_a_file_is_replaced_itself(world, tmp_path):
    files = write(world.source.root, {SECRET: 10})
    kept = write(tmp_path / "outside", {SECRET: 5})
    (world.local / "link").symlink_to(tmp_path / "outside" / SECRET)
    task = await world.done("TRANSFER", [Item(source="/.bashrc", destination="/link")], to="local")
    assert task.status == "SUCCEEDED", task.error
    assert read(tmp_path / "outside") == kept
    assert not (world.local / "link").is_symlink()
    assert read(world.local) == {"link": files[SECRET]}


async def test_a_file_does_not_go_into_a_folder_of_its_name(world):
    """Workers do the same as servers: `/folder` is that path; `/folder/` would mean a file in it."""
    write(world.source.root, {"a": 10})
    (world.local / "folder").mkdir()
    task = await world.done("TRANSFER", [Item(source="/a", destination="/folder")], to="local")
    assert (task.status, task.error) == ("FAILED", "/folder is a directory")
    assert read(world.local) == {}
    assert (await world.done("TRANSFER", [Item(source="/a", destination="/folder/")], to="local")).status == "SUCCEEDED"
    assert list(read(world.local)) == ["folder/a"]

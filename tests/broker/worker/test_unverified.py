"""Files that cannot be verified: they fail, or are copied and shown as unverified, depending on the TOML."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.config.settings import Settings, configured
from broker.errors import Invalid
from broker.handlers.globus import task_documents
from broker.models.tasks import Item
from tests.broker.worlds import ANN, World, read, register, working, world_at, world_with, write
from tests.support.gridftp import GridFTPServer

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
WITHOUT = ("-disable-command-list", "CKSM")
ROUTES = pytest.mark.parametrize(
    ("origin", "to"), [("source", "sink"), ("source", "local"), ("catalogue", "sink"), ("catalogue", "local")]
)


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    """Two servers, one of which computes no checksums."""
    with (
        GridFTPServer(tmp_path / "from", options=WITHOUT) as source,
        GridFTPServer(tmp_path / "to", "127.0.0.2") as sink,
    ):
        async with world_with(database, tmp_path, source, sink) as world:
            yield world


async def copied(world: World, origin: str, to: str, size: int = 1000, lenient: bool = False, **options: object):
    """Run a task that copies the file; return the task, its one file, and the events' codes."""
    settings = world.factory.settings._replace(copy_unverified=lenient)
    world = world._replace(factory=world.factory._replace(settings=settings))
    content = write(world.source.root, {"a": size})["a"]
    if origin == "catalogue":
        await register(world, "cms:a", content, world.source, told=False)
    path = "/cms/a" if origin == "catalogue" else "/a"
    item = Item(source=path, destination="/x", checksum=options.pop("checksum", None))
    async with working(world):
        task = await world.over(await world.submit("TRANSFER", [item], to, origin, **options))
    events, _ = await world.factory.tasks.events(ANN, task.id, None, 100, 0)
    done = await world.factory.tasks.done(ANN, task.id, "succeeded", 0, 10)
    arrived = read(world.sink.root if to == "sink" else world.local)
    return task, [task_documents.transferred(each) for each in done], {event.code for event in events}, arrived, content


@pytest.mark.sampled(2)
@ROUTES
async def test_a_copy_that_cannot_be_verified_fails(world, origin, to):
    task, done, _, arrived, _ = await copied(world, origin, to)
    assert (task.status, task.error_code, done, arrived) == ("FAILED", "VERIFY_CHECKSUM", [], {})
    assert f"{to} have no checksum algorithm in common" in task.error
    assert ("source" if origin == "source" else "replicas") in task.error
    assert "copy_unverified" in task.error


@pytest.mark.sampled(2)
@ROUTES
async def test_unverified_copies_are_made_and_shown_if_the_admin_allows_them(world, origin, to):
    task, (done,), events, arrived, content = await copied(world, origin, to, lenient=True)
    assert (task.status, task.files_unverified, arrived) == ("SUCCEEDED", 1, {"x": content})
    assert (done["checksum"], done["verified"]) == (None, False)
    assert "UNVERIFIED" in events


@pytest.mark.sampled(2)
@ROUTES
async def test_a_task_without_verification_is_copied_unverified(world, origin, to):
    task, (done,), events, arrived, content = await copied(world, origin, to, verify_checksum=False)
    assert (task.status, task.files_unverified, arrived) == ("SUCCEEDED", 0, {"x": content})
    assert not done["verified"]
    assert "UNVERIFIED" not in events


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_an_empty_file_needs_no_checksum(world, to):
    task, _, events, arrived, _ = await copied(world, "source", to, size=0)
    assert (task.status, task.files_unverified, arrived) == ("SUCCEEDED", 0, {"x": b""})
    assert "UNVERIFIED" not in events


async def test_a_given_checksum_is_never_waived(world):
    task, _, _, arrived, _ = await copied(world, "source", "sink", lenient=True, checksum="md5:" + "0" * 32)
    assert (task.status, arrived) == ("FAILED", {})


@pytest.mark.parametrize(("toml", "copies"), [("", False), ("[transfers]\ncopy_unverified = true\n", True)])
async def test_the_config_file_sets_copy_unverified(database, tmp_path, toml, copies):
    (tmp_path / "broker.toml").write_text(toml)
    assert configured(Settings(database), tmp_path / "broker.toml").copy_unverified is copies


@pytest.mark.parametrize("toml", ["transfers = 1", "[transfers]\ncopy_unverified = 1", "[transfers]\nx = true"])
async def test_an_invalid_toml_is_refused(database, tmp_path, toml):
    (tmp_path / "broker.toml").write_text(toml)
    with pytest.raises(Invalid, match="transfers"):
        configured(Settings(database), tmp_path / "broker.toml")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("checksum", [f"sha384:{'0' * 96}", "crc32:00000000"], ids=["sha384", "crc32"])
@pytest.mark.parametrize("origin", ["catalogue", "source"])
async def test_a_checksum_that_no_server_computes_is_not_forgotten(servers, database, tmp_path, origin, checksum):
    """The stored checksum differs from the file's; equal replicas and an equal copy prove nothing."""
    async with world_at(servers, database, tmp_path) as world, working(world):
        content = write(world.source.root, {"a": 3000})["a"]
        if origin == "catalogue":
            await register(world, "cms:a", content, world.source, told=False)
        item = Item(source="/cms/a" if origin == "catalogue" else "/a", destination="/x", checksum=checksum)
        task = await world.over(await world.submit("TRANSFER", [item], "sink", origin))
    assert task.status == "FAILED"
    assert not (world.sink.root / "x").exists()

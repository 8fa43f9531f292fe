"""Tasks between real GridFTP servers, on both databases."""

import asyncio
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.handlers.globus import task_documents
from broker.models.catalogue import Dataset
from broker.models.tasks import Event, FilterRule, Item, Task
from broker.storage.lanes import LaneStore
from broker.worker.actions.copying import LARGE
from broker.worker.policy import faults
from coalloc.api import Storage
from tests.broker.worlds import (
    ANN,
    Servers,
    World,
    add_replica,
    begun,
    endpoint_name,
    held,
    read,
    register,
    working,
    world_at,
    world_of,
    write,
)
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import PATIENCE, until


@pytest.fixture
async def world(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(faults, "FIRST_PAUSE", 0.05)
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


@pytest.fixture
async def mortal_world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    """The same world with servers of its own, which may be killed."""
    async with world_of(database, tmp_path) as world, working(world):
        yield world


async def test_a_file_arrives_under_its_name_verified(world):
    files = write(world.source.root, {"run 1.root": 3_000_000})
    task = await world.done("TRANSFER", [Item(source="/run 1.root", destination="/new/run.root")])
    assert task.status == "SUCCEEDED", task.error
    assert read(world.sink.root) == {"new/run.root": files["run 1.root"]}
    assert (task.files, task.files_transferred, task.bytes_transferred, task.bytes_checksummed) == (
        1,
        1,
        3_000_000,
        3_000_000,
    )
    (done,) = await world.factory.tasks.done(ANN, task.id, "succeeded", 0, 10)
    assert done.checksum == f"sha256:{hashlib.sha256(files['run 1.root']).hexdigest()}"


async def test_a_tree_arrives_whole(world):
    files = write(world.source.root / "data", {f"{i % 7}/{i % 3}/f{i}": i * 100 for i in range(300)})
    (world.source.root / "data" / "empty").mkdir()
    task = await world.done("TRANSFER", [Item(source="/data/", destination="/copy/", recursive=True)])
    assert task.status == "SUCCEEDED", task.error
    assert read(world.sink.root / "copy") == files
    assert (world.sink.root / "copy" / "empty").is_dir()
    assert (task.files, task.files_transferred, task.directories) == (300, 300, 30)


async def test_sync_copies_only_missing_or_different_files(world):
    write(world.source.root / "d", {"same": 100, "new": 200, "longer": 300})
    write(world.sink.root / "d", {"same": 100, "longer": 200})
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], sync_level=1)
    assert (task.files, task.files_transferred, task.files_skipped) == (3, 2, 1)
    assert len((world.sink.root / "d" / "longer").read_bytes()) == 300


async def test_checksums_find_the_files_that_differ(world):
    files = write(world.source.root / "d", {"same": 100, "other": 100})
    write(world.sink.root / "d", {"other": 100})
    (world.sink.root / "d" / "same").write_bytes(files["same"])
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], sync_level=3)
    assert (task.status, task.files_transferred, task.files_skipped) == ("SUCCEEDED", 1, 1)
    assert read(world.sink.root / "d") == files


async def test_files_only_at_the_destination_are_deleted_in_the_end(world):
    files = write(world.source.root / "d", {"a": 1, "sub/b": 2})
    write(world.sink.root / "d", {"old": 1, "gone/deep/er": 2, "sub/older": 3})
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], delete_destination_extra=True)
    assert task.status == "SUCCEEDED", task.error
    assert read(world.sink.root / "d") == files
    assert not (world.sink.root / "d" / "gone").exists()


async def test_no_extra_file_is_deleted_if_a_copy_was_skipped(world):
    write(world.source.root / "d", {"a": 1})
    (world.source.root / "d" / "b").symlink_to("nothing")
    write(world.sink.root / "d", {"old": 1})
    items = [Item(source="/d/", destination="/d/"), Item(source="/missing", destination="/missing")]
    task = await world.done("TRANSFER", items, delete_destination_extra=True, skip_source_errors=True)
    assert task.status == "SUCCEEDED", task.error
    assert sorted(read(world.sink.root / "d")) == ["a", "old"]
    events, _ = await world.factory.tasks.events(ANN, task.id, None, 10, 0)
    assert "DELETE_DESTINATION_EXTRA_SKIPPED" in [event.code for event in events]


async def test_filtered_files_are_left_alone_at_the_destination(world):
    write(world.source.root / "d", {"a": 1, "n.txt": 1})
    write(world.sink.root / "d", {"old": 1, "notes.txt": 1})
    rules = (FilterRule(name="*.txt"),)
    await world.done(
        "TRANSFER", [Item(source="/d/", destination="/d/")], delete_destination_extra=True, filter_rules=rules
    )
    assert sorted(read(world.sink.root / "d")) == ["a", "notes.txt"]


async def test_filter_rules_exclude_files_and_folders(world):
    write(world.source.root / "d", {"a.root": 1, "b.txt": 2, "sub/c.root": 3, "tmp/d.root": 4})
    rules = (FilterRule(name="*.txt"), FilterRule(name="tmp", type="dir"))
    await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], filter_rules=rules)
    assert sorted(read(world.sink.root / "d")) == ["a.root", "sub/c.root"]


async def test_when_it_was_modified_is_kept(world):
    write(world.source.root, {"a": 10})
    os.utime(world.source.root / "a", (1_000_000_000, 1_000_000_000))
    await world.done("TRANSFER", [Item(source="/a", destination="/a")], preserve_timestamp=True)
    assert (world.sink.root / "a").stat().st_mtime == 1_000_000_000


async def test_a_missing_file_fails_alone_and_is_named(world):
    files = write(world.source.root, {"a": 10, "b": 20})
    items = [Item(source=f"/{name}", destination=f"/{name}") for name in ("a", "missing", "b")]
    task = await world.done("TRANSFER", items)
    assert (task.status, task.error_code, task.failed) == ("FAILED", "FILE_NOT_FOUND", 1)
    assert "/missing" in task.error
    assert read(world.sink.root) == files


async def test_a_missing_file_is_skipped_on_request(world):
    write(world.source.root, {"a": 10})
    items = [Item(source=f"/{name}", destination=f"/{name}") for name in ("a", "missing")]
    task = await world.done("TRANSFER", items, skip_source_errors=True)
    assert (task.status, task.skipped) == ("SUCCEEDED", 1)
    (skipped,) = await world.factory.tasks.done(ANN, task.id, "skipped", 0, 10)
    assert (skipped.source, skipped.error_code) == ("/missing", "FILE_NOT_FOUND")


async def test_a_given_checksum_has_to_match(world):
    files = write(world.source.root, {"a": 10})
    right, wrong = (f"md5:{hashlib.md5(content).hexdigest()}" for content in (files["a"], b""))
    good = await world.done("TRANSFER", [Item(source="/a", destination="/a", checksum=right)])
    bad = await world.done("TRANSFER", [Item(source="/a", destination="/b", checksum=wrong)])
    assert (good.status, bad.status, bad.error_code) == ("SUCCEEDED", "FAILED", "VERIFY_CHECKSUM")
    assert sorted(read(world.sink.root)) == ["a"]


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_a_file_is_verified_by_the_algorithm_that_was_named(world, to):
    files = write(world.source.root, {"a": 10})
    task = await world.done("TRANSFER", [Item(source="/a", destination="/a", checksum="md5:")], to)
    assert task.status == "SUCCEEDED", task.error
    (done,) = await world.factory.tasks.done(ANN, task.id, "succeeded", 0, 10)
    if to == "sink":  # what is fetched is verified by what was recorded
        assert done.checksum == f"md5:{hashlib.md5(files['a']).hexdigest()}"
    assert read(world.sink.root if to == "sink" else world.local) == files


async def test_a_tree_is_deleted(world):
    write(world.source.root, {"d/a": 1, "d/e/f/b": 2, "kept": 3})
    task = await world.done("DELETE", [Item(source="/d")], to=None, recursive=True)
    assert task.status == "SUCCEEDED", task.error
    assert (task.files, task.directories) == (2, 3)
    assert sorted(path.name for path in world.source.root.iterdir()) == ["kept"]


async def test_a_folder_is_deleted_only_if_that_is_meant(world):
    write(world.source.root, {"d/a": 1, "x1": 1, "x2": 2})
    folder = await world.done("DELETE", [Item(source="/d")], to=None)
    missing = await world.done("DELETE", [Item(source="/no")], to=None)
    ignored = await world.done("DELETE", [Item(source="/no")], to=None, ignore_missing=True)
    globbed = await world.done("DELETE", [Item(source="/x*")], to=None, interpret_globs=True)
    assert [each.error_code for each in (folder, missing)] == ["IS_A_DIRECTORY", "FILE_NOT_FOUND"]
    assert [each.status for each in (ignored, globbed)] == ["SUCCEEDED", "SUCCEEDED"]
    assert sorted(read(world.source.root)) == ["d/a"]


async def test_impossible_names_fail_at_once(world):
    write(world.source.root, {"a": 1})
    (world.source.root / "loop").symlink_to("loop")
    for to in ("sink", "local"):
        long = await world.done("TRANSFER", [Item(source="/a", destination="/" + "x" * 300)], to=to)
        assert (long.status, long.error_code) == ("FAILED", "ENDPOINT_ERROR"), long.error
    loop = await world.done("TRANSFER", [Item(source="/loop", destination="/b")])
    assert (loop.status, loop.error_code) == ("FAILED", "FILE_NOT_FOUND"), loop.error


async def test_folders_are_made_at_any_depth(world):
    write(world.source.root, {"a": 1})
    try:
        task = await world.done("TRANSFER", [Item(source="/a", destination="/" + "d/" * 1000 + "a")])
        assert task.status == "SUCCEEDED", task.error
    finally:  # pytest would go too deep
        await asyncio.to_thread(subprocess.run, ["rm", "-rf", world.sink.root / "d"], check=True)


async def test_patterns_are_read_as_a_shell_reads_them(world):
    write(world.source.root, dict.fromkeys(("a1", "ab", "a*", ".a", "d/.x", "d/y"), 1))

    async def left_by(pattern: str, **options: bool) -> tuple[str, list[str]]:
        task = await world.done("DELETE", [Item(source=pattern)], to=None, interpret_globs=True, **options)
        return task.error_code or task.status, sorted(read(world.source.root))

    assert await left_by("/a[0-9]") == ("SUCCEEDED", [".a", "a*", "ab", "d/.x", "d/y"])
    assert await left_by(r"/a\*") == ("SUCCEEDED", [".a", "ab", "d/.x", "d/y"])
    assert await left_by("/d/*") == ("SUCCEEDED", [".a", "ab", "d/.x"])
    assert await left_by("/?", recursive=True) == ("SUCCEEDED", [".a", "ab"])
    assert await left_by("/*.log") == ("FILE_NOT_FOUND", [".a", "ab"])
    assert await left_by("/*.log", ignore_missing=True) == ("SUCCEEDED", [".a", "ab"])


async def test_files_are_fetched_to_a_folder_of_the_worker(world):
    files = write(world.source.root / "d", {"a": 100, "sub/b": 2_000_000})
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/in/")], to="local")
    assert task.status == "SUCCEEDED", task.error
    assert read(world.local / "in") == files
    assert (task.files_transferred, task.bytes_transferred) == (2, 2_000_100)


async def test_a_metalink_in_a_collection_is_a_file_like_others(world, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"the worker's own")
    namespace = "urn:ietf:params:xml:ns:metalink"
    content = f'<metalink xmlns="{namespace}"><file name="x"><url>file://{secret}</url></file></metalink>'.encode()
    for name in ("x.meta4", "y.metalink"):
        (world.source.root / name).write_bytes(content)
    (world.local / "x.meta4").write_bytes(b"is replaced")
    items = [Item(source=f"/{name}", destination=f"/{name}") for name in ("x.meta4", "y.metalink")]
    task = await world.done("TRANSFER", items, to="local")
    assert task.status == "SUCCEEDED", task.error
    assert read(world.local) == {"x.meta4": content, "y.metalink": content}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["sink", "local"])
async def test_a_dataset_comes_from_all_servers_that_have_it(world, tmp_path, to):
    content = os.urandom(40_000_000)
    with GridFTPServer(tmp_path / "other", "127.0.0.3") as other:
        await register(world, "cms:run/1.root", content, world.source, other)
        item = Item(source="/cms/run/1.root", destination="/in/1.root")
        task = await world.over(await world.submit("TRANSFER", [item], to, "catalogue"))
    assert (task.status, task.bytes_transferred) == ("SUCCEEDED", 40_000_000), task.error
    assert ((world.sink.root if to == "sink" else world.local) / "in" / "1.root").read_bytes() == content


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_copies_of_tasks_are_recorded_as_transfers(world, to):
    write(world.source.root, {"a": 20_000_000, "small": 1000})
    for name in ("small", "a"):
        await world.done("TRANSFER", [Item(source=f"/{name}", destination=f"/{name}")], to=to)
    async with asyncio.timeout(PATIENCE):
        while not (known := await world.factory.transfers.listed({}, None, 10, ANN)):  # noqa: ASYNC110 - a table changes
            await asyncio.sleep(0.05)
    assert [(each.source, each.sink, each.bytes, each.subject) for each in known] == [
        (f"ftp://{world.source.host}:{world.source.port}", "here", 20_000_000, "ann")
    ]


async def test_a_corrupt_replica_costs_time_and_no_data_and_is_put_out_of_service(world, tmp_path):
    """A copy finds the wrong bytes only if this replica delivers any, so there may be several copies."""
    content, tasks = os.urandom(20_000_000), list[Task]()
    with GridFTPServer(tmp_path / "other", "127.0.0.3") as other:
        await register(world, "cms:a", content, world.source, other)
        (other.root / "a").write_bytes(bytes(len(content)))

        async def noticed() -> bool:
            item = Item(source="/cms/a", destination=f"/a{len(tasks)}")
            tasks.append(await world.over(await world.submit("TRANSFER", [item], origin="catalogue")))
            return (await states(world, "cms:a"))[endpoint_name(other)] == "BAD"

        await until(noticed)
    for i, task in enumerate(tasks):
        assert task.status == "SUCCEEDED", task.error
        assert (world.sink.root / f"a{i}").read_bytes() == content
    assert (await states(world, "cms:a"))[endpoint_name(world.source)] == "AVAILABLE"
    (event,) = [each for each in await events(world, tasks[-1].id) if each.code == "BAD_REPLICA"]
    assert event.details.startswith(f"cms:a at {endpoint_name(other)}: ")
    assert event.details.endswith("the replica is now BAD")


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_the_only_replica_becomes_suspicious_if_it_has_wrong_bytes(world, to):
    """A checksum that a user states puts no replica out of service."""
    await register(world, "cms:a", b"right", world.source)
    item = Item(source="/cms/a", destination="/a")
    stated = item.model_copy(update={"checksum": "sha256:" + hashlib.sha256(b"another").hexdigest()})
    failed = await world.over(await world.submit("TRANSFER", [stated], to, origin="catalogue"))
    assert (failed.status, failed.error_code) == ("FAILED", "VERIFY_CHECKSUM")
    assert await states(world, "cms:a") == {endpoint_name(world.source): "AVAILABLE"}
    (world.source.root / "a").write_bytes(b"wrong")
    failed = await world.over(await world.submit("TRANSFER", [item], to, origin="catalogue"))
    assert (failed.status, failed.error_code) == ("FAILED", "VERIFY_CHECKSUM")
    assert await states(world, "cms:a") == {endpoint_name(world.source): "SUSPICIOUS"}
    assert "BAD_REPLICA" in {each.code for each in await events(world, failed.id)}


async def test_a_replica_with_right_bytes_stays_in_service_if_the_destination_spoils_them(world, tmp_path, monkeypatch):
    """The server of the destination reports wrong checksums; those of the replicas confirm the catalogue."""
    with GridFTPServer(tmp_path / "other", "127.0.0.3") as other:
        await register(world, "cms:a", b"right", world.source, other)
        honest = Storage.checksum

        async def spoilt(self, path: str, *more: object) -> str | None:
            found = await honest(self, path, *more)
            return found and "0" * len(found) if str(world.sink.root) in path else found

        monkeypatch.setattr(Storage, "checksum", spoilt)
        item = Item(source="/cms/a", destination="/a")
        failed = await world.over(await world.submit("TRANSFER", [item], origin="catalogue"))
    assert (failed.status, failed.error_code) == ("FAILED", "VERIFY_CHECKSUM")
    assert set((await states(world, "cms:a")).values()) == {"AVAILABLE"}


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_the_size_of_a_dataset_is_learnt_from_the_first_copy_that_its_checksum_confirms(world, to):
    content = os.urandom(70_000)
    (world.source.root / "a").write_bytes(content)
    sha = hashlib.sha256(content).hexdigest()
    await world.factory.catalogue.put("root", Dataset(name="cms:a", checksums={"sha256": sha}))
    await add_replica(world, "cms:a", world.source)
    item = Item(source="/cms/a", destination="/a")
    task = await world.over(await world.submit("TRANSFER", [item], to, origin="catalogue"))
    assert (task.status, task.bytes, task.bytes_transferred) == ("SUCCEEDED", len(content), len(content)), task.error
    (done,) = await world.factory.tasks.done(ANN, task.id, "succeeded", 0, 10)
    assert (done.size, done.checksum) == (len(content), f"sha256:{sha}")
    dataset, _ = await world.factory.catalogue.dataset("cms:a")
    assert dataset.size == len(content)


async def states(world: World, dataset: str) -> dict[str, str]:
    _, replicas = await world.factory.catalogue.dataset(dataset)
    return {each.endpoint: each.state for each in replicas}


async def events(world: World, number: str) -> list[Event]:
    found, _ = await world.factory.tasks.events(ANN, number, None, 100, 0)
    return found


async def test_a_server_that_dies_costs_time_but_no_arrived_bytes(mortal_world):
    files = write(mortal_world.source.root, {"a": 150_000_000})
    await held(mortal_world, rate=30e6)
    number = await mortal_world.submit("TRANSFER", [Item(source="/a", destination="/a")])
    await begun(mortal_world, number, 10_000_000)
    mortal_world.source.kill()

    async def trouble() -> dict[str, object] | None:
        document = task_documents.task(
            await mortal_world.task(number), await mortal_world.factory.identities.people([ANN.subject]), {}, 0.0
        )
        return None if document["is_ok"] else document

    document = await until(trouble)
    assert document["nice_status"] in ("CONNECTION_BROKEN", "CONNECT_FAILED")
    assert document["nice_status_short_description"] in ("connection broken", "connect failed")
    assert document["nice_status_details"]
    with GridFTPServer(mortal_world.source.root, port=mortal_world.source.port):
        task = await mortal_world.over(number)
    assert (task.status, task.error_code, task.error) == ("SUCCEEDED", None, None)
    assert task.faults >= 1
    assert read(mortal_world.sink.root) == files
    assert task.bytes_transferred < 200_000_000  # not all of it twice
    (fault, *_), count = await mortal_world.factory.tasks.events(ANN, number, True, 10, 0)
    assert count >= 1
    assert fault.code in ("CONNECTION_BROKEN", "CONNECT_FAILED")


async def test_a_collection_has_no_more_lanes_than_it_may(world):
    write(world.source.root, {f"d/f{i}": 3_000_000 for i in range(6)})
    await held(world, concurrency=1, rate=10e6)
    numbers = [
        await world.submit("TRANSFER", [Item(source=f"/d/f{i}", destination=f"/t/f{i}")], perf_cc=8) for i in range(6)
    ]
    most, waits = 0, set()
    async with asyncio.timeout(PATIENCE):
        while (await world.task(numbers[-1])).status == "ACTIVE":
            async with world.factory.database.read() as connection:
                most = max(most, len(await LaneStore(connection).open()))
            waits |= {(await world.task(number)).waits for number in numbers}
            await asyncio.sleep(0.05)
    assert most == 1
    assert any(why == "sink has 1 running transfer, which is its limit" for why in waits)


async def test_items_of_one_task_do_not_delete_each_others_files(world):
    files = write(world.source.root, {"a/x": 1, "b/y": 2})
    write(world.sink.root, {"t/b/y": 3, "t/old": 4})
    items = [Item(source="/a/", destination="/t/"), Item(source="/b/", destination="/t/b/")]
    task = await world.done("TRANSFER", items, delete_destination_extra=True)
    assert task.status == "SUCCEEDED", task.error
    assert read(world.sink.root / "t") == {"x": files["a/x"], "b/y": files["b/y"]}


async def test_an_extra_folder_keeps_its_filtered_files(world):
    write(world.source.root, {"d/a": 1})
    write(world.sink.root, {"d/gone/a.keep": 1, "d/gone/b": 1})
    rules = (FilterRule(name="*.keep"),)
    items = [Item(source="/d/", destination="/d/")]
    task = await world.done("TRANSFER", items, delete_destination_extra=True, filter_rules=rules)
    assert task.status == "SUCCEEDED", task.error
    assert sorted(read(world.sink.root)) == ["d/a", "d/gone/a.keep"]


async def test_a_name_that_is_no_unicode_stops_only_itself(world):
    files = write(world.source.root, {"d/a": 1, "e/b": 2})
    write(world.source.root, {os.fsdecode(b"d/caf\xe9"): 3})
    items = [Item(source=f"/{name}/", destination=f"/{name}/") for name in "de"]
    task = await world.done("TRANSFER", items)
    assert (task.status, task.failed, task.files_transferred) == ("FAILED", 1, 2)
    assert read(world.sink.root) == files


async def test_errors_of_the_destination_are_not_skipped(world):
    write(world.source.root, {"x/a": 1})
    write(world.sink.root, {"f": 1})
    task = await world.done("TRANSFER", [Item(source="/x/", destination="/f/x/")], skip_source_errors=True)
    assert (task.status, task.skipped, task.failed) == ("FAILED", 0, 1)


async def test_a_partial_file_that_is_gone_is_made_anew(mortal_world):
    files = write(mortal_world.source.root, {"a": 100_000_000})
    await held(mortal_world, rate=5e6)  # slow, so that the server is killed in the middle
    number = await mortal_world.submit("TRANSFER", [Item(source="/a", destination="/a")], verify_checksum=False)
    await begun(mortal_world, number, 10_000_000)
    mortal_world.source.kill()

    async def on_record() -> bool:
        task = await mortal_world.task(number)
        assert task.status == "ACTIVE", task.error
        return bool(task.faults)

    await until(on_record)  # what has arrived, too
    for partial in mortal_world.sink.root.glob(".a.*"):
        partial.unlink()
    await held(mortal_world, rate=100e6)
    with GridFTPServer(mortal_world.source.root, port=mortal_world.source.port):
        task = await mortal_world.over(number)
    assert task.status == "SUCCEEDED", task.error
    assert read(mortal_world.sink.root) == files


async def test_empty_files_pass_where_the_rate_is_limited(world):
    write(world.source.root, {"d/empty": 0, "d/a": 1})
    await held(world, rate=1e6)
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")])
    assert task.status == "SUCCEEDED", task.error


async def test_a_collection_whose_folder_cannot_be_made_fails_its_tasks(world):
    write(world.source.root, {"d/a": 1})
    await held(world, base="/gone/deep/")
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/e/")])
    assert (task.status, "sink:/" in task.error) == ("FAILED", True), task.error


async def test_links_are_kept_and_kept_again(world):
    """Links keep their targets; they are made after their targets, as servers refuse dangling ones."""
    write(world.source.root, {"d/z/a": 1})
    (world.source.root / "d" / "l").symlink_to("z/a")
    for _ in range(2):
        task = await world.done("TRANSFER", [Item(source="/d/", destination="/new/d/")], recursive_symlinks="keep")
        assert (task.status, task.faults) == ("SUCCEEDED", 0), task.error
    assert (world.sink.root / "new" / "d" / "l").readlink() == world.sink.root / "new" / "d" / "z" / "a"


async def test_links_that_lead_out_are_not_made(world, tmp_path):
    write(world.source.root, {"d/a": 1})
    (tmp_path / "secret").write_bytes(b"x")
    (world.source.root / "d" / "out").symlink_to(tmp_path / "secret")
    wanted = {"recursive_symlinks": "keep", "skip_source_errors": True}
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], **wanted)
    assert (task.status, task.skipped) == ("SUCCEEDED", 1)
    assert [each.name for each in (world.sink.root / "d").iterdir()] == ["a"]


async def test_links_that_lead_in_a_circle_are_followed_once(world):
    files = write(world.source.root, {"d/a": 1, "d/deep/b": 1})
    for name in ("x", "y"):  # two of them: each round would double what there is to do
        (world.source.root / "d" / "deep" / name).symlink_to("..")
    (world.source.root / "d" / "again").symlink_to("deep")
    wanted = [Item(source="/d/", destination="/d/")]
    task = await world.done("TRANSFER", wanted, recursive_symlinks="copy", skip_source_errors=True)
    assert (task.status, task.skipped) == ("SUCCEEDED", 4)
    again = {"d/again/b": files["d/deep/b"]}
    assert read(world.sink.root) == files | again
    task = await world.done("TRANSFER", wanted, recursive_symlinks="copy")
    assert task.status == "FAILED"
    assert "circle" in task.error


async def test_a_file_that_grows_meanwhile_is_copied_as_it_is_in_the_end(world):
    files = write(world.source.root, {"a": 30_000_000})
    await held(world, rate=10e6)
    number = await world.submit("TRANSFER", [Item(source="/a", destination="/a")])
    await begun(world, number, 1)
    with (world.source.root / "a").open("ab") as growing:
        growing.write(b"more")
    task = await world.over(number)
    assert (task.status, task.faults) == ("SUCCEEDED", 1), task.error
    assert read(world.sink.root) == {"a": files["a"] + b"more"}


async def test_a_vanished_file_with_a_strange_name_is_skipped(world):
    """A name ends for the server where its line ends: it lists files that are not there when they are copied.

    Who looks at a large one before is told its URL only, where the blank is none.
    """
    files = write(world.source.root, {"d/a": 1})
    write(world.source.root, {"d/b c\nd": 2})
    os.truncate(world.source.root / "d" / "b c\nd", LARGE)
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], skip_source_errors=True)
    assert (task.status, task.skipped, task.files_transferred) == ("SUCCEEDED", 1, 1)
    assert read(world.sink.root) == files

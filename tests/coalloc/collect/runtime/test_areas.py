"""Deletions in staging areas at real servers, in directories that other users can write to."""

from pathlib import Path

import pytest

from coalloc.collect.methods.events import Arrived
from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.staging import StagingArea
from coalloc.collect.runtime.staging_records import StagingRecords
from coalloc.errors import PermissionRefused
from tests.coalloc.collect.test_collecting import collect, found
from tests.support.fetching import options


async def test_cleanup_deletes_only_staged_files_if_the_directory_becomes_a_link(servers, sink, content, place, relay):
    """The directory is replaced by a link to another one while it holds pieces."""
    to, folder = place
    lent, victim = servers[2].root / "lent", servers[2].root / "victim"
    victim.mkdir()
    for name in ("1", "2", "x"):
        (victim / name).write_text(f"{name} of somebody")
    theirs = found(victim)
    (lent / ".coget-staging").symlink_to(victim)
    exchanged: list[Path] = []

    def happened(event, ended):
        if isinstance(event, Arrived) and not exchanged and (made := next(lent.glob(".coget-staging-*/*"), None)):
            made.parent.rename(lent / "moved")
            made.parent.symlink_to(victim)
            exchanged.append(made.parent)

    relay.happened = staticmethod(happened)
    report = await collect(servers, to)
    assert exchanged
    assert found(folder) == content
    assert found(victim).items() >= theirs.items()
    assert [each.where.endswith(exchanged[0].name) for each in report.left] == [True]
    assert found(lent / "moved"), "it is not where it was made"


async def test_files_of_others_in_the_staging_directory_stay_and_are_reported(servers, sink, content, place, relay):
    to, folder = place
    planted: list[Path] = []

    def happened(event, ended):
        if not planted and (made := next(servers[2].root.glob("lent/.coget-staging-*"), None)):
            planted.append(made / "x")
            planted[0].write_text("of somebody")

    relay.happened = staticmethod(happened)
    report = await collect(servers, to)
    assert found(folder) == content
    assert found(planted[0].parent) == {"x": b"of somebody"}
    assert [each.where.endswith(planted[0].parent.name) for each in report.left] == [True]


@pytest.mark.parametrize("link", [True, False])
async def test_a_directory_that_is_exchanged_is_not_emptied(gridftp_server, link):
    root = gridftp_server.root
    server = CollectServer("via", gridftp_server.url(""), options())
    area = StagingArea(server, str(root), "now", StagingRecords(None))
    await area.make()
    (made,) = root.iterdir()
    made.rename(root / "away")
    other = root / "other"
    other.mkdir()
    name = area.piece(1).rpartition("/")[2]
    (other / name).write_bytes(b"of somebody")
    if link:
        made.symlink_to(other)
    else:
        other.rename(made)
    await area.delete(area.piece(1))
    with pytest.raises(PermissionRefused, match="is not the directory that was created"):
        await area.remove()
    assert (made / name).read_bytes() == b"of somebody"
    await server.close()


async def test_piece_names_cannot_be_guessed_from_one_another():
    area = StagingArea(CollectServer("a", "ftp://a/", options()), "/scratch", "run", StagingRecords(None))
    names = [area.piece(number).removeprefix(f"{area.path}/") for number in range(100)]
    assert len({name[:16] for name in names}) == 100
    assert area.piece(7) == f"{area.path}/{names[7]}"

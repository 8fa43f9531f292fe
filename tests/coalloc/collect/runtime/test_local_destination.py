"""This machine as a destination: links that are planted on a path meanwhile have no effect."""

import pytest

from coalloc.collect.runtime import local_destination
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.single_file import FileDestination
from coalloc.errors import SinkError
from coalloc.resolve import target


async def test_a_folder_that_becomes_a_link_after_it_was_looked_at(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def raced(name, folder, many, foreign):
        found = target(name, folder, many, foreign)
        found.parent.rmdir()
        found.parent.symlink_to(elsewhere)
        return found

    monkeypatch.setattr(local_destination, "target", raced)
    landing = LocalDestination(tmp_path / "to", overwrite=False)
    with pytest.raises(SinkError, match="symbolic link"):
        await landing.begin(CollectItem("sub/x", 10, {"ftp://a": "/x"}))
    await landing.close()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("staged", [True, False])
async def test_next_run_knows_which_files_were_relayed(tmp_path, staged):
    item = CollectItem("x", 10, {"ftp://a": "/x"}, versions={"ftp://a": "7"})
    first = LocalDestination(tmp_path, overwrite=False)
    await first.begin(item)
    if staged:
        first.relayed.add("x")
    first.write("x", "ftp://a", 0, memoryview(b"12345"))
    await first.close()
    second = LocalDestination(tmp_path, overwrite=False)
    await second.begin(item)
    assert second.missing("x", 0, 10) == [(5, 10)]
    assert second.relayed == ({"x"} if staged else set())
    await second.close()


async def test_a_path_does_not_leave_its_directory_by_a_link_that_is_planted_later(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "to").mkdir()
    landing = FileDestination(tmp_path / "to" / "x", True, tmp_path / "to", None)
    (tmp_path / "to").rmdir()
    (tmp_path / "to").symlink_to("elsewhere")
    with pytest.raises(SinkError, match="symbolic link"):
        await landing.begin(CollectItem("x", 10, {"ftp://a": "/x"}))
    await landing.close()
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_next_run_tells_the_servers_of_bytes_apart(tmp_path):
    """Both have the same version by date, but nothing shows that they have the same file."""
    item = CollectItem("x", 10, {"ftp://a": "/x", "ftp://b": "/x"}, versions={"ftp://a": "7", "ftp://b": "7"})
    first = LocalDestination(tmp_path, overwrite=False)
    await first.begin(item)
    first.write("x", "ftp://a", 0, memoryview(b"123"))
    first.write("x", "ftp://b", 3, memoryview(b"45"))
    await first.close()
    second = LocalDestination(tmp_path, overwrite=False)
    await second.begin(CollectItem("x", 10, {"ftp://b": "/x"}, versions={"ftp://b": "7"}))
    assert second.missing("x", 0, 10) == [(0, 3), (5, 10)]
    await second.close()

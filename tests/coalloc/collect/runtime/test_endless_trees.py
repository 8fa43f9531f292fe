"""Endless or huge trees: coget gives up with an error that names the directory."""

import pytest

from coalloc import api
from coalloc.errors import LimitExceeded
from coalloc.resolve import inventory, trees
from coalloc.util.listing_limits import DEEPEST


@pytest.fixture
def tree(gridftp_server):
    """A server with a directory."""
    (gridftp_server.root / "tree").mkdir()
    return gridftp_server


async def collect(server, tmp_path):
    await api.collect(api.CollectRequest((f"{server.url('tree')}/",), str(tmp_path / "out"), method="all-at-once"))


async def test_folders_in_each_other_without_end(tree, tmp_path):
    top = tree.root / "tree"
    deepest = top.joinpath(*["d"] * DEEPEST)
    deepest.mkdir(parents=True)
    (deepest / "x").write_bytes(b"x")
    await collect(tree, tmp_path)
    assert (tmp_path / "out").joinpath(*["d"] * DEEPEST, "x").read_bytes() == b"x"
    (deepest / "more").mkdir()
    with pytest.raises(LimitExceeded, match="d/more/ is more than 100 directories deep") as caught:
        await collect(tree, tmp_path)
    assert caught.value.remedy


@pytest.mark.parametrize(("limit", "most"), [("MOST_BELOW", 8), ("MOST_NAMES", 20)])
@pytest.mark.parametrize("kind", ["files", "folders"])
async def test_entries_without_end(tree, tmp_path, monkeypatch, limit, most, kind):
    monkeypatch.setattr(trees, limit, most)
    for folder in range(3):
        inner = tree.root / "tree" / f"f{folder}"
        inner.mkdir()
        for number in range(2):
            (inner / f"{number}").write_bytes(b"x") if kind == "files" else (inner / f"{number}").mkdir()
    with pytest.raises(LimitExceeded, match=r"/tree has more than .*: stopped in f\d/") as caught:
        await collect(tree, tmp_path)
    assert caught.value.remedy
    assert not (tmp_path / "out").exists()


async def test_listing_keeps_only_name_kind_and_size_of_a_file(tree):
    (tree.root / "tree" / "x").write_bytes(b"x")
    async with await api.storage(tree.url("")) as store:
        ((name, entry),) = [found async for found in inventory.walk(store, f"{tree.root}/tree")]
    assert (name, entry.kind, entry.size) == ("x", "file", 1)
    assert not any((entry.permissions, entry.user, entry.group, entry.unique))

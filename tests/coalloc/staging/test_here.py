"""This machine as a destination: links that are put on a path meanwhile lead nowhere."""

import pytest

from coalloc.errors import SinkError
from coalloc.resolve import target
from coalloc.staging import here
from coalloc.staging.here import Here
from coalloc.staging.item import Item


async def test_a_folder_that_becomes_a_link_after_it_was_looked_at(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def raced(name, folder, many, foreign):
        found = target(name, folder, many, foreign)
        found.parent.rmdir()
        found.parent.symlink_to(elsewhere)
        return found

    monkeypatch.setattr(here, "target", raced)
    landing = Here(tmp_path / "to", overwrite=False)
    with pytest.raises(SinkError, match="symbolic link"):
        await landing.begin(Item("sub/x", 10, {}))
    await landing.close()
    assert list(elsewhere.iterdir()) == []

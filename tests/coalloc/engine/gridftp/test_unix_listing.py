"""Listings of FTP servers without MLSD: of a real vsftpd, and invalid ones."""

import pytest

from coalloc.engine import open_lister
from coalloc.engine.gridftp.unix_listing import UnixListing
from coalloc.errors import ConnectionLost, LimitExceeded, NotDirectory, Unsupported
from coalloc.resolve.trees import files_below
from tests.support.fetching import options
from tests.support.vsftpd import Vsftpd


@pytest.fixture
def server(tmp_path):
    with Vsftpd(tmp_path / "root", tmp_path / "run") as started:
        yield f"{started.url('')}/"


async def test_the_files_below_a_directory_of_a_server_without_mlsd(server, tmp_path):
    top = tmp_path / "root" / "d 1"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "a  b -> c").write_bytes(b"12")
    (top / "é").write_bytes(b"1")
    (top / "[x]").mkdir()
    lister = open_lister(server, options())
    try:
        assert (await files_below(lister, f"{server}d%201/sub/")).files == ["a  b -> c"]
        for name in ("none", "d%201/é"):
            with pytest.raises(NotDirectory):
                await files_below(lister, f"{server}{name}/")
        (error,) = (await files_below(lister, f"{server}d%201/")).errors.values()
        assert "would take the name for a pattern" in error.message
        (top / "[x]").rmdir()
        (top / "line\nbreak").write_bytes(b"")
        found = await files_below(lister, f"{server}d%201/")
        assert {"sub/a  b -> c", "é"} <= set(found.files)
        assert "1 lines of its listing are not understood, such as: break" in found.errors["./"].message
    finally:
        await lister.close()


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"-rw-r--r-- 1 0 0 x Jan 1 2024 name\n", b"05-01-24  10:00AM  <DIR> x\n"]
)
def test_a_line_that_is_not_understood_is_no_silent_omission(line):
    listing = UnixListing()
    listing.feed(line)
    with pytest.raises(Unsupported):
        listing.close()
    listing.feed(b"drwxr-xr-x 2 0 0 4096 Jan 1 2024 .\n")
    assert [each.entries for each in listing.close()] == [1]


def test_a_cut_or_endless_listing_is_refused(monkeypatch):
    listing = UnixListing()
    listing.feed(b"drwxr-xr-x 2 0 0 4096 Jan 1 2024 ..\n-rw-r--r-- 1 0 0 1 Jan")
    with pytest.raises(ConnectionLost):
        listing.close()
    listing.feed(b" 1 2024 y\n")
    with pytest.raises(NotDirectory):
        listing.close()
    monkeypatch.setattr("coalloc.engine.gridftp.unix_listing.MOST_ENTRIES", 2)
    with pytest.raises(LimitExceeded):
        listing.feed(3 * b"-rw-r--r-- 1 0 0 1 Jan 1 2024 x\n")

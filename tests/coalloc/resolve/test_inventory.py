"""The files below a directory of a GridFTP server, for collect jobs and for registration."""

from coalloc.engine.gridftp.machine_listing import Listing
from coalloc.resolve.inventory import walk


class StoreOfLines:
    """A directory with these lines of MLSD."""

    def __init__(self, *lines):
        self._lines = lines

    async def locate(self, path):
        return self

    shown = "ftp://host/run"

    async def list(self, path):
        yield Listing().feed("".join(f"type={line}\r\n" for line in self._lines).encode())


async def test_links_count_as_files_whose_size_is_not_known_yet():
    """ProFTPD lists a link with the size of the link itself."""
    store = StoreOfLines("OS.unix=symlink;size=8;modify=20260101000000; latest.dat", "file;size=3; run1.dat")
    found = [(name, entry.kind, entry.size, entry.modified) async for name, entry in walk(store, "/run")]
    assert found == [("latest.dat", "file", None, None), ("run1.dat", "file", 3, None)]

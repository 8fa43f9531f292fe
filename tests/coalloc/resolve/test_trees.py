"""Trees of directories: what is below each, and directories that contain themselves."""

import pytest

from coalloc.engine import open_lister
from coalloc.engine.gridftp.machine_listing import Listing
from coalloc.engine.lister import Lister
from coalloc.errors import LimitExceeded, PermissionRefused, UsageError
from coalloc.model.listings import Entry
from coalloc.resolve import trees
from coalloc.resolve.trees import files_below


class ListerOfPaths(Lister):
    """A lister of a tree whose links to directories look like directories, as at a web server.

    :param links: the target of each link, by path; "" is the top
    """

    def __init__(self, files, links):
        self._files, self._links = files, links

    async def list(self, url):
        here = self._resolved(url.removeprefix("x://host/"))
        inside = [path for path in (*self._files, *(f"{link}/" for link in self._links)) if path.startswith(here)]
        names = {path[len(here) :].partition("/")[:2] for path in inside}
        yield [Entry(name, "dir" if slash else "file") for name, slash in sorted(names)]

    def _resolved(self, path):
        real = ""
        for part in path.split("/")[:-1]:
            real = self._links.get(real + part, f"{real}{part}/")
        return real

    async def close(self):
        pass


@pytest.mark.parametrize(
    ("links", "loops"),
    [({"l": ""}, ["l/"]), ({"a/up": ""}, ["a/up/"]), ({"a/b/l": "a/"}, ["a/b/l/"]), ({"l": "", "m": ""}, ["l/", "m/"])],
)
async def test_a_directory_that_contains_itself_is_left_out(links, loops):
    tree = await files_below(ListerOfPaths(["x", "a/b/y", "a/z"], links), "x://host/")
    assert sorted(tree.files) == ["a/b/y", "a/z", "x"]
    assert set(loops) <= set(tree.loops)


async def test_directories_of_the_same_name_in_each_other_are_no_loop():
    files = ["v/v/v/x", "w/w/w/w/w/y", "w/w/w/z"]
    tree = await files_below(ListerOfPaths(files, {}), "x://host/")
    assert (sorted(tree.files), tree.loops) == (files, [])


@pytest.mark.parametrize("limit", ["MOST_BELOW", "MOST_NAMES"])
async def test_a_tree_without_end_is_refused(monkeypatch, limit):
    monkeypatch.setattr(trees, limit, 3)
    with pytest.raises(LimitExceeded, match="x://host/ has more than"):
        await files_below(ListerOfPaths(["a/a", "b/b", "c/c"], {}), "x://host/")


class ListerOfOneError(Lister):
    """A lister of a directory with three others, of which one cannot be listed, and one has a name that leads away."""

    async def list(self, url):
        if url.endswith("/bad/"):
            yield [Entry("seen", "file")]
            raise PermissionRefused("no")
        yield [Entry("x", "file")]
        if url == "x://host/":
            yield [Entry(name, "dir") for name in ("bad", "good", "../away", "..")]

    async def close(self):
        pass


async def test_a_directory_that_cannot_be_listed_does_not_end_the_others():
    tree = await files_below(ListerOfOneError(), "x://host/")
    assert sorted(tree.files) == ["bad/seen", "good/x", "x"]
    assert {name: error.code for name, error in tree.errors.items()} == {
        "bad/": "permission_refused",
        "../away/": "usage",
        "../": "usage",
    }
    assert (await files_below(ListerOfOneError(), "x://host/bad/")).errors.keys() == {"./"}


class ListerOfLines(Lister):
    """A lister of one directory, of these lines of MLSD; all further ones are empty."""

    def __init__(self, *lines):
        self._lines = lines

    async def list(self, url):
        yield Listing().feed("".join(f"type={line}\r\n" for line in self._lines).encode())
        self._lines = ()

    async def close(self):
        pass


async def test_links_count_as_files_and_nothing_is_left_out_in_silence():
    """ProFTPD lists links as the first two lines do, and a Globus server as the third one."""
    lister = ListerOfLines(
        "OS.unix=symlink;size=8; latest.dat",
        "OS.unix=slink:run2.dat;size=8; newest.dat",
        "dir;UNIX.slink=/d; folder",
        "file;size=3; run1.dat",
        "OS.unix=chr-1/3; null",
    )
    tree = await files_below(lister, "ftp://host/run/")
    assert tree.files == ["latest.dat", "newest.dat", "run1.dat"]
    assert {name: error.message for name, error in tree.errors.items()} == {"null": "it is neither file nor directory"}


def test_other_schemes_have_no_directories():
    with pytest.raises(UsageError, match="directories cannot be listed"):
        open_lister("file:///x/", None)

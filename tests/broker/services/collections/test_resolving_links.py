"""Ends of paths, at servers that report a link's text or its final target: the same as in the operating system."""

import asyncio
from pathlib import Path
from random import Random
from typing import cast

import pytest

from broker.services.collections.trees import links as module
from broker.services.collections.trees.links import Links
from coalloc.api import Storage
from coalloc.errors import NoSuchFile, PermissionRefused, Unsupported
from coalloc.model.listings import Entry
from tests.broker.linked_trees import LinkedTree
from tests.support.effort import effort
from tests.support.seeds import tries

TREES = effort(10, 150)
WALKS = 50


class Described:
    """A session that only answers questions about links, from local files.

    :param raw: whether links are told as they were made, else where they end, as Globus's servers do
    """

    describes = True

    def __init__(self, raw: bool) -> None:
        self._raw = raw
        self.asked = 0

    async def stat(self, path: str) -> Entry:
        self.asked += 1
        try:
            return _described(Path(path), self._raw)
        except OSError:
            raise NoSuchFile(f"{path} is not there", "") from None


def _described(path: Path, raw: bool) -> Entry:
    if path.is_symlink():
        target = path.readlink() if raw else path.resolve(strict=True)
        return Entry(path.name, "link" if raw else "dir", link_target=str(target))
    path.lstat()
    return Entry(path.name, "dir" if path.is_dir() else "file")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("alias", [True, False])
@pytest.mark.long
async def test_a_path_resolves_as_the_operating_system_resolves_it(tmp_path, raw, alias):
    for number, attempt in enumerate(tries(TREES)):
        with attempt as seed:
            tree = LinkedTree(tmp_path / str(number), Random(seed))
            links = Links(f"{tree.root.parent}/alias/" if alias else f"{tree.root}/")
            session = cast(Storage, Described(raw))
            for _ in range(WALKS):
                path = tree.walk()
                if not _ends(tree.root, path):
                    continue  # nothing can be reached there
                assert (await links.end(session, path))[0] == tree.real(path), path
                above = path.rpartition("/")[0] or "/"
                assert await links.folder(session, above) == tree.real(above), above


def _ends(root: Path, path: str) -> bool:
    try:
        return (root / path.strip("/")).exists()
    except OSError:
        return False


async def test_a_path_is_asked_about_once_for_a_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FRESH", 60.0)
    (tmp_path / "a/b/c").mkdir(parents=True)
    session = Described(raw=False)
    links = Links(f"{tmp_path}/")
    found = await asyncio.gather(*(links.folder(cast(Storage, session), "/a/b/c") for _ in range(9)))
    assert (set(found), session.asked) == ({"/a/b/c"}, 3)


@pytest.mark.parametrize("target", [None, "circle", "/odd/x", "../../../../../../../etc"])
async def test_a_link_that_leads_nowhere_known_is_not_followed(tmp_path, target):
    class Odd(Described):
        async def stat(self, path: str) -> Entry:
            if path.startswith("/odd"):
                raise Unsupported(f"{path} cannot be sent", "")
            if path.endswith("/circle"):
                return Entry("circle", "link", link_target=target)
            return await super().stat(path)

    (tmp_path / "circle").mkdir()
    session, links = cast(Storage, Odd(raw=True)), Links(f"{tmp_path}/")
    if target and target.startswith(".."):
        assert (await links.end(session, "/circle/x"))[0] is None
        return
    with pytest.raises(PermissionRefused, match=r"^/circle: "):
        await links.end(session, "/circle/x")

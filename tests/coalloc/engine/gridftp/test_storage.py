"""Names at real servers: list, stat, make, rename, delete; refusals with distinct meanings."""

import asyncio
import hashlib
import os
from dataclasses import replace

import pytest

from coalloc.api import storage
from coalloc.errors import (
    AlreadyThere,
    ConnectionLost,
    IsDirectory,
    NoSuchFile,
    NotDirectory,
    NotEmpty,
    PermissionRefused,
    Stalled,
    Unsupported,
    UsageError,
)
from tests.support.plain_ftp import PlainFTP, serve

ODD = ["with space", "-dash", "two  spaces; and=more", "#%?*", "a" * 200]


@pytest.fixture
def root(gridftp_server):
    return gridftp_server.root


@pytest.fixture
async def store(gridftp_server):
    async with await storage(gridftp_server.url("")) as store:
        yield store


def names(folder):
    return sorted(path.name for path in folder.iterdir())


async def listed(store, path):
    return {entry.name: entry async for entries in store.list(str(path)) for entry in entries}


async def test_servers_describe_files_directories_and_links(store, root):
    (root / "file").write_bytes(b"x" * 1000)
    os.utime(root / "file", (0, 1_600_000_000))
    (root / "file").chmod(0o640)
    (root / "folder").mkdir()
    (root / "link").symlink_to(root / "file")
    (root / "nowhere").symlink_to("gone")
    (root / "a b; c").touch()
    (root / "odd link").symlink_to(root / "a b; c")
    found = await listed(store, root)
    assert found.keys() == {"file", "folder", "link", "a b; c", "odd link"}
    assert found["odd link"].link_target == str(root / "a b; c")
    file = found["file"]
    assert (file.kind, file.size, file.modified, file.permissions) == ("file", 1000, 1_600_000_000, "0640")
    assert (file.user, file.group) == ((root / "file").owner(), (root / "file").group())
    assert found["folder"].kind == "dir"
    assert found["link"].link_target == str(root / "file")
    assert file.link_target is None
    assert await store.stat(f"{root}/file") == file
    assert (await store.stat(f"{root}/folder/")).kind == "dir"
    assert (await store.stat("/~/file")).size == 1000


@pytest.mark.parametrize("name", ODD)
async def test_odd_names_go_there_and_back(store, root, name):
    await store.make(f"{root}/{name}")
    (root / name / name).write_bytes(b"12345")
    assert (await listed(store, root / name))[name].size == 5
    assert (await store.stat(f"{root}/{name}/{name}")).name == name
    await store.rename(f"{root}/{name}/{name}", f"{root}/{name}/other")
    assert names(root / name) == ["other"]
    await store.delete(f"{root}/{name}/other")
    await store.remove(f"{root}/{name}")
    assert names(root) == []


async def test_names_that_a_server_over_plain_ftp_would_change_are_refused(store, root):
    (root / "data").mkdir()
    for what in (store.delete, store.remove, store.make, store.stat):
        with pytest.raises(Unsupported, match="ASCII"):
            await what(f"{root}/daéta")
    with pytest.raises(Unsupported, match="ASCII"):
        await listed(store, f"{root}/daéta")
    assert names(root) == ["data"]


@pytest.mark.parametrize("path", ["/a\r\nDELE /b", "/a\nb", "/a\0b"])
async def test_a_path_cannot_smuggle_in_a_command(store, path):
    with pytest.raises(Unsupported):
        await store.stat(path)
    assert store.usable


async def test_a_relative_path_makes_no_sense(store):
    with pytest.raises(UsageError):
        await store.stat("file")


async def test_each_refusal_raises_its_own_error(store, root):
    (root / "full").mkdir()
    (root / "full" / "file").touch()
    for error, call, path in [
        (NoSuchFile, store.stat, "none"),
        (NoSuchFile, store.delete, "none"),
        (NoSuchFile, store.make, "none/folder"),
        (NoSuchFile, store.remove, "none"),
        (AlreadyThere, store.make, "full"),
        (AlreadyThere, store.make, "full/file"),
        (NotEmpty, store.remove, "full"),
        (IsDirectory, store.delete, "full"),
        (NotDirectory, store.remove, "full/file"),
        (NotDirectory, store.make, "full/file/x"),
    ]:
        with pytest.raises(error) as raised:
            await call(f"{root}/{path}")
        assert type(raised.value) is error
    with pytest.raises(NoSuchFile):
        await store.rename(f"{root}/none", f"{root}/other")
    with pytest.raises(NoSuchFile):
        await listed(store, root / "none")
    with pytest.raises(NoSuchFile):
        await store.checksum(f"{root}/none", "md5", 0, 1)
    with pytest.raises(IsDirectory):
        await store.checksum(f"{root}/full", "md5", 0, 1)
    assert await store.checksum(f"{root}/full/file", "md5", 0, 0), "it still offers checksums"
    assert store.usable


async def test_missing_permission_of_the_server_is_reported(start_gridftp, tmp_path):
    if os.geteuid():
        pytest.skip("a server needs root to become nobody")
    tmp_path.chmod(0o755)
    server = start_gridftp(tmp_path / "x", options=("-anonymous-user", "nobody", "-anonymous-group", "nogroup"))
    async with await storage(server.url("")) as store:
        with pytest.raises(PermissionRefused):
            await store.make(f"{server.root}/folder")


async def test_commands_that_are_awaited_side_by_side_do_not_wait_for_each_other(store, root):
    await asyncio.gather(*(store.make(f"{root}/{number}") for number in range(200)))
    results = await asyncio.gather(
        *(store.rename(f"{root}/{number}", f"{root}/{number + 1000}") for number in range(100)),
        *(store.remove(f"{root}/{number}") for number in range(50, 150)),
        return_exceptions=True,
    )
    assert [isinstance(result, NoSuchFile) for result in results] == [False] * 100 + [True] * 50 + [False] * 50
    assert set(names(root)) == {str(number) for number in [*range(150, 200), *range(1000, 1100)]}


async def test_a_large_directory_comes_in_parts(store, root):
    for number in range(20_000):
        (root / f"a-rather-long-name-of-a-file-{number}").touch()
    parts = [len(entries) async for entries in store.list(str(root))]
    assert sum(parts) == 20_000
    assert max(parts) < 5000


async def test_abandoned_listing_makes_the_session_unusable(store, root):
    for number in range(20_000):
        (root / f"a-rather-long-name-of-a-file-{number}").touch()
    listing = store.list(str(root))
    await anext(listing)
    await listing.aclose()
    assert not store.usable


async def test_listings_side_by_side(store, root):
    for number in range(10):
        (root / str(number)).mkdir()
        (root / str(number) / f"of-{number}").touch()
    found = await asyncio.gather(*(listed(store, root / str(number)) for number in range(10)))
    assert [list(each) for each in found] == [[f"of-{number}"] for number in range(10)]


async def test_touch_link_and_checksum(store, root):
    (root / "file").write_bytes(bytes(range(256)) * 100)
    await store.touch(f"{root}/file", 1_500_000_000)
    assert (root / "file").stat().st_mtime == 1_500_000_000
    await store.link(f"{root}/file", f"{root}/link")
    assert (root / "link").readlink() == root / "file"
    assert await store.checksum(f"{root}/file", "md5", 0, 25600) == hashlib.md5(bytes(range(256)) * 100).hexdigest()
    assert await store.checksum(f"{root}/file", "sha256", 1, 3) == hashlib.sha256(b"\1\2").hexdigest()
    assert await store.checksum(f"{root}/file", "sha3", 1, 3) is None


@pytest.mark.parametrize(("computed", "left"), [(("MD5",), True), (None, False)])
async def test_refused_checksum_excludes_other_algorithms_only_if_cksm_is_unknown(computed, left):
    offered = ("SIZE", "CKSM SHA256:1;MD5:2")
    plain = PlainFTP(b"content", features=offered, checksums=computed)
    async with serve(plain) as server, await storage(server.url) as store:
        assert store.offers("sha256")
        assert store.offers("md5")
        assert await store.checksum("/file", "sha256", 0, 7) is None
        assert (store.offers("sha256"), store.offers("md5")) == (False, left)
        digest = hashlib.md5(b"content").hexdigest() if left else None
        assert await store.checksum("/file", "md5", 0, 7) == digest


async def test_a_server_that_ends(gridftp_server, store, root):
    gridftp_server.pause()
    asked = [asyncio.create_task(store.stat(str(root))) for _ in range(50)]
    await asyncio.sleep(0)
    gridftp_server.kill()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(result) for result in results} == {ConnectionLost}
    assert not store.usable


async def test_a_server_that_keeps_silent(gridftp_server):
    async with await storage(gridftp_server.url("")) as store:
        store.options = replace(store.options, connect_seconds=0.2)
        gridftp_server.pause()
        with pytest.raises(Stalled):
            await store.stat("/")
        assert not store.usable


async def test_a_certificate_that_is_named_outright_and_names_in_any_alphabet(
    gsi_server, grid, alice, monkeypatch, no_proxy
):
    monkeypatch.setenv("X509_CERT_DIR", str(grid.trusted))
    async with await storage(gsi_server.url("", "gsiftp"), proxy=alice.proxy().certificate) as store:
        await store.make(f"{gsi_server.root}/Ünïcode 日本")
        assert names(gsi_server.root) == ["Ünïcode 日本"]
        assert list(await listed(store, gsi_server.root)) == ["Ünïcode 日本"]
        assert (await store.stat(f"{gsi_server.root}/Ünïcode 日本")).kind == "dir"
    with pytest.raises(PermissionRefused, match="nowhere"):
        await storage(gsi_server.url("", "gsiftp"), proxy=alice.certificate.with_name("nowhere"))


async def test_a_hollow_file_has_its_size_and_hardly_a_byte(store, root):
    await store.make_sparse(f"{root}/hollow", 1 << 30)
    assert (await store.stat(f"{root}/hollow")).size == 1 << 30
    assert (root / "hollow").stat().st_blocks < 1000
    await store.make_sparse(f"{root}/one", 1)
    assert (root / "one").read_bytes() == b"\0"
    with pytest.raises(NoSuchFile):
        await store.make_sparse(f"{root}/none/x", 1)
    assert (await store.stat(f"{root}/one")).size == 1

"""Files planted by other users where coget works: it does not use, follow, change or wait for any of them."""

import ctypes
import os
import stat
from pathlib import Path

import pytest

from coalloc.errors import SinkError
from coalloc.partial_file import Journal, PartialFile, describe, discard, recall
from tests.support.users import OTHER, another_user, as_root, set_default_acl, shared_directory, umask

CONTENT = bytes(range(200))
HEADER = describe(len(CONTENT), ["ftp://a/x"], {}, [])

PARENTS = {"sticky": 0o1777, "open": 0o777}


@pytest.fixture(params=PARENTS)
def shared(tmp_path, request):
    """A directory in which all users may make files, as in /tmp, or may even rename those of others."""
    with shared_directory(PARENTS[request.param]) as where:
        yield where


@pytest.fixture
def victim(tmp_path):
    """A directory with a file, which must not change."""
    where = tmp_path / "victim"
    where.mkdir()
    for name in ("data", "journal", "lock", "precious"):
        (where / name).write_bytes(b"precious")
    return where


def snapshot(where):
    """Return everything visible of a directory and its content."""
    found = {}
    for path in sorted([where, *where.rglob("*")]):
        known = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(known.st_mode) else None
        found[path] = (known.st_ino, known.st_mode, known.st_uid, known.st_gid, known.st_nlink, content)
    return found


def fetch(target, end=None):
    """Fetch as `Download` does: resume, and publish when everything is here."""
    with PartialFile(target) as partial:
        earlier = recall(partial.journal_path, HEADER, partial.directory)
        kept = partial.begin(len(CONTENT), earlier.extents, ["md5"])
        journal = Journal.create(partial.journal_path, earlier.header, kept, own=partial.directory)
        try:
            for start, stop in partial.missing():
                journal.append(partial.write(0, start, memoryview(CONTENT)[start : end or stop]))
        finally:
            journal.close()
        if not partial.missing():
            partial.publish()
    return sum(extent.end - extent.start for extent in kept)


def refused(do, *args):
    with pytest.raises(SinkError) as caught:
        do(*args)
    assert caught.value.status == 6
    assert caught.value.remedy
    return caught.value.message


def refuses(do, *args):
    try:
        do(*args)
    except SinkError as error:
        return error.status == 6 and error.remedy
    return False


def plant_directory(folder, victim):
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "data").write_bytes(b"wrong")
    (folder / "data").chmod(0o666)


def plant_empty_directory(folder, victim):
    folder.mkdir()
    folder.chmod(0o777)


def plant_closed_directory(folder, victim):
    folder.mkdir(0o700)


IN_PLACE_OF_THE_FOLDER = {
    "directory": plant_directory,
    "empty directory": plant_empty_directory,
    "closed directory": plant_closed_directory,
    "link": lambda folder, victim: folder.symlink_to(victim),
    "link in two steps": lambda folder, victim: (
        folder.with_name("step").symlink_to(victim),
        folder.symlink_to("step"),
    ),
    "link to the parent": lambda folder, victim: folder.symlink_to("."),
    "dangling link": lambda folder, victim: folder.symlink_to(victim / "new"),
    "link to itself": lambda folder, victim: folder.symlink_to(folder.name),
    "file": lambda folder, victim: folder.write_bytes(b"in the way"),
    "fifo": lambda folder, victim: os.mkfifo(folder),
}


@as_root
@pytest.mark.parametrize("do", [fetch, PartialFile])
@pytest.mark.parametrize("kind", IN_PLACE_OF_THE_FOLDER)
def test_a_folder_of_another_user_is_refused_and_left(shared, victim, kind, do):
    with another_user():
        IN_PLACE_OF_THE_FOLDER[kind](shared / "x.coget", victim)
    before = snapshot(shared), snapshot(victim)
    assert f"{shared}/x.coget is needed for partial data" in refused(do, shared / "x")
    assert (snapshot(shared), snapshot(victim)) == before


@as_root
@pytest.mark.parametrize("kind", IN_PLACE_OF_THE_FOLDER)
def test_discard_changes_no_file_of_another_user(shared, victim, kind):
    with another_user():
        IN_PLACE_OF_THE_FOLDER[kind](shared / "x.coget", victim)
    before = snapshot(shared), snapshot(victim)
    if kind.endswith("directory"):
        assert "another user" in refused(discard, shared / "x")
    else:
        discard(shared / "x")
    assert (snapshot(shared), snapshot(victim)) == before


@pytest.mark.parametrize("kind", [kind for kind in IN_PLACE_OF_THE_FOLDER if "directory" not in kind])
def test_target_folder_that_is_no_directory_is_refused(tmp_path, victim, kind):
    IN_PLACE_OF_THE_FOLDER[kind](tmp_path / "x.coget", victim)
    before = snapshot(victim)
    assert f"{tmp_path}/x.coget is needed for partial data" in refused(fetch, tmp_path / "x")
    discard(tmp_path / "x")
    assert snapshot(victim) == before


def older(target, mode=0o775):
    """Return the directory of an earlier coget, made with the umask, with half of the file."""
    with umask(0):
        assert fetch(target, 100) == 0
    folder = target.with_name("x.coget")
    folder.chmod(mode)
    (folder / "lock").chmod(0o664)
    (folder / "data").chmod(0o664)
    return folder


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777, 0o500, 0o000, 0o2775])
def test_an_older_folder_of_ours_is_narrowed_and_taken_over(tmp_path, mode):
    folder = older(tmp_path / "x", mode)
    with PartialFile(tmp_path / "x"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 | mode & stat.S_ISGID
    assert fetch(tmp_path / "x") == 100
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert not folder.exists()


def test_an_older_folder_of_ours_is_discarded(tmp_path):
    folder = older(tmp_path / "x", 0o777)
    discard(tmp_path / "x")
    assert not folder.exists()


def replaced(path, make):
    path.unlink(missing_ok=True)
    make(path)


INSIDE = {
    "file": lambda path, victim: path.write_bytes(b"planted"),
    "link": lambda path, victim: path.symlink_to(victim / "precious"),
    "dangling link": lambda path, victim: path.symlink_to(victim / "new"),
    "link to a directory": lambda path, victim: path.symlink_to(victim),
    "fifo": lambda path, victim: os.mkfifo(path),
    "directory": lambda path, victim: path.mkdir(),
}
NAMES = ["data", "journal", "journal.new", "journal.broken", "lock"]


@as_root
@pytest.mark.parametrize("name", [*NAMES, "other"])
@pytest.mark.parametrize("kind", INSIDE)
def test_files_planted_in_a_writable_folder_are_refused_and_unchanged(tmp_path, shared, victim, name, kind):
    folder = older(shared / "x", 0o777)
    with another_user():
        replaced(folder / name, lambda path: INSIDE[kind](path, victim))
    before = snapshot(victim), {path: seen for path, seen in snapshot(folder).items() if path != folder}
    assert f"{folder}" in refused(PartialFile, shared / "x")
    refused(discard, shared / "x")
    assert (snapshot(victim), {path: seen for path, seen in snapshot(folder).items() if path != folder}) == before
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "it was closed to others before it was looked at"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [*INSIDE, "hard link"])
def test_links_and_special_files_are_never_followed_even_if_our_own(tmp_path, victim, name, kind):
    """A link of this user is refused or replaced, as it looks like one that was moved here."""
    folder = older(tmp_path / "x")
    if kind == "file":
        pytest.skip("a file of this user is no attack")
    make = {**INSIDE, "hard link": lambda path, victim: path.hardlink_to(victim / "precious")}[kind]
    (folder / "journal").write_bytes(b"coget journal 1\nis broken, so that a copy is kept")
    replaced(folder / name, lambda path: make(path, victim))
    content = {path: path.read_bytes() for path in victim.iterdir()}
    if refuses(fetch, tmp_path / "x"):
        assert not (tmp_path / "x").exists()
    else:
        assert (tmp_path / "x").read_bytes() == CONTENT
        assert not (tmp_path / "x").is_symlink()
        assert (tmp_path / "x").stat().st_nlink == 1
    assert {path: path.read_bytes() for path in victim.iterdir()} == content


@as_root
def test_data_that_another_user_holds_by_a_second_name_are_refused(shared):
    folder = older(shared / "x", 0o777)
    (folder / "data").chmod(0o666)
    os.link(folder / "data", shared / "hold")
    os.chown(shared / "hold", 0, 0)
    assert "hard link" in refused(PartialFile, shared / "x")


@as_root
def test_a_device_is_never_opened(tmp_path):
    folder = older(tmp_path / "x")
    (folder / "data").unlink()
    try:
        os.mknod(folder / "data", 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    except OSError as error:
        pytest.skip(f"no devices can be made here: {error}")
    assert "not a plain file" in refused(PartialFile, tmp_path / "x")


def test_a_directory_of_this_user_that_was_renamed_here_keeps_what_it_has(tmp_path):
    """Another user can do so where all may write."""
    (tmp_path / "x.coget").mkdir(0o700)
    (tmp_path / "x.coget" / "photo").write_bytes(b"precious")
    assert "contains 'photo'" in refused(PartialFile, tmp_path / "x")
    refused(discard, tmp_path / "x")
    assert (tmp_path / "x.coget" / "photo").read_bytes() == b"precious"


def exchange(folder, victim):
    """Put a link in the directory's place, as another user can in a directory that all may write to."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(victim)


@pytest.mark.parametrize("when", ["begin", "write", "publish"])
def test_a_folder_that_is_exchanged_for_a_link_has_no_effect_elsewhere(tmp_path, victim, when):
    folder, before = tmp_path / "x.coget", snapshot(victim)
    with PartialFile(tmp_path / "x") as partial:
        for step in ("begin", "write", "publish"):
            if step == when:
                exchange(folder, victim)
            match step:
                case "begin":
                    earlier = recall(partial.journal_path, HEADER, partial.directory)
                    partial.begin(len(CONTENT), earlier.extents)
                    journal = Journal.create(partial.journal_path, HEADER, own=partial.directory)
                case "write":
                    journal.append(partial.write(0, 0, memoryview(CONTENT)))
                case "publish":
                    journal.close()
                    partial.publish()
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert snapshot(victim) == before


def test_a_folder_that_is_exchanged_is_not_removed_through_the_link(tmp_path, victim):
    before = snapshot(victim)
    with PartialFile(tmp_path / "x"):
        exchange(tmp_path / "x.coget", victim)
    assert snapshot(victim) == before
    assert list((tmp_path / "moved").iterdir()) == []


@pytest.mark.parametrize(("leads", "where"), [("../victim", "where"), ("..", "where"), ("other", "where/sub")])
def test_a_directory_on_the_path_that_became_a_link_leads_nowhere(tmp_path, victim, leads, where):
    """The path was checked before, and was in order."""
    (tmp_path / "where" / "other").mkdir(parents=True)
    link = tmp_path / "where" / "sub"
    link.symlink_to(leads)
    left = link.resolve() / "x.coget"
    left.mkdir(0o700)
    (left / "data").write_bytes(b"precious")
    before = snapshot(tmp_path)
    for do in (lambda: PartialFile(link / "x", within=tmp_path / where), lambda: discard(link / "x", tmp_path / where)):
        assert f"{link}/x would be in another directory" in refused(do)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("path", ["x", "sub/x", "linked/x"])
def test_a_directory_below_is_not_left(tmp_path, monkeypatch, path):
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "real" / "linked").symlink_to("sub")
    monkeypatch.chdir(tmp_path / "linked")
    for name in (Path(path), Path("../linked") / path, tmp_path / "linked" / path):
        with PartialFile(name, within=tmp_path / "real"):
            assert (tmp_path / "real" / f"{path}.coget").is_dir()


@as_root
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_no_other_user_gets_at_what_is_fetched(shared, mask):
    with umask(mask), PartialFile(shared / "x") as partial:
        partial.begin(len(CONTENT))
        partial.write(0, 0, memoryview(CONTENT)[:100])
        with another_user():
            for name in ("data", "lock"):
                with pytest.raises(PermissionError):
                    os.open(shared / "x.coget" / name, os.O_RDONLY)
            with pytest.raises(PermissionError):
                os.open(shared / "x.coget", os.O_RDONLY)


def seen(path):
    """Return what other users may do with a file."""
    known = path.stat()
    acl = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return stat.S_IMODE(known.st_mode), known.st_uid, known.st_gid, acl


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("group", [None, 54321])
@pytest.mark.parametrize("acl", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
def test_the_file_is_as_any_that_is_made_there_and_the_folder_is_ours_alone(tmp_path, mask, group, acl, resumed):
    where = tmp_path / "where"
    where.mkdir()
    if group is not None:
        if os.geteuid():
            pytest.skip("only root can give a directory to a group that it is not in")
        os.chown(where, -1, group)
        where.chmod(0o2775)
    if acl:
        set_default_acl(where, OTHER, 6)
    target, folder = where / "x", where / "x.coget"
    with umask(mask):
        (where / "like").touch()
        if resumed:
            fetch(target, 100)
        with PartialFile(target) as partial:
            partial.begin(len(CONTENT))
            Journal.create(partial.journal_path, HEADER, own=partial.directory).close()
            assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o700
            for name in ("journal", "lock"):
                assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
            partial.write(0, 0, memoryview(CONTENT))
            partial.publish()
    assert seen(target) == seen(where / "like")


@pytest.mark.parametrize("mask", [0o177, 0o277, 0o777])
def test_a_folder_that_the_umask_closes_to_us_is_opened(tmp_path, mask):
    with umask(mask), PartialFile(tmp_path / "x"):
        assert stat.S_IMODE((tmp_path / "x.coget").stat().st_mode) == 0o700


@as_root
@pytest.mark.parametrize("named", [False, True])
def test_owner_is_that_of_a_new_file_and_not_the_process_user(tmp_path, monkeypatch, named):
    """NFS servers map root to nobody; locally the system call setfsuid has the same effect."""
    if named:  # NFS has no files without names
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_NOFOLLOW)
    setfsuid = ctypes.CDLL(None).setfsuid
    with shared_directory(0o777) as where:
        setfsuid(OTHER)
        try:
            fetch(where / "x", 100)
            assert (where / "x.coget" / "data").stat().st_uid == OTHER
            assert fetch(where / "x") == 100
        finally:
            setfsuid(0)
        assert (where / "x").stat().st_uid == OTHER
        assert [path.name for path in where.iterdir()] == ["x"]
        (where / "y.coget").mkdir(0o700)  # of the real root, who is another user there
        setfsuid(OTHER)
        try:
            assert "another user" in refused(PartialFile, where / "y")
        finally:
            setfsuid(0)


@as_root
def test_a_link_at_the_targets_name_is_replaced_itself(shared, victim):
    with another_user():
        (shared / "x").symlink_to(victim / "precious")
    fetch(shared / "x")
    assert (victim / "precious").read_bytes() == b"precious"
    assert not (shared / "x").is_symlink()

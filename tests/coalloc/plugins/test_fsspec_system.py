"""The file system `coget://` with real servers: names, reads, errors, processes and event loops."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import fsspec
import pytest
from fsspec.asyn import sync
from fsspec.callbacks import Callback

from coalloc import api
from coalloc.broker_client import DatasetEntry
from coalloc.download import range_reader, replica_sessions
from coalloc.engine.fsspec_source import BridgeSource
from coalloc.errors import UsageError
from coalloc.plugins import fsspec_readers
from coalloc.plugins.fsspec_system import CogetFile, CogetFileSystem
from coalloc.resolve import trees
from coalloc.util.listing_limits import DEEPEST
from tests.support.broker import broker_in
from tests.support.fetching import options, random_file
from tests.support.nginx import Nginx
from tests.support.vsftpd import Vsftpd
from tests.support.waiting import PATIENCE, wait_until

SIZE = 9 << 20


@pytest.fixture
def web(tmp_path):
    with ExitStack() as stack:
        yield [stack.enter_context(Nginx(tmp_path / f"web{i}", tmp_path / f"run{i}")) for i in range(2)]


def put(servers, name="x.bin", size=SIZE) -> bytes:
    content = random_file(servers[0].root / name, size)
    for server in servers[1:]:
        (server.root / name).write_bytes(content)
    return content


def both(web, name="x.bin") -> str:
    return "|".join(server.url(name) for server in web)


def test_an_open_file_is_read_from_both_replicas(web):
    content = put(web)
    with fsspec.open(f"coget://{both(web)}") as file:
        assert isinstance(file, CogetFile)
        file.seek(5_000_000)
        assert file.read(3_000_000) == content[5_000_000:8_000_000]
        file.seek(-10, os.SEEK_END)
        assert file.read() == content[-10:]
        file.seek(0)
        assert file.read() == content
    with fsspec.open(f"coget://{both(web)}", "rt", encoding="latin-1", newline="") as text:
        assert text.read(10_000).encode("latin-1") == content[:10_000]


@pytest.mark.parametrize("protocol", CogetFileSystem.protocol)
def test_paths_are_below_all_roots(web, protocol):
    (web[0].root / "a b").mkdir()
    (web[1].root / "a b").mkdir()
    content = put(web, "a b/x.bin")
    files = fsspec.filesystem(protocol, replicas=[web[0].url(""), web[1].url("")])
    assert files.cat_file(f"{protocol}://a b/x.bin", -100, -1) == content[-100:-1]
    assert files.cat_file("a b/x.bin", 5, 5) == b""
    assert files.size("a b/x.bin") == SIZE
    assert fsspec.filesystem(protocol, replicas=[web[0].url("a b/x.bin")]).cat_file("") == content


def test_many_ranges_of_several_files_come_in_one_call(web):
    contents = {name: put(web, name) for name in ("x.bin", "y.bin")}
    files = fsspec.filesystem("coget", replicas=[server.url("") for server in web])
    names, starts = ["x.bin", "y.bin"] * 100, [i * 40_000 for i in range(200)]
    found = files.cat_ranges([*names, "none"], [*starts, 0], [*(start + 100 for start in starts), 1])
    assert found[:-1] == [contents[name][at : at + 100] for name, at in zip(names, starts, strict=True)]
    assert isinstance(found[-1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        files.cat_ranges(["x.bin", "none"], 0, 1, on_error="raise")


def test_a_whole_file_is_downloaded_and_its_progress_shown(web, tmp_path):
    content, seen = put(web), Callback()
    files = fsspec.filesystem("coget")
    files.get_file(both(web), str(tmp_path / "here.bin"), callback=seen)
    assert (tmp_path / "here.bin").read_bytes() == content
    assert (seen.size, seen.value) == (SIZE, SIZE)
    assert list(tmp_path.glob("here.bin*")) == [tmp_path / "here.bin"]


def test_a_metalink_of_several_files_is_no_file(web, tmp_path):
    put(web)
    entries = "".join(f'<file name="{name}"><url>{web[0].url("x.bin")}</url></file>' for name in "ab")
    (web[0].root / "two.meta4").write_text(f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{entries}</metalink>')
    files = fsspec.filesystem("coget")
    for get in (files.get_file, files.get):
        with pytest.raises(OSError, match="names 2 files"):
            get(web[0].url("two.meta4"), str(tmp_path / "here"))
    assert not (tmp_path / "here").exists()


def test_errors_are_those_that_fsspec_expects(web, tmp_path):
    files = fsspec.filesystem("coget")
    put(web)
    (web[0].root / "secret").touch(mode=0)
    assert files.exists(web[0].url("x.bin"))
    assert not files.exists(both(web, "none"))
    with pytest.raises(FileNotFoundError, match="404"):
        files.open(web[0].url("none"))
    with pytest.raises(FileNotFoundError):
        files.get_file(web[0].url("none"), str(tmp_path / "none"))
    web[0].kill()
    with pytest.raises(OSError, match="refused") as caught:
        files.exists(web[0].url("y.bin"))
    assert not isinstance(caught.value, FileNotFoundError)
    for mode in ("wb", "ab", "xb", "r+b"):
        with pytest.raises(NotImplementedError):
            files.open(web[1].url("x.bin"), mode)


def test_no_permission_is_a_permission_error(start_gridftp, tmp_path):
    server = start_gridftp(tmp_path / "export", anonymous=False)
    (server.root / "x").touch()
    with pytest.raises(PermissionError):
        fsspec.filesystem("coget").cat_file(server.url("x"))


def test_a_file_that_changes_while_it_is_open_is_not_read_further(web):
    old = put(web)
    with fsspec.open(f"coget://{both(web)}", block_size=1 << 20) as file:
        assert file.read(100) == old[:100]
        new = replace(web)
        file.seek(5 << 20)
        with pytest.raises(OSError, match="changed") as caught:
            file.read(100)
        assert caught.value.errno == 116
        assert fsspec.filesystem("coget").cat_file(both(web), 0, 10) == new[:10]
        with pytest.raises(OSError, match="changed"):
            file.read(100)
    assert fsspec.filesystem("coget").cat_file(both(web)) == new


def replace(servers, name="x.bin", seed=2, size=SIZE) -> bytes:
    """Replace a file by another one of another time, as a server's admin does."""
    for server in servers:
        content = random_file(server.root / "new", size, seed=seed)
        os.utime(server.root / "new", (seed, seed))
        (server.root / "new").replace(server.root / name)
    return content


@pytest.mark.parametrize("size", [SIZE, SIZE // 2])
def test_a_file_that_was_replaced_and_is_not_open_is_read_anew(web, size):
    put(web)
    files = fsspec.filesystem("coget")
    for seed, read in enumerate((files.cat_file, lambda path: files.cat_ranges([path], 0, SIZE)[0]), 2):
        read(both(web))
        new = replace(web, seed=seed, size=size)
        assert read(both(web)) == new


def test_an_open_file_goes_on_with_the_unchanged_replica_when_the_path_is_opened_again(web, monkeypatch):
    monkeypatch.setattr(fsspec_readers, "FRESH", 0.0)
    content, files = put(web), fsspec.filesystem("coget")

    def connected() -> list[int]:
        (readers,) = files._readers.values()
        return [len(reader.versions) for reader in readers._all]

    with files.open(both(web), block_size=1 << 20) as file:
        assert file.read(10) == content[:10]
        wait_until(lambda: connected() == [2])
        os.utime(web[1].root / "x.bin", (1, 1))
        assert files.size(both(web)) == SIZE
        wait_until(lambda: connected() == [2, 2])
        file.seek(5 << 20)
        assert file.read() == content[5 << 20 :]


def test_an_open_file_keeps_to_its_version_after_all_connections_were_closed(web):
    content, files = put(web), fsspec.filesystem("coget")
    with files.open(web[0].url("x.bin"), block_size=1 << 20) as file:
        assert file.read(10) == content[:10]
        sync(files.loop, files.aclose)
        assert file.read(2 << 20) == content[10:][: 2 << 20]
        sync(files.loop, files.aclose)
        replace(web)
        file.seek(5 << 20)
        with pytest.raises(OSError, match="changed"):
            file.read(10)


def test_an_open_file_is_not_continued_by_a_replica_that_it_was_not_read_from(web, monkeypatch):
    monkeypatch.setattr(replica_sessions, "CHECKED_SECONDS", 0.0)
    content = put(web[:1])
    with fsspec.open(f"coget://{both(web)}", block_size=1 << 20) as file:
        assert file.read(10) == content[:10]
        (web[0].root / "x.bin").rename(web[0].root / "aside")
        replace(web[1:])
        file.seek(5 << 20)
        for _ in range(2):
            with pytest.raises(OSError, match=r"404|new version"):
                file.read(10)
        (web[0].root / "aside").rename(web[0].root / "x.bin")
        assert file.read(10) == content[5 << 20 :][:10]


def test_a_file_that_was_missing_for_a_moment_is_read_again(web):
    content = put(web)
    files = fsspec.filesystem("coget")
    with files.open(both(web), block_size=1 << 20) as file:
        assert file.read(10) == files.cat_file(both(web), 0, 10) == content[:10]
        for server in web:
            (server.root / "x.bin").rename(server.root / "aside")
        file.seek(5 << 20)
        for read in (lambda: file.read(10), lambda: files.cat_file(both(web), 5, 9)):
            with pytest.raises(FileNotFoundError):
                read()
        for server in web:
            (server.root / "aside").rename(server.root / "x.bin")
        assert file.read(10) == content[5 << 20 :][:10]
        assert files.cat_file(both(web), 5, 9) == content[5:9]


def test_a_replica_of_another_size_ends_the_reads(web):
    put(web)
    (web[1].root / "x.bin").write_bytes(b"short")
    files = fsspec.filesystem("coget")
    with pytest.raises(OSError, match="different files"):
        all(files.cat_file(both(web), 0, 5) for _ in count())  # until both have answered


def test_a_dead_replica_is_no_loss(web):
    content = put(web)
    with fsspec.open(f"coget://{both(web)}", block_size=1 << 20) as file:
        assert file.read(10) == content[:10]
        web[0].kill()
        file.seek(0)
        assert file.read() == content


def test_chains_work_in_both_directions(web, tmp_path):
    content = put(web)
    kept = {"cache_storage": str(tmp_path / "kept")}
    for chain in ("simplecache", "filecache", "blockcache"):
        with fsspec.open(f"{chain}::coget://{both(web)}", **{chain: kept}) as file:
            assert file.read() == content
    pytest.importorskip("aiohttp", reason="fsspec's own http is needed to read coget::http://")
    with fsspec.open(f"coget::{web[0].url('x.bin')}") as file:
        assert file.read() == content


def test_a_chain_that_loses_the_host_is_refused():
    with pytest.raises(ValueError, match="coget://file://"):
        fsspec.open("coget::file:///etc/hostname").open()


def test_options_that_would_be_ignored_are_refused():
    with pytest.raises(ValueError, match="no options of https"):
        CogetFileSystem(fo="https://a/x", target_protocol="https", target_options={"headers": {"x": "y"}})


@pytest.mark.parametrize("url", ["coget://scope:x", "Replica://a/x"])
def test_coget_does_not_ask_itself(url):
    with pytest.raises(UsageError, match="own file system"):
        BridgeSource(url, options())
    with pytest.raises(OSError, match=r"is not a URL|own file system"):
        fsspec.filesystem("coget").cat_file(f"coget://{url}")


def test_a_directory_of_a_server_can_be_listed(start_gridftp, tmp_path):
    server = start_gridftp(tmp_path / "export")
    (server.root / "a b" / "c").mkdir(parents=True)
    (server.root / "a b" / "x 1.csv").write_bytes(b"12345")
    files, top = fsspec.filesystem("coget"), server.url("a b")
    assert {each["name"]: (each["type"], each["size"] == 5) for each in files.ls(top)} == {
        f"{top}/c": ("directory", False),
        f"{top}/x%201.csv": ("file", True),
    }
    assert files.isdir(top)
    assert files.isfile(f"{top}/x%201.csv")
    assert files.ls(f"{top}/x%201.csv", detail=False) == [f"{top}/x%201.csv"]
    assert files.cat(files.glob(f"{top}/*.csv")) == {f"{top}/x%201.csv": b"12345"}
    with pytest.raises(FileNotFoundError):
        files.ls(f"{top}/none")
    below = fsspec.filesystem("replica", replicas=[server.url("")])
    assert below.find("") == ["a b/x 1.csv"]


def test_a_tree_without_end_is_refused(start_gridftp, tmp_path, monkeypatch):
    server = start_gridftp(tmp_path / "export")
    files, top = fsspec.filesystem("coget"), server.url("tree")
    deepest = (server.root / "tree").joinpath(*["d"] * DEEPEST)
    deepest.mkdir(parents=True)
    (deepest / "x").write_bytes(b"1")
    assert files.find(top) == [f"{top}/{'d/' * DEEPEST}x"]
    (deepest / "more").mkdir()
    for find in (files.find, files.du, lambda tree: files.get(tree, str(tmp_path / "got"), recursive=True)):
        with pytest.raises(OSError, match="d/more/ is more than 100 directories deep"):
            find(top)
    assert not (tmp_path / "got").exists()
    for limit, most in (("MOST_BELOW", 2), ("MOST_NAMES", 200)):
        with monkeypatch.context() as changed:
            changed.setattr(trees, limit, most)
            with pytest.raises(OSError, match="has more than"):
                files.find(top)
    assert files.find(top, maxdepth=1, withdirs=True) == [top, f"{top}/d"]


def test_a_directory_of_a_server_without_mlst_can_be_listed(tmp_path):
    with Vsftpd(tmp_path / "root", tmp_path / "run") as server:
        (server.root / "d/sub").mkdir(parents=True)
        (server.root / "d/a").write_bytes(b"12")
        (server.root / "d/sub/b").write_bytes(b"3")
        files, top = fsspec.filesystem("coget"), server.url("d")
        assert files.find(top) == [f"{top}/a", f"{top}/sub/b"]
        assert (files.isdir(f"{top}/sub"), files.isdir(f"{top}/a"), files.isfile(f"{top}/a")) == (True, False, True)


def test_datasets_of_the_broker_are_files(web, tmp_path, monkeypatch):
    content = put(web)
    with broker_in(tmp_path) as broker:
        monkeypatch.setenv("COGET_BROKER", broker.url)
        monkeypatch.setenv("COGET_BROKER_TOKEN", broker.token)
        for name, server in zip("ab", web, strict=True):
            place = {"name": name, "site": "LAB", "scheme": "http", "host": server.host, "port": server.port}
            broker.client().put("/broker/v1/sites/LAB", json={"name": "LAB"})
            broker.client().put(f"/broker/v1/endpoints/{name}", json=place)
        for name in ("lab:run/1.bin", "lab:run/2.bin"):
            asyncio.run(api.register(name, [server.url("x.bin") for server in web]))
        files = fsspec.filesystem("coget", broker=broker.url)
        assert files.cat_file("coget://lab:run/1.bin") == content
        assert files.glob("coget://lab:run/*.bin") == ["lab:run/1.bin", "lab:run/2.bin"]
        assert files.ls("", detail=False) == ["lab:run"]
        assert files.isdir("lab:run")
        assert not files.exists("lab:none")


def test_a_broker_cannot_name_urls_or_local_files_as_datasets(monkeypatch):
    """Names in a listing become paths, in which | separates URLs."""
    names = ["lab:x|file:///etc/passwd", "file:///etc/passwd", "/etc/x.meta4", "other", "lab:good"]

    async def search(*_):
        return [DatasetEntry(name, 1, {}) for name in names]

    monkeypatch.setattr(api, "search", search, raising=False)
    assert fsspec.filesystem("coget").ls("", detail=False) == ["lab:good", "other"]


async def test_it_works_in_the_caller_s_own_event_loop(web):
    content = put(web)
    files = fsspec.filesystem("coget", asynchronous=True)
    found = await asyncio.gather(*(files._cat_file(both(web), i, i + 10) for i in range(50)))
    assert found == [content[i : i + 10] for i in range(50)]
    assert (await files._info(both(web)))["size"] == SIZE
    await files.aclose()
    await files.aclose()


def test_open_files_are_limited(web, monkeypatch):
    monkeypatch.setattr(fsspec_readers, "MOST_OPEN", 2)
    names = [f"{i}.bin" for i in range(5)]
    contents = [put(web, name, 100_000) for name in names]
    files = fsspec.filesystem("coget", replicas=[server.url("") for server in web])
    for _ in range(2):
        assert [files.cat_file(name, 1, 99) for name in names] == [content[1:99] for content in contents]


async def test_few_permitted_connections_suffice_for_many_files(web, monkeypatch):
    """Idle sessions give way to the sessions of other files, and reads of one file share its session."""
    monkeypatch.setenv("COGET_CONNECTIONS", "1")
    monkeypatch.setattr(range_reader, "IDLE_SECONDS", 1000.0)
    names = [f"{i}.bin" for i in range(8)]
    contents = [put(web, name, 100_000) for name in names]
    files = fsspec.filesystem("coget", replicas=[server.url("") for server in web], asynchronous=True)
    async with asyncio.timeout(PATIENCE):
        for wanted in (names, names * 3):
            found = await asyncio.gather(*(files._cat_file(name, 1, 99) for name in wanted))
            assert found == [content[1:99] for content in contents] * (len(wanted) // len(names))
    await files.aclose()


def test_an_empty_file_is_read(web):
    put(web, size=0)
    with fsspec.open(f"coget://{both(web)}") as file:
        assert file.read() == b""


def read_in_child(pickled, expected):
    """Read in another process with a file system, and an open file, that came from this one."""
    file, names = pickle.loads(pickled)
    assert (file.read(10), file.fs.cat_file(names, 7, 20)) == expected


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_it_goes_on_in_another_process(web, method):
    content = put(web)
    with fsspec.open(f"coget://{both(web)}") as file:
        file.read(100)
        pickled = pickle.dumps((file, both(web)))
        child = get_context(method).Process(target=read_in_child, args=(pickled, (content[100:110], content[7:20])))
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
        assert file.read(10) == content[100:110]
    assert pickle.loads(pickle.dumps(file.fs)) is file.fs


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_file_system_that_is_in_use_goes_on_after_a_fork(web):
    content = put(web)
    files = fsspec.filesystem("coget")
    assert files.cat_file(both(web), 0, 5) == content[:5]
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        signal.alarm(60)
        os._exit(files.cat_file(both(web), 5, 9) != content[5:9])
    assert files.cat_file(both(web), 9, 12) == content[9:12]


def test_importing_it_does_not_import_coget(tmp_path):
    code = "import sys, coalloc.plugins.fsspec_system; print([m for m in sys.modules if m[:7] in ('coalloc', 'httpx')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert found.stdout == "['coalloc', 'coalloc.plugins', 'coalloc.plugins.fsspec_system']\n"

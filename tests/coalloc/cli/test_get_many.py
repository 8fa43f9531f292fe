"""`coget get` of lists and directories, on real servers."""

import asyncio
import json
import os
import signal
import subprocess

import pytest

from tests.support.apache import Apache
from tests.support.coget import coget, coget_process
from tests.support.nginx import Nginx
from tests.support.programs import COGET, start
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE, wait_until
from tests.support.web import answer, web_server


@pytest.fixture
def web(tmp_path):
    """A web server that lists its directories, and is slow for /slow/."""
    more = "autoindex on; location /slow/ { limit_rate 100k; }"
    with Nginx(tmp_path / "www", tmp_path / "run", more=more) as server:
        for name in ("a", "b", "c", "d"):
            (server.root / name).write_bytes(name.encode() * 5000)
        yield server


def fetch(home, *words, lines=None, **environment):
    """Run `coget get --json`; return its status and its document."""
    if lines is not None:
        (home / "list").write_text("".join(f"{line}\n" for line in lines))
        words = ("-i", "list", *words)
    done = coget(["get", "--json", "-o", "out/", *words], home, **environment)
    return done.returncode, json.loads(done.stdout), done.stderr


def held(folder):
    """Return the names in a directory."""
    return sorted(path.name for path in folder.iterdir())


def by_name(document):
    return {file["output"].rpartition("/")[2]: file for file in document["files"]}


def test_a_file_that_fails_does_not_end_the_others_and_a_summary_tells(web, home, gridftp_server):
    (gridftp_server.root / "g").write_bytes(b"gridftp")
    (home / "x.meta4").write_text(
        '<metalink xmlns="urn:ietf:params:xml:ns:metalink">'
        f'<file name="m1"><url>{web.url("c")}</url></file><file name="m2"><url>{web.url("d")}</url></file></metalink>'
    )
    lines = [
        "# what to fetch",
        f"{web.url('none1')}\t{web.url('a')}",
        f"{web.url('b')}",
        "  out=sub/b",
        "  checksum=adler32=00000001",
        "x.meta4",
        "missing.meta4",
        gridftp_server.url("g"),
        web.url("none2"),
    ]
    status, document, errors = fetch(home, lines=lines)
    assert (status, document["error"]["code"]) == (4, "files_failed")  # the most serious one
    out = home / "out"
    assert {path.name: path.read_bytes()[:1] for path in out.iterdir() if path.is_file()} == {
        "none1": b"a",
        "m1": b"c",
        "m2": b"d",
        "g": b"g",
    }
    failed = {name: file["error"]["code"] for name, file in by_name(document).items() if "error" in file}
    assert failed == {"b": "verification_failed", "line 7": "usage", "none2": "no_such_file"}
    assert "out: 4 of 7 files" in errors
    assert "coget: 3 of 7 files failed:\n" in errors
    assert "none2: http" in errors


def test_the_next_run_skips_what_is_whole_and_fetches_what_changed(web, home):
    lines = [web.url(name) for name in "abcd"]
    assert fetch(home, lines=lines)[0] == 0
    (web.root / "b").write_bytes(b"B" * 5000)  # a new version
    os.utime(web.root / "b", (1, 1))  # nginx identifies it by its time, in seconds
    (home / "out" / "c").write_bytes(b"c" * 4999 + b"!")  # written by another
    status, document, _ = fetch(home, lines=lines)
    assert status == 0
    moved = {name: sum(source["bytes"] for source in file["sources"]) for name, file in by_name(document).items()}
    assert moved == {"a": 0, "b": 5000, "c": 5000, "d": 0}
    assert all((home / "out" / name).read_bytes() == (web.root / name).read_bytes() for name in "abcd")


def test_after_a_kill_the_same_command_completes_the_rest(web, home):
    (web.root / "slow").mkdir()
    (web.root / "slow" / "big").write_bytes(bytes(range(250)) * 12000)
    (home / "list").write_text(f"{web.url('a')}\n{web.url('slow/big')}\n")
    with coget_process(["-i", "list", "-o", "out"], home) as process:
        wait_until(lambda: (home / "out" / "big.coget").exists() and (home / "out" / "a").exists())
        data = home / "out" / "big.coget" / "data"
        first = wait_until(lambda: _held(data))
        wait_until(lambda: _held(data) > first)  # the journal has the first bytes before more are written
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
    web.kill()
    lines = (home / "list").read_text().splitlines()
    with Nginx(web.root, home / "run2", port=web.port):
        status, document, _ = fetch(home, lines=lines)
    files = by_name(document)
    assert status == 0
    assert files["big"]["resumed_bytes"] > 0
    assert (home / "out" / "big").read_bytes() == (web.root / "slow" / "big").read_bytes()
    assert (home / "out" / "a").read_bytes() == (web.root / "a").read_bytes()


def _held(path):
    return path.stat().st_blocks * 512 if path.exists() else 0


def test_two_lines_of_one_name_are_refused_before_anything_is_fetched(web, home):
    status, document, errors = fetch(home, lines=[web.url("a"), web.url("b"), f"{web.url('c')}", "  out=a"])
    assert (status, document["files"], document["error"]["code"]) == (2, [], "usage")
    assert "a and a would be the same file" in errors
    assert not (home / "out" / "b").exists()


def test_standard_input_is_a_document_that_replaces_nothing_and_names_only_servers(web, home):
    (home / "out").mkdir()
    (home / "out" / "a").write_text("mine")
    (home / "secret").write_text("secret")
    (home / "x.meta4").write_text("<metalink/>")
    lines = f"{web.url('a')}\n{web.url('b')}\nfile://{home}/secret\nx.meta4\n"
    pipe = subprocess.PIPE
    command = [COGET, "get", "--json", "-i", "-", "-o", "out"]
    with start(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=home, env={"HOME": str(home)}) as process:
        document = json.loads(process.communicate(lines, timeout=PATIENCE)[0])
    failed = {name: file["error"]["code"] for name, file in by_name(document).items() if "error" in file}
    assert failed == {"a": "target_exists", "secret": "nothing_to_fetch_from", "line 4": "usage"}
    assert (home / "out" / "a").read_text() == "mine"
    assert (home / "out" / "b").exists()
    assert not (home / "out" / "secret").exists()


def test_a_directory_of_a_web_server_without_hostile_names_and_loops(web, home):
    top = web.root / "run 1"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "x?y#z").write_bytes(b"x")
    (top / "sub" / "up").symlink_to("..")
    (top / "bad\nname").write_bytes(b"bad")
    (top / "é").write_bytes(b"e")
    status, document, errors = fetch(home, "-r", web.url("run 1"))
    assert status == 2
    assert "1 of 3 files failed" in document["error"]["message"]
    assert "sub/up/ was left out: its listing is the same as that of a directory above it" in errors
    found = {str(path.relative_to(home / "out")) for path in (home / "out").rglob("*") if path.is_file()}
    assert found == {"sub/x?y#z", "é"}


def test_a_directory_that_redirects_to_a_login_page_is_not_empty(home, tmp_path):
    more = """autoindex on; location /old/ { rewrite ^/old/(.*) /top/$1 permanent; }
    location /top/private/ { return 302 /login/?back=1; }
    location /login/ { default_type text/html; return 200 "<html><form>password</form></html>"; }"""
    with Nginx(tmp_path / "www", tmp_path / "run", more=more) as server:
        for name in ("private", "empty"):
            (server.root / "top" / name).mkdir(parents=True)
        (server.root / "top" / "x").write_bytes(b"x")
        status, document, errors = fetch(home, "-r", server.url("old/"))
        assert coget(["get", "-r", server.url("top/private/")], home).returncode == 3
    assert (status, held(home / "out")) == (3, ["x"])
    assert "1 of 2 files failed" in document["error"]["message"]
    assert f"private/: it leads to {server.url('login/')}?..., which names no file" in errors


def test_a_directory_of_a_gridftp_server_and_its_copy(gridftp_server, web, home):
    for root in (gridftp_server.root / "d", web.root / "d2"):
        (root / "sub").mkdir(parents=True)
        (root / "sub" / "x").write_bytes(b"x" * 1000)
        (root / "y").write_bytes(b"y")
    (gridftp_server.root / "d" / "sub" / "up").symlink_to("..")
    done = coget(["get", "-r", f"{gridftp_server.url('d')}/", web.url("d2/")], home)
    assert done.returncode == 0
    assert "2 verified (replicas agree)" in done.stderr or "confirmed only by their own server" in done.stderr
    assert (home / "d" / "sub" / "x").read_bytes() == b"x" * 1000
    assert coget(["get", "-r", web.url("d2/none/")], home).returncode == 3


def test_directories_that_look_alike_are_no_loop_if_only_the_last_one_has_files(web, home):
    """Zarr stores arrays of several dimensions so."""
    for last in (0, 1):
        folder = web.root / "a.zarr/0/0/0/0" / str(last)
        folder.mkdir(parents=True)
        (folder / "0").write_bytes(b"chunk")
    status, document, _ = fetch(home, "-r", web.url("a.zarr"))
    assert (status, len(document["files"])) == (0, 2)


async def test_a_listing_that_breaks_off_is_no_directory(home):
    async def cut(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<html><body><a href='x'>x</a>")
        await writer.drain()
        writer.close()

    async with raw_server(cut) as port:
        done = await asyncio.to_thread(coget, ["get", "-r", f"http://127.0.0.1:{port}/d/"], home)
    assert done.returncode == 3
    assert "its listing ended too early" in done.stderr


def test_two_files_of_one_place_are_refused(web, home):
    (home / "out/b").mkdir(parents=True)
    (home / "out/a").symlink_to("b")
    lines = [web.url("a"), "  out=a/x", web.url("b"), "  out=b/x"]
    status, document, _ = fetch(home, lines=lines)
    assert (status, document["error"]["code"]) == (2, "usage")
    assert not list((home / "out/b").iterdir())


async def test_headers_do_not_go_to_servers_that_a_list_on_standard_input_names(home):
    async with web_server(lambda request: answer("404 Not Found")) as server:
        lines = f"{server.url}/x.meta4\n{server.url}/y\n"
        command = [COGET, "get", "-i", "-", "-H", "X-Secret: s3cret"]
        with start(
            command, stdin=subprocess.PIPE, text=True, cwd=home, env={**os.environ, "HOME": str(home)}
        ) as process:
            await asyncio.to_thread(process.communicate, lines, timeout=PATIENCE)
        assert len(server.heard) >= 2
        assert set(server.all("X-Secret")) == {None}


def test_a_directory_of_a_webdav_server(home, tmp_path):
    with Apache(tmp_path / "dav", tmp_path / "run-dav") as server:
        (server.root / "d/sub dir").mkdir(parents=True)
        (server.root / "d/sub dir/x%41").write_bytes(b"x" * 300_000)
        (server.root / "d/y").write_bytes(b"y")
        assert fetch(home, "-r", server.url("d"))[0] == 0
    found = {str(path.relative_to(home / "out")): path.stat().st_size for path in (home / "out").rglob("[xy]*")}
    assert found == {"sub dir/x%41": 300_000, "y": 1}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-i", "list", "ftp://a/x"], "SOURCE is for one file"),
        (["-i", "list", "-r"], "-i and -r"),
        (["-i", "list", "-o", "-"], "-o - is for one file"),
        (["-r", "--by", "+1 min", "ftp://a/x/"], "--by is for one file"),
        (["-r"], "Missing argument 'SOURCE...'"),
        (["-r", "http://a/x/?sort"], "has a query"),
        (["-i", "nothing"], "cannot read nothing: No such file"),
        (["-i", "/dev/null"], "the list names no file"),
        (["-i", "/dev/zero"], "has a line of more than"),
        (["-i", "."], "cannot read .: Is a directory"),
        (["--overwrite", "--no-clobber", "ftp://a/x"], "contradict each other"),
        (["--by", "+1 min", "--limit-rate", "1 MB/s", "ftp://a/x"], "--by makes no sense with a limited rate"),
        (["--limit-rate", "0", "ftp://a/x"], "Invalid value for '--limit-rate'"),
        ([], "Missing argument 'SOURCE...'"),
    ],
)
def test_nonsense_is_a_usage_error(words, why, capsys, monkeypatch, tmp_path):
    from coalloc.cli.main import invoke

    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").write_text("ftp://a/x\n")
    assert invoke(["get", *words]) == 2
    assert why in capsys.readouterr().err

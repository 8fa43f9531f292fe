"""Servers of all kinds for one file: any mix delivers the file, byte for byte."""

import functools
import http.server
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from coalloc.schedule.policies import NAMES
from tests.support.coget import coget, coget_process
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

NAME = "run 7%2f.root"
CONTENT = np.random.default_rng(9).bytes(10 << 20)
SLOW = "limit_rate 4m;"
"""Rate limit of nginx for downloads that must last a while."""


class Rangeless(http.server.SimpleHTTPRequestHandler):
    """A silent `python -m http.server`, which ignores ranges."""

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("export")
    (root / NAME).write_bytes(CONTENT)
    (root / "empty").touch()
    return root


@pytest.fixture(scope="module")
def servers(root: Path, tmp_path_factory, grid, alice) -> Iterator[dict]:
    """Functions from a file's name to its URL, by kind of server."""
    with ExitStack() as stack:
        ftp = stack.enter_context(GridFTPServer(root, "127.0.0.2"))
        gsi = stack.enter_context(
            GridFTPServer(root, "127.0.0.1", env=grid.server_env(grid.localhost), anonymous=False)
        )
        web = stack.enter_context(Nginx(root, tmp_path_factory.mktemp("nginx")))
        plain = stack.enter_context(
            http.server.ThreadingHTTPServer(("127.0.0.3", 0), functools.partial(Rangeless, directory=str(root)))
        )
        thread = threading.Thread(target=plain.serve_forever, args=(0.05,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(plain.shutdown)
        yield {
            "ftp": ftp.url,
            "gsiftp": lambda name: gsi.url(name, scheme="gsiftp"),
            "http": web.url,
            "rangeless": lambda name: web.url(name).replace(f"{web.host}:{web.port}", f"127.0.0.3:{plain.server_port}"),
            "file": lambda name: (root / name).as_uri(),
        }


KINDS = ["ftp", "gsiftp", "http", "rangeless", "file"]


@pytest.fixture
def fetch(servers, tmp_path, grid, alice_proxy):
    """Run coget on these kinds of servers; return its report and the file's bytes."""

    def fetch(kinds, *words, name=NAME):
        urls = [servers[kind](name) for kind in kinds]
        environment = {**grid.client_env(alice_proxy), "COGET_HISTORY": "off"}
        done = coget([*urls, *words, "--json", "--quiet", "-o", "here"], tmp_path, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert [path.name for path in tmp_path.iterdir()] == ["here"]
        return json.loads(done.stdout), (tmp_path / "here").read_bytes()

    return fetch


@pytest.mark.parametrize("strategy", NAMES)
def test_all_kinds_at_once(fetch, strategy):
    report, content = fetch(KINDS, "--strategy", strategy)
    assert content == CONTENT
    assert {source["outcome"] for source in report["sources"]} <= {"ok", "slow", "unused"}
    assert sum(source["bytes"] for source in report["sources"]) == len(CONTENT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streams", ["1", "4"])
def test_each_kind_alone(fetch, kind, streams):
    report, content = fetch([kind], "--streams", streams)
    assert content == CONTENT
    assert [source["outcome"] for source in report["sources"]] == ["ok"]
    assert report["checksum"]["basis"] == ("own word" if kind in ("ftp", "gsiftp") else "none")


@pytest.mark.parametrize("kinds", [*([kind] for kind in KINDS), KINDS], ids=[*KINDS, "all"])
def test_an_empty_file(fetch, kinds):
    report, content = fetch(kinds, name="empty")
    assert content == b""
    assert report["checksum"]["value"] == "00000001"


def test_the_tool_beside_itself(fetch):
    assert fetch(["ftp", "gsiftp"], "--engine", "globus-url-copy")[1] == CONTENT


@pytest.mark.parametrize("engine", ["gridftp", "globus-url-copy"])
def test_sources_that_the_engine_does_not_support_are_left_out(servers, fetch, tmp_path, engine):
    report, content = fetch(["http", "ftp"], "--engine", engine)
    assert content == CONTENT
    used, left_out = report["sources"]
    assert (used["url"][:4], used["outcome"], used["error"]) == ("ftp:", "ok", None)
    assert (left_out["url"][:5], left_out["outcome"], left_out["bytes"]) == ("http:", "unused", 0)
    assert f"the {engine} engine" in left_out["error"]
    words = ["plan", servers["http"](NAME), servers["ftp"](NAME), "--engine", engine]
    shares = json.loads(coget([*words, "--json"], tmp_path, COGET_HISTORY="off").stdout)["shares"]
    assert [(share["url"][:4], share["fraction"]) for share in shares] == [("ftp:", 1.0), ("http", 0.0)]
    assert f"the {engine} engine" in shares[1]["error"]
    assert "http" not in coget([*words, "--metalink"], tmp_path, COGET_HISTORY="off").stdout.partition("<file")[2]


def test_a_server_without_ranges_waits_beside_one_that_has_them(fetch):
    report, content = fetch(["rangeless", "ftp"])
    assert content == CONTENT
    assert {source["url"][:4]: source["outcome"] for source in report["sources"]} == {"http": "unused", "ftp:": "ok"}


def test_twenty_sources_two_at_a_time(servers, fetch, root, tmp_path):
    for i in range(20):
        (root / f"copy{i}").unlink(missing_ok=True)  # of an earlier run
        (root / f"copy{i}").hardlink_to(root / NAME)
    urls = [servers["ftp" if i % 2 else "http"](f"copy{i}") for i in range(20)]
    done = coget([*urls, "--max-sources", "2", "--json", "--quiet", "-o", "here"], tmp_path, COGET_HISTORY="off")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here").read_bytes() == CONTENT
    sources = json.loads(done.stdout)["sources"]
    assert sum(source["bytes"] > 0 and not source["error"] for source in sources) <= 2  # one that stalls is replaced


@pytest.fixture
def slow(root, tmp_path_factory) -> Iterator[Nginx]:
    with Nginx(root, tmp_path_factory.mktemp("slow"), more=SLOW) as server:
        yield server


def interrupt(words: list[str], home: Path, data: Path) -> str:
    """Run coget until 2 MiB of its partial file are on disk, then interrupt it; return its stdout."""
    with coget_process(words, home, COGET_HISTORY="off") as process:
        wait_until(lambda: process.poll() is not None or (data.exists() and data.stat().st_blocks * 512 > 2 << 20))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    return output


def metalink(urls: dict[str, str]) -> str:
    """Return a Metalink of these files by name, one URL each, without checksums."""
    files = "".join(f'<file name="{name}"><url>{url}</url></file>' for name, url in urls.items())
    return f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{files}</metalink>'


def test_several_files_of_a_metalink_are_gone_on_with(slow, servers, root, tmp_path):
    """Interrupted in the second file; both are in directories, and both are correct in the end."""
    urls = {"run/one": servers["ftp"](NAME), "run/b/two": slow.url(NAME)}
    (tmp_path / "all.meta4").write_text(metalink(urls))
    words = ["all.meta4", "--json", "--quiet", "-o", "new"]
    stopped = json.loads(interrupt(words, tmp_path, tmp_path / "new" / "run" / "b" / "two.coget" / "data"))
    assert stopped["error"]["code"] == "interrupted"
    assert [file["output"] for file in stopped["files"]] == ["new/run/one", "new/run/b/two"]
    done = coget(words, tmp_path, COGET_HISTORY="off")
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)["files"]
    assert one["resumed_bytes"] == len(CONTENT), "the server confirms it"
    assert two["resumed_bytes"] >= 2 << 20
    assert {path for path in (tmp_path / "new").rglob("*") if path.is_file()} == {
        tmp_path / "new" / name for name in urls
    }
    assert all((tmp_path / "new" / name).read_bytes() == CONTENT for name in urls)


def test_files_fetched_before_a_failure_are_reported(servers, tmp_path):
    urls = {"one": servers["ftp"](NAME), "two": servers["http"]("none"), "three": servers["ftp"](NAME)}
    (tmp_path / "all.meta4").write_text(metalink(urls))
    failed = coget(["all.meta4", "--json"], tmp_path, COGET_HISTORY="off")
    assert failed.returncode == 3
    document = json.loads(failed.stdout)
    assert document["error"]["code"] == "no_such_file"
    assert [(file["output"], file["size"]) for file in document["files"]] == [("one", len(CONTENT)), ("two", 0)]
    assert [source["outcome"] for file in document["files"] for source in file["sources"]] == ["ok", "failed"]
    failed = coget(["all.meta4"], tmp_path, COGET_HISTORY="off")
    assert "one existed already" in failed.stderr
    assert "coget: " in failed.stderr.splitlines()[-2]


@pytest.mark.parametrize("change", ["another", "shorter"])
def test_a_file_that_changes_between_two_runs_is_not_mixed(slow, root, tmp_path, change):
    old, new = CONTENT, CONTENT[: -1 if change == "shorter" else None][::-1]
    file = root / change
    file.write_bytes(old)
    os.utime(file, (0, 1_000_000_000))
    words = [slow.url(change), "--json", "--quiet", "-o", "here"]
    interrupt(words, tmp_path, tmp_path / "here.coget" / "data")
    file.write_bytes(new)
    done = coget(words, tmp_path, COGET_HISTORY="off")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_bytes"] == 0
    assert (tmp_path / "here").read_bytes() == new

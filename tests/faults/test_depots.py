"""Whole downloads over real depots, by the real command, with faults."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.test_real_downloads import MIB, make_file, written
from tests.support.coget import coget, coget_process, patient
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

SIZE = 48 * MIB + 5


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return make_file(tmp_path / "export" / "file", SIZE)


@pytest.fixture
def replicas(tmp_path: Path, content: bytes) -> Iterator[list[str]]:
    """URLs of one file at a GridFTP server and a web server."""
    with ExitStack() as stack:
        gridftp = stack.enter_context(GridFTPServer(tmp_path / "export"))
        web = Nginx(tmp_path / "export", tmp_path / "nginx")
        stack.callback(web.close)
        yield [gridftp.url("file"), f"http://127.0.0.1:{web.port}/file"]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[RunningDepot]]:
    with depots(tmp_path, LOOPBACK, LOOPBACK, LOOPBACK) as running:
        yield running


def route(running: list[RunningDepot]) -> str:
    return ",".join(str(each.place) for each in running)


def test_a_file_comes_over_a_chain_of_depots(replicas, three, tmp_path, content):
    words = [*replicas, "--via", route(three), "--streams", "2", "--json", "--quiet", "-o", "here"]
    done = coget(words, tmp_path, **patient(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (tmp_path / "here").read_bytes() == content
    report = json.loads(done.stdout)
    assert sum(source["bytes"] for source in report["sources"]) == SIZE
    for each in three:
        wait_until(lambda each=each: sum(line.get("down", 0) for line in each.lines) > SIZE)
        failures = {
            (line["refused"], line["destination"].partition(":")[0]) for line in each.lines if "refused" in line
        }
        assert failures <= {("refused", "127.0.0.1")}  # a data port that the server had closed again


@pytest.mark.parametrize("kind", [0, 1], ids=["gridftp", "http"])
def test_every_connection_of_a_download_goes_over_the_depot(replicas, three, tmp_path, content, kind: int):
    words = [replicas[kind], "--via", route(three[:1]), "--quiet", "-o", "here"]
    done = coget(words, tmp_path, **patient(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here").read_bytes() == content
    wait_until(lambda: sum(line.get("down", 0) for line in three[0].lines) > SIZE)


@pytest.mark.parametrize("kind", [0, 1], ids=["gridftp", "http"])
def test_a_depot_that_is_down_is_reported_once(replicas, three, tmp_path, content, kind: int):
    three[0].stop()
    words = [replicas[kind], "--via", route(three[:1]), "--quiet", "-o", "here"]
    done = coget(words, tmp_path, **patient(tmp_path))
    assert done.returncode == 0
    assert (tmp_path / "here").read_bytes() == content
    assert f"depot {three[0].place} refused the connection" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_source_may_be_reached_directly(replicas, three, tmp_path, content):
    words = [*replicas, "--via", route(three[:1]), "--via", "127.0.0.1=none", "--quiet", "-o", "here"]
    assert coget(words, tmp_path).returncode == 0
    assert (tmp_path / "here").read_bytes() == content
    assert three[0].lines == []


@pytest.mark.parametrize("hop", [0, 2])
@pytest.mark.parametrize("kind", [0, 1], ids=["gridftp", "http"])
def test_a_depot_that_dies_costs_a_moment_and_no_byte(replicas, three, tmp_path, content, hop: int, kind: int):
    words = [replicas[kind], "--via", route(three), "-o", "here"]
    with coget_process(words, tmp_path) as process:
        wait_until(lambda: written(tmp_path / "here") > 0 or process.poll() is not None)
        three[hop].stop(signal.SIGKILL)
        assert process.wait(PATIENCE) == 0
    assert (tmp_path / "here").read_bytes() == content


def test_depots_that_refuse_are_named_once(replicas, tmp_path, content):
    with depots(tmp_path, ("--destinations", "192.0.2.0/24")) as refusing:
        words = [*replicas, "--via", route(refusing), "--quiet", "-o", "here"]
        done = coget(words, tmp_path, **patient(tmp_path))
    assert done.returncode == 0
    assert (tmp_path / "here").read_bytes() == content
    assert f"depot {refusing[0].place}: this depot may not connect to 127.0.0.1" in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_the_usual_route_is_in_the_configuration(replicas, three, tmp_path, content):
    folder = tmp_path / "config" / "coget"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'via = "{route(three[:1])}"\n')
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), **patient(tmp_path)}
    assert coget([replicas[0], "--quiet", "-o", "one"], tmp_path, **environment).returncode == 0
    wait_until(lambda: sum(line.get("down", 0) for line in three[0].lines) > SIZE)
    wait_until(lambda: three[0].metric("coget_depot_sessions") == 0)  # each session writes its line when it ends
    before = len(three[0].lines)
    assert coget([replicas[0], "--via", "none", "--quiet", "-o", "two"], tmp_path, **environment).returncode == 0
    assert len(three[0].lines) == before


@pytest.mark.parametrize("text", ["a,a", "", "*", "a:b", "a:21=none", "=none", "a=b=c"])
def test_an_invalid_route_is_an_error_of_usage(tmp_path, text: str):
    done = coget(["ftp://127.0.0.1/x", "--via", text], tmp_path)
    assert done.returncode == 2
    assert "route" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("depots = 3", "`depots` in tokens.toml"),
        ('[depots."a:1"]\nticket = "t1"', '[depots."a:1"] in tokens.toml'),
        ('[depots."a:1"]\nticket = "t1"\nkey = "x"', '[depots."a:1"] in tokens.toml'),
        ('[depots."a:b"]\nticket = "t1"\nkey = "00"', "'a:b' is not HOST:PORT"),
    ],
)
def test_an_invalid_ticket_is_described(tmp_path, text: str, why: str):
    folder = tmp_path / "config" / "coget"
    folder.mkdir(parents=True)
    (folder / "tokens.toml").write_text(text)
    (folder / "tokens.toml").chmod(0o600)
    done = coget(["ftp://127.0.0.1/x", "--via", "a"], tmp_path, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert done.returncode == 2
    assert why in done.stderr
    assert 'write [depots."HOST:PORT"]' in done.stderr


def test_globus_url_copy_takes_no_route(tmp_path):
    done = coget(["ftp://127.0.0.1/x", "--via", "a", "--engine", "globus-url-copy"], tmp_path)
    assert done.returncode == 2
    assert "--via makes no sense with --engine globus-url-copy" in done.stderr

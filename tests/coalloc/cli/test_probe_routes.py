"""`coget probe --via` on real servers and depots."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.coget import coget
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx

SIZE = 3_000_000


@pytest.fixture
def two(tmp_path: Path):
    with depots(tmp_path, LOOPBACK, LOOPBACK) as running:
        yield running


@pytest.fixture
def urls(tmp_path: Path):
    """URLs of a file at a GridFTP server, and at a web server."""
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "file").write_bytes(os.urandom(SIZE))
    with GridFTPServer(tmp_path / "export") as gridftp:
        web = Nginx(tmp_path / "export", tmp_path / "nginx")
        yield [gridftp.url("file"), f"http://127.0.0.1:{web.port}/file"]
        web.close()


def configure(home: Path, running: list[RunningDepot]) -> dict[str, str]:
    """Name the depots in the user's configuration; return the environment."""
    folder = home / "config" / "coget"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f"depots = {json.dumps([str(each.place) for each in running])}\n")
    return {"XDG_CONFIG_HOME": str(home / "config")}


def test_the_direct_route_and_each_depot_are_measured(urls, two, home):
    environment = configure(home, two)
    result = coget(["probe", "--via", "auto", "--bytes", "2 MB", "--json", *urls], home, **environment)
    assert result.returncode == 0, result.stderr
    routes = json.loads(result.stdout)["routes"]
    over = ["none", *(str(each.place) for each in two)]
    assert [(each["url"], each["route"]) for each in routes] == [(url, route) for url in urls for route in over]
    assert all(each["bytes"] >= 2_000_000 and each["beginning"] >= 1 << 20 for each in routes)
    assert result.stderr.count("B/s") == len(routes)


def test_a_plan_shows_the_routes_once_they_are_known(urls, two, home):
    environment, words = configure(home, two[:1]), ["plan", "--via", "auto", urls[1]]
    unknown = coget(words, home, **environment)
    assert "which is faster is unknown: measure it with coget probe --via auto" in unknown.stdout
    assert coget(["probe", "--via", "auto", urls[1]], home, **environment).returncode == 0
    line = coget(words, home, **environment).stdout.splitlines()[-1]
    assert re.fullmatch(r".*: first .* \(.* for 1 MiB\), then also .* \(.* for 1 MiB\)", line)
    assert f"over {two[0].place}" in line
    (share,) = json.loads(coget([*words, "--json"], home, **environment).stdout)["shares"]
    assert {each["route"] for each in share["routes"]} == {"none", str(two[0].place)}
    assert "routes" in json.loads(coget(["plan", "--json", urls[1]], home).stdout)["shares"][0]


def test_a_route_that_fails_is_named(urls, two, home):
    two[0].stop()
    chain = f"{two[1].place},{two[0].place}"
    result = coget(["probe", "--via", chain, urls[1]], home)
    assert result.returncode == 0, result.stderr
    assert f"coget doctor --via {chain}" in result.stderr
    heading, direct, failed = result.stdout.splitlines()
    assert heading.split() == ["file", "route", "ready", "after", "first", "MiB", "rate"]
    assert direct.endswith("B/s")
    assert "failed" in failed


def test_probe_without_measurements_gives_status_5(servers, two, home):
    url = servers[0].url("file")
    servers[0].kill()
    result = coget(["probe", "--via", str(two[0].place), url], home)
    assert result.returncode == 5


@pytest.mark.parametrize(
    "words", [["--to", "ftp://b/"], ["--blast"], ["-o", "net.yaml"], ["--streams", "2"], ["--peers", "1"]]
)
def test_options_for_pairs_of_servers_make_no_sense(home, words: list[str]):
    result = coget(["probe", "--via", "auto", *words, "ftp://a.example/x"], home)
    assert result.returncode == 2
    assert "--via measures downloads" in result.stderr


def test_a_url_that_depots_do_not_relay_is_refused(home):
    result = coget(["probe", "--via", "auto", "sftp://a.example/x"], home)
    assert result.returncode == 2
    assert "cannot be reached over depots" in result.stderr

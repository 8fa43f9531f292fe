"""`coget collect` on real servers: its output for people and programs."""

import json
import os
import re
import signal
import time
from hashlib import sha256

import pytest

from coalloc.history.links import MeasuredLink, Pairs
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer
from tests.support.coget import REPORT_KEYS, coget, coget_process
from tests.support.depot import LOOPBACK, depots
from tests.support.fetching import random_file
from tests.support.waiting import PATIENCE, wait_until

KEYS = {
    "output",
    "size",
    "seconds",
    "method",
    "rationale",
    "planned_seconds",
    "direct_seconds",
    "there_bytes",
    "duplicate_bytes",
    "mended_bytes",
    "staged_bytes",
    "peaks",
    "files",
    "pairs",
    "gone",
    "left",
    "cleared",
    "loops",
    "guarantees",
    "unused",
}
FILE_KEYS = {"name", "output", "size", "outcome", "seconds", "checksum", "error"}
PAIR_KEYS = {"stretches", "source", "sink", "bytes", "pieces", "seconds", "rate", "best_rate", "error", "routes"}
NETWORK = """
hosts:
  a: {{url: {a}}}
  via: {{url: {via}}}
  desk:
links:
  a -> desk: 1 MB/s
  a -> via: 500 MB/s
  via -> desk: 500 MB/s
"""


@pytest.fixture
def servers(start_gridftp, tmp_path):
    """Two servers with files, and one relay between them."""
    (tmp_path / "via" / "lent").mkdir(parents=True)
    return [start_gridftp(tmp_path / name, f"127.0.0.{number}") for number, name in ((2, "a"), (3, "via"))]


@pytest.fixture
def content(servers):
    (servers[0].root / "run").mkdir()
    return {name: random_file(servers[0].root / "run" / name, size) for name, size in (("x", 3_000_000), ("y", 10))}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def network(servers, home):
    a, via = servers
    document = NETWORK.format(a=f"ftp://{a.host}:{a.port}", via=via.url("lent"))
    (home / "net.yaml").write_text(document)
    return "net.yaml"


def run(servers):
    return f"{servers[0].url('run')}/"


def test_directory_is_collected_and_a_report_printed(servers, content, home):
    result = coget(["collect", run(servers), "--to", "data"], home)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert {path.name: path.read_bytes() for path in (home / "data").iterdir()} == content
    assert re.search(r"data: 2 files, 3\.00 MB in .* \(adaptive\)", result.stderr)
    assert "2 verified" in result.stderr
    assert re.search(r"^127\.0\.0\.2:\d+ -> here +3\.00 MB", result.stderr, re.M)


def test_json_is_one_object_on_stdout(servers, content, home, network):
    result = coget(["collect", run(servers), "--to", "data", "--network", network, "--json", "--quiet"], home)
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert set(document) == KEYS
    assert all(set(file) == FILE_KEYS for file in document["files"])
    assert all(set(pair) == PAIR_KEYS for pair in document["pairs"])
    assert [file["checksum"]["verified"] for file in document["files"]] == [True, True]
    assert document["planned_seconds"] < document["direct_seconds"]
    assert document["staged_bytes"]


def test_data_between_two_servers_go_over_the_depot_of_via(start_gridftp, tmp_path, home):
    source, sink = start_gridftp(tmp_path / "a", "127.0.0.1"), start_gridftp(tmp_path / "b", "127.0.0.3")
    (source.root / "run").mkdir()
    content = random_file(source.root / "run" / "x", 3_000_000)
    words = ["collect", run([source]), "--json", "--quiet", "--to"]
    with depots(tmp_path, LOOPBACK) as (depot,):
        over = str(depot.place)
        for number, routes, taken in ((1, [over], over), (2, [over, "none"], "none")):
            via = [word for route in routes for word in ("--via", route)]
            result = coget([*words, sink.url(f"out{number}"), *via], home)
            assert result.returncode == 0, result.stderr
            assert json.loads(result.stdout)["pairs"][0]["routes"] == [taken]
            assert (sink.root / f"out{number}" / "x").read_bytes() == content
        depot.stop(signal.SIGKILL)
        result = coget([*words, sink.url("out3"), "--via", str(depot.place)], home)
    assert json.loads(result.stdout)["pairs"][0]["routes"] == ["none"]
    assert "servers connect to 127.0.0.3 directly" in result.stderr


def test_measurements_are_used_by_the_next_run(servers, content, home):
    words = ["collect", run(servers), "--json", "--quiet", "--to"]
    first, second = (json.loads(coget([*words, to], home).stdout) for to in ("one", "two"))
    assert first["direct_seconds"] is None
    assert second["direct_seconds"]


def test_the_same_command_does_nothing_again(servers, content, home):
    words = ["collect", run(servers), "--to", "data", "--json"]
    coget(words, home)
    result = coget(words, home)
    assert json.loads(result.stdout)["there_bytes"] == sum(map(len, content.values()))
    assert {file["outcome"] for file in json.loads(result.stdout)["files"]} == {"there"}


def test_an_interruption_leaves_nothing_at_servers(servers, home):
    (servers[0].root / "run").mkdir()
    large = servers[0].root / "run" / "large"
    large.touch()
    os.truncate(large, 1 << 40)
    words = ["collect", run(servers), "--to", servers[1].url("out"), "--json", "--method", "all-at-once"]
    with coget_process(words, home) as process:
        wait_until(lambda: list(servers[1].root.rglob(".large.*")))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["error"]["code"] == "interrupted"
    assert document["files"][0]["outcome"] == "missing"
    assert [path for path in servers[1].root.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["{a}run", "--to", "data"], 2, "end it with /"),
        (["{a}run/x", "{a}run/x", "--to", "data"], 2, "would both become x"),
        (["{a}run/none", "--to", "data"], 3, "none"),
        (["{a}run/x", "--to", "{a}out", "--via", "auto"], 2, "go over one or none"),
        (["{a}run/x", "--to", "{a}out", "--via", "a b"], 2, "invalid route"),
        (["{a}run/x", "--to", "data", "--method", "magic"], 2, "unknown method 'magic'"),
        (["{a}run/x", "--to", "data", "--network", "none.yaml"], 2, "cannot read none.yaml"),
        (["{a}run/x"], 2, "--to"),
        (["{a}run/x", "--to", "data", "--via", "http://x.example/"], 2, "GridFTP"),
    ],
)
def test_invalid_arguments_are_refused_with_the_reason(servers, content, home, words, status, message):
    base = servers[0].url("").rstrip("/") + "/"
    result = coget(["collect", *(word.format(a=base) for word in words)], home)
    assert result.returncode == status, result.stderr
    assert message in result.stderr
    assert not (home / "data" / "x").exists()


def measured(home, *pairs):
    """Store a measured rate between two servers in coget's history; a sink of None is this machine."""
    now = time.time() - 60
    path = home / "history.sqlite"
    Pairs(path).add(MeasuredLink(a, b, now - 10, now, 10 * rate) for a, b, rate in pairs if b)
    TransferHistory(path).add(
        PastTransfer(f"{a}/x", now - 10, now, 10 * rate, 10.0, None, 1, 1, "single", "ok")
        for a, b, rate in pairs
        if not b
    )
    return {"COGET_HISTORY": str(path)}


@pytest.mark.parametrize("staging", ["auto", "{via}"])
def test_one_file_comes_over_another_server_where_that_pays(servers, content, home, staging):
    a, via = (f"ftp://{server.host}:{server.port}" for server in servers)
    known = measured(home, (a, None, 2_000_000), (a, via, 300_000_000), (via, None, 300_000_000))
    words = [servers[0].url("run/x"), "--staging", staging.format(via=servers[1].url("lent"))]
    result = coget([*words, "--json"], home, **known)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert (home / "x").read_bytes() == content["x"]
    assert document["checksum"]["basis"] == "own word"
    assert via in {source["url"] for source in document["sources"]}  # the direct source may deliver everything
    assert set(document) == REPORT_KEYS


def test_one_file_comes_straight_where_that_is_as_good(servers, content, home):
    a, via = (f"ftp://{server.host}:{server.port}" for server in servers)
    words = [servers[0].url("run/x"), "--staging", servers[1].url("lent"), "--json", "--quiet"]
    for known in ({}, measured(home, (a, None, 300_000_000), (a, via, 300_000_000), (via, None, 300_000_000))):
        document = json.loads(coget(words, home, **known).stdout)
        assert [source["url"] for source in document["sources"]] == [words[0]]
        assert (home / "x").read_bytes() == content["x"]
        (home / "x").unlink()


@pytest.fixture
def fast_relay(servers, home):
    """Return the options and the environment with which one file comes over the second server."""
    a, via = (f"ftp://{server.host}:{server.port}" for server in servers)
    known = measured(home, (a, None, 2_000_000), (a, via, 300_000_000), (via, None, 300_000_000))
    return ["--staging", servers[1].url("lent"), "--json"], known


def test_an_existing_file_is_not_replaced_by_one_that_comes_over_another_server(servers, content, home, fast_relay):
    words, known = fast_relay
    (home / "x").write_bytes(b"mine")
    (home / "x.meta4").write_text(metalink(servers[0].url("run/x")))
    for source in ([servers[0].url("run/x"), "--no-clobber", "-o", "x"], ["x.meta4"]):
        results = [coget([*source, *more], home, **known) for more in (["--json"], words)]
        assert [json.loads(result.stdout)["error"]["code"] for result in results] == ["target_exists"] * 2
        assert (home / "x").read_bytes() == b"mine"
    assert coget(["x.meta4", "--overwrite", *words], home, **known).returncode == 0
    assert (home / "x").read_bytes() == content["x"]


def metalink(url, pieces=""):
    return (
        '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="x"><size>3000000</size>'
        f"{pieces}<url>{url}</url></file></metalink>"
    )


@pytest.mark.parametrize("right", [True, False])
def test_hashes_of_pieces_decide_also_over_another_server(servers, content, home, fast_relay, right):
    words, known = fast_relay
    parts = [content["x"][:2_000_000], content["x"][2_000_000:] if right else b""]
    hashes = "".join(f"<hash>{sha256(part).hexdigest()}</hash>" for part in parts)
    pieces = f'<pieces length="2000000" type="sha-256">{hashes}</pieces>'
    (home / "x.meta4").write_text(metalink(servers[0].url("run/x"), pieces))
    result = coget(["x.meta4", *words], home, **known)
    assert result.returncode == (0 if right else 4), result.stderr
    assert (home / "x").exists() == right
    if right:
        document = json.loads(result.stdout)
        assert document["checksum"]["basis"] == "given"
        assert [source["url"] for source in document["sources"]] == [f"ftp://{servers[1].host}:{servers[1].port}"]
        assert (home / "x").read_bytes() == content["x"]


def test_a_time_limit_is_also_for_files_that_come_over_another_server(servers, content, home, fast_relay):
    words, known = fast_relay
    slowly = ["--max-time", "2", "--limit-rate", "100 kB/s"]
    result = coget([servers[0].url("run/x"), *slowly, *words], home, **known)
    assert result.returncode == 5, result.stderr
    assert "--max-time" in result.stderr
    assert not (home / "x").exists()


def test_without_checksums_a_file_comes_over_no_other_server(servers, content, home, fast_relay):
    words, known = fast_relay
    url = servers[0].url("run/x")
    document = json.loads(coget([url, "--checksum", "none", *words], home, **known).stdout)
    assert [source["url"] for source in document["sources"]] == [url]
    assert (home / "x").read_bytes() == content["x"]

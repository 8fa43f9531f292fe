"""`coget probe` on real servers."""

import json

import pytest

from coalloc.planner.documents.yaml_scenario import read
from tests.support.broker import broker_in
from tests.support.coget import coget, patient

BRIEFLY = ["--bytes", "2 MB"]


def root(server):
    return f"ftp://{server.host}:{server.port}{server.root}/"


@pytest.fixture
def roots(servers):
    return [root(server) for server in servers]


def test_a_matrix_is_printed_and_remembered(roots, home):
    result = coget(["probe", *BRIEFLY, *roots[:2]], home)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("->") == 2
    heading, *rows = result.stdout.splitlines()
    assert heading.split("  ")[0] == "from, to"
    assert [row.split()[0].partition(":")[0] for row in rows] == ["127.0.0.2", "127.0.0.3"]
    assert all("B/s" in row for row in rows)
    later = coget(["probe", *BRIEFLY, "--to", roots[2], *roots[:2]], home)
    assert later.stdout.count("B/s") == 4  # earlier measurements are still known


def test_downloads_do_not_notice(roots, urls, home):
    before = json.loads(coget(["plan", "--json", urls[0]], home).stdout)
    assert coget(["probe", *BRIEFLY, *roots[:2]], home).returncode == 0
    assert json.loads(coget(["plan", "--json", urls[0]], home).stdout) == before
    assert coget(["history"], home).stdout == "No transfers yet.\n"


def test_the_network_can_be_had_as_yaml_and_as_json(servers, roots, home):
    result = coget(["probe", *BRIEFLY, "--blast", "--json", "-o", "net.yaml", *roots], home)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert {each["outcome"] for each in document["measured"]} == {"ok"}
    written = read((home / "net.yaml").read_text())
    assert len(written.network.links) == 6
    assert all(host.isps[0].up and host.isps[0].down for host in written.network.hosts.values())
    assert sorted(written.urls.values()) == sorted(f"ftp://{server.host}:{server.port}" for server in servers)
    assert document["network"].keys() == {"hosts", "links"}


def test_probe_without_measurements_gives_status_5(servers, roots, home):
    for server in servers[:2]:
        server.kill()
    result = coget(["probe", *roots[:2]], home)
    assert result.returncode == 5
    assert "refused the connection" in result.stderr


@pytest.mark.parametrize("words", [["--bytes", "much"], ["--seconds", "0"], ["--peers", "0"], ["ftp://a.example/y"]])
def test_invalid_arguments_are_usage_errors(home, words):
    assert coget(["probe", *words, "ftp://a.example/x"], home).returncode == 2


def test_measurements_are_reported_to_a_broker(roots, home, tmp_path):
    with broker_in(tmp_path) as broker:
        client = broker.client()
        client.put("/broker/v1/sites/LAB", json={"name": "LAB"})
        host, port = roots[1].split("/")[2].split(":")
        endpoint = {"name": "two", "site": "LAB", "scheme": "ftp", "host": host, "port": int(port)}
        assert client.put("/broker/v1/endpoints/two", json=endpoint).status_code == 200
        environment = {"COGET_BROKER": broker.url, "COGET_BROKER_TOKEN": broker.token, **patient(tmp_path)}
        assert coget(["probe", *BRIEFLY, "--blast", *roots[:2]], home, **environment).returncode == 0
        stored = client.get("/broker/v1/transfers").json()["transfers"]
    one, two = ("/".join(root.split("/")[:3]) for root in roots[:2])
    assert sorted((each["source"], each["sink"]) for each in stored) == sorted([(one, "LAB"), (two, one)])

"""Depots on a broker: registration, and tickets that real depots accept."""

import json
import time
from pathlib import Path

import httpx
import pytest

from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.tickets import key_of, read_ticket
from tests.support.broker import BrokerProcess
from tests.support.coget import coget, patient
from tests.support.depot import LOOPBACK, depots
from tests.support.gridftp import GridFTPServer

B = "/broker/v1"
SECRET = "0123456789abcdef-one"
OTHER = "0123456789abcdef-two"


async def put(admin: httpx.AsyncClient, name: str, /, **changed: object) -> httpx.Response:
    depot = {"name": name, "site": "CERN", "host": f"{name}.example", "port": 4000, "secret": SECRET, **changed}
    return await admin.put(f"{B}/depots/{name}", json=depot)


async def tickets(client: httpx.AsyncClient, route: list[str], hosts: list[str], /, **more: object) -> httpx.Response:
    return await client.post(f"{B}/depot-tickets", json={"route": route, "hosts": hosts, **more})


async def test_a_depot_is_registered_and_its_secret_never_shown(stocked, broker):
    answer = await put(stocked, "depot-a")
    assert answer.status_code == 200, answer.text
    shown = {"name": "depot-a", "site": "CERN", "host": "depot-a.example", "port": 4000, "tickets": True}
    shown["subject"] = None
    assert answer.json() == shown
    reader = await broker.client("reader")
    assert (await reader.get(f"{B}/depots")).json() == {"depots": [shown]}
    assert (await reader.get(f"{B}/depots/depot-a")).json() == shown
    audit = await stocked.get(f"{B}/audit")
    assert SECRET not in audit.text
    assert "put depot" in audit.text


async def test_a_change_keeps_the_secret(stocked):
    await put(stocked, "depot-a")
    changed = await put(stocked, "depot-a", secret=None, port=5000)
    assert (changed.json()["port"], changed.json()["tickets"]) == (5000, True)
    (issued,) = (await tickets(stocked, ["depot-a"], ["cern-1.example"])).json()["tickets"]
    assert read_ticket(issued["ticket"], SECRET.encode(), "depot-a", time.time())


async def test_a_depot_is_removed_before_its_site(stocked):
    await stocked.put(f"{B}/sites/DESY", json={"name": "DESY"})
    await put(stocked, "depot-a", site="DESY")
    refused = await stocked.delete(f"{B}/sites/DESY")
    assert (refused.status_code, "depots" in refused.text) == (409, True)
    assert (await stocked.delete(f"{B}/depots/depot-a")).status_code == 204
    assert (await stocked.delete(f"{B}/depots/depot-a")).status_code == 404
    assert (await stocked.delete(f"{B}/sites/DESY")).status_code == 204


@pytest.mark.parametrize(
    "changed",
    [
        *({"site": "NOWHERE"}, {"secret": "short"}, {"secret": "0123456789 abcdef"}, {"host": "a b"}, {"port": 0}),
        {"name": "other"},
    ],
)
async def test_an_invalid_depot_is_refused(stocked, changed):
    assert (await put(stocked, "depot-a", **changed)).status_code in (404, 422)


async def test_each_depot_of_a_route_gets_a_ticket_to_the_next_hop(stocked, broker):
    await put(stocked, "depot-a")
    await put(stocked, "depot-b", secret=OTHER)
    await put(stocked, "depot-c", secret=None)
    user = await broker.client("transfer")
    answer = await tickets(user, ["depot-a", "depot-b"], ["cern-1.example", "fnal-1.example"], minutes=5)
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["tickets"]
    assert (first["host"], first["port"]) == ("depot-a.example", 4000)
    now = time.time()
    one = read_ticket(first["ticket"], SECRET.encode(), "depot-a", now)
    two = read_ticket(second["ticket"], OTHER.encode(), "depot-b", now)
    assert [str(each) for each in one.destinations] == ["depot-b.example:4000"]
    assert [str(each) for each in two.destinations] == ["cern-1.example", "fnal-1.example"]
    assert one.user == two.user == "a-transfer"
    assert 0 < one.expires - now <= 300
    assert bytes.fromhex(first["key"]) == key_of(first["ticket"], SECRET.encode())
    with pytest.raises(DepotFailure, match="not valid"):
        read_ticket(first["ticket"], OTHER.encode(), "depot-a", now)
    (open_,) = (await tickets(user, ["depot-c"], ["cern-1.example"])).json()["tickets"]
    assert (open_["host"], open_["ticket"], open_["key"]) == ("depot-c.example", None, None)


async def test_users_reach_registered_hosts_only(stocked, broker):
    await put(stocked, "depot-a")
    user = await broker.client("curator")
    refused = await tickets(user, ["depot-a"], ["cern-1.example", "elsewhere.example"])
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert "elsewhere.example" in refused.text
    assert (await tickets(stocked, ["depot-a"], ["elsewhere.example"])).status_code == 200
    assert (await tickets(await broker.client("reader"), ["depot-a"], ["cern-1.example"])).status_code == 403


@pytest.mark.parametrize(
    ("route", "hosts", "more"),
    [
        (["nowhere"], ["cern-1.example"], {}),
        ([], ["cern-1.example"], {}),
        (["depot-a"] * 9, ["cern-1.example"], {}),
        (["depot-a"], [], {}),
        (["depot-a"], ["cern-1.example"], {"minutes": 1441}),
        (["depot-a"], ["cern-1.example"], {"client": "localhost"}),
        (["depot-a"], [f"{number}{'x' * 60}.example" for number in range(9)], {}),
    ],
)
async def test_other_requests_are_refused(stocked, route, hosts, more):
    await put(stocked, "depot-a")
    assert (await tickets(stocked, route, hosts, **more)).status_code in (404, 422)


def test_coget_gets_tickets_from_the_broker(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    options = ("--secret-file", str(secret), *LOOPBACK)
    database = f"sqlite:///{tmp_path / 'broker.sqlite'}"
    with (
        GridFTPServer(tmp_path / "export") as server,
        depots(tmp_path, (*options, "--name", "Depot-A"), (*options, "--name", "depot-b")) as running,
        BrokerProcess(database, tmp_path, "") as broker,
    ):
        (server.root / "file").write_bytes(b"x" * 1_000_000)
        admin = broker.client()
        admin.put(f"{B}/sites/S", json={"name": "S"}).raise_for_status()
        for name, each in zip(("Depot-A", "depot-b"), running, strict=True):
            depot = {"name": name, "site": "S", "host": "127.0.0.1", "port": each.place.port, "secret": SECRET}
            admin.put(f"{B}/depots/{name}", json=depot).raise_for_status()
        user = admin.post(f"{B}/tokens", json={"subject": "ann", "role": "transfer"}).json()["token"]
        named = {"COGET_BROKER": broker.url, "COGET_BROKER_TOKEN": user, **patient(tmp_path)}
        words = ["--quiet", "--via", "depot-a,depot-b", server.url("file")]
        refused = coget([*words, "-o", "one"], tmp_path, **named)
        assert refused.returncode == 0
        assert "127.0.0.1 over depots: no endpoint has this host" in refused.stderr
        assert not [line for each in running for line in each.lines if line.get("end")]
        endpoint = {"name": "e", "site": "S", "scheme": "ftp", "host": "127.0.0.1", "port": server.port}
        admin.put(f"{B}/endpoints/e", json=endpoint).raise_for_status()
        done = coget([*words, "-o", "two"], tmp_path, **named)
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / "two").read_bytes() == b"x" * 1_000_000
        for each in running:
            assert each.wait_for_line(end="closed")["user"] == "ann"
        checked = coget(["doctor", "--json", "--via", "depot-a,depot-b", server.url("file")], tmp_path, **named)
        assert checked.returncode == 0, checked.stderr
        hops = [*(str(each.place) for each in running), f"127.0.0.1:{server.port}"]
        assert [hop["place"] for hop in json.loads(checked.stdout)["routes"][0]] == hops

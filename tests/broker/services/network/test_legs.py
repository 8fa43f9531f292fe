"""Legs of depots on a broker: reports, and forwarding tables with tickets."""

import time
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from broker.models.catalogue import PORTS
from broker.schema.history import depot_legs
from broker.storage.legs import KEPT
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.tickets import key_of, read_ticket
from tests.broker.services.conftest import somebody
from tests.broker.services.network.test_depots import SECRET, put

B = "/broker/v1"
HOST = "cern-1.example"


def leg(host: str, port: int, round_trip: float, /, **changed: object) -> dict[str, object]:
    times = {"connect_seconds": round_trip, "round_trip": round_trip}
    return {"host": host, "port": port, "sessions": 1, "failures": 0, **times, **changed}


async def report(client: httpx.AsyncClient, name: str, *legs: dict[str, object]) -> httpx.Response:
    return await client.post(f"{B}/depots/{name}/legs", json={"legs": legs})


async def forwarding(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    answer = await client.get(f"{B}/depots/{name}/forwarding")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def server_port(client: httpx.AsyncClient) -> int:
    """Return the port of the endpoint at HOST."""
    endpoints = (await client.get(f"{B}/endpoints")).json()["endpoints"]
    (endpoint,) = (each for each in endpoints if each["host"] == HOST)
    return int(endpoint["port"] or PORTS[endpoint["scheme"]])


async def two_legs(admin: httpx.AsyncClient) -> int:
    """Register two depots, of which the second is near the server, and report their legs; return the server's port."""
    for name in ("depot-a", "depot-b"):
        assert (await put(admin, name, subject=f"of-{name}")).status_code == 200
    port = await server_port(admin)
    answer = await report(admin, "depot-a", leg(HOST, port, 0.2), leg("depot-b.example", 4000, 0.1))
    assert (answer.status_code, answer.json()) == (200, {"stored": 2})
    assert (await report(admin, "depot-b", leg(HOST, port, 0.1))).json() == {"stored": 1}
    return port


async def test_reports_make_a_depot_forward_over_another_one_with_a_ticket_for_it(stocked, broker):
    await two_legs(stocked)
    own = await somebody(broker, "of-depot-a")
    instructions = await forwarding(own, "depot-a")
    (entry,) = instructions["table"]
    assert (entry["destination"], entry["next"]["depot"], entry["next"]["host"]) == (HOST, "depot-b", "depot-b.example")
    ticket = read_ticket(entry["next"]["ticket"], SECRET.encode(), "depot-b", time.time())
    assert (list(map(str, ticket.destinations)), ticket.user) == ([HOST], "of-depot-a")
    assert 0 < ticket.expires - time.time() <= instructions["seconds"] <= 600
    assert bytes.fromhex(entry["next"]["key"]) == key_of(entry["next"]["ticket"], SECRET.encode())
    assert (await forwarding(stocked, "depot-b"))["table"] == []


@pytest.mark.parametrize("subject", ["other", "of-depot-b"])
async def test_others_neither_report_legs_nor_get_tables(stocked, broker, subject: str):
    await two_legs(stocked)
    for role in ("transfer", "curator"):
        other = await somebody(broker, subject, role)
        refused = await report(other, "depot-a", leg(HOST, 21, 9))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert (await other.get(f"{B}/depots/depot-a/forwarding")).status_code == 403
    assert len((await forwarding(stocked, "depot-a"))["table"]) == 1


async def test_a_depot_without_subject_is_the_admins(stocked, broker):
    await put(stocked, "depot-a", subject="robot")
    robot = await somebody(broker, "robot")
    assert (await report(robot, "depot-a")).status_code == 200
    await put(stocked, "depot-a")
    assert (await report(robot, "depot-a")).status_code == 403
    assert (await report(stocked, "depot-a")).status_code == 200
    assert (await report(stocked, "nowhere")).status_code == 404
    assert (await stocked.get(f"{B}/depots/nowhere/forwarding")).status_code == 404


async def test_legs_to_unknown_places_and_to_itself_are_not_stored(stocked):
    port = await two_legs(stocked)
    others = [("private.example", 21), (HOST, port + 1), ("depot-b.example", 1), ("depot-a.example", 4000)]
    answer = await report(stocked, "depot-a", *(leg(*each, 1) for each in others), leg(HOST.upper(), port, 1))
    assert answer.json() == {"stored": 1}


async def test_legs_without_a_recent_report_are_to_be_measured(stocked):
    port = await two_legs(stocked)
    endpoints = {each["host"] for each in (await stocked.get(f"{B}/endpoints")).json()["endpoints"]}
    places = [each.rpartition(":") for each in (await forwarding(stocked, "depot-b"))["measure"]]
    assert "depot-a.example:4000" in (await forwarding(stocked, "depot-b"))["measure"]
    assert {host for host, _, _ in places} == (endpoints | {"depot-a.example"}) - {HOST}
    assert f"{HOST}:{port}" not in (await forwarding(stocked, "depot-a"))["measure"]


async def test_a_leg_that_fails_is_used_no_more(stocked):
    await two_legs(stocked)
    assert len((await forwarding(stocked, "depot-a"))["table"]) == 1
    failed = leg("depot-b.example", 4000, 0.1, sessions=0, failures=3, connect_seconds=None)
    await report(stocked, "depot-a", failed)
    assert (await forwarding(stocked, "depot-a"))["table"] == []


async def test_a_removed_depot_is_in_no_table_and_its_reports_are_gone(stocked, broker):
    await two_legs(stocked)
    assert (await stocked.delete(f"{B}/depots/depot-b")).status_code == 204
    assert (await forwarding(stocked, "depot-a"))["table"] == []
    await put(stocked, "depot-b")
    assert (await forwarding(stocked, "depot-a"))["table"] == []


async def changed_times(broker, seconds: float) -> None:
    async with broker.factory.database.write() as connection:
        await connection.execute(sa.update(depot_legs).values(ended=depot_legs.c.ended - seconds))


async def count(broker) -> int:
    async with broker.factory.database.read() as connection:
        return (await connection.execute(sa.select(sa.func.count()).select_from(depot_legs))).scalar_one()


async def test_reports_of_more_than_a_week_ago_do_not_count_and_are_removed(stocked, broker):
    port = await two_legs(stocked)
    await changed_times(broker, 7 * 86400 + 1)
    assert (await forwarding(stocked, "depot-a"))["table"] == []
    await report(stocked, "depot-a", leg(HOST, port, 1))
    assert await count(broker) == 1


async def test_a_bounded_number_of_reports_of_each_leg_is_kept(stocked, broker):
    port = await two_legs(stocked)
    for _ in range(3):
        await report(stocked, "depot-a", *[leg(HOST, port, 1)] * (KEPT // 2))
    assert await count(broker) == KEPT + 2


@pytest.mark.parametrize(
    "wrong",
    [
        *({"host": "a/b"}, {"port": 0}, {"port": 65536}, {"sessions": -1}, {"sessions": 2**31}, {"failures": True}),
        *({"connect_seconds": -1}, {"round_trip": 1e10}, {"loss": 1.5}, {"rate": 0}, {"rate": 1e16}, {"more": 1}),
    ],
)
async def test_a_malformed_report_is_refused(stocked, wrong: dict[str, object]):
    await put(stocked, "depot-a")
    assert (await report(stocked, "depot-a", leg(HOST, 21, 1, **wrong))).status_code == 422


async def test_very_many_legs_are_refused(stocked):
    await put(stocked, "depot-a")
    assert (await report(stocked, "depot-a", *[leg(HOST, 21, 1)] * 257)).status_code == 422


@pytest.mark.parametrize("host", ["a..b", "x.-y", "y" * 64 + ".example", "[::::]", "ftp.example."])
async def test_an_endpoint_at_an_odd_host_stops_no_table(stocked, host: str):
    port = await two_legs(stocked)
    endpoint = {"name": "odd", "site": "CERN", "scheme": "ftp", "host": host, "port": 2121}
    assert (await stocked.put(f"{B}/endpoints/odd", json=endpoint)).status_code == 200
    answer = await report(stocked, "depot-a", leg(host, 2121, 0.2), leg(HOST, port, 0.2))
    known = host == "ftp.example."
    assert (answer.status_code, answer.json()) == (200, {"stored": 1 + known})
    instructions = await forwarding(stocked, "depot-b")
    assert all(HostPort.parse(place) for place in instructions["measure"])
    assert ("ftp.example:2121" in instructions["measure"]) == known
    assert len((await forwarding(stocked, "depot-a"))["table"]) == 1


async def test_a_closed_port_of_a_host_is_no_reason_for_another_depot(stocked):
    for name in ("depot-a", "depot-b"):
        await put(stocked, name, subject=f"of-{name}")
    port = await server_port(stocked)
    endpoint = {"name": "web", "site": "CERN", "scheme": "https", "host": HOST, "port": 443}
    assert (await stocked.put(f"{B}/endpoints/web", json=endpoint)).status_code == 200
    closed = leg(HOST, port, 1, sessions=0, failures=3, connect_seconds=None, round_trip=None)
    await report(stocked, "depot-a", closed, leg(HOST, 443, 0.02), leg("depot-b.example", 4000, 0.1))
    await report(stocked, "depot-b", leg(HOST, 443, 0.02))
    assert (await forwarding(stocked, "depot-a"))["table"] == []


async def test_tables_of_others_depots_are_in_the_audit_log(stocked, broker):
    await two_legs(stocked)
    await forwarding(await somebody(broker, "of-depot-a"), "depot-a")
    await forwarding(stocked, "depot-a")
    log = (await stocked.get(f"{B}/audit")).json()
    assert [each["subject"] for each in log["entries"] if each["action"] == "get forwarding table"] == ["a-admin"]

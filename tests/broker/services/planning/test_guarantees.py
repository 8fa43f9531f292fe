"""Promised finish times: what several users are promised on one link never exceeds it."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import sqlalchemy as sa

from broker.schema.guarantees import guarantee_shares, guarantees
from broker.services.planning import guarantees as rules
from tests.broker.services.conftest import somebody
from tests.support.broker import BrokerProcess
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until

PROMISES = "/broker/v1/guarantees"
MB = 1_000_000
RATE = 10 * MB
ONLY_ONE = 50 * RATE
"""Bytes of a promise for 100 s that leaves too little for a second one of that size."""


def _transfers(source: str, sink: str, count: int = 30) -> list[dict]:
    now = time.time()
    times = [now - 1000 + 20 * i for i in range(count)]
    same = {"source": source, "sink": sink, "bytes": 10 * RATE}
    return [{**same, "id": f"{source}-{sink}-{at}", "started": at, "ended": at + 10} for at in times]


@pytest.fixture
async def links(broker, stocked) -> httpx.AsyncClient:
    """An admin's client of a broker that knows the links of two endpoints to FNAL, at 10 MB/s each."""
    for source in ("cern-1", "cern-2"):
        assert (await stocked.post("/broker/v1/transfers", json=_transfers(source, "FNAL"))).status_code == 200
        await stocked.get("/broker/v1/forecasts", params={"source": source, "sink": "FNAL"})
    await broker.settled()
    return stocked


async def ask(client: httpx.AsyncClient, size: int = ONLY_ONE, seconds: float = 100.0, **more) -> httpx.Response:
    wanted = {"bytes": size, "sources": ["cern-1"], "sink": "FNAL", "by": time.time() + seconds, **more}
    return await client.post(PROMISES, json=wanted)


async def changed(broker, number: int, **values) -> None:
    async with broker.factory.database.write() as connection:
        await connection.execute(sa.update(guarantees).where(guarantees.c.id == number).values(values))


async def test_a_promise_names_its_probability_times_and_shares(links, broker):
    ann = await somebody(broker, "ann")
    answer = await ask(ann)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["outcome"], made["owner"], made["sink"]) == ("open", "ann", "FNAL")
    assert made["chance"] == made["chance_now"] >= 0.95
    (share,) = made["shares"]
    assert share["source"] == "ftp://cern-1.example"
    assert share["rate"] == pytest.approx(RATE / 2, rel=0.05)
    assert share["since"] == made["made_at"] < made["t50"] < made["t95"] < made["by"]
    assert made["expires_at"] == pytest.approx(made["made_at"] + rules.LEASE)
    assert (await ann.get(f"{PROMISES}/{made['id']}")).json() == made


async def test_the_second_user_of_a_link_is_told_what_would_hold(links, broker):
    ann, bob = await somebody(broker, "ann"), await somebody(broker, "bob")
    assert (await ask(ann)).status_code == 201
    answer = await ask(bob)
    assert answer.status_code == 409, answer.text
    refused = answer.json()
    assert refused["error"]["code"] == "not_guaranteed"
    assert 0 < refused["chance"] < 0.95
    assert refused["sources"] == ["cern-1"]
    assert refused["earliest"] > time.time() + 100
    assert (await ask(bob, by=refused["earliest"])).status_code == 201
    assert (await ask(await somebody(broker, "cat"), by=refused["earliest"])).status_code == 409
    assert (await ask(bob, sources=["cern-2"])).status_code == 201
    listed = (await bob.get(PROMISES)).json()["guarantees"]
    assert [each["outcome"] for each in listed] == ["open", "open", "refused"]
    page = (await bob.get(PROMISES, params={"limit": 2})).json()
    assert (await bob.get(PROMISES, params={"before": page["next"]})).json()["guarantees"] == listed[2:]


async def test_a_second_source_is_used_if_one_is_not_enough(links, broker):
    made = (await ask(links, size=120 * RATE, sources=["cern-1", "gsiftp://cern-2.example:2811/x"])).json()
    assert [each["source"] for each in made["shares"]] == ["ftp://cern-1.example", "gsiftp://cern-2.example"]
    assert sum(each["rate"] for each in made["shares"]) == pytest.approx(1.2 * RATE, rel=0.05)


async def test_a_finish_that_others_may_prevent_has_no_time(links):
    assert (await ask(links, size=84 * RATE, sure=0.5)).status_code == 201
    made = (await ask(links, size=10 * RATE, sure=0.5)).json()
    assert (made["t50"] < made["by"], made["t95"]) == (True, None)


async def test_users_reach_their_own_promises_only(links, broker):
    ann, bob = await somebody(broker, "ann"), await somebody(broker, "bob", "curator")
    made = (await ask(ann)).json()
    one = f"{PROMISES}/{made['id']}"
    assert [
        (await bob.get(one)).status_code,
        (await bob.post(f"{one}/progress", json={"bytes_left": 0})).status_code,
        (await bob.post(f"{one}/ended")).status_code,
        (await bob.delete(one)).status_code,
        (await bob.get(PROMISES, params={"owner": "ann"})).status_code,
        (await bob.get(PROMISES, params={"owner": "*"})).status_code,
    ] == [404] * 4 + [403] * 2
    assert (await bob.get(PROMISES)).json()["guarantees"] == []
    assert (await ann.get(one)).json() == made
    for owner in ("ann", "*"):
        assert (await links.get(PROMISES, params={"owner": owner})).json()["guarantees"] == [made]
    assert (await links.delete(one)).status_code == 204
    assert (await ann.get(one)).json()["outcome"] == "given up"
    assert "close guarantee" in (await links.get("/broker/v1/audit")).text


async def test_a_repeated_request_promises_nothing_twice(links, broker):
    ann, bob = await somebody(broker, "ann"), await somebody(broker, "bob")
    wanted = {"request_id": str(uuid4()), "by": time.time() + 100}
    made = await ask(ann, **wanted)
    assert (await ask(ann, **wanted)).json() == made.json()
    assert (await ask(bob, **wanted)).status_code == 409  # another user's id is another request


async def test_the_share_of_a_silent_client_is_free_and_the_client_cannot_have_it_back(links, broker):
    ann, bob = await somebody(broker, "ann"), await somebody(broker, "bob")
    made = (await ask(ann)).json()
    await changed(broker, made["id"], expires_at=made["made_at"])
    assert (await ann.get(f"{PROMISES}/{made['id']}")).json()["outcome"] == "expired"
    assert (await ask(bob)).status_code == 201
    late = await ann.post(f"{PROMISES}/{made['id']}/progress", json={"bytes_left": 1})
    assert (late.status_code, "expired" in late.text) == (409, True)
    assert (await ann.post(f"{PROMISES}/{made['id']}/ended")).json()["outcome"] == "expired"
    assert (await ask(ann)).status_code == 409


async def test_a_report_renews_the_promise_and_returns_what_is_not_needed(links, broker):
    ann = await somebody(broker, "ann")
    made = (await ask(ann)).json()
    await changed(broker, made["id"], expires_at=made["made_at"] + 1000)
    answer = await ann.post(f"{PROMISES}/{made['id']}/progress", json={"bytes_left": 5 * RATE})
    now = answer.json()
    assert (answer.status_code, now["outcome"], now["bytes_left"]) == (200, "open", 5 * RATE)
    assert now["chance_now"] > now["chance"] == made["chance"]
    assert now["expires_at"] < made["made_at"] + 1000
    assert now["shares"][0]["rate"] < made["shares"][0]["rate"] / 5
    assert (await ask(await somebody(broker, "bob"))).status_code == 201
    worse = (await ann.post(f"{PROMISES}/{made['id']}/progress", json={"bytes_left": 90 * ONLY_ONE})).json()
    assert worse["bytes_left"] == ONLY_ONE
    assert worse["shares"] == now["shares"]  # a report never takes what others may have been promised
    assert (await links.put("/broker/v1/ignored-subjects", json={"subject": "a-admin"})).status_code < 300
    await broker.settled()
    assert (await ask(ann, sources=["cern-2"])).status_code == 409  # nothing is known any more
    blind = await ann.post(f"{PROMISES}/{made['id']}/progress", json={"bytes_left": 1})
    assert (blind.status_code, blind.json()["chance_now"]) == (200, worse["chance_now"])


async def test_a_promise_is_kept_or_broken_by_the_brokers_clock(links, broker):
    ann = await somebody(broker, "ann")
    kept, late, given_up = [(await ask(ann, size=RATE)).json()["id"] for _ in range(3)]
    ended = (await ann.post(f"{PROMISES}/{kept}/ended")).json()
    assert (ended["outcome"], ended["ended_at"] <= ended["by"]) == ("kept", True)
    assert (await ann.post(f"{PROMISES}/{kept}/ended")).json() == ended
    assert (await ann.delete(f"{PROMISES}/{kept}")).status_code == 204
    await changed(broker, late, deadline=time.time() - 1)
    assert (await ann.get(f"{PROMISES}/{late}")).json()["outcome"] == "broken"
    assert (await ann.post(f"{PROMISES}/{late}/ended")).json()["outcome"] == "broken"
    assert (await ann.delete(f"{PROMISES}/{given_up}")).status_code == 204
    assert (await ann.get(f"{PROMISES}/{kept}")).json() == ended
    listed = (await ann.get(PROMISES)).json()["guarantees"]
    assert [each["outcome"] for each in listed] == ["given up", "broken", "kept"]


async def test_rows_of_a_user_are_bounded(links, broker, monkeypatch):
    monkeypatch.setattr(rules, "MOST_OPEN", 2)
    monkeypatch.setattr(rules, "MOST_CLOSED", 3)
    ann, bob = await somebody(broker, "ann"), await somebody(broker, "bob")
    first = (await ask(ann, size=1000)).json()["id"]
    assert (await ask(ann, size=1000)).status_code == 201
    assert (await ask(ann, size=1000)).status_code == 429
    other = (await ask(bob, size=1000)).json()["id"]
    await bob.delete(f"{PROMISES}/{other}")
    await ann.delete(f"{PROMISES}/{first}")
    for _ in range(5):
        assert (await ask(ann, size=1000 * RATE)).status_code == 409
    assert len((await ann.get(PROMISES)).json()["guarantees"]) == 1 + 3
    assert len((await bob.get(PROMISES)).json()["guarantees"]) == 1


async def test_the_capacity_of_an_endpoint_bounds_all_its_links(links, broker):
    endpoint = (await links.get("/broker/v1/endpoints/cern-1")).json()
    await links.put("/broker/v1/endpoints/cern-1", json={**endpoint, "capacity": 0.7 * RATE})
    assert (await links.post("/broker/v1/transfers", json=_transfers("cern-1", "CERN"))).status_code == 200
    await ask(links, size=1, sink="CERN")
    await broker.settled()
    assert (await ask(links)).status_code == 201
    refused = await ask(links, sink="CERN")
    assert (refused.status_code, refused.json()["chance"] < 0.5) == (409, True)
    assert (await ask(links, sink="CERN", size=10 * RATE)).status_code == 201


async def test_datasets_have_sizes_and_endpoints(links, broker):
    ann = await somebody(broker, "ann")
    wanted = {"files": ["run1:2024/a.root"], "sink": "FNAL", "by": time.time() + 1000}
    made = await ann.post(PROMISES, json=wanted)
    assert made.status_code == 201, made.text
    assert made.json()["bytes"] == 1_000_000_000
    assert made.json()["shares"][0]["source"] in ("ftp://cern-1.example", "gsiftp://cern-2.example")
    assert (await ann.post(PROMISES, json={**wanted, "files": ["run1:nothing"]})).status_code == 404
    for name, size in (("run1:empty", 0), ("run1:vast", 2**63 - 1)):
        await links.put(f"/broker/v1/datasets/{name}", json={"name": name, "size": size})
        await links.put("/broker/v1/replicas", json={"dataset": name, "endpoint": "cern-1"})
    assert (await ann.post(PROMISES, json={**wanted, "files": ["run1:empty"]})).status_code == 201
    assert (await ann.post(PROMISES, json={**wanted, "files": ["run1:vast"]})).status_code == 413


async def test_requests_that_are_not_valid_are_refused(links):
    changes = [
        *({"sure": 0.4}, {"sure": 1.0}, {"bytes": 0}, {"bytes": 2**63}, {"sources": []}, {"sources": ["cern-1"] * 17}),
        *({"sources": ["nowhere"]}, {"sources": ["ftp://[::1"]}, {"sources": ["ftp://a\u0000b"]}, {"by": 1.0}),
        *({"files": ["run1:2024/a.root"]}, {"by": time.time() + 40 * 86_400}, {"owner": "ann"}),
    ]
    for change in changes:
        answer = await ask(links, **change)
        assert answer.status_code == 422, f"{change}: {answer.text}"


async def test_nothing_is_promised_on_links_without_history(stocked):
    answer = await ask(stocked)
    assert (answer.status_code, "nothing is known" in answer.text) == (409, True)


async def test_promises_that_are_asked_for_at_once_do_not_add_up(links, broker):
    people = [await somebody(broker, f"user-{i}") for i in range(6)]
    answers = await asyncio.gather(*(ask(each) for each in people))
    assert sorted(each.status_code for each in answers) == [201] + [409] * 5


def test_brokers_on_one_database_promise_a_link_once_and_a_killed_one_blocks_it_for_minutes_only(
    server: Postgres, tmp_path: Path
):
    database = server.create()
    with BrokerProcess(database, tmp_path) as one, BrokerProcess(database, tmp_path, one.token) as two:
        clients = [one.client(), two.client()]
        assert clients[0].post("/broker/v1/transfers", json=_transfers("ftp://s.example", "HERE")).status_code == 200
        for client in clients:
            wait_until(lambda client=client: _forecast(client) == pytest.approx(RATE, rel=0.01))
        wanted = {"bytes": ONLY_ONE, "sources": ["ftp://s.example"], "sink": "HERE", "by": time.time() + 100}
        for _ in range(2):
            statuses = _at_once([lambda client=client: client.post(PROMISES, json=wanted) for client in clients * 3])
            assert sorted(statuses) == [201] + [409] * 5
            (made,) = [each for each in clients[0].get(PROMISES).json()["guarantees"] if each["outcome"] == "open"]
            clients[0].delete(f"{PROMISES}/{made['id']}")
        engine = sa.create_engine(database)
        waiting = threading.Thread(target=_ignoring, args=(lambda: clients[1].post(PROMISES, json=wanted),))
        waiting.start()
        wait_until(lambda: _open_shares(engine))
        two.process.kill()
        waiting.join()
        assert clients[0].post(PROMISES, json=wanted).status_code == 409
        with engine.begin() as connection:
            connection.execute(sa.update(guarantees).where(guarantees.c.outcome.is_(None)).values(expires_at=1.0))
        assert clients[0].post(PROMISES, json=wanted).status_code == 201
        engine.dispose()


def _forecast(client: httpx.Client) -> float:
    known = client.get("/broker/v1/forecasts", params={"source": "ftp://s.example", "sink": "HERE"}).json()
    return known["rate"]["p50"] if known["rate"] else 0.0


def _open_shares(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        joined = sa.select(sa.func.count()).select_from(guarantees.join(guarantee_shares))
        return connection.execute(joined.where(guarantees.c.outcome.is_(None))).scalar_one()


def _ignoring(work: Callable[[], object]) -> None:
    with suppress(httpx.TransportError):
        work()


def _at_once(requests: list[Callable[[], httpx.Response]]) -> list[int]:
    """Return the statuses of requests that are sent at the same time."""
    together, statuses = threading.Barrier(len(requests)), []

    def send(request: Callable[[], httpx.Response]) -> None:
        together.wait()
        statuses.append(request().status_code)

    threads = [threading.Thread(target=send, args=(each,)) for each in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses

"""Limits per request and per user: bodies, rows per hour, and the most expensive requests together."""

import asyncio
import json

import pytest

from broker.config.settings import Settings, configured
from broker.dependencies.bodies import MOST_VALUES
from broker.errors import Invalid
from broker.middleware import FEW
from tests.broker.conftest import running
from tests.support.broker import broker_in
from tests.support.effort import LONG, effort
from tests.support.hostile import REFUSALS, Siege, children, resident, seated
from tests.support.waiting import until

JSON = {"Content-Type": "application/json"}
MB = 1 << 20
USERS = effort(2, 8)


async def test_a_body_is_as_long_as_its_path_needs_and_refused_before_it_is_read(admin):
    asked = []

    async def body():
        asked.append(1)
        yield b"{"

    for path, most in (("/broker/v1/sites/X", FEW), ("/v2/api/clients", FEW), ("/broker/v1/plans", 24 << 20)):
        method = "PUT" if "sites" in path else "POST"
        headers = {**JSON, "Content-Length": str(most + 1)}
        answer = await admin.request(method, path, content=body(), headers=headers)
        assert answer.status_code == 413, answer.text
        assert str(most) in answer.text


@pytest.mark.parametrize("value", [b"1,", b"{},", b"[],"])
@pytest.mark.parametrize("path", ["/transfers", "/plans", "/replicas/resolve"])
async def test_a_body_has_a_limited_number_of_values(admin, value, path):
    answer = await admin.post(f"/broker/v1{path}", content=b"[" + value * MOST_VALUES + b"1]", headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


async def test_a_large_body_is_refused_like_a_small_one(admin):
    wrong = [{"id": f"x{i}", "source": 1} for i in range(5_000)]
    for count in (1, 5_000):
        answer = await admin.post("/broker/v1/transfers", json=wrong[:count])
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid"), answer.text
    twice = b'[{"source": "a", "source": "b"}' + b", {}" * 50_000 + b"]"
    answer = await admin.post("/broker/v1/transfers", content=twice, headers=JSON)
    assert answer.status_code == 422
    assert "twice" in answer.text
    answer = await admin.post("/broker/v1/transfers", content=b"[" * 100_000, headers=JSON)
    assert answer.status_code == 400


async def test_users_add_so_much_an_hour_and_admins_as_they_like(database):
    async with running(Settings(database, added_per_hour=10)) as broker:
        user, curator, admin = [await broker.client(role) for role in ("transfer", "curator", "admin")]

        def reports(begin, count):
            return [
                {"id": f"q{i}", "source": "ftp://a.example", "sink": "S", "started": 1, "ended": 2, "bytes": 1}
                for i in range(begin, begin + count)
            ]

        names = "".join(json.dumps({"name": f"n:{i}"}) + "\n" for i in range(11))
        assert (await user.post("/broker/v1/transfers", json=reports(0, 10))).status_code == 200
        answer = await user.post("/broker/v1/transfers", json=reports(10, 5))
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_requests")
        assert 1700 <= int(answer.headers["Retry-After"]) <= 1801
        answer = await curator.post("/broker/v1/import", content=names)
        assert answer.status_code == 413
        assert "send at most 10 rows at a time" in answer.text
        assert (await admin.post("/broker/v1/transfers", json=reports(10, 50))).status_code == 200
        assert (await admin.post("/broker/v1/import", content=names)).status_code == 200


def test_the_hours_quota_is_read_from_the_file(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text("[limits]\nadded_per_hour = 5\n")
    assert configured(Settings(), file).added_per_hour == 5
    file.write_text("")
    assert configured(Settings(), file).added_per_hour == Settings().added_per_hour
    for wrong in ("0", "-1", "true", "1.5", '"many"'):
        file.write_text(f"[limits]\nadded_per_hour = {wrong}\n")
        with pytest.raises(Invalid, match="limits"):
            configured(Settings(), file)
    file.write_text("limits = 5\n")
    with pytest.raises(Invalid, match="limits"):
        configured(Settings(), file)


@pytest.mark.long
async def test_the_worst_requests_of_several_users_are_refused_and_memory_is_given_back(tmp_path):
    """The long form sends full-size requests for minutes; tests.benchmarks.hostile also measures times."""
    with broker_in(tmp_path) as broker:
        client = broker.client()
        for name in ("S", "T"):
            client.put(f"/broker/v1/sites/{name}", json={"name": name}).raise_for_status()
        users = []
        for i in range(USERS):
            asked = {"subject": f"mallory{i}", "role": "curator", "site": "S"}
            token = client.post("/broker/v1/tokens", json=asked).json()["token"]
            users.append((token, seated(broker.url, token, tmp_path)))
        siege = Siege(broker.url, users, scale=1.0 if LONG else 0.02)
        sending = asyncio.create_task(asyncio.to_thread(siege.run, 180) if LONG else asyncio.to_thread(siege.all_once))
        most = 0
        while not sending.done():
            most = max(most, resident(broker.process.pid))
            await asyncio.wait([sending], timeout=0.1)
        statuses = await sending
        refused = {answer for answer in statuses if answer[1] >= 400}
        defects = {answer for answer in refused if answer[1] not in REFUSALS | {403, 404}}
        assert not defects, (defects, [each for each in broker.events() if "exception" in each])
        assert {413, 422} & {status for _, status in refused}
        assert most < 1024 * MB
        assert client.get("/healthz").status_code == 200
        await until(lambda: not children(broker.process.pid))

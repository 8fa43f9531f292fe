"""Authorization: rights of each role, and that every route declares its rule."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import httpx
import pytest
from fastapi.routing import APIRoute

from broker.config.settings import Settings
from broker.dependencies.route_policies import Guarded, RoutePolicy
from broker.errors import Unauthenticated
from broker.models.callers import ROLES, NewToken
from broker.models.tasks import Item, NewTask
from broker.services.auth.tokens import hashed
from broker.storage.tokens import TokenStore
from tests.broker.conftest import Broker, running
from tests.support.waiting import until

WRITES = [
    ("PUT", "/broker/v1/sites/X", {"name": "X"}, "curator"),
    ("DELETE", "/broker/v1/sites/none", None, "curator"),
    ("PUT", "/broker/v1/datasets/x", {"name": "x"}, "curator"),
    ("POST", "/broker/v1/import", None, "curator"),
    ("POST", "/broker/v1/replicas/bad", {"dataset": "x", "endpoint": "y", "reason": "z"}, "transfer"),
    ("POST", "/broker/v1/transfers", [], "transfer"),
    ("GET", "/broker/v1/datasets", None, "reader"),
    ("GET", "/broker/v1/tokens", None, "admin"),
    ("POST", "/broker/v1/tokens", {"subject": "x"}, "admin"),
    ("GET", "/broker/v1/audit", None, "admin"),
]


def _routes(routes: list) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif inner := getattr(route, "original_router", None):
            yield from _routes(inner.routes)


async def test_every_route_declares_its_policy(broker):
    routes = list(_routes(broker.app.routes))
    assert len(routes) > 20
    for route in routes:
        policies = [each.call for each in route.dependant.dependencies if isinstance(each.call, RoutePolicy)]
        assert len(policies) == 1, f"{route.path} declares {len(policies)} policies"
        assert isinstance(route, Guarded), f"{route.path} reads bodies before it asks"


async def test_every_documented_path_requires_a_token(broker):
    open_paths = {"/healthz", "/readyz", "/metrics", "/ga4gh/drs/v1/service-info"}
    nobody = broker.with_headers({})
    for path, methods in (await nobody.get("/openapi.json")).json()["paths"].items():
        for method in methods:
            answer = await nobody.request(method, path.replace("{", "").replace("}", ""))
            assert (answer.status_code == 401) == (path not in open_paths), f"{method} {path}: {answer.status_code}"


@pytest.mark.parametrize(("method", "path", "body", "least"), WRITES)
async def test_a_role_may_what_it_may_and_no_more(broker, method, path, body, least):
    for role in ROLES:
        client = await broker.client(role)
        answer = await client.request(method, path, json=body)
        allowed = ROLES.index(role) >= ROLES.index(least)
        assert (answer.status_code != 403) == allowed, answer.text
        if not allowed:
            assert answer.json()["error"]["code"] == "forbidden"
            assert least in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer cogetb_nothing"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer a b c"},
        {"X-Forwarded-User": "admin", "X-Rucio-Account": "root"},
    ],
)
async def test_a_request_without_a_valid_token_gets_401_and_a_remedy(broker, headers):
    answer = await broker.with_headers(headers).get("/broker/v1/datasets")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.json()["error"]["remedy"]


@pytest.mark.parametrize("path", ["/broker/v1/sites/X", "/broker/v1/datasets/x"])
async def test_no_body_is_read_before_the_role_is_checked(broker, path):
    read = False

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read = True
        yield b"[" * 100_000

    reader = await broker.client("reader")
    for client, status in (
        (broker.with_headers({}), 401),
        (broker.with_headers({"Authorization": "Bearer cogetb_nobody"}), 401),
        (reader, 403),
    ):
        assert (await client.put(path, content=body())).status_code == status
        assert not read
    assert (await (await broker.client("curator")).put(path, content=body())).status_code in (400, 422)
    assert read


async def test_a_revoked_token_is_worth_nothing(broker, admin):
    issued = (await admin.post("/broker/v1/tokens", json={"subject": "ann", "role": "reader"})).json()
    ann = broker.with_headers({"Authorization": f"Bearer {issued['token']}"})
    assert (await ann.get("/broker/v1/whoami")).json()["subject"] == "ann"
    assert (await admin.delete(f"/broker/v1/tokens/{issued['id']}")).status_code == 204
    assert (await ann.get("/broker/v1/whoami")).status_code == 401
    assert (await admin.delete(f"/broker/v1/tokens/{issued['id']}")).status_code == 404


async def test_a_token_expires(broker, monkeypatch):
    issued = await broker.factory.tokens.issue("tests", NewToken(subject="ann", days=1))
    ann = broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    assert (await ann.get("/broker/v1/whoami")).status_code == 200
    later = time.time() + 86_401
    monkeypatch.setattr("broker.services.auth.tokens.time.time", lambda: later)
    assert (await ann.get("/broker/v1/whoami")).status_code == 401


async def test_an_expired_token_is_not_believed_a_moment_longer(broker, monkeypatch):
    now = time.time()
    monkeypatch.setattr("broker.services.auth.tokens.time.time", lambda: now)
    issued = await broker.factory.tokens.issue("tests", NewToken(subject="ann", days=2 / 86_400))
    ann = broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    assert (await ann.get("/broker/v1/whoami")).status_code == 200
    now += 2
    assert (await ann.get("/broker/v1/whoami")).status_code == 401


async def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_remembered(broker, admin, monkeypatch):
    made = (await admin.post("/broker/v1/tokens", json={"subject": "ann", "role": "reader"})).json()
    read, go_on, reading = TokenStore.bearer, asyncio.Event(), asyncio.Event()

    async def slowly(self, key, now):
        found = await read(self, key, now)
        if key == hashed(made["token"]):
            reading.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(TokenStore, "bearer", slowly)
    ann = broker.with_headers({"Authorization": f"Bearer {made['token']}"})
    early = asyncio.create_task(ann.get("/broker/v1/whoami"))
    await reading.wait()
    assert (await admin.delete(f"/broker/v1/tokens/{made['id']}")).status_code == 204
    go_on.set()
    await early
    assert (await ann.get("/broker/v1/whoami")).status_code == 401


async def test_tokens_that_a_revoked_token_issued_are_listed_and_end_on_request(broker, admin):
    async def issue(by: httpx.AsyncClient, subject: str, role: str) -> tuple[int, httpx.AsyncClient]:
        made = (await by.post("/broker/v1/tokens", json={"subject": subject, "role": role})).json()
        return made["id"], broker.with_headers({"Authorization": f"Bearer {made['token']}"})

    number, mallory = await issue(admin, "mallory", "admin")
    friend, eve = await issue(mallory, "eve", "admin")
    third, bob = await issue(eve, "bob", "reader")
    answer = await admin.delete(f"/broker/v1/tokens/{number}")
    assert [each["id"] for each in answer.json()["tokens"]] == [friend, third]
    assert (await mallory.get("/broker/v1/whoami")).status_code == 401
    assert (await bob.get("/broker/v1/whoami")).status_code == 200
    answer = await admin.delete(f"/broker/v1/tokens/{friend}", params={"issued": True})
    assert [each["subject"] for each in answer.json()["tokens"]] == ["bob"]
    for gone in (eve, bob):
        assert (await gone.get("/broker/v1/whoami")).status_code == 401
    actions = [each["thing"] for each in (await admin.get("/broker/v1/audit")).json()["entries"]]
    assert f"{third}, issued with {friend}" in actions


@pytest.mark.parametrize(
    ("method", "path", "document"),
    [
        ("POST", "/broker/v1/tokens", {"subject": "friend", "role": "admin"}),
        ("PUT", "/broker/v1/sites/CERN", {"name": "CERN"}),
        ("PUT", "/broker/v1/sites/CERN", {"name": "CERN", "description": "x" * 100_000}),
    ],
    ids=["token", "site", "large"],
)
@pytest.mark.parametrize("headers", [{}, {"If-Match": "*"}], ids=["any", "matching"])
async def test_a_token_that_is_revoked_while_a_body_arrives_changes_nothing(
    broker, admin, method, path, document, headers
):
    thief = await broker.factory.tokens.issue("tests", NewToken(subject="mallory", role="admin"))
    content, begun, rest = json.dumps(document).encode(), asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield content[:5]
        begun.set()
        await rest.wait()
        yield content[5:]

    about = {"Authorization": f"Bearer {thief.token}", "Content-Type": "application/json", **headers}
    sent = {**about, "Content-Length": str(len(content))}
    slow = asyncio.create_task(broker.with_headers({}).request(method, path, content=slowly(), headers=sent))
    await begun.wait()
    answer = await admin.delete(f"/broker/v1/tokens/{thief.id}", params={"issued": True})
    rest.set()
    assert (answer.status_code, (await slow).status_code) == (204, 401)
    subjects = [each["subject"] for each in (await admin.get("/broker/v1/tokens")).json()["tokens"]]
    assert "friend" not in subjects
    assert (await admin.get("/broker/v1/sites/CERN")).status_code == 404


async def test_a_token_that_another_process_has_revoked_issues_none(broker):
    """This process may still accept it, from its cache."""
    tokens = broker.factory.tokens
    thief = await tokens.issue("tests", NewToken(subject="mallory", role="admin"))
    await tokens.revoke("tests", thief.id)
    with pytest.raises(Unauthenticated):
        await tokens.issue("mallory", NewToken(subject="friend", role="admin"), thief.id)
    assert "friend" not in {each.subject for each in await tokens.all()}


async def _waiting(broker: Broker, owner: str) -> str:
    """A task for workers of a site without workers."""
    new = NewTask(
        owner=owner,
        kind="DELETE",
        submission_id=uuid4(),
        source=uuid4(),
        deadline=time.time() + 3600,
        queue="ELSEWHERE",
        items=(Item(source="/x"),),
    )
    return (await broker.factory.tasks.submit(new)).task


async def test_the_stream_of_a_revoked_token_ends_at_its_next_beat(broker, admin, monkeypatch):
    issued = await broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer"))
    number = await _waiting(broker, "ann")
    monkeypatch.setattr("broker.services.tasks.watching.HEARTBEAT", 0.05)
    ann = broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    stream = asyncio.create_task(ann.get(f"/broker/v1/tasks/{number}/progress"))
    await until(lambda: broker.factory.watching._watched)
    assert not stream.done()
    assert (await admin.delete(f"/broker/v1/tokens/{issued.id}")).status_code == 204
    assert (await stream).status_code == 200  # it has expired


async def test_tokens_are_never_listed_nor_stored(broker, admin):
    issued = (await admin.post("/broker/v1/tokens", json={"subject": "ann"})).json()["token"]
    listed = await admin.get("/broker/v1/tokens")
    assert issued not in listed.text
    assert {"ann", "a-admin"} <= {token["subject"] for token in listed.json()["tokens"]}
    audit = await admin.get("/broker/v1/audit")
    assert issued not in audit.text
    assert audit.json()["entries"][0]["action"] == "issue token"


async def test_anonymous_reading_is_a_choice(database):
    async with running(Settings(database, anonymous=True)) as broker:
        nobody = broker.with_headers({})
        assert (await nobody.get("/broker/v1/datasets")).status_code == 200
        assert (await nobody.put("/broker/v1/sites/X", json={"name": "X"})).status_code == 403


async def test_too_many_requests_get_429_with_a_retry_time(database):
    async with running(Settings(database, requests_per_second=5)) as broker:
        reader, other = await broker.client("reader"), await broker.client("transfer")
        answers = [await reader.get("/broker/v1/whoami") for _ in range(30)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert refused[0].headers["Retry-After"] == "1"
        assert (await other.get("/broker/v1/whoami")).status_code == 200


async def test_too_many_wrong_tokens_get_429_with_a_retry_time(broker: Broker):
    reader, wrong = await broker.client("reader"), broker.with_headers({"Authorization": "Bearer cogetb_wrong"})
    statuses = [(await wrong.get("/broker/v1/whoami")).status_code for _ in range(40)]
    assert statuses == [401] * 30 + [429] * 10
    for kind in ("cogetb_other", "a.b.c", "x"):
        refused = await wrong.get("/v0.10/task_list", headers={"Authorization": f"Bearer {kind}"})
        assert (refused.status_code, 0 < int(refused.headers["Retry-After"]) <= 60) == (429, True)
    assert (await reader.get("/broker/v1/whoami")).status_code == 200  # from the same address
    assert (await broker.with_headers({}).get("/broker/v1/whoami")).status_code == 401  # no token is not a wrong one


async def test_a_body_that_is_too_long_is_refused_before_it_is_read(database):
    async with running(Settings(database, largest_body=10_000)) as broker:
        admin: httpx.AsyncClient = await broker.client("admin")
        answer = await admin.put("/broker/v1/sites/X", content=b" " * 20_000)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        assert (await admin.post("/broker/v1/import", content=b"\n" * 20_000)).status_code == 200
        answer = await admin.put("/broker/v1/datasets/x/import", content=b" " * 20_000)
        assert answer.status_code == 413

"""Every route with every principal, from the table in `matrix`."""

import re
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa
from fastapi import APIRouter
from fastapi.routing import iter_route_contexts

from broker.config.settings import Settings
from broker.dependencies.route_policies import Guarded, Open, checked
from broker.models.callers import ROLES, NewToken, Role
from broker.models.identities import identity
from broker.models.oauth import ALL, KNOWN, TIMER, TRANSFER, VIEW_CONSENTS, VIEW_IDENTITIES, VIEW_IDENTITY_SET
from broker.schema.access import tokens
from broker.services.auth.attempts import Attempts
from broker.services.auth.tokens import hashed
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.broker.conftest import Broker, running
from tests.broker.handlers.matrix import rules
from tests.broker.oauth.conftest import Program, by_server
from tests.broker.reports.conftest import Sitting
from tests.support.effort import LONG

SOMETHING = "00000000-0000-4000-8000-000000000000"
NEEDED = {
    "named": {"openid"},
    "identities": {"openid", VIEW_IDENTITIES, VIEW_IDENTITY_SET},
    "consents": {"openid", VIEW_CONSENTS, VIEW_IDENTITY_SET},
}
AUTH = {scope for scope, server in KNOWN.items() if server == "auth.globus.org"}


class Principal(NamedTuple):
    """The principal of a request.

    :param role: role of the token; None for no token
    :param scopes: scopes of the token; None for a token that an admin issued, which has all
    """

    name: str
    headers: dict[str, str]
    role: Role | None
    scopes: frozenset[str] | None = None
    seated: bool = False

    def expected(self, rule: str) -> int:
        """Return the status; 200 for all but refusals."""
        if rule == "open":
            return 200
        if rule.startswith("seat:"):
            return 303 if not self.seated else self._ranked(rule.removeprefix("seat:"), 200)
        if self.role is None or self.seated:
            return 401
        if rule in NEEDED:
            return self._scoped(AUTH, NEEDED[rule])
        if rule.startswith("timer:"):
            wrong = self._scoped({TIMER}, {TIMER})
            return self._ranked(rule.removeprefix("timer:"), 200) if wrong == 200 else wrong
        wrong = self._scoped({ALL, "monitor_ongoing"}, {ALL})
        if wrong != 200:
            return wrong
        if rule == "issued":
            return self._ranked("admin", 200 if self.scopes is None else 403)
        return self._ranked(rule, 200)

    def _scoped(self, server: set[str], needed: set[str]) -> int:
        if self.scopes is None or self.scopes & needed:
            return 200
        return 403 if self.scopes & server else 401

    def _ranked(self, role: str, then: int) -> int:
        assert self.role is not None
        return then if ROLES.index(self.role) >= ROLES.index(role) else 403  # type: ignore[arg-type]


def _bearing(name: str, token: str, role: Role | None, scopes: set[str] | None = None) -> Principal:
    known = None if scopes is None else frozenset(scopes)
    return Principal(name, {"Authorization": f"Bearer {token}"}, role, known)


async def _issued(broker: Broker, role: Role, subject: str = "") -> str:
    return (await broker.factory.tokens.issue("tests", NewToken(subject=subject or f"a-{role}", role=role))).token


async def _principals(broker: Broker) -> list[Principal]:
    """Tokens of all kinds; each useful one stays valid to the end."""
    found = [Principal("anonymous", {}, None), _bearing("unknown", "cogetb_nothing", None)]
    secrets = {role: await _issued(broker, role) for role in ROLES}
    found += [_bearing(f"issued {role}", secret, role) for role, secret in secrets.items()]
    made, _ = await broker.factory.clients.make("tests", "made", None)
    program = Program(broker, made.id, None)
    for role in ROLES:
        token = (await program.login(await _issued(broker, role), scope=ALL))[TRANSFER]["access_token"]
        found.append(_bearing(f"login {role}", token, role, {ALL}))
        program.browser.cookies.clear()
    for scope, server in KNOWN.items():
        token = (await program.login(secrets["admin"], scope=scope))[server]["access_token"]
        found.append(_bearing(f"login {scope}", token, "admin", {scope}))
    both = await program.login(secrets["admin"], scope=f"openid email {ALL}")
    found.append(_bearing("login both", both[TRANSFER]["access_token"], "admin", {ALL}))
    old = (await program.login(secrets["admin"], scope=ALL))[TRANSFER]["access_token"]
    await _changed(broker, old, scopes="urn:globus:auth:scope:transfer.api.globus.org:monitor_ongoing")
    found.append(_bearing("from before, of an unknown scope", old, "admin", {"monitor_ongoing"}))
    refresh = both[TRANSFER]["refresh_token"]
    cookie = next(each.value or "" for each in program.browser.cookies.jar if each.name == "coget-login")
    code = await program.code(secrets["admin"])
    found += [_bearing(n, s, None) for n, s in (("refresh", refresh), ("cookie", cookie), ("code", code))]
    return found + await _strangers(broker, secrets["admin"]) + await _gone(broker) + await _seated(broker)


async def _strangers(broker: Broker, admin: str) -> list[Principal]:
    """Clients: one that registered itself, and a service."""
    registered, secret = await broker.factory.clients.register("stranger", "192.0.2.1")
    strange = (await Program(broker, registered.id, secret).login(admin, scope=ALL))[TRANSFER]["access_token"]
    service, known = await broker.factory.clients.make("tests", "robot", "admin")
    given = await Program(broker, service.id, known).ask(grant_type="client_credentials", scope=ALL)
    own = by_server(given.json())[TRANSFER]["access_token"]
    return [
        _bearing("login by a client that registered itself", strange, "curator", {ALL}),
        _bearing("service", own, "admin", {ALL}),
    ]


async def _gone(broker: Broker) -> list[Principal]:
    expired, revoked = await _issued(broker, "admin", "late"), await _issued(broker, "admin", "former")
    await _changed(broker, expired, expires_at=1.0)
    await _changed(broker, revoked, revoked_at=1.0)
    return [_bearing("expired", expired, None), _bearing("revoked", revoked, None)]


async def _seated(broker: Broker) -> list[Principal]:
    found = []
    for role in ROLES:
        sitting = Sitting(broker)
        await sitting.login(await _issued(broker, role), "/reports/tasks")
        cookie = {"Cookie": f"coget-session={sitting.cookie('coget-session')}"}
        found.append(Principal(f"session {role}", cookie, role, seated=True))
    ended = Principal("session that ended", dict(cookie), None)
    await broker.factory.sessions.end(sitting.cookie("coget-session"))
    return [*found[:-1], ended]


async def _changed(broker: Broker, token: str, **values: object) -> None:
    async with broker.factory.database.write() as connection:
        await connection.execute(sa.update(tokens).where(tokens.c.hash == hashed(token)).values(values))


def _found(broker: Broker) -> set[tuple[str, str]]:
    contexts = iter_route_contexts(broker.app.routes)
    return {
        (method, str(each.path)) for each in contexts if each.path != "/openapi.json" for method in each.methods or ()
    }


@pytest.fixture
async def alone(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'broker.sqlite'}"
    upgrade(addressed(url))
    async with running(Settings(url, requests_per_second=1e9)) as started:
        yield started


async def test_every_route_has_a_row_and_every_row_a_route(alone):
    assert _found(alone) == set(rules())


def _tried(who: Principal, method: str, path: str) -> bool:
    """Return whether `make test` tries this case: all without a token, and a fixed twentieth of the others."""
    return LONG or who.name == "anonymous" or zlib.crc32(f"{who.name} {method} {path}".encode()) % 20 == 0


@pytest.mark.long
async def test_every_principal_at_every_route(alone, monkeypatch):
    monkeypatch.setattr("broker.services.tasks.watching.LONGEST", 0.0)  # streams end at once
    alone.app.state.wrong_tokens = Attempts(1_000_000, 60)  # otherwise more would get 429
    principals = await _principals(alone)
    wrong = []
    for who in principals:
        client = alone.with_headers(who.headers)
        for (method, path), rule in rules().items():
            if rule == "open" and who.name != "anonymous":
                continue  # these routes ignore tokens
            if not _tried(who, method, path):
                continue
            one = str(identity(f"a-{who.role}")) if rule == "consents" else SOMETHING
            answer = await client.request(method, re.sub(r"\{[^}]+\}", one, path))
            kept = answer.headers.get("Cache-Control", "")
            assert "no-store" in kept or (rule == "open" and "immutable" in kept), f"{method} {path}: {kept}"
            expected = who.expected(rule)
            refused = answer.status_code in (401, 403) or "/reports/login" in answer.headers.get("Location", "")
            same = answer.status_code == expected if expected != 200 else rule == "open" or not refused
            if not same or answer.status_code >= 500:
                wrong.append(f"{who.name}: {method} {path} ({rule}): {answer.status_code}, expected {expected}")
    assert not wrong, "\n".join(wrong)


def test_a_route_without_policy_is_no_application():
    bare, silent = APIRouter(), APIRouter(route_class=Guarded)

    @bare.get("/bare")
    async def one(caller: Open) -> None: ...

    with pytest.raises(RuntimeError, match="/bare"):
        checked(bare.routes, ())
    with pytest.raises(RuntimeError, match="declares 0 policies"):

        @silent.get("/silent")
        async def two() -> None: ...

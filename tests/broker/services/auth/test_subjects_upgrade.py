"""Users of several identity providers, before and after the upgrade to subjects with the whole issuer."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import alembic.command
import httpx
import pytest
import sqlalchemy as sa

from broker.config.settings import Settings, configured
from broker.errors import BrokerError
from broker.models.callers import NewToken
from broker.models.identities import identity
from broker.models.oauth import ALL, AUTH, TRANSFER
from broker.models.subjects import Foreign
from broker.services.auth.tokens import hashed
from broker.storage import migration
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.broker.conftest import Broker, running
from tests.support.broker import PROGRAM
from tests.support.issuing import AUDIENCE, Realms
from tests.support.nginx import Nginx
from tests.support.programs import run

ALONE = "localhost"
"""Hosts with one issuer; 127.0.0.1 has two."""


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realms]:
    folder = tmp_path_factory.mktemp("realms")
    with Nginx(folder / "root", folder / "run") as nginx:
        yield Realms(nginx, "cms", "atlas", "alone")


@pytest.fixture
def config(realms: Realms, tmp_path: Path) -> Path:
    issuers = [realms.url("cms"), realms.url("atlas"), realms.url("alone", ALONE)]
    text = '[[issuer]]\nurl = "{}"\naudience = ["{}"]\nroles = {{ use = "transfer" }}\nalgorithms = ["ES256"]\n'
    file = tmp_path / "broker.toml"
    file.write_text("".join(text.format(each, AUDIENCE) for each in issuers) + '[network]\nallow = ["127.0.0.0/8"]\n')
    return file


class Old:
    """A database as the previous version leaves it."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._tables = sa.MetaData()
        self._tables.reflect(connection)

    def add(self, table: str, **values: Any) -> None:
        """Insert a row with these values, and defaults for the rest."""
        columns = [each for each in self._tables.tables[table].columns if not each.nullable and not each.primary_key]
        usual = {each.name: "" if isinstance(each.type, sa.Text) else 0 for each in columns if not each.server_default}
        usual |= {each.name: False for each in columns if isinstance(each.type, sa.Boolean)}
        known = {name: value for name, value in usual.items() if name not in values}
        self._connection.execute(sa.insert(self._tables.tables[table]).values({**known, **values}))

    def user(self, subject: str, folder: Path, *, kind: str = "login") -> None:
        """Create a user with a token of each kind, a bookmark, a collection, a task, and grants."""
        now, mine = time.time(), f"{subject}-"
        self.add("tokens", hash=hashed(f"cogetb_{mine}first"), subject=subject, role="transfer", kind=kind)
        parent = self._connection.execute(sa.text("SELECT max(id) FROM tokens")).scalar()
        client = str(uuid4())
        self.add("clients", id=client, name="a program", made_by="root", created_at=now)
        for name, server, scopes in (("access", TRANSFER, ALL), ("auth", AUTH, "openid"), ("refresh", TRANSFER, ALL)):
            columns = {"kind": "refresh" if name == "refresh" else "access", "server": server, "scopes": scopes}
            given = {"client_id": client, "parent_id": parent, "expires_at": now + 9e5, "login_at": now}
            self.add(
                "tokens", hash=hashed(f"cogetb_{mine}{name}"), subject=subject, role="transfer", **columns, **given
            )
        self.add("bookmarks", id=str(uuid4()), owner=subject, name="mine", collection_id=str(uuid4()), path="/")
        tasks = {"id": str(uuid4()), "submission_id": str(uuid4()), "kind": "DELETE", "status": "ACTIVE"}
        self.add("tasks", owner=subject, source=str(uuid4()), label="mine", options="{}", deadline=now + 9e5, **tasks)
        self.rule(f"own {identity(subject)}", subject, folder)
        self.rule(f"by id {identity(subject)}", "root", folder, str(identity(subject)))
        self.rule(f"by name {identity(subject)}", "root", folder, subject)

    def rule(self, name: str, owner: str, folder: Path, *principals: str) -> None:
        """Create a collection and its grants."""
        number, now = str(uuid4()), time.time()
        self.add("collections", id=number, name=name, owner=owner, kind="local", base=str(folder), created_at=now)
        for each in principals:
            rule = {"id": str(uuid4()), "collection_id": number, "principal_type": "identity", "permissions": "rw"}
            self.add("access_rules", principal=each, path="/", created_at=now, **rule)


def _upgraded(database: str, folder: Path, config: Path, *subjects: str, kind: str = "login") -> str:
    """Return the upgrade's output on a database with these users."""
    with migration._connected(addressed(database)) as connection:
        alembic.command.upgrade(migration._config(connection), "0011")
        old = Old(connection)
        for each in subjects:
            old.user(each, folder, kind=kind)
    return _said("upgrade", "--config", str(config), "--database", database)


def _said(*words: str, status: int = 0) -> str:
    """Return the command's output without a terminal."""
    done = run([PROGRAM, *words], stdin=subprocess.DEVNULL, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def _bearing(broker: Broker, token: str) -> httpx.AsyncClient:
    return broker.with_headers({"Authorization": f"Bearer {token}"})


async def _shared(broker: Broker, folder: Path) -> str:
    """Create a collection for everyone."""
    admin, shared = await broker.client("admin"), {"name": "shared", "kind": "local", "base": str(folder)}
    made = await admin.put("/broker/v1/collections/shared", json=shared)
    rule = {"principal_type": "all_authenticated_users"}
    assert (await admin.post("/broker/v1/collections/shared/rules", json=rule)).status_code == 201
    return str(made.json()["id"])


async def _has(client: httpx.AsyncClient) -> set[str]:
    """Return a user's own data, as the user sees them."""
    whose = {each["name"] for each in (await client.get("/v0.10/bookmark_list")).json()["DATA"]}
    whose |= {each["label"] for each in (await client.get("/v0.10/task_list")).json()["DATA"]}
    seen = (await client.get("/broker/v1/collections")).json()["collections"]
    return whose | {each["name"].rpartition(" ")[0] for each in seen}


EVERYTHING = {"mine", "own", "by id", "by name"}


async def test_an_unambiguous_subject_keeps_its_uuid_tokens_and_grants(empty_database, tmp_path, config, realms):
    old, new = f"alice@{ALONE}", f"alice@{realms.url('alone', ALONE)}"
    output = _upgraded(empty_database, tmp_path, config, old)
    assert "locked" not in output
    settings = Settings(empty_database, public_url="https://broker.example")
    async with running(configured(settings, config)) as broker:
        for token in (realms.token("alone", "alice", ALONE), f"cogetb_{old}-access"):
            alice = _bearing(broker, token)
            assert (await alice.get("/broker/v1/whoami")).json()["subject"] == new
            assert await _has(alice) == EVERYTHING
        (task,) = (await alice.get("/v0.10/task_list")).json()["DATA"]
        assert (task["owner_id"], task["owner_string"], task["username"]) == (str(identity(old)), new, old)
        info = (await _bearing(broker, f"cogetb_{old}-auth").get("/v2/oauth2/userinfo")).json()
        assert (info["sub"], info["preferred_username"]) == (str(identity(old)), old)
        admin = await broker.client("admin")
        issued = await admin.post("/broker/v1/tokens", json={"subject": old, "role": "transfer"})
        newcomer = _bearing(broker, issued.json()["token"])
        assert await _has(newcomer) == set()
        assert (await newcomer.get("/v2/oauth2/userinfo")).json()["sub"] != info["sub"]


async def test_a_subject_known_only_by_a_uuid_in_a_rule_keeps_it(empty_database, tmp_path, config, realms):
    with migration._connected(addressed(empty_database)) as connection:
        alembic.command.upgrade(migration._config(connection), "0011")
        old = Old(connection)
        for subject in (f"carol@{ALONE}", f"ca_rol@{ALONE}", "carol@127.0.0.1"):
            old.rule(subject.replace("@", " at "), "root", tmp_path, str(identity(subject)))
    _said("upgrade", "--config", str(config), "--database", empty_database)
    async with running(configured(Settings(empty_database), config)) as broker:
        admin = await broker.client("admin")
        issued = await admin.post("/broker/v1/tokens", json={"subject": f"carol@{ALONE}", "role": "transfer"})
        tokens = [issued.json()["token"], realms.token("cms", "carol"), realms.token("alone", "ca_rol", ALONE)]
        for token in (*tokens, realms.token("alone", "ca rol", ALONE)):
            assert (await _bearing(broker, token).get("/broker/v1/collections")).json()["collections"] == []
        carol = _bearing(broker, realms.token("alone", "carol", ALONE))
        (seen,) = (await carol.get("/broker/v1/collections")).json()["collections"]
        assert seen["name"] == f"carol at {ALONE}"
        assert (await carol.get("/v2/oauth2/userinfo")).json()["sub"] == str(identity(f"carol@{ALONE}"))


async def test_an_ambiguous_subject_is_locked_until_an_admin_assigns_it(empty_database, tmp_path, config, realms):
    old, cms = "alice@127.0.0.1", f"alice@{realms.url('cms')}"
    output = _upgraded(empty_database, tmp_path, config, old)
    assert f"{old}  several issuers are at 127.0.0.1" in output
    assert cms in output
    settings = configured(Settings(empty_database), config)
    async with running(settings) as broker:
        for token in ("first", "access"):
            assert (await _bearing(broker, f"cogetb_{old}-{token}").get("/broker/v1/whoami")).status_code == 401
        page = await broker.with_headers({}).post(
            "/v2/oauth2/token", data={"grant_type": "refresh_token", "refresh_token": f"cogetb_{old}-refresh"}
        )
        assert page.status_code in (400, 401)
        people = {name: _bearing(broker, realms.token(name, "alice")) for name in ("cms", "atlas")}
        for client in people.values():
            assert await _has(client) == set()
        admin = await broker.client("admin")
        answer = await admin.post("/broker/v1/tokens", json={"subject": old})
        assert (answer.status_code, "locked" in answer.json()["error"]["message"]) == (403, True)
    assert old in _said("subject", "list", "--database", empty_database)
    _said("subject", "assign", old, cms, "--database", empty_database)
    assert _said("subject", "list", "--database", empty_database) == ""
    async with running(settings) as broker:
        whose = {name: _bearing(broker, realms.token(name, "alice")) for name in ("cms", "atlas")}
        assert await _has(whose["cms"]) == EVERYTHING
        assert await _has(whose["atlas"]) == set()
        assert (await _bearing(broker, f"cogetb_{old}-access").get("/broker/v1/whoami")).json()["subject"] == cms
        info = (await _bearing(broker, f"cogetb_{old}-auth").get("/v2/oauth2/userinfo")).json()
        assert (info["sub"], info["preferred_username"]) == (str(identity(old)), cms)


async def test_assigning_an_old_name_keeps_what_the_new_subject_owns(empty_database, tmp_path, config, realms):
    old, cms = "alice@127.0.0.1", f"alice@{realms.url('cms')}"
    _upgraded(empty_database, tmp_path, config, old)
    settings = configured(Settings(empty_database), config)
    async with running(settings) as broker:
        new = {"name": "mine", "endpoint_id": await _shared(broker, tmp_path), "path": "/new/"}
        alice = _bearing(broker, realms.token("cms", "alice"))
        assert (await alice.post("/v0.10/bookmark", json=new)).status_code < 300
    assert "1 rows stay" in _said("subject", "assign", old, cms, "--database", empty_database)
    assert cms in _said("subject", "list", "--database", empty_database)
    async with running(settings) as broker:
        alice = _bearing(broker, realms.token("cms", "alice"))
        assert await _has(alice) == EVERYTHING | {""}
        (bookmark,) = (await alice.get("/v0.10/bookmark_list")).json()["DATA"]
        assert bookmark["path"] == "/new/"


async def test_a_name_that_was_chosen_here_is_assigned_to_itself(empty_database, tmp_path, config):
    old = f"robot@{ALONE}"
    assert "an admin issued a token" in _upgraded(empty_database, tmp_path, config, old, kind="token")
    _said("subject", "assign", old, old, "--database", empty_database)
    async with running(configured(Settings(empty_database), config)) as broker:
        robot = _bearing(broker, f"cogetb_{old}-first")
        assert (await robot.get("/broker/v1/whoami")).json()["subject"] == old
        assert await _has(robot) == EVERYTHING


@pytest.mark.sampled(2)
@pytest.mark.parametrize("old", ["anonymous", "broker"])
async def test_reserved_subjects_are_locked_and_nobodys_until_they_are_assigned(empty_database, tmp_path, config, old):
    assert f"{old}  the name is reserved" in _upgraded(empty_database, tmp_path, config, old, kind="token")
    async with running(configured(Settings(empty_database, anonymous=True), config)) as broker:
        assert (await _bearing(broker, f"cogetb_{old}-first").get("/broker/v1/whoami")).status_code == 401
        assert await _has(broker.with_headers({})) == set()
    _said("subject", "assign", old, "nobody-else", "--database", empty_database)
    async with running(configured(Settings(empty_database, anonymous=True), config)) as broker:
        assert await _has(_bearing(broker, f"cogetb_{old}-first")) == EVERYTHING
        assert await _has(broker.with_headers({})) == set()


REFUSED = [
    ("alice@127.0.0.1", "broker", "is reserved"),
    ("alice@127.0.0.1", "a b", "is not up to 200 letters"),
    ("alice@127.0.0.1", "alice@HTTPS://iam.example/", "has the form of a subject of an issuer"),
    ("alice@127.0.0.1", "a lice@https://iam.example/", "is not up to 200 letters"),
    ("alice@127.0.0.1", "a_lice@localhost", "is locked as well"),
    ("bob", "ann", "is not locked"),
]


async def test_invalid_assignments_are_refused(tmp_path, config):
    database = f"sqlite:///{tmp_path / 'old.sqlite'}"
    _upgraded(database, tmp_path, config, "alice@127.0.0.1", "a_lice@localhost")
    async with running(Settings(database)) as broker:
        for old, new, why in REFUSED:
            with pytest.raises(BrokerError, match=why):
                await broker.factory.identities.assign("tests", old, new)
    _said("subject", "assign", "bob", "ann", "--database", database, status=2)


async def test_work_of_a_locked_subject_waits(tmp_path, config):
    from broker.storage.lanes import LaneStore

    database = f"sqlite:///{tmp_path / 'old.sqlite'}"
    _upgraded(database, tmp_path, config, "alice@127.0.0.1", "ann")
    engine = sa.create_engine(database)
    with engine.begin() as connection:
        old = Old(connection)
        for number in connection.execute(sa.text("SELECT id FROM tasks")).scalars().all():
            old.add("work", id=None, task_id=number, key="x", kind="remove", state="pending", source="/x", details="{}")
    engine.dispose()
    async with running(configured(Settings(database), config)) as broker, broker.factory.database.read() as connection:
        waiting = await LaneStore(connection).candidates([""], time.time())
        assert {each.owner for each in waiting} <= {"ann"}


@pytest.mark.parametrize("sub", ["", "x" * 256, "\u00e9" * 128])
async def test_a_token_with_an_invalid_sub_is_refused_with_the_reason(database, config, realms, sub):
    async with running(configured(Settings(database), config)) as broker:
        answer = await _bearing(broker, realms.token("cms", sub)).get("/broker/v1/whoami")
        assert (answer.status_code, "its sub" in answer.json()["error"]["message"]) == (401, True)


async def test_people_of_two_issuers_of_one_host_have_nothing_in_common(database, config, realms, tmp_path):
    async with running(configured(Settings(database), config)) as broker:
        seen, shared = {}, await _shared(broker, tmp_path)
        for realm in ("cms", "atlas"):
            for sub in ("alice", "a lice", "a_lice", "x" * 200, "x" * 201):
                client = _bearing(broker, realms.token(realm, sub))
                subject = (await client.get("/broker/v1/whoami")).json()["subject"]
                assert Foreign.read(subject) == (sub, realms.url(realm))
                me = (await client.get("/v2/oauth2/userinfo")).json()
                seen[realm, sub] = (subject, UUID(me["sub"]), me["preferred_username"])
                new = {"name": "mine", "endpoint_id": shared, "path": "/"}
                assert (await client.post("/v0.10/bookmark", json=new)).status_code < 300
        for each in zip(*seen.values(), strict=True):
            assert len(set(each)) == len(seen)


@pytest.mark.parametrize(
    "subject", ["anonymous", "Broker", "coget-broker", "ann@https://iam.example/", str(UUID(int=1))]
)
async def test_reserved_subjects_get_no_token_or_client(broker, admin, subject):
    answer = await admin.post("/broker/v1/tokens", json={"subject": subject})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    with pytest.raises(BrokerError):
        await broker.factory.clients.make("tests", subject, "reader")
    with pytest.raises(BrokerError):
        await broker.factory.tokens.issue("tests", NewToken.model_construct(subject=subject, role="reader", days=None))


@pytest.mark.parametrize("words", [("token", "create"), ("client", "create", "--role", "reader"), ("client", "create")])
def test_no_command_issues_what_is_reserved(tmp_path, words):
    database = f"sqlite:///{tmp_path / 'b.sqlite'}"
    upgrade(addressed(database))
    assert "reserved" in _said(*words, "broker", "--database", database, status=2)

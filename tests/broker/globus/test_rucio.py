"""Rucio's Globus transfer tool at a broker, set up as the how-to says: it submits, asks, and repeats after a cancel.

Rucio is the published one, with its own daemons and command line; tests/support/rucio.py starts its server.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.broker import PROGRAM, BrokerProcess
from tests.support.gridftp import GridFTPServer
from tests.support.pages import blocks
from tests.support.programs import run
from tests.support.rucio import RucioServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

PAGE = Path(__file__).parents[3] / "docs/howto/rucio.md"
X, Y = b"x" * 3_000_000, b"y" * 1000
RULES = """
import json
from rucio.client import Client
print(json.dumps({each["name"]: each["state"] for each in Client().list_replication_rules()}))
"""
DELETE = """
import sys
from rucio.db.sqla.session import get_session
from rucio.rse import rsemanager
settings = rsemanager.get_rse_info(rse="SCRATCH", session=get_session()())
rsemanager.create_protocol(settings, "delete", scheme="globus").delete(sys.argv[1])
"""


class Site(NamedTuple):
    """Rucio whose storage elements are collections of a broker."""

    rucio: RucioServer
    broker: BrokerProcess
    variables: dict[str, str]

    def daemon(self, name: str, *words: str) -> None:
        self.rucio.shell(f"rucio-conveyor-{name} --run-once {' '.join(words)}", **self.variables)

    def rules(self) -> dict[str, str]:
        """Return the states of the rules by file."""
        return json.loads(self.rucio.python(RULES))

    def tasks(self, **numbers: int) -> dict[str, list[str]]:
        """Return the ids of tasks by status, when there are so many of each status, and no others."""
        found: dict[str, list[str]] = {}
        client, every = self.broker.client(), {"filter_status": "ACTIVE,SUCCEEDED,FAILED"}

        def all_there() -> bool:
            found.clear()
            for each in client.get("/v0.10/endpoint_manager/task_list", params=every).json()["DATA"]:
                found.setdefault(each["status"], []).append(each["task_id"])
            return {status: len(ids) for status, ids in found.items()} == numbers

        wait_until(all_there)
        return found


def place(name: str) -> str:
    """Return the path of a file of the scope run1, as Rucio's algorithm `hash` chooses it."""
    value = hashlib.md5(f"run1:{name}".encode()).hexdigest()
    return f"run1/{value[:2]}/{value[2:4]}/{name}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(f"sqlite:///{tmp_path}/broker.sqlite", tmp_path) as started:
        yield started


@pytest.fixture
def servers(tmp_path: Path, start_gridftp: Callable[..., GridFTPServer]) -> list[GridFTPServer]:
    """The servers of TAPE and SCRATCH; a replica of y.nc is at the second one, too."""
    tape, scratch = (start_gridftp(tmp_path / name) for name in ("tape", "scratch"))
    for path, content in ((tape.root / place("x.nc"), X), (scratch.root / "other/y.nc", Y)):
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    return [tape, scratch]


@pytest.fixture
def collections(broker: BrokerProcess, servers: list[GridFTPServer]) -> dict[str, str]:
    """The ids of the collections by name; Rucio may read and write."""
    client = broker.client()

    def put(resource: str, **fields: Any) -> None:
        answer = client.put(f"/broker/v1/{resource}", json=fields)
        assert answer.status_code == 200, answer.text

    put("sites/HERE", name="HERE")
    for server in servers:
        name = server.root.name
        where = {"site": "HERE", "scheme": "ftp", "host": "127.0.0.1", "port": server.port, "prefix": "/"}
        put(f"endpoints/{name}", name=name, **where)
        put(f"collections/{name}", name=name, endpoint=name, base=str(server.root))
    put("collections/all", name="all", kind="catalogue")
    put("datasets/run1:y.nc", name="run1:y.nc", size=len(Y))
    put("replicas", dataset="run1:y.nc", endpoint="scratch", path=f"{servers[1].root}/other/y.nc".lstrip("/"))
    for name in ("tape", "scratch", "all"):
        rule = {"principal_type": "identity", "principal": "rucio", "path": "/", "permissions": "rw"}
        assert client.post(f"/broker/v1/collections/{name}/rules", json=rule).status_code == 201
    return {each["name"]: each["id"] for each in client.get("/broker/v1/collections").json()["collections"]}


@pytest.fixture
def site(tmp_path: Path, broker: BrokerProcess, collections: dict[str, str]) -> Iterator[Site]:
    database = f"sqlite:///{tmp_path}/broker.sqlite"
    words = [PROGRAM, "client", "create", "rucio", "--role", "transfer", "--database", database]
    number, secret = run(words, text=True, check=True).stdout.split()
    variables = {
        "GLOBUS_SDK_ENVIRONMENT": "broker",
        "GLOBUS_SDK_SERVICE_URL_AUTH": f"{broker.url}/",
        "GLOBUS_SDK_SERVICE_URL_TRANSFER": f"{broker.url}/",
    }
    assert all(f"export {name}=" in PAGE.read_text() for name in variables)
    with RucioServer(tmp_path / "rucio") as rucio:
        for block in blocks(PAGE):
            if block.kind == "file":
                (rucio.run / block.name).write_text(block.text)
            elif block.language == "yaml":
                (rucio.run / "etc").mkdir()
                text = block.text.replace("client_id: ...", f"client_id: {number}")
                text = text.replace("refresh_token: ...", f"refresh_token: {secret}")
                (rucio.run / "etc/globus-config.yml").write_text(text)
        ids = {"TAPE": collections["tape"], "SCRATCH": collections["scratch"], "DATASETS": collections["all"]}
        for block in blocks(PAGE):
            if "sh add-collection.sh" in block.text and block.kind == "commands":
                rucio.shell(block.text, **ids)
        yield Site(rucio, broker, variables)


def test_rules_are_carried_out_by_the_broker(site, servers):
    rucio, (tape, scratch) = site.rucio, servers
    files = {
        name: [{"scope": "run1", "name": name, "bytes": len(content), "adler32": f"{zlib.adler32(content):08x}"}]
        for name, content in (("x.nc", X), ("y.nc", Y))
    }
    named = [{"scope": "run1", "name": name} for name in files]
    rucio.call(
        ("add_scope", {"account": "root", "scope": "run1"}),
        ("add_replicas", {"rse": "TAPE", "files": files["x.nc"]}),
        ("add_replicas", {"rse": "DATASETS", "files": files["y.nc"]}),
        ("set_local_account_limit", {"account": "root", "rse": "SCRATCH", "bytes_": 10**9}),
        ("add_replication_rule", {"dids": named, "copies": 1, "rse_expression": "SCRATCH"}),
    )
    tape.pause()
    site.daemon("submitter")
    (slow,) = site.tasks(ACTIVE=1, SUCCEEDED=1)["ACTIVE"]
    assert (scratch.root / place("y.nc")).read_bytes() == Y
    canceled = {"task_id_list": [slow], "message": "by an admin"}
    assert site.broker.client().post("/v0.10/endpoint_manager/admin_cancel", json=canceled).json()["done"]
    tape.resume()
    site.daemon("poller", "--older-than 0")
    site.daemon("finisher")
    assert site.rules() == {"x.nc": "REPLICATING", "y.nc": "OK"}, "the canceled file waits to be submitted again"
    assert not (scratch.root / place("x.nc")).exists()

    site.daemon("submitter")
    site.tasks(FAILED=1, SUCCEEDED=2)
    site.daemon("poller", "--older-than 0")
    site.daemon("finisher")
    assert site.rules() == {"x.nc": "OK", "y.nc": "OK"}
    assert (scratch.root / place("x.nc")).read_bytes() == X

    rucio.python(DELETE, f"/{place('y.nc')}", **site.variables)
    site.tasks(FAILED=1, SUCCEEDED=3)
    assert not (scratch.root / place("y.nc")).exists()
    assert (scratch.root / place("x.nc")).exists()

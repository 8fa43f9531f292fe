"""Guest collections with the real globus CLI and SDK: a user shares a directory, and takes it back."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.broker import PROGRAM, BrokerProcess
from tests.support.globus import Globus
from tests.support.gridftp import GridFTPServer
from tests.support.programs import run

SHARE = """
app = ClientApp("tests", client_id=sys.argv[1], client_secret=sys.argv[2],
                config=GlobusAppConfig(token_storage="memory"))
transfer, (host, guest) = TransferClient(app=app), sys.argv[3:]
made = transfer.create_shared_endpoint(
    {"DATA_TYPE": "shared_endpoint", "display_name": "from SDK", "host_endpoint": host, "host_path": "/pub/x/d/"})
rule = {"DATA_TYPE": "access", "principal_type": "all_authenticated_users", "principal": "", "path": "/",
        "permissions": "r"}
transfer.add_endpoint_acl_rule(made["id"], rule)
mine = sorted(each["display_name"] for each in transfer.my_shared_endpoint_list(host))
pages = list(transfer.paginated.get_shared_endpoint_list(host).items())
rules = len(list(transfer.endpoint_acl_list(made["id"])))
transfer.delete_endpoint(made["id"])
print(json.dumps([mine, guest in {each["id"] for each in pages}, rules, made["code"]]))
"""


class Users(NamedTuple):
    """Ann, who shares; Bob, her guest; and the collection that allows it."""

    ann: Globus
    bob: Globus
    client: tuple[str, str]
    host: str


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    database = f"sqlite:///{tmp_path}/broker.sqlite"
    with ExitStack() as stack:
        server = stack.enter_context(GridFTPServer(tmp_path / "server"))
        (server.root / "pub" / "x" / "d").mkdir(parents=True)
        (server.root / "pub" / "x" / "a.txt").write_bytes(b"hello")
        broker = stack.enter_context(BrokerProcess(database, tmp_path))
        client = broker.client()
        client.put("/broker/v1/sites/HERE", json={"name": "HERE"}).raise_for_status()
        where = {"site": "HERE", "scheme": "ftp", "host": "127.0.0.1", "port": server.port, "prefix": "/"}
        client.put("/broker/v1/endpoints/one", json={"name": "one", **where}).raise_for_status()
        collection = {"name": "one", "endpoint": "one", "base": str(server.root), "sharing": True}
        host = client.put("/broker/v1/collections/one", json=collection).raise_for_status().json()["id"]
        rule = {"principal_type": "identity", "principal": "ann", "path": "/pub/", "permissions": "rw"}
        client.post("/broker/v1/collections/one/rules", json=rule).raise_for_status()
        clients = {}
        for name in ("ann", "bob"):
            command = [PROGRAM, "client", "create", name, "--role", "transfer", "--database", database]
            clients[name] = tuple(run(command, text=True, check=True).stdout.split())
        ann, bob = (Globus(tmp_path / name, broker.url).as_client(*clients[name]) for name in ("ann", "bob"))
        yield Users(ann, bob, clients["ann"], host)


def test_a_directory_is_shared_and_taken_back(users):
    ann, bob = users.ann, users.bob
    guest = ann.json("gcp", "create", "guest", "x of ann", f"{users.host}:/pub/x/")["id"]
    permission = ("endpoint", "permission", "create", f"{guest}:/", "--permissions", "r")
    rule = ann.json(*permission, "--identity", "bob@localhost")
    assert bob.cli("ls", f"{guest}:/").stdout.split() == ["a.txt", "d/"]
    assert "EndpointNotFound" in bob.cli("ls", f"{users.host}:/", status=1).stderr
    assert "may not write" in bob.cli("mkdir", f"{guest}:/new", status=1).stderr
    assert "Display Name:              x of ann" in ann.cli("endpoint", "show", guest).stdout
    names, listed, rules, code = ann.sdk(SHARE, *users.client, users.host, guest)
    assert (names, listed, rules, code) == (["from SDK", "x of ann"], True, 1, "Created")
    ann.cli("endpoint", "permission", "delete", guest, rule["access_id"])
    assert "EndpointNotFound" in bob.cli("ls", f"{guest}:/", status=1).stderr
    assert "deleted successfully" in ann.cli("endpoint", "delete", guest).stdout

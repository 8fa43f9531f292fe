"""Timers and guest collections with the real globus CLI and SDK, and services that the broker does not offer."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from tests.support.broker import PROGRAM, BrokerProcess, broker_in
from tests.support.globus import Globus
from tests.support.gridftp import GridFTPServer
from tests.support.programs import run
from tests.support.waiting import wait_until

DAY = 86_400
SERVICES = ("AUTH", "TRANSFER", "TIMER", "GROUPS", "FLOWS", "SEARCH")
NOT_OFFERED = {
    "group list": "Globus Groups",
    "flows list": "Globus Flows",
    "streams tunnel list": "A tunnel",
    "search index list": "Globus Search",
    "gcp create mapped laptop": "Globus Connect Personal",
}
APP = """
app = ClientApp("tests", client_id=sys.argv[1], client_secret=sys.argv[2],
                config=GlobusAppConfig(token_storage="memory"))
"""
SDK = f"""{APP}
transfer, timers, (source, sink, guest) = TransferClient(app=app), TimersClient(app=app), sys.argv[3:]
made = transfer.create_shared_endpoint(
    {{"DATA_TYPE": "shared_endpoint", "display_name": "from SDK", "host_endpoint": source, "host_path": "/pub/x/d/"}})
rule = {{"DATA_TYPE": "access", "principal_type": "all_authenticated_users", "principal": "", "path": "/",
         "permissions": "r"}}
transfer.add_endpoint_acl_rule(made["id"], rule)
mine = sorted(each["display_name"] for each in transfer.my_shared_endpoint_list(source))
listed = [each["id"] for each in transfer.paginated.get_shared_endpoint_list(source).items()]
shares = [made["code"], mine, guest in listed, len(list(transfer.endpoint_acl_list(made["id"])))]
transfer.delete_endpoint(made["id"])

body = TransferData(source_endpoint=source, destination_endpoint=sink, label="from a timer")
body.add_item("/pub/x/a.txt", "/from-sdk")
once = timers.create_timer(TransferTimer(name="sdk", schedule=OnceTimerSchedule(), body=body))["timer"]
end = {{"condition": "iterations", "iterations": 3}}
weekly = TransferTimer(schedule=RecurringTimerSchedule(604800, end=end), body=body)
number = timers.create_timer(weekly)["timer"]["job_id"]
timers.update_job(number, {{"name": "weekly"}})
timers.pause_job(number)
inactive = timers.get_job(number)
timers.resume_job(number, update_credentials=True)
try:
    timers.create_timer(FlowTimer(flow_id=source, schedule=OnceTimerSchedule(), body={{}}))
except TimersAPIError as error:
    refused = [error.http_status, error.message]
names = sorted(each["name"] for each in timers.list_jobs()["jobs"])
states = [once["status"], inactive["status"], timers.delete_job(number)["status"]]
print(json.dumps([shares, states, names, refused]))
"""


class Users(NamedTuple):
    """Ann, who shares and repeats; Bob, her guest; a collection that allows sharing, and one to write to."""

    ann: Globus
    bob: Globus
    client: tuple[str, str]
    source: str
    sink: str
    arrived: Path
    broker: BrokerProcess

    def use(self, broker: BrokerProcess) -> None:
        """Name a broker for all services."""
        for user in (self.ann, self.bob):
            user.environment |= {f"GLOBUS_SDK_SERVICE_URL_{name}": f"{broker.url}/" for name in SERVICES}


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    with ExitStack() as stack:
        servers = [stack.enter_context(GridFTPServer(tmp_path / name)) for name in ("one", "two")]
        shared = servers[0].root / "pub" / "x"
        (shared / "d").mkdir(parents=True)
        (shared / "a.txt").write_bytes(b"hello")
        broker = stack.enter_context(broker_in(tmp_path, "broker.sqlite"))
        client, numbers = broker.client(), []
        client.put("/broker/v1/sites/HERE", json={"name": "HERE"}).raise_for_status()
        for server, path in zip(servers, ("/pub/", "/"), strict=True):
            name = server.root.name
            where = {"site": "HERE", "scheme": "ftp", "host": "127.0.0.1", "port": server.port, "prefix": "/"}
            client.put(f"/broker/v1/endpoints/{name}", json={"name": name, **where}).raise_for_status()
            collection = {"name": name, "endpoint": name, "base": str(server.root), "sharing": name == "one"}
            put = client.put(f"/broker/v1/collections/{name}", json=collection).raise_for_status()
            numbers.append(put.json()["id"])
            rule = {"principal_type": "identity", "principal": "ann", "path": path, "permissions": "rw"}
            client.post(f"/broker/v1/collections/{name}/rules", json=rule).raise_for_status()
        people = {name: _client(name, tmp_path) for name in ("ann", "bob")}
        ann, bob = (Globus(tmp_path / name, broker.url).as_client(*people[name]) for name in ("ann", "bob"))
        made = Users(ann, bob, people["ann"], numbers[0], numbers[1], servers[1].root, broker)
        made.use(broker)
        yield made


def _client(name: str, folder: Path) -> tuple[str, str]:
    words = ("client", "create", name, "--role", "transfer", "--database", f"sqlite:///{folder}/broker.sqlite")
    number, secret = run([PROGRAM, *words], text=True, check=True).stdout.split()
    return number, secret


def test_the_cli_and_the_sdk_share_a_directory_and_make_timers_that_outlive_a_killed_broker(users, tmp_path):
    guest = _shared_and_taken_back(users)
    shares, states, names, refused = users.ann.sdk(SDK, *users.client, users.source, users.sink, guest)
    assert shares == ["Created", ["from SDK", "x of ann"], True, 1]
    assert (states, names, refused[0]) == (["new", "inactive", "deleted"], ["sdk", "weekly"], 400)
    assert "flow timers are not offered by this broker" in refused[1]
    wait_until(lambda: (users.arrived / "from-sdk").exists())
    for words, missing in NOT_OFFERED.items():
        assert_not_offered(users.ann, missing, *words.split())
    assert_not_offered(
        users.ann, "/flow_00000000_0000_0000_0000_000000000000_user'", "flows", "start", str(UUID(int=0))
    )
    assert_not_offered(users.ann, "A role in a collection", "endpoint", "role", "delete", guest, str(UUID(int=0)))
    everyone = ("endpoint", "permission", "create", f"{guest}:/", "--permissions", "r")
    assert_not_offered(users.ann, "Globus Groups", *everyone, "--group", str(UUID(int=0)))
    _timers_outlive_the_broker(users, tmp_path)


def assert_not_offered(user: Globus, missing: str, *words: str) -> None:
    """Check that a command ends with the broker's sentence, and not with a traceback of the CLI."""
    said = user.cli(*words, status=1).stderr
    assert f"{missing} is not offered by this broker" in " ".join(said.split())
    assert "Traceback" not in said


def _shared_and_taken_back(users: Users) -> str:
    """Share a directory, give Bob access, and take it back; return the guest collection."""
    ann, bob = users.ann, users.bob
    guest = ann.json("gcp", "create", "guest", "x", f"{users.source}:/pub/x/")["id"]
    _renamed(users, guest, "x of ann")
    permission = ("endpoint", "permission", "create", f"{guest}:/", "--permissions", "r")
    rule = ann.json(*permission, "--identity", "bob@localhost")
    assert "Exists" in ann.cli(*permission, "--identity", "bob@localhost", status=1).stderr
    assert bob.cli("ls", f"{guest}:/").stdout.split() == ["a.txt", "d/"]
    assert "EndpointNotFound" in bob.cli("ls", f"{users.source}:/", status=1).stderr
    assert "may not write" in bob.cli("mkdir", f"{guest}:/new", status=1).stderr
    ann.cli("endpoint", "permission", "delete", guest, rule["access_id"])
    assert "EndpointNotFound" in bob.cli("ls", f"{guest}:/", status=1).stderr
    return str(guest)


def _renamed(users: Users, guest: str, name: str) -> None:
    """Rename a guest collection as its owner, and try to rename another collection, and as another user."""
    words = ("--display-name", name, "--description", "the first run")
    assert "updated successfully" in users.ann.cli("gcp", "update", "guest", guest, *words).stdout
    shown = users.ann.json("endpoint", "show", guest)
    assert (shown["display_name"], shown["description"]) == (name, "the first run")
    kept = users.ann.cli("gcp", "update", "guest", guest, "--display-name", "one", status=1).stderr
    assert "there is a collection one already" in " ".join(kept.split())
    for user, collection in ((users.bob, guest), (users.ann, users.source)):
        user.cli("gcp", "update", "guest", collection, "--display-name", "stolen", status=1)
    mine = users.ann.json("endpoint", "search", "--filter-scope", "my-endpoints")["DATA"]
    assert [each["display_name"] for each in mine] == [name]


def _timers_outlive_the_broker(users: Users, folder: Path) -> None:
    """Make a timer, kill the broker, and let a day pass until another broker starts."""
    start = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(time.time() + DAY))
    times = ("--interval", "1h", "--stop-after-runs", "2", "--start", start)
    paths = (f"{users.source}:/pub/x/a.txt", f"{users.sink}:/from-cli")
    made = users.ann.cli("timer", "create", "transfer", "--name", "nightly", *times, *paths).stdout
    assert "running for 2 iterations" in made
    number = next(each["job_id"] for each in users.ann.json("timer", "list") if each["name"] == "nightly")
    users.ann.cli("timer", "pause", number)
    users.broker.process.kill()
    users.broker.process.wait()
    with closing(sqlite3.connect(folder / "broker.sqlite", timeout=60)) as connection, connection:
        connection.execute(f"UPDATE timers SET start = start - {DAY}, next_run = next_run - {DAY}")
    with BrokerProcess(f"sqlite:///{folder}/broker.sqlite", folder, users.broker.token) as again:
        users.use(again)
        assert "Paused, awaiting user action" in users.ann.cli("timer", "show", number).stdout
        assert "Successfully resumed" in users.ann.cli("timer", "resume", number).stdout
        wait_until(lambda: (users.arrived / "from-cli").exists())
        deleted = users.ann.cli("timer", "delete", number).stdout
        assert "This timer is no longer active" in deleted

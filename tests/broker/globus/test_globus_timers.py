"""Timers with the real globus CLI and SDK and a broker that is killed, and services that the broker does not offer."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker.globus.test_globus_cli import service
from tests.support.broker import BrokerProcess
from tests.support.globus import Globus
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import wait_until

DAY = 86_400
SERVICES = ("TIMER", "GROUPS", "FLOWS", "SEARCH")
NOT_OFFERED = {
    "group list": "Globus Groups",
    "flows list": "Globus Flows",
    "search index list": "Globus Search",
    "gcp create mapped laptop": "Globus Connect Personal",
}
CREATE = """
app = ClientApp("tests", client_id=sys.argv[1], client_secret=sys.argv[2],
                config=GlobusAppConfig(token_storage="memory"))
timers, (source, sink) = TimersClient(app=app), sys.argv[3:]
body = TransferData(source_endpoint=source, destination_endpoint=sink, label="from a timer")
body.add_item("/x", "/from-sdk")
once = timers.create_timer(TransferTimer(name="sdk", schedule=OnceTimerSchedule(), body=body))["timer"]
end = {"condition": "iterations", "iterations": 3}
weekly = TransferTimer(schedule=RecurringTimerSchedule(604800, end=end), body=body)
number = timers.create_timer(weekly)["timer"]["job_id"]
timers.update_job(number, {"name": "weekly"})
timers.pause_job(number)
inactive = timers.get_job(number)
timers.resume_job(number, update_credentials=True)
try:
    flow = FlowTimer(flow_id=source, schedule=OnceTimerSchedule(), body={})
    timers.create_timer(flow)
except TimersAPIError as error:
    refused = [error.http_status, error.code, error.message]
names = sorted(each["name"] for each in timers.list_jobs()["jobs"])
deleted = timers.delete_job(number)
print(json.dumps([once["status"], inactive["status"], inactive["name"], refused, names, deleted["status"]]))
"""


class Timed(NamedTuple):
    """A user with the CLI, and two collections; the first has a file `x`."""

    globus: Globus
    client: tuple[str, str]
    ends: tuple[str, str]
    sink: Path
    database: Path

    def use(self, broker: BrokerProcess) -> None:
        """Name a broker for all services."""
        names = ("AUTH", "TRANSFER", *SERVICES)
        self.globus.environment |= {f"GLOBUS_SDK_SERVICE_URL_{name}": f"{broker.url}/" for name in names}

    def pass_time(self, seconds: float) -> None:
        """Make all timers as old as if this time had passed."""
        moved = ", ".join(f"{name} = {name} - {seconds}" for name in ("start", "next_run", "last_ran_at"))
        with closing(sqlite3.connect(self.database, timeout=60)) as connection, connection:
            connection.execute(f"UPDATE timers SET {moved}")


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[tuple[Timed, BrokerProcess]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(GridFTPServer(tmp_path / name)) for name in ("one", "two")]
        database = f"sqlite:///{tmp_path}/broker.sqlite"
        broker = stack.enter_context(BrokerProcess(database, tmp_path))
        client, numbers = broker.client(), []
        assert client.put("/broker/v1/sites/HERE", json={"name": "HERE"}).status_code == 200
        for server in servers:
            name = server.root.name
            where = {"site": "HERE", "scheme": "ftp", "host": "127.0.0.1", "port": server.port, "prefix": "/"}
            assert client.put(f"/broker/v1/endpoints/{name}", json={"name": name, **where}).status_code == 200
            collection = {"name": name, "endpoint": name, "base": str(server.root)}
            numbers.append(client.put(f"/broker/v1/collections/{name}", json=collection).json()["id"])
        (servers[0].root / "x").write_bytes(b"hello")
        robot = service(database)
        globus = Globus(tmp_path / "home", broker.url).as_client(*robot)
        made = Timed(globus, robot, (numbers[0], numbers[1]), servers[1].root, tmp_path / "broker.sqlite")
        made.use(broker)
        yield made, broker


def test_the_cli_and_the_sdk_make_timers_that_outlive_a_killed_broker(timed, tmp_path):
    user, broker = timed
    source, sink = user.ends
    status, paused, name, refused, names, deleted = user.globus.sdk(CREATE, *user.client, *user.ends)
    assert (status, paused, name, names, deleted) == ("new", "inactive", "weekly", ["sdk", "weekly"], "deleted")
    assert refused[0] == 400
    assert "flow timers are not offered by this broker" in refused[2]
    wait_until(lambda: (user.sink / "from-sdk").exists())
    start = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(time.time() + DAY))
    times = ("--interval", "1h", "--stop-after-runs", "2", "--start", start)
    words = ("transfer", "--name", "nightly", *times, f"{source}:/x", f"{sink}:/from-cli")
    assert "running for 2 iterations" in user.globus.cli("timer", "create", *words).stdout
    number = next(each["job_id"] for each in user.globus.json("timer", "list") if each["name"] == "nightly")
    user.globus.cli("timer", "pause", number)
    broker.process.kill()
    broker.process.wait()
    user.pass_time(DAY)
    with BrokerProcess(f"sqlite:///{user.database}", tmp_path, broker.token) as again:
        user.use(again)
        assert "Paused, awaiting user action" in user.globus.cli("timer", "show", number).stdout
        assert "Successfully resumed" in user.globus.cli("timer", "resume", number).stdout
        wait_until(lambda: (user.sink / "from-cli").exists())


def test_the_cli_says_what_this_broker_does_not_offer(timed):
    for words, missing in NOT_OFFERED.items():
        refused = timed[0].globus.cli(*words.split(), status=1).stderr
        assert f"{missing} is not offered by this broker" in refused

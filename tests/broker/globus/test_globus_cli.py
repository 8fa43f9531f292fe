"""The real globus CLI and SDK with a real broker and real GridFTP servers: all documented commands."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from tests.support.broker import PROGRAM, BrokerProcess
from tests.support.globus import Globus
from tests.support.gridftp import GridFTPServer
from tests.support.gsi import Authority
from tests.support.nginx import Nginx
from tests.support.programs import run
from tests.support.waiting import PATIENCE, wait_until

WAIT = ("--timeout", str(int(PATIENCE)), "--polling-interval", "1")
DATA = {"a.txt": b"hello", "sub/b.txt": b"x" * 1000, "sub/deep/c d.dat": b"", ".hidden": b"h"}


class Place(NamedTuple):
    """A user with the CLI, and two collections: `one` has data, `two` is empty."""

    globus: Globus
    broker: BrokerProcess
    one: str
    two: str
    source: Path
    sink: Path

    def wait(self, done: subprocess.CompletedProcess[str], status: int = 0) -> str:
        """Wait for the task that a command has submitted; return its id."""
        number = done.stdout.split()[-1]
        self.globus.cli("task", "wait", number, *WAIT, status=status)
        return number


def grown(root: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def service(database: str) -> tuple[str, str]:
    """The id and the secret of a client that is an admin."""
    command = [PROGRAM, "client", "create", "robot", "--role", "admin", "--database", database]
    number, secret = run(command, text=True, check=True).stdout.split()
    return number, secret


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("globus")
    with ExitStack() as stack:
        servers = [stack.enter_context(GridFTPServer(folder / name)) for name in ("one", "two")]
        database = f"sqlite:///{folder}/broker.sqlite"
        broker = stack.enter_context(BrokerProcess(database, folder))
        client = broker.client()
        assert client.put("/broker/v1/sites/HERE", json={"name": "HERE"}).status_code == 200
        numbers = []
        for server in servers:
            name = server.root.name
            where = {"site": "HERE", "scheme": "ftp", "host": "127.0.0.1", "port": server.port, "prefix": "/"}
            assert client.put(f"/broker/v1/endpoints/{name}", json={"name": name, **where}).status_code == 200
            collection = {"name": name, "endpoint": name, "base": str(server.root), "description": f"number {name}"}
            numbers.append(client.put(f"/broker/v1/collections/{name}", json=collection).json()["id"])
        globus = Globus(folder / "home", broker.url).as_client(*service(database))
        yield Place(globus, broker, numbers[0], numbers[1], servers[0].root, servers[1].root)


@pytest.fixture(autouse=True)
def fresh(place: Place) -> None:
    """Restore the data, and empty all other places."""
    for root in (place.source, place.sink):
        for each in root.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    for name, content in DATA.items():
        path = place.source / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_endpoint_show_and_search(place):
    output = place.globus.cli("endpoint", "show", place.one).stdout
    assert f"ID:                        {place.one}" in output
    assert "Display Name:              one" in output
    assert [each["id"] for each in place.globus.json("endpoint", "search", "number two")["DATA"]] == [place.two]
    mine = place.globus.json("endpoint", "search", "--filter-scope", "administered-by-me")["DATA"]
    assert {each["id"] for each in mine} == {place.one, place.two}
    assert "EndpointNotFound" in place.globus.cli("endpoint", "show", str(uuid4()), status=1).stderr
    assert place.globus.cli("collection", "show", place.one, status=3).stderr


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["/data"], ["a.txt", "sub/"]),
        (["/~/data/"], ["a.txt", "sub/"]),
        (["~/data"], ["a.txt", "sub/"]),
        (["/data", "--all"], [".hidden", "a.txt", "sub/"]),
        (["/data", "--recursive"], ["a.txt", "sub/", "sub/b.txt", "sub/deep/", "sub/deep/c d.dat"]),
        (["/data", "--recursive", "--recursive-depth-limit", "1"], ["a.txt", "sub/", "sub/b.txt", "sub/deep/"]),
        (["/data", "--filter", "~*.txt"], ["a.txt"]),
        (["/data", "--filter", "!~*.txt"], ["sub/"]),
        (["/data/sub", "--orderby", "type:DESC", "--orderby", "name:ASC"], ["b.txt", "deep/"]),
        (["/data/sub", "--recursive", "--filter", "~c*"], ["deep/", "deep/c d.dat"]),
        ([""], ["data/"]),
    ],
)
def test_ls(place, words, lines):
    path, *options = words
    assert place.globus.cli("ls", f"{place.one}:{path}", *options).stdout.splitlines() == lines


def test_ls_shows_sizes_and_types(place):
    output = place.globus.cli("ls", "--long", f"{place.one}:/data").stdout
    assert " | 5 " in output
    assert "file      | a.txt" in output
    files = place.globus.json("ls", f"{place.one}:/data")["DATA"]
    assert {(each["name"], each["type"]) for each in files} == {("a.txt", "file"), ("sub", "dir")}


@pytest.mark.parametrize(("path", "code"), [("/none", "ClientError.NotFound"), ("/../etc", "ClientError.BadRequest")])
def test_ls_of_nothing(place, path, code):
    refused = place.globus.cli("ls", f"{place.one}:{path}", status=1).stderr
    assert code in refused
    assert str(place.source) not in refused


def test_stat(place):
    output = place.globus.cli("stat", f"{place.one}:/data/a.txt").stdout
    assert "Size:          5" in output
    assert place.globus.json("stat", f"{place.one}:/data/sub")["type"] == "dir"
    assert place.globus.cli("stat", f"{place.one}:/none").stdout == "Nothing found at /none\n"


def test_mkdir_and_rename(place):
    assert place.globus.cli("mkdir", f"{place.two}:/new").stdout == "The directory was created successfully\n"
    assert "MkdirFailed.Exists" in place.globus.cli("mkdir", f"{place.two}:/new", status=1).stderr
    assert "renamed successfully" in place.globus.cli("rename", place.two, "/new", "/newer").stdout
    assert (place.sink / "newer").is_dir()
    place.globus.cli("rename", place.two, "/none", "/x", status=1)
    onto = place.globus.cli("rename", place.one, "/data/a.txt", "/data/sub", status=1).stderr
    assert "RenameFailed.Exists" in onto


def test_transfer_of_a_file(place):
    words = (f"{place.one}:/data/a.txt", f"{place.two}:/there/a.txt")
    number = place.wait(place.globus.cli("transfer", *words, "--label", "one file", "--deadline", "2099-01-01"))
    assert grown(place.sink) == {"there/a.txt": b"hello"}
    output = place.globus.cli("task", "show", number).stdout
    assert "Status:                       SUCCEEDED" in output
    assert "Label:                        one file" in output
    assert "Bytes Transferred:            5" in output
    (done,) = place.globus.json("task", "show", number, "--successful-transfers")["DATA"]
    assert (done["source_path"], done["destination_path"], done["size"]) == ("/data/a.txt", "/there/a.txt", 5)
    assert place.globus.json("task", "show", number, "--skipped-errors")["DATA"] == []
    assert "SUCCEEDED" in place.globus.cli("task", "event-list", number).stdout
    assert place.globus.cli("task", "pause-info", number).stdout == f"Task {number} is not paused.\n"
    assert "completed before" in place.globus.cli("task", "cancel", number).stdout


def test_transfer_of_a_folder_with_every_option(place):
    options = ["--recursive", "--sync-level", "checksum", "--preserve-timestamp", "--verify-checksum"]
    options += ["--skip-source-errors", "--fail-on-quota-errors", "--delete-destination-extra", "--notify", "off"]
    options += ["--exclude", "*.dat", "--include", "*.txt", "--perf-cc", "2", "--perf-p", "2", "--perf-pp", "8"]
    options += ["--perf-udt", "--source-local-user", "me", "--destination-local-user", "you"]
    (place.sink / "copy").mkdir()
    (place.sink / "copy" / "extra").write_text("to go")
    submission = place.globus.cli("task", "generate-submission-id").stdout.strip()
    words = ("transfer", f"{place.one}:/data", f"{place.two}:/copy", *options, "--submission-id", submission)
    number = place.wait(place.globus.cli(*words))
    assert grown(place.sink / "copy") == {name: data for name, data in DATA.items() if not name.endswith(".dat")}
    again = place.globus.cli(*words)
    assert number in again.stdout
    reply = place.globus.json("task", "show", number)
    assert (reply["sync_level"], reply["encrypt_data"], reply["files"] > 0) == (3, False, True)
    assert "does not encrypt" in place.globus.cli("transfer", *words[1:3], "--encrypt-data", status=1).stderr
    place.globus.cli("transfer", *words[1:3], "--recursive", "--dry-run")


def test_transfer_of_a_batch(place):
    lines = "# a comment\na.txt x.txt\n--recursive sub y\n'sub/deep/c d.dat' 'z z'\n"
    words = ("transfer", "--batch", "-", f"{place.one}:/data", f"{place.two}:/batch")
    number = place.wait(place.globus.cli(*words, stdin=lines))
    assert set(grown(place.sink / "batch")) == {"x.txt", "y/b.txt", "y/deep/c d.dat", "z z"}
    assert len(place.globus.json("task", "show", number, "--successful-transfers")["DATA"]) == 4


def test_a_transfer_that_fails(place):
    words = ("transfer", f"{place.one}:/none", f"{place.two}:/x")
    number = place.wait(place.globus.cli(*words), status=1)
    assert place.globus.json("task", "show", number)["fatal_error"]["code"] == "FILE_NOT_FOUND"
    assert place.globus.json("task", "event-list", number, "--filter-errors")["DATA"]
    (place.source / "gone").mkdir()
    wrong = ("transfer", f"{place.one}:/data/a.txt", f"{place.two}:/x", "--external-checksum", "00" * 16)
    place.wait(place.globus.cli(*wrong), status=1)
    place.globus.cli("transfer", f"{place.one}:/a", f"{uuid4()}:/b", status=1)


def test_a_dataset_is_transferred_as_a_file(place):
    """A dataset comes from the catalogue, from any replica, under its name in the catalogue."""
    client = place.broker.client()
    assert client.put("/broker/v1/collections/all", json={"name": "all", "kind": "catalogue"}).status_code == 200
    catalogue = client.get("/broker/v1/collections/all").json()["id"]
    dataset = {"name": "cms:run1/a.txt", "size": 5}
    assert client.put("/broker/v1/datasets/cms:run1/a.txt", json=dataset).status_code == 200
    replica = {"dataset": "cms:run1/a.txt", "endpoint": "one", "path": str(place.source / "data" / "a.txt")}
    assert client.put("/broker/v1/replicas", json=replica).status_code == 200
    assert place.globus.cli("ls", f"{catalogue}:/cms/run1").stdout == "a.txt\n"
    words = ("transfer", "--recursive", f"{catalogue}:/cms/run1", f"{place.two}:/run1")
    place.wait(place.globus.cli(*words))
    assert grown(place.sink) == {"run1/a.txt": b"hello"}
    place.globus.cli("mkdir", f"{catalogue}:/cms/new", status=1)


def test_rm_and_delete(place):
    place.globus.cli("rm", f"{place.one}:/data/a.txt", *WAIT)
    place.globus.cli("rm", "--recursive", f"{place.one}:/data/sub", *WAIT)
    assert grown(place.source) == {"data/.hidden": b"h"}
    place.globus.cli("rm", f"{place.one}:/none", *WAIT, status=1)
    place.globus.cli("rm", "--ignore-missing", f"{place.one}:/none", *WAIT)
    for name in ("p1.log", "p2.log", "p3.txt"):
        (place.source / name).touch()
    place.globus.cli("rm", f"{place.one}:/*.log", *WAIT)
    assert set(grown(place.source)) == {"data/.hidden", "p3.txt"}
    place.wait(place.globus.cli("delete", "--batch", "-", place.one, stdin="p3.txt\ndata/.hidden\n"))
    assert grown(place.source) == {}
    assert "root of a collection" in place.globus.cli("delete", "--recursive", f"{place.one}:/", status=1).stderr


@pytest.fixture
def endless(place: Place) -> Iterator[str]:
    """A task that an admin has paused."""
    rule = {"message": "wait", "endpoint_id": place.two, "pause_task_transfer_write": True}
    client = place.broker.client()
    made = client.post("/v0.10/endpoint_manager/pause_rule", json=rule).json()["id"]
    words = ("transfer", f"{place.one}:/data/a.txt", f"{place.two}:/a.txt", "--label", "endless")
    number = place.globus.cli(*words).stdout.split()[-1]
    yield number
    assert client.post(f"/v0.10/task/{number}/cancel").status_code == 200
    assert client.delete(f"/v0.10/endpoint_manager/pause_rule/{made}").status_code == 200


def test_a_task_under_way(place, endless):
    assert place.globus.cli("task", "wait", endless, "--timeout", "1", "--timeout-exit-code", "50", status=50)
    assert "Deadline:" in place.globus.cli("task", "show", endless).stdout
    assert "wait" in place.globus.cli("task", "pause-info", endless).stdout
    place.globus.cli("task", "update", endless, "--label", "changed", "--deadline", "2099-01-22")
    reply = place.globus.json("task", "show", endless)
    assert (reply["label"], reply["deadline"][:10], reply["status"]) == ("changed", "2099-01-22", "ACTIVE")
    listed = place.globus.json("task", "list", "--filter-status", "ACTIVE", "--filter-label", "chan*")["DATA"]
    assert [each["task_id"] for each in listed] == [endless]
    assert (
        place.globus.json("task", "list", "--filter-not-label", "changed", "--exact", "--filter-status", "ACTIVE")[
            "DATA"
        ]
        == []
    )
    assert "cancelled successfully" in place.globus.cli("task", "cancel", endless).stdout
    place.globus.cli("task", "wait", endless, *WAIT, status=1)
    assert "no in-progress tasks" in place.globus.cli("task", "cancel", "--all", status=1).stderr


def test_a_deadline_that_cannot_be_met_is_told(place, endless):
    with (place.source / "data" / "large").open("wb") as file:
        file.truncate(1 << 40)
    client = place.broker.client()
    endpoint = client.get("/broker/v1/endpoints/one").json()
    now, slow = time.time(), {"source": f"ftp://127.0.0.1:{endpoint['port']}", "sink": "HERE", "bytes": 10_000_000}
    reports = [{**slow, "id": f"d{i}", "started": now - 99 + i, "ended": now - 89 + i} for i in range(30)]
    assert client.post("/broker/v1/transfers", json=reports).status_code == 200
    ask = {"source": slow["source"], "sink": "HERE"}
    wait_until(lambda: client.get("/broker/v1/forecasts", params=ask).json()["observations"] >= 30)
    deadline = datetime.fromtimestamp(now + 3600, UTC).strftime("%Y-%m-%d %H:%M:%S")
    words = (f"{place.one}:/data/large", f"{place.two}:/large", "--deadline", deadline)
    number = place.globus.cli("transfer", *words).stdout.split()[-1]
    shown = place.globus.json("task", "show", number)
    assert (shown["status"], shown["deadline_probability"] < 0.05) == ("ACTIVE", True)
    assert shown["deadline_holds_at"] > shown["deadline"]
    events = place.globus.json("task", "event-list", number)["DATA"]
    assert [each["code"] for each in events] == ["DEADLINE_LOST"]
    assert client.post(f"/v0.10/task/{number}/cancel").status_code == 200


def test_all_tasks_are_canceled(place, endless):
    assert "cancelled successfully" in place.globus.cli("task", "cancel", "--all").stdout
    place.globus.cli("task", "wait", endless, *WAIT, status=1)


def test_bookmarks(place):
    number = place.globus.cli("bookmark", "create", f"{place.one}:/data/", "mine").stdout.split()[-1]
    assert place.globus.cli("bookmark", "show", "mine").stdout == f"{place.one}:/data/\n"
    assert f"mine | {number} | {place.one} | one           | /data/" in place.globus.cli("bookmark", "list").stdout
    place.globus.cli("bookmark", "rename", number, "yours")
    place.globus.cli("bookmark", "show", "mine", status=1)
    place.globus.cli("bookmark", "delete", "yours")
    assert place.globus.json("bookmark", "list")["DATA"] == []


def test_permissions(place):
    words = ("endpoint", "permission")
    made = place.globus.json(*words, "create", f"{place.one}:/data/", "--permissions", "r", "--all-authenticated")
    number = made["access_id"]
    assert number in place.globus.cli(*words, "list", place.one).stdout
    place.globus.cli(*words, "update", place.one, number, "--permissions", "rw")
    assert place.globus.json(*words, "show", place.one, number)["permissions"] == "rw"
    place.globus.cli(*words, "delete", place.one, number)
    assert place.globus.json(*words, "list", place.one)["DATA"] == []


def test_globus_api(place):
    reply = place.globus.json("api", "transfer", "GET", "/task_list", "-Q", "limit=1")
    assert reply["DATA_TYPE"] == "task_list"
    assert place.globus.json("api", "transfer", "GET", "/broker/v1/whoami")["subject"] == "robot"
    place.globus.cli("api", "transfer", "GET", "/none", status=1)


SDK = """
source, sink, token, url = sys.argv[1:]
client = TransferClient(base_url=url, authorizer=AccessTokenAuthorizer(token))
data = TransferData(source_endpoint=source, destination_endpoint=sink, sync_level="checksum", label="by SDK",
                    additional_fields={"perf_cc": 2, "something": "else"})
data.add_item("/data/", "/sdk/", recursive=True)
data.add_filter_rule("*.dat", type="file")
task = client.submit_transfer(data)["task_id"]
assert client.task_wait(task, timeout=3600, polling_interval=1)
assert client.submit_transfer(data)["code"] == "Duplicate"
done = [each["destination_path"] for each in client.paginated.task_successful_transfers(task).items()]
tasks = [each["label"] for each in client.paginated.task_list(filter={"label": "by SDK"}).items()]
events = [each["code"] for each in client.paginated.task_event_list(task).items()]
monitored = [each["task_id"] for each in client.paginated.endpoint_manager_task_list(filter_task_id=task).items()]
names = [each["name"] for each in client.operation_ls(sink, path="/sdk", orderby=["type", "name DESC"])]
try:
    client.operation_mkdir(sink, "/sdk")
except TransferAPIError as error:
    code = (error.http_status, error.code, bool(error.request_id))
print(json.dumps([sorted(done), tasks, "SUCCEEDED" in events, monitored == [task], names, code]))
"""


def test_the_sdk(place):
    token = place.broker.token
    done, tasks, succeeded, monitored, names, code = place.globus.sdk(
        SDK, place.one, place.two, token, place.broker.url
    )
    assert done == ["/sdk/.hidden", "/sdk/a.txt", "/sdk/sub/b.txt"]
    assert (tasks, succeeded, monitored) == (["by SDK"], True, True)
    assert names == ["sub", "a.txt", ".hidden"]
    assert code == [502, "ExternalError.MkdirFailed.Exists", True]


@pytest.fixture
def secure(place: Place, tmp_path: Path) -> Iterator[Globus]:
    """The same user, for whom the broker is behind nginx with a certificate of a test authority."""
    authority = Authority(tmp_path / "ca")
    keys = (authority.localhost.certificate, authority.localhost.key)
    more = f"location / {{ proxy_pass {place.broker.url}; proxy_set_header Host $http_host; }}"
    with Nginx(tmp_path / "root", tmp_path / "nginx", certificate=keys, more=more) as server:
        globus = Globus(tmp_path / "home", f"https://localhost:{server.port}")
        globus.environment |= {
            name: place.globus.environment[name] for name in ("GLOBUS_CLI_CLIENT_ID", "GLOBUS_CLI_CLIENT_SECRET")
        }
        globus.environment["GLOBUS_SDK_VERIFY_SSL"] = str(authority.authority.certificate)
        yield globus


def test_over_https(place, secure):
    assert secure.cli("ls", f"{place.one}:/data").stdout.splitlines() == ["a.txt", "sub/"]
    done = secure.cli("transfer", f"{place.one}:/data/a.txt", f"{place.two}:/s.txt")
    secure.cli("task", "wait", done.stdout.split()[-1], *WAIT)
    assert grown(place.sink) == {"s.txt": b"hello"}
    secure.environment["GLOBUS_SDK_VERIFY_SSL"] = "1"
    assert "GlobusConnectionError" in secure.cli("ls", f"{place.one}:/data", status=1).stderr

"""Downloads submitted to a broker: the command, real GridFTP servers, and a broker in a process of its own."""

import json
import os
import pty
import re
import select
import signal
import time
from typing import get_args

import pytest

from coalloc.broker_client.submission import Sync
from coalloc.cli.submit import SYNC
from tests.broker.client.conftest import lab_in, with_user
from tests.support.broker import BrokerProcess
from tests.support.coget import CONTENT, LIFE_SECONDS, coget
from tests.support.listening import reserved
from tests.support.programs import COGET, start

UUID = re.compile(r"[0-9a-f-]{36}\n")


def test_a_download_is_handed_over_and_watched_to_its_end(lab):
    (lab.one / "x.root").write_bytes(CONTENT)
    submitted = lab.run("submit", "--label", "the first", "one:/x.root", "two:/data/")
    assert submitted.returncode == 0, submitted.stderr
    assert UUID.fullmatch(submitted.stdout)
    number = submitted.stdout.strip()
    watched = lab.run("watch", number)
    assert (watched.returncode, watched.stdout) == (0, ""), watched.stderr
    assert watched.stderr.splitlines()[-1].startswith("the first: done, 1 of 1 file, 8.39 MB of 8.39 MB")
    assert (lab.two / "data" / "x.root").read_bytes() == CONTENT
    again = lab.run("watch", "--json", number)
    assert (again.returncode, json.loads(again.stdout)["status"]) == (0, "SUCCEEDED")


def test_a_dataset_comes_from_wherever_it_is(lab):
    for root in (lab.one, lab.two):
        (root / "2024").mkdir()
        (root / "2024" / "x.root").write_bytes(CONTENT)
    places = [{"endpoint": name, "path": "2024/x.root"} for name in ("one", "two")]
    line = {"name": "lab:2024/x.root", "size": len(CONTENT), "replicas": places}
    assert lab.admin.post("/broker/v1/import", content=json.dumps(line)).json()["kept"] == 1
    done = lab.run("submit", "--wait", "--json", "lab:2024/x.root", "two:/new.root")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["source"]["name"], document["bytes_transferred"]) == ("all", len(CONTENT))
    assert (lab.two / "new.root").read_bytes() == CONTENT


def test_a_folder_is_transferred_once_with_sync(lab):
    for i in range(5):
        (lab.one / "run1" / f"{i % 2}").mkdir(parents=True, exist_ok=True)
        (lab.one / "run1" / f"{i % 2}" / f"f{i}").write_bytes(os.urandom(1000))
    words = ("submit", "--wait", "-r", "--sync", "size", "one:/run1", "two:/copies/")
    assert lab.run(*words).returncode == 0
    assert len(list((lab.two / "copies" / "run1").rglob("f*"))) == 5
    again = lab.run(*words, "--json")
    document = json.loads(again.stdout)
    assert (document["files_transferred"], document["files_skipped"]) == (0, 5)
    folder = lab.run("submit", "--wait", "one:/run1", "two:/copies/")
    assert (folder.returncode, "is a directory" in folder.stderr) == (5, True), folder.stderr


def test_a_failed_task_exits_with_status_5_and_prints_the_error(lab):
    failed = lab.run("submit", "--wait", "--json", "one:/none", "two:/x")
    assert failed.returncode == 5
    assert "FILE_NOT_FOUND" in failed.stderr
    assert "/none" in failed.stderr
    document = json.loads(failed.stdout)
    assert (document["status"], document["error"]["code"]) == ("FAILED", "transfer_failed")


def test_tasks_are_listed_and_canceled(lab):
    nothing = lab.run("tasks")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "--all" in nothing.stderr
    (lab.one / "x").write_bytes(b"x")
    assert lab.run("submit", "--wait", "--label", "done", "one:/x", "two:/x").returncode == 0
    number = json.loads(lab.run("submit", "--json", "--label", "waits", "one:/x", "far:/x").stdout)["id"]
    (task,) = json.loads(lab.run("tasks", "--json").stdout)
    assert (task["id"], task["label"]) == (number, "waits")
    assert [task["label"] for task in json.loads(lab.run("tasks", "--json", "--all").stdout)] == ["waits", "done"]
    listed = lab.run("tasks", "--all").stdout
    reason = "waits: no worker is running for the site .*"
    assert re.search(rf"^{number[:8]}  waiting .* {reason}$", listed, re.MULTILINE), listed
    canceled = lab.run("tasks", "cancel", number[:8])
    assert (canceled.returncode, "canceled by its owner" in canceled.stdout) == (0, True), canceled.stderr
    watched = lab.run("watch", number)
    assert (watched.returncode, "CANCELED" in watched.stderr) == (5, True)
    for words in (("tasks", "--json", "cancel", number), ("tasks", "cancel", "--json", number)):
        (task,) = json.loads(lab.run(*words).stdout)
        assert (task["id"], task["status"]) == (number, "FAILED")
    failed = json.loads(lab.run("tasks", "--json", "cancel", number, "nothing").stdout)
    assert ([task["id"] for task in failed["tasks"]], failed["error"]["code"]) == ([number], "usage")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("one:/x", "nowhere:/x"), 2, "yours: all, far, one, slow, two"),
        (("one:/x", "x"), 2, "COLLECTION:/path"),
        (("one:/x", "two:/y", "two:/z/"), 2, "submit them separately"),
        (("one:/x", "one:/y", "two:/z"), 2, "end it with a slash"),
        (("one:/a/x", "one:/b/x", "two:/z/"), 2, "several sources would be written to /z/x"),
        (("lab:none", "two:/z/"), 3, "there is no dataset lab:none"),
        (("oen:/x", "two:/z/"), 3, "there is no dataset oen:/x"),
        (("ftp://h.example/x", "two:/z/"), 2, "write COLLECTION:/path, or the name of a dataset"),
        (("one:/../x", "two:/z/"), 2, "leads out of the collection"),
        (("--deadline", "soon", "one:/x", "two:/z/"), 2, "2030-01-31T12:00"),
        (("--deadline", "2001-01-01", "one:/x", "two:/z/"), 2, "has passed"),
    ],
)
def test_an_invalid_submission_is_refused_at_once(lab, words, status, message):
    refused = lab.run("submit", *words)
    assert (refused.returncode, message in refused.stderr) == (status, True), refused.stderr
    assert lab.tasks() == []


@pytest.mark.parametrize("number", ["x", "../whoami", "00000000-0000-0000-0000-000000000000"])
def test_an_unknown_task_is_an_error_and_not_a_defect(lab, number):
    for words in (("watch", number), ("tasks", "cancel", number)):
        result = lab.run(*words)
        assert result.returncode == 2, result.stderr
        assert "defect" not in result.stderr


def test_interrupting_watch_leaves_the_task_running(lab):
    number = lab.run("submit", "one:/x", "far:/x").stdout.strip()
    with lab.start("watch", number) as watch:
        assert "one to far" in watch.stderr.readline()
        watch.send_signal(signal.SIGINT)
        _, stderr = watch.communicate(timeout=LIFE_SECONDS)
    assert watch.returncode == 130
    assert f"coget tasks cancel {number}" in stderr
    assert lab.task(number)["status"] == "ACTIVE"


@pytest.fixture
def mortal(tmp_path):
    """A broker that no other test uses, at a port that no other process gets, and a user."""
    (tmp_path / "home").mkdir()
    with reserved("127.0.0.1") as port, lab_in(tmp_path, "--port", str(port.getsockname()[1])) as lab:
        yield with_user(lab, tmp_path / "home")


def test_a_restart_of_the_broker_is_waited_for(mortal, tmp_path):
    lab = mortal
    number = lab.run("submit", "one:/x", "far:/x").stdout.strip()
    port = lab.broker.url.rpartition(":")[2]
    with lab.start("watch", number) as watch:
        assert "one to far" in watch.stderr.readline()
        lab.broker.process.kill()
        lab.broker.process.wait()
        while "does not answer" not in watch.stderr.readline():
            assert watch.poll() is None
        database, token = f"sqlite:///{tmp_path / 'b.sqlite'}", lab.broker.token
        with BrokerProcess(database, tmp_path, token, "--port", port) as again:
            again.client().post(f"/broker/v1/tasks/{number}/cancel")
            _, stderr = watch.communicate(timeout=LIFE_SECONDS)
    assert watch.returncode == 5
    assert "CANCELED" in stderr


def test_a_broker_that_never_answered_is_not_waited_for(lab):
    result = coget(["watch", "x"], lab.home, COGET_BROKER="http://127.0.0.1:9")
    assert (result.returncode, "does not answer" in result.stderr) == (3, True)


def test_a_terminal_shows_a_bar_and_in_the_end_one_line(lab):
    (lab.one / "d").mkdir()
    for i in range(6):
        (lab.one / "d" / f"x{i}").write_bytes(CONTENT[: len(CONTENT) // 6])
    submitted = lab.run("submit", "--label", "the slow one", "-r", "one:/d", "slow:/d")
    ours, theirs = pty.openpty()
    command = [COGET, "watch", submitted.stdout.strip()]
    environment = {**os.environ, **lab.environment, "TERM": "xterm", "COLUMNS": "80", "HOME": str(lab.home)}
    with start(command, stderr=theirs, env=environment) as watch:
        os.close(theirs)
        output = b""
        until = time.monotonic() + LIFE_SECONDS
        while time.monotonic() < until and select.select([ours], [], [], LIFE_SECONDS)[0]:
            try:
                output += os.read(ours, 65536)
            except OSError:  # it has closed its end
                break
        assert watch.wait(LIFE_SECONDS) == 0
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.decode())
    assert "the slow one  under way" in text
    assert re.search(r"\d+ %  \S+ MB of 8.39 MB  \S+ [kM]B/s  \S+ s left", text)
    assert text.rstrip().splitlines()[-1].startswith("the slow one: 6 files, 8.39 MB in ")


def test_sync_levels_are_those_of_the_broker():
    assert get_args(Sync) == SYNC

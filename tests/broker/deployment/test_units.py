"""The units for systemd: valid, and their commands get secrets from files."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pytest

from tests.support.broker import PROGRAM, BrokerProcess, reports
from tests.support.confined import USER, confined, said
from tests.support.programs import run
from tests.support.waiting import PATIENCE, until, wait_until

DEPLOY = Path(__file__).parents[3] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
BROKER = DEPLOY / "coget-broker.service"
WORKER = DEPLOY / "coget-worker.service"
MOST_EXPOSED = 3.0
"""Highest exposure, of 10; systemd calls 3 "OK", and 8 "EXPOSED"."""
HOWTO = DEPLOY.parent / "docs" / "howto" / "broker.md"
DRAWING = """
import sys
from broker.reports.drawing import png
from tests.broker.reports.figures import figures
sys.stdout.buffer.write(png(next(figures())))
"""
analyzed = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed: apt-get install systemd"
)


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    """Credentials that systemd makes from SetCredential if the files of LoadCredential are missing."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    for unit in UNITS:
        for each in said(unit, "SetCredential"):
            name, _, value = each.partition(":")
            (folder / name).write_text(value)
            (folder / name).chmod(0o400)
    return folder


def _command(unit: Path, credentials: Path) -> tuple[dict[str, str], list[str]]:
    """Return the variables of a unit, and the options of its command."""
    (command,) = said(unit, "ExecStart")
    words = shlex.split(command.replace("%d", str(credentials)))
    assert words[0].endswith("/coget-broker")
    variables = " ".join(said(unit, "Environment")).replace("%d", str(credentials))
    return dict(each.split("=", 1) for each in variables.split()), words[1:]


@analyzed
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_no_fault(unit, tmp_path):
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={PROGRAM}", unit.read_text(), flags=re.MULTILINE))
    found = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
    assert said(unit, "LoadCredential")
    assert not re.search("PASSWORD|token", " ".join(said(unit, "Environment")))


def test_the_broker_starts_by_the_command_of_its_unit(credentials, tmp_path):
    variables, words = _command(DEPLOY / "coget-broker.service", credentials)
    database = variables["COGET_BROKER_DATABASE"].replace("/var/lib/coget", str(tmp_path))
    with BrokerProcess(database, tmp_path, "", *words[1:]) as broker:
        assert broker.client().get("/broker/v1/whoami").json()["role"] == "admin"
    unit = (BROKER).read_text()
    (named,) = re.findall(r"is in (\S+admin-token)", unit)
    assert (tmp_path / Path(named).name).read_text().strip() == broker.token


def test_the_worker_finds_its_database_in_a_file(credentials, tmp_path):
    variables, words = _command(WORKER, credentials)
    (credentials / "database").write_text("sqlite:///none.sqlite\n")
    refused = run([PROGRAM, *words], env=os.environ | variables, cwd=tmp_path, text=True)
    assert (refused.returncode, "on SQLite the broker itself carries out tasks" in refused.stderr) == (2, True)


@analyzed
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_calls_them_little_exposed(unit):
    words = ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", found.stdout)
    assert float(exposure) < MOST_EXPOSED, found.stdout


@pytest.fixture
def state(credentials: Path, tmp_path: Path) -> Path:
    """Return the directories and credentials of a confined unit."""
    (tmp_path / "state").mkdir()
    credentials.rename(tmp_path / "state" / "credentials")
    return tmp_path / "state"


@contextmanager
def _running(state: Path, *words: str, writable: Sequence[Path] = ()) -> Iterator[BrokerProcess]:
    """Start the broker as its unit does, with these options and directories that a drop-in makes writable."""
    prefix = confined(BROKER, state, writable)
    variables, command = _command(BROKER, state / "credentials")
    with BrokerProcess(variables["COGET_BROKER_DATABASE"], state, "-", *command[1:], *words, prefix=prefix) as broker:
        broker.token = (state / "lib" / "broker.sqlite.admin-token").read_text().strip()
        yield broker


@analyzed
def test_a_confined_process_writes_only_to_its_own_directories(state):
    prefix = confined(BROKER, state)
    tried = (
        "import os, socket, sys\n"
        "for place in sys.argv[1:]:\n"
        "    try: open(place + '/x', 'w'); print(place)\n"
        "    except OSError: pass\n"
        "print(os.getuid() and socket.socket(socket.AF_UNIX).fileno() > 0)\n"
        "socket.socket(socket.AF_PACKET)"
    )
    places = ["/", "/etc", "/opt", "/usr", "/home", "/root", "/var/lib", "/var", str(DEPLOY)]
    own = ["/tmp", "/var/lib/coget", "/var/cache/coget"]
    words = [*prefix, sys.executable, "-c", tried, *places, *own]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.stdout.split() == [*own, "True"]
    assert "Address family not supported" in found.stderr


@analyzed
def test_the_broker_does_all_its_work_as_confined(state):
    """Compiled forecasts, figures drawn by a JavaScript engine, temporary files, and private files work."""
    with _running(state) as broker:
        client = broker.client()
        rows = [{**each, "source": "ftp://s.example"} for each in reports(0, 300)]
        assert client.post("/broker/v1/transfers", json=rows).json()["accepted"] == 300
        pair = {"source": "ftp://s.example", "sink": "HERE"}
        # The first answers may come before the history is read, and then have no rate.
        rate = wait_until(lambda: client.get("/broker/v1/forecasts", params=pair).json()["rate"])
        assert rate["p50"] > 0
        assert len(client.get("/broker/v1/transfers/export").text.splitlines()) == 301
        table = client.get("/broker/v1/transfers/export", params={"format": "parquet"})
        assert table.content.startswith(b"PAR1")
        assert not [each for each in broker.events() if each.get("level") == "error"]
    drawn = subprocess.run([*confined(BROKER, state), sys.executable, "-c", DRAWING], capture_output=True, check=True)
    assert drawn.stdout.startswith(b"\x89PNG")
    for path in (state / "lib").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


@analyzed
def test_a_folder_is_written_into_where_a_drop_in_opens_it(state, tmp_path):
    (line,) = re.findall(r"^ *ReadWritePaths=(\S+)$", HOWTO.read_text(), re.M)
    assert line.startswith("/")
    opened, closed = tmp_path / "opened", tmp_path / "closed"
    for folder in (opened, closed):
        folder.mkdir()
    with _running(state, "--site", "HERE", writable=[opened]) as broker:
        client = broker.client()
        for folder in (opened, closed):
            scratch = {"name": folder.name, "kind": "local", "site": "HERE", "base": str(folder)}
            number = client.put(f"/broker/v1/collections/{folder.name}", json=scratch).json()["id"]
            path = f"/v0.10/operation/endpoint/{number}/mkdir"
            made = client.post(path, json={"DATA_TYPE": "mkdir", "path": "/new"})
            assert made.is_success == (folder == opened), made.text
    assert ((opened / "new").is_dir(), (closed / "new").is_dir()) == (True, False)


@analyzed
def test_the_worker_does_a_task_as_confined(state, server, tmp_path):
    """The broker uses the socket of a PostgreSQL in a directory that a drop-in opens, and ends on request."""
    url, folder = server.create(), tmp_path / "scratch"
    place = Path(dict(parse_qsl(urlsplit(url).query))["host"])
    place.chmod(0o711)  # user coget may connect to that of a database
    (place / ".s.PGSQL.5432").chmod(0o777)
    (folder / "old").mkdir(parents=True)
    (folder / "old" / "file").write_text("x")
    for path in (folder / "old", folder / "old" / "file"):
        os.chown(path, USER, USER)
    (state / "credentials" / "database").write_text(url)
    prefix = confined(WORKER, state, [folder])
    _, words = _command(WORKER, state / "credentials")
    with BrokerProcess(url, tmp_path) as broker:
        client = broker.client()
        scratch = {"name": "scratch", "kind": "local", "site": "SITE", "base": str(folder)}
        number = client.put("/broker/v1/collections/scratch", json=scratch).json()["id"]
        item = {"DATA_TYPE": "delete_item", "path": "/old"}
        task = {"DATA_TYPE": "delete", "submission_id": str(uuid4()), "endpoint": number, "recursive": True}
        reply = client.post("/v0.10/delete", json={**task, "DATA": [item]})
        assert reply.is_success, reply.text
        with subprocess.Popen([*prefix, PROGRAM, *words], stderr=subprocess.PIPE, text=True) as worker:
            try:
                path = f"/v0.10/task/{reply.json()['task_id']}"
                over = until(lambda: worker.poll() is not None or client.get(path).json()["status"] != "ACTIVE")
                asyncio.run(over)
                assert client.get(path).json()["status"] == "SUCCEEDED"
            finally:
                worker.terminate()
            said_last = (worker.stderr or sys.stdin).read()
            assert worker.wait(PATIENCE) == 0, said_last
    assert '"stopped"' in said_last
    assert list(folder.iterdir()) == []

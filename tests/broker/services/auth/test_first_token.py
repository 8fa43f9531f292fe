"""Output of the first admin token: a terminal or a private file; never the log."""

import os
import pty
import stat
import threading
from pathlib import Path

import httpx
import pytest

from tests.support.broker import PROGRAM, SECONDS, BrokerProcess
from tests.support.programs import run, start
from tests.support.users import umask

WHOAMI = "/broker/v1/whoami"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_off_a_terminal_it_is_in_a_file_for_its_owner_alone(tmp_path, mask):
    with umask(mask), BrokerProcess(f"sqlite:///{tmp_path / 'b.sqlite'}", tmp_path) as broker:
        file = tmp_path / "b.sqlite.admin-token"
        assert (file.read_text(), _mode(file)) == (f"{broker.token}\n", 0o600)
        assert broker.client().get(WHOAMI).json()["role"] == "admin"
        assert (broker.token in broker.log(), f"is in the file {file}\n" in broker.log()) == (False, True)


@pytest.mark.parametrize("plant", ["file", "link", "dangling"])
def test_existing_files_and_links_are_neither_followed_nor_overwritten(tmp_path, plant):
    there, other = tmp_path / "b.sqlite.admin-token", tmp_path / "other"
    if plant == "file":
        there.write_text("old")
    else:
        there.symlink_to(other)
    if plant == "link":
        other.write_text("old")
    with BrokerProcess("sqlite:///b.sqlite", tmp_path) as broker:
        assert broker.client().get(WHOAMI).json()["role"] == "admin"
    (made,) = tmp_path.glob("b.sqlite.admin-token.*")
    assert (made.read_text(), _mode(made)) == (f"{broker.token}\n", 0o600)
    assert there.read_text() == "old" if plant != "dangling" else not other.exists()


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"STATE_DIRECTORY": "{}/one:{}/two"}, "one/coget-broker.admin-token"),
        ({"STATE_DIRECTORY": "", "XDG_STATE_HOME": "{}/state"}, "state/coget/coget-broker.admin-token"),
    ],
)
def test_with_a_database_server_it_is_in_the_state_directory(server, monkeypatch, tmp_path, variables, place):
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path, tmp_path))
    with BrokerProcess(server.create(), tmp_path) as broker:
        assert broker.client().get(WHOAMI).json()["role"] == "admin"
    assert ((tmp_path / place).read_text(), _mode(tmp_path / place)) == (f"{broker.token}\n", 0o600)


def test_without_a_place_for_it_no_tables_are_made(tmp_path, server):
    (tmp_path / "state").write_text("a file")
    database = server.create()
    environment = os.environ | {"STATE_DIRECTORY": str(tmp_path / "state")}
    refused = run([PROGRAM, "serve", "--database", database, "--port", "0"], env=environment, text=True)
    assert (refused.returncode, "cannot write" in refused.stderr) == (2, True)
    listed = run([PROGRAM, "token", "list", "--database", database], text=True)
    assert "has no tables yet" in listed.stderr


def test_on_a_terminal_it_is_shown(tmp_path):
    terminal, end = pty.openpty()
    words = [PROGRAM, "serve", "--database", f"sqlite:///{tmp_path / 'b.sqlite'}", "--port", "0"]
    process = start(words, stdin=end, stdout=end, stderr=end, cwd=tmp_path)
    os.close(end)
    bound = threading.Timer(SECONDS, process.kill)
    bound.start()
    output = ""
    while "Press CTRL" not in output:  # after the child's end, reading is an error
        output += os.read(terminal, 65536).decode()
    bound.cancel()
    url = output.partition("running on ")[2].split()[0]
    token = output.partition("shown only now: ")[2].split()[0]
    answer = httpx.get(f"{url}{WHOAMI}", headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS)
    process.terminate()
    process.wait(SECONDS)
    os.close(terminal)
    assert answer.json()["role"] == "admin"
    assert not list(tmp_path.glob("*token*"))

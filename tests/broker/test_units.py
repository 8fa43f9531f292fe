"""The units for systemd: it finds no fault with them, and what they start gets its secrets from files."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.broker import PROGRAM, BrokerProcess

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def _said(unit: Path, name: str) -> list[str]:
    return re.findall(f"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    """What systemd makes of SetCredential, where the files of LoadCredential are absent."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    for unit in UNITS:
        for said in _said(unit, "SetCredential"):
            name, _, value = said.partition(":")
            (folder / name).write_text(value)
            (folder / name).chmod(0o400)
    return folder


def _command(unit: Path, credentials: Path) -> tuple[dict[str, str], list[str]]:
    """The variables of a unit, and the words after the program."""
    (command,) = _said(unit, "ExecStart")
    words = shlex.split(command.replace("%d", str(credentials)))
    assert words[0].endswith("/coget-broker")
    variables = " ".join(_said(unit, "Environment")).replace("%d", str(credentials))
    return dict(each.split("=", 1) for each in variables.split()), words[1:]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_no_fault(unit, tmp_path):
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={PROGRAM}", unit.read_text(), flags=re.MULTILINE))
    found = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
    assert _said(unit, "LoadCredential")
    assert not re.search("PASSWORD|token", " ".join(_said(unit, "Environment")))


def test_the_broker_starts_as_its_unit_says(credentials, tmp_path):
    variables, words = _command(DEPLOY / "coget-broker.service", credentials)
    database = variables["COGET_BROKER_DATABASE"].replace("/var/lib/coget", str(tmp_path))
    with BrokerProcess(database, tmp_path, "", *words[1:]) as broker:
        assert broker.client().get("/broker/v1/whoami").json()["role"] == "admin"
    unit = (DEPLOY / "coget-broker.service").read_text()
    (named,) = re.findall(r"is in (\S+admin-token)", unit)
    assert (tmp_path / Path(named).name).read_text().strip() == broker.token


def test_the_worker_finds_its_database_in_a_file(credentials, tmp_path):
    variables, words = _command(DEPLOY / "coget-worker.service", credentials)
    (credentials / "database").write_text("sqlite:///none.sqlite\n")
    refused = subprocess.run(
        [PROGRAM, *words], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (refused.returncode, "on SQLite the broker itself carries out tasks" in refused.stderr) == (2, True)

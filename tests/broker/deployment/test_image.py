"""The recipes of container images: linted; the broker's content serves as promised. No image registry is used."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.broker import BrokerProcess, reports
from tests.support.confined import confined
from tests.support.waiting import PATIENCE, wait_until

HOUSE = Path(__file__).parents[3]
RECIPE = HOUSE / "deploy" / "Dockerfile"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The packages, installed from the image's sources."""
    source, target = tmp_path / "src", tmp_path / "installed"
    source.mkdir()
    for name in re.findall("^!(.*)$", (HOUSE / ".dockerignore").read_text(), re.MULTILINE):
        copy = shutil.copytree if (HOUSE / name).is_dir() else shutil.copy
        copy(HOUSE / name, source / name)
    subprocess.run([sys.executable, "setup.py", "-q", "build_py", "--build-lib", target], cwd=source, check=True)
    return target


@pytest.mark.parametrize("name", ["Dockerfile", "client.Dockerfile"])
def test_the_linter_finds_nothing(name):
    linter = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([linter, "--no-color", RECIPE.with_name(name)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_files_of_the_image_start_a_broker(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(installed))
    asked = [sys.executable, "-c", "import broker; print(broker.__file__)"]
    where = subprocess.check_output(asked, text=True, cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed)
    recipe = RECIPE.read_text()
    program, serve, *words = json.loads(re.findall("^CMD (.*)$", recipe, re.MULTILINE)[0])
    assert (program, serve) == ("coget-broker", "serve")
    (database,) = re.findall("^ENV COGET_BROKER_DATABASE=(.*)$", recipe, re.MULTILINE)
    place = tmp_path / "var"
    place.mkdir()
    with BrokerProcess(database.replace("/var/lib/coget", str(place)), tmp_path, "", *words) as broker:
        assert broker.client().get("/broker/v1/whoami").json()["role"] == "admin"
        assert httpx.get(f"{broker.url}/readyz", timeout=PATIENCE).json() == {"status": "ok"}
    assert list(place.iterdir())


UNIT = """
[Service]
{variables}
WorkingDirectory={folder}
StateDirectory=coget
ProtectSystem=strict
ProtectHome=yes
CapabilityBoundingSet=
NoNewPrivileges=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
SystemCallFilter=@system-service
"""
"""A container's resources with `--read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges` and its
volume.
"""


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze, which lists system calls, is not installed"
)
def test_it_needs_no_root_and_no_writable_root_file_system(tmp_path):
    """Run the image's command without an image registry: as another user, on a read-only root."""
    recipe = RECIPE.read_text()
    (user,), (folder,), (volume,) = (
        re.findall(f"^{word} (.*)$", recipe, re.M) for word in ("USER", "WORKDIR", "VOLUME")
    )
    assert int(user) > 0
    assert folder == volume == "/var/lib/coget"
    variables = dict(each.split("=", 1) for each in re.findall("^ENV (.*)$", recipe, re.M))
    lines = "\n".join(f"Environment={name}={value}" for name, value in variables.items())
    unit, state = tmp_path / "container.service", tmp_path / "state"
    unit.write_text(UNIT.format(variables=lines, folder=folder))
    state.mkdir()
    _, _, *words = json.loads(re.findall("^CMD (.*)$", recipe, re.MULTILINE)[0])
    prefix = confined(unit, state)
    with BrokerProcess(variables["COGET_BROKER_DATABASE"], tmp_path, "-", *words, prefix=prefix) as broker:
        broker.token = (state / "lib" / "broker.sqlite.admin-token").read_text().strip()
        client = broker.client()
        assert client.post("/broker/v1/transfers", json=reports(0, 300)).json()["accepted"] == 300
        asked = {"source": "ftp://s1.example", "sink": "HERE"}
        # The first answers may come before the history is read, and then have no rate.
        rate = wait_until(lambda: client.get("/broker/v1/forecasts", params=asked).json()["rate"])
        assert rate["p50"] > 0
        table = client.get("/broker/v1/transfers/export", params={"format": "parquet"})
        assert table.content.startswith(b"PAR1")
        assert not [each for each in broker.events() if each.get("level") in ("error", "warning")]


def test_every_written_path_is_in_the_volume():
    """The database, the first token of a broker on PostgreSQL, and compiled forecasters."""
    recipe = RECIPE.read_text()
    (volume,) = re.findall("^VOLUME (.*)$", recipe, re.M)
    named = dict(each.split("=", 1) for each in re.findall("^ENV (.*)$", recipe, re.M))
    assert {"COGET_BROKER_DATABASE", "STATE_DIRECTORY", "XDG_CACHE_HOME"} == set(named)
    assert all(Path(each.removeprefix("sqlite:///")).is_relative_to(volume) for each in named.values())

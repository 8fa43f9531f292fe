"""The image's recipe: linted, and what it puts into the image serves as it says. No registry of images is asked."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.broker import BrokerProcess
from tests.support.waiting import PATIENCE

HOUSE = Path(__file__).parents[2]
RECIPE = HOUSE / "deploy" / "Dockerfile"
BUILD = "import setuptools, sys; setuptools.setup(script_args=['-q', 'build_py', '--build-lib', sys.argv[1]])"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The packages as they are installed from what the image is made of."""
    source, target = tmp_path / "src", tmp_path / "installed"
    source.mkdir()
    for name in re.findall("^!(.*)$", (HOUSE / ".dockerignore").read_text(), re.MULTILINE):
        copy = shutil.copytree if (HOUSE / name).is_dir() else shutil.copy
        copy(HOUSE / name, source / name)
    subprocess.run([sys.executable, "-c", BUILD, target], cwd=source, check=True)
    return target


def test_the_linter_finds_nothing():
    linter = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([linter, "--no-color", RECIPE], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_what_the_image_is_made_of_serves(installed, tmp_path, monkeypatch):
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

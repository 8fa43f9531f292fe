"""The script of the process in the how-to for Nextflow, run by bash as Nextflow does; Nextflow is not run."""

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.programs import COGET
from tests.support.waiting import PATIENCE

PAGE = (Path(__file__).parents[2] / "docs/howto/nextflow.md").read_text()
SCRIPT = re.search(r'"""\n(.*?)"""', PAGE, re.DOTALL)[1]
RETRIED = {int(each) for each in re.search(r"exitStatus in \[([\d, ]+)\]", PAGE)[1].split(",")}


@pytest.fixture
def web(tmp_path):
    with Nginx(tmp_path / "web", tmp_path / "run") as server:
        yield server


def status(folder: Path, checksum: str, *urls: str) -> int:
    """Run the script in a directory; return its exit status."""
    values = {"${checksum}": checksum, "${name}": "x.root", "${sources}": " ".join(f"'{url}'" for url in urls)}
    script = SCRIPT
    for name, value in values.items():
        assert name in script
        script = script.replace(name, value)
    folder.mkdir()
    environment = {**os.environ, "HOME": str(folder), "PATH": f"{COGET.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/bash", "-ue", "-c", script], cwd=folder, env=environment, capture_output=True, timeout=PATIENCE
    )
    assert done.stdout == b""
    assert (done.returncode == 0) == (folder / "x.root").exists() == (done.stderr == b"")
    return done.returncode


def test_each_failure_has_the_status_on_which_the_strategy_rests(web, tmp_path):
    content = random_file(web.root / "x y", 1_000_000)
    checksum, url = f"sha256:{hashlib.sha256(content).hexdigest()}", f"{web.url('x y')}?a=1&b=2"
    assert status(tmp_path / "right", checksum, url, url.replace("a=1", "a=2")) == 0
    assert (tmp_path / "right/x.root").read_bytes() == content
    wrong = status(tmp_path / "wrong", "sha256:" + "0" * 64, url)
    assert wrong == 4
    assert wrong not in RETRIED
    assert status(tmp_path / "missing", checksum, web.url("y")) == 3
    web.kill()
    dead = status(tmp_path / "dead", checksum, url)
    assert dead == 3
    assert dead in RETRIED

"""The Debian package: built by `make deb`, installed into a fresh Debian, and used there."""

import os
import re
import shutil
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.support.effort import LONG
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

HOUSE = Path(__file__).parents[2]
LIBRARIES = "opt/venvs/coget/lib/python3*/site-packages"
SECONDS = 10 * PATIENCE
LEFT_OUT = [name for name in ("mmdebstrap", "dh_virtualenv", "dpkg-buildpackage") if not shutil.which(name)]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not LONG, reason="takes minutes; make test-long builds it"),
    pytest.mark.timeout(3 * SECONDS),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may use chroot"),
    pytest.mark.skipif(bool(LEFT_OUT), reason=f"not installed: {', '.join(LEFT_OUT)}"),
]


def run(*command: str | Path, cwd: Path = HOUSE) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=cwd)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def test_it_installs_and_fetches_in_a_fresh_debian(tmp_path):
    release = run("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME").strip()
    run("make", "deb")
    (package,) = (HOUSE / "dist").glob("coget_*.deb")
    root = tmp_path / "root"
    run("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,ca-certificates", release, root)
    shutil.copy(package, root / "tmp")
    run("chroot", root, "dpkg", "--install", f"/tmp/{package.name}")
    assert "coget" in run("chroot", root, "coget", "--version")
    assert "ProtocolVersion = 2" in run("chroot", root, "/usr/libexec/condor/condor_coget_plugin", "-classad")
    assert "serve" in run("chroot", root, "coget-depot", "--help")
    for name in ("man/man1/coget.1.gz", "bash-completion/completions/coget", "zsh/vendor-completions/_coget"):
        assert (root / "usr/share" / name).exists()
    stated = re.findall(r"[\w-]+", (root / "usr/share/doc/coget/copyright").read_text())
    found = (each.metadata["Name"] for each in distributions(path=map(str, root.glob(LIBRARIES))))
    libraries = {re.sub("[._]", "-", name.lower()) for name in found}
    assert libraries - set(stated) == set()
    assert libraries & {"pip", "setuptools"} == set()
    with Nginx(tmp_path / "web", tmp_path / "run") as web:
        content = random_file(web.root / "x", 1_000_000)
        run("chroot", root, "coget", "get", "--quiet", "-o", "/tmp/x", web.url("x"))
    assert (root / "tmp/x").read_bytes() == content
    run("chroot", root, "dpkg", "--purge", "coget")
    assert not (root / "opt/venvs/coget").exists()

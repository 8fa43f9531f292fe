"""Real servers in the hosts of a WAN: they serve whole files, and refuse connections after they were killed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.gsi import Authority
from tests.support.waiting import PATIENCE
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan

pytestmark = pytest.mark.wan

COGET = str(Path(sys.executable).with_name("coget"))
LIMIT_SECONDS = PATIENCE


@pytest.fixture(scope="module")
def wan() -> Iterator[Wan]:
    with Wan(Topology.load("hetero")) as wan:
        yield wan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "data.bin").write_bytes(os.urandom(2_000_003))
    return tmp_path / "export"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def fetch(wan: Wan, target: Path, *urls: str, env: dict[str, str] | None = None) -> int:
    command = wan.command("client", [COGET, "--quiet", *urls, "-o", str(target)])
    variables = {**os.environ, "COGET_HISTORY": "off", **(env or {})}
    return subprocess.run(command, env=variables, timeout=LIMIT_SECONDS, check=False).returncode


def copies(folder: Path, target: Path) -> bool:
    return target.read_bytes() == (folder / "data.bin").read_bytes()


def test_coget_fetches_from_all_kinds_at_once(
    wan: Wan, folder: Path, tmp_path: Path, grid: Authority, stack: ExitStack
):
    tls = grid.host("s3", f"IP:{wan.address('s3')}", stem="s3")
    used: list[Any] = [
        stack.enter_context(servers.gridftp(wan, "s1", folder)),
        stack.enter_context(servers.nginx(wan, "s2", folder)),
        stack.enter_context(servers.nginx(wan, "s3", folder, tls=tls)),
    ]
    urls = [server.url("data.bin") for server in used]
    assert [url.partition(":")[0] for url in urls] == ["ftp", "http", "https"]
    env = {"SSL_CERT_FILE": str(grid.authority.certificate)}
    for url in urls:
        (tmp_path / "one").unlink(missing_ok=True)
        assert fetch(wan, tmp_path / "one", url, env=env) == 0
        assert copies(folder, tmp_path / "one")
    assert fetch(wan, tmp_path / "all", *urls, env=env) == 0
    assert copies(folder, tmp_path / "all")


def test_xrdcp_fetches_from_xrootd(wan: Wan, folder: Path, tmp_path: Path, stack: ExitStack):
    if not shutil.which("xrdcp"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("xrdcp is not installed: apt-get install xrootd-client")
    server = stack.enter_context(servers.xrootd(wan, "s1", folder))
    command = ["xrdcp", "--silent", server.url("data.bin"), str(tmp_path / "copy")]
    assert subprocess.run(wan.command("client", command), timeout=LIMIT_SECONDS).returncode == 0
    assert copies(folder, tmp_path / "copy")


@pytest.mark.parametrize("start", [servers.gridftp, servers.nginx, servers.xrootd], ids=lambda start: start.__name__)
def test_a_killed_server_is_gone(wan: Wan, folder: Path, start, stack: ExitStack):
    server = stack.enter_context(start(wan, "s2", folder))
    where = server.url("data.bin").split("/")[2].replace(":", "/")
    knock = wan.command("client", ["bash", "-c", f"exec 3<>/dev/tcp/{where}"])
    assert subprocess.run(knock, timeout=LIMIT_SECONDS).returncode == 0
    server.kill()
    refused = subprocess.run(knock, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert "Connection refused" in refused.stderr

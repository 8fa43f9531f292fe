"""Modules loaded before any output or transfer: needless ones would slow every start.

`tests/benchmarks/start_up.py` measures times; these tests check which modules were loaded in the end.
"""

import subprocess
import sys

import pytest

from tests.support.coget import LIFE_SECONDS
from tests.support.nginx import Nginx
from tests.support.programs import with_this_checkout

PROGRAM = """
import sys
from coalloc.cli.main import invoke
status = invoke(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""
FOR_SOME = {
    "_ssl",
    "anyio",
    "coalloc.api.catalogue",
    "coalloc.broker_client",
    "coalloc.collect",
    "coalloc.download.to_server",
    "coalloc.engine.fsspec_source",
    "coalloc.engine.globus_url_copy",
    "coalloc.planner",
    "coalloc.resolve.metalink",
    "cryptography",
    "decimal",
    "dis",  # loaded by inspect
    "email",
    "encodings.idna",
    "fsspec",
    "h11",
    "hashlib",
    "http.client",
    "httpcore",
    "httpx",
    "importlib.metadata",
    "rich",
    "shutil",
    "statistics",
    "tempfile",
    "urllib.request",
    "xml.etree.ElementTree",
}
"""Modules that only some transfers need."""
ENGINES = {"ftp": "coalloc.engine.gridftp", "http": "coalloc.engine.http"}
FOR_TRANSFERS = {"asyncio", "coalloc.api", "socket", "sqlite3", "ssl", "zlib_ng"}
"""Modules that no help text needs."""


def loaded(words, home, **environment):
    """Return the modules that `coget` has loaded at a successful end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=home,
        env=with_this_checkout({"HOME": str(home), **environment}),
        capture_output=True,
        text=True,
        timeout=LIFE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--help"], ["get", "--help"]], ids=" ".join)
def test_help_loads_nothing_of_a_transfer(words, tmp_path):
    modules = loaded(words, tmp_path)
    assert "coalloc.cli.get" in modules
    assert modules & (FOR_SOME | FOR_TRANSFERS) <= {"dis", "shutil"}  # click uses them for help texts


@pytest.mark.parametrize("history", ["off", "history.sqlite"])
@pytest.mark.parametrize("scheme", ENGINES)
def test_a_plain_download_loads_nothing_of_other_kinds(scheme, history, gridftp_server, tmp_path):
    (gridftp_server.root / "byte").write_bytes(b"x")
    with Nginx(gridftp_server.root, tmp_path / "nginx") as nginx:
        url = (gridftp_server if scheme == "ftp" else nginx).url("byte")
        secret = {"BEARER_TOKEN": "abc"}  # costs no module either
        modules = loaded(["--header", "X-Key: abc", url], tmp_path, COGET_HISTORY=history, **secret)
    assert (tmp_path / "byte").read_bytes() == b"x"
    assert modules & set(ENGINES.values()) == {ENGINES[scheme]}
    assert modules & FOR_SOME == set()
    assert ("sqlite3" in modules) == (history != "off")

"""Modules loaded before any output or transfer: needless ones would slow every start.

Scenario `start` of `tests/benchmarks/loopback.py` measures times; these tests check which modules were loaded in the
end.
"""

import subprocess
import sys

import pytest

from tests.support.coget import LIFE_SECONDS

PROGRAM = """
import sys
from coalloc.cli.main import invoke
status = invoke(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""
FOR_SOME = {
    "coalloc.engine.fsspec_source",
    "coalloc.engine.gridftp.gsi",
    "coalloc.engine.http",
    "coalloc.engine.globus_url_copy",
    "coalloc.display",
    "coalloc.resolve.metalink",
    "cryptography",
    "encodings.idna",
    "fsspec",
    "hashlib",
    "httpcore",
    "httpx",
    "importlib.metadata",
    "rich",
    "shutil",
    "statistics",
    "tempfile",
    "xml.etree.ElementTree",
}
"""Modules that only some transfers need."""
FOR_TRANSFERS = {"asyncio", "coalloc.api", "socket", "sqlite3", "ssl", "zlib_ng"}
"""Modules that no help text needs."""


def loaded(words, home, **environment):
    """Return the modules that `coget` has loaded at a successful end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=home,
        env={"HOME": str(home), **environment},
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
    assert modules & (FOR_SOME | FOR_TRANSFERS) <= {"shutil"}  # click asks it for the width of the terminal


@pytest.mark.parametrize("history", ["off", "history.sqlite"])
def test_a_plain_download_loads_nothing_of_other_kinds(history, gridftp_server, tmp_path):
    (gridftp_server.root / "byte").write_bytes(b"x")
    words = ["get", "--quiet", gridftp_server.url("byte"), "-o", "here"]
    modules = loaded(words, tmp_path, COGET_HISTORY=history)
    assert (tmp_path / "here").read_bytes() == b"x"
    assert "coalloc.engine.gridftp.stream" in modules
    assert modules & FOR_SOME == set()
    assert ("sqlite3" in modules) == (history != "off")

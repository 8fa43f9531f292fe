"""Files and directories from `rclone serve`, over three protocols."""

import json
import os
from contextlib import ExitStack
from random import Random

import pytest

from tests.support.coget import coget
from tests.support.rclone import PASSWORD, PROTOCOLS, Rclone

CONTENT = Random(5).randbytes(5_000_001)
FILES = {"run/a": b"a", "run/deep/é b+c.bin": CONTENT, "run/empty": b""}


@pytest.fixture
def servers(tmp_path, monkeypatch):
    """Return a server of each protocol, by scheme, with the same files."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history"))
    for name, content in FILES.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with ExitStack() as stack:
        started = [
            stack.enter_context(Rclone(tmp_path / "root", tmp_path / protocol, protocol, home))
            for protocol in PROTOCOLS
        ]
        yield {server.scheme: server for server in started}


def test_a_file_from_all_protocols_at_once_and_directories(servers, tmp_path):
    urls = [server.url("run/deep/é b+c.bin") for server in servers.values()]
    words = [*urls, "--strategy", "brute", "--json", "-o", "x"]
    done = coget(words, tmp_path, **os.environ)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x").read_bytes() == CONTENT
    report = json.loads(done.stdout)
    assert all(source["bytes"] for source in report["sources"]), report
    assert PASSWORD not in done.stdout + done.stderr
    for scheme in ("http", "dav"):
        folder = tmp_path / f"from {scheme}"
        done = coget(["-r", f"{servers[scheme].url('run')}/", "-o", f"{folder}/"], tmp_path, **os.environ)
        assert done.returncode == 0, done.stderr
        found = {f"run/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert found == FILES, scheme

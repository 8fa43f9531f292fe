"""Files that are replaced at real servers, during a fetch and between two runs: no result is a mixture."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.test_real_downloads import HELD, MIB, make_file, wait_for_bytes, written
from tests.support.coget import coget, coget_process
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

SIZE = 100 * MIB
SILENT = ("-disable-command-list", "CKSM")
"""A server without checksums: replicas cannot be compared."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[GridFTPServer]]:
    with ExitStack() as stack:
        places = [(tmp_path / name, f"127.0.0.{i}") for i, name in enumerate("ab", 2)]
        yield [stack.enter_context(GridFTPServer(*place, options=SILENT)) for place in places]


def replace(server: GridFTPServer, seed: int) -> bytes:
    """Replace the file by another one of the same length, a minute newer."""
    new = server.root / "new"
    content = make_file(new, SIZE, seed)
    modified = new.stat().st_mtime + 60 * seed
    os.utime(new, (modified, modified))
    new.rename(server.root / "big")
    return content


def begun(data: Path) -> bool:
    """Return whether the first bytes of a file are here, which the first source of a brute scheme delivers."""
    with data.open("rb") as file:
        return file.read(MIB) != bytes(MIB)


def test_file_replaced_during_a_fetch_is_refused_and_then_fetched_anew(servers, tmp_path):
    server, _ = servers
    make_file(server.root / "big", SIZE)
    with coget_process([server.url("big"), *HELD, "--quiet", "-o", "here"], tmp_path) as process:
        wait_for_bytes(process, tmp_path / "here", MIB)
        server.pause()
        content = replace(server, 2)
        server.resume()
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4, stderr
    assert "changed while it was fetched" in stderr
    assert not (tmp_path / "here").exists()
    assert coget([server.url("big"), "--quiet", "-o", "here"], tmp_path).returncode == 0
    assert (tmp_path / "here").read_bytes() == content


def test_file_replaced_at_one_server_is_fetched_from_the_other(servers, tmp_path):
    content, _ = [make_file(server.root / "big", SIZE) for server in servers]
    words = [*(server.url("big") for server in servers), "--strategy", "brute", "--quiet", "--json", "-o", "here"]
    with coget_process([*words, *HELD], tmp_path) as process:
        wait_for_bytes(process, tmp_path / "here", 0)
        wait_until(lambda: process.poll() is not None or begun(tmp_path / "here.coget/data"))
        assert process.poll() is None
        servers[0].pause()
        replace(servers[0], 2)
        servers[0].resume()
        out, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    assert (tmp_path / "here").read_bytes() == content
    report = json.loads(out)
    assert report["checksum"]["basis"] == "none"
    assert report["sources"][0]["outcome"] == "failed"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", [0, 1])
def test_file_replaced_between_two_runs_is_not_resumed(servers, tmp_path, first):
    """The result is the same whichever source answers first in the second run."""
    for server in servers:
        make_file(server.root / "big", SIZE)
    both = [server.url("big") for server in servers]
    with coget_process([*both, *HELD, "--quiet", "-o", "here"], tmp_path) as process:
        wait_for_bytes(process, tmp_path / "here", 20 * MIB)
        process.send_signal(signal.SIGKILL)
        process.wait()
    contents = [replace(server, 2) for server in servers]
    servers[1 - first].pause()
    with coget_process([*both, "--quiet", "-o", "here"], tmp_path) as process:
        wait_until(lambda: process.poll() is not None or written(tmp_path / "here") > 0)
        servers[1 - first].resume()
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    assert (tmp_path / "here").read_bytes() == contents[0]


def test_a_web_server_whose_file_is_replaced_while_it_comes(tmp_path):
    with Nginx(tmp_path / "web", tmp_path / "run", more="limit_rate 20m;") as server:
        make_file(server.root / "big", SIZE)
        with coget_process([server.url("big"), "--quiet", "-o", "here"], tmp_path) as process:
            wait_for_bytes(process, tmp_path / "here", MIB)
            server.pause()
            content = replace(server, 2)
            server.resume()
            _, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == 4, stderr
        assert not (tmp_path / "here").exists()
        assert coget([server.url("big"), "--quiet", "-o", "here"], tmp_path).returncode == 0
        assert (tmp_path / "here").read_bytes() == content

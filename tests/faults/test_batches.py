"""Batches of concurrent real downloads: load on servers, and behaviour when a server allows fewer connections."""

import json
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from coalloc.engine.limits.server_slots import Slots
from tests.support.coget import coget, coget_process
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

SIZE = 3_000_001
LIFE_SECONDS = PATIENCE
ESTABLISHED = "01"
BUSY = "error_page {status} @busy; location @busy {{ add_header Retry-After {seconds} always; return {status}; }}"


def connections(port: int) -> set[tuple[str, str]]:
    """Return the connections of this machine to a port of the loopback, as address and inode of their clients' ends.

    The kernel makes this list piece by piece: a connection may have ended when a later one is added.
    """
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {(line[1], line[9]) for line in lines if int(line[2][-4:], 16) == port and line[3] == ESTABLISHED}


class Counter:
    """A repeated count of connections to a port: those in two lists all existed between the two."""

    def __init__(self, port: int) -> None:
        self.seen: list[int] = []
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        last = connections(self._port)
        while not self._over.wait(0.001):
            now = connections(self._port)
            self.seen.append(len(last & now))
            last = now

    def __enter__(self) -> "Counter":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def start(tmp_path):
    """A function that starts `coget`, which ends with the test."""
    with ExitStack() as stack:

        def start(*words: str, **environment: str) -> "subprocess.Popen[str]":
            process = stack.enter_context(coget_process([*words], tmp_path, **environment))
            stack.callback(process.kill)
            patience = threading.Timer(LIFE_SECONDS, process.kill)
            patience.start()
            stack.callback(patience.cancel)
            return process

        yield start


def says(process: "subprocess.Popen[str]", words: str) -> str:
    """Return the standard error of `process` up to the line with these words."""
    output = ""
    for line in process.stderr:
        output += line
        if words in line:
            return output
    raise AssertionError(f"it never printed {words!r}: {output}")


def finish(*processes: "subprocess.Popen[str]") -> None:
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), errors


def test_a_batch_never_has_more_sessions_than_it_may(gridftp_server, start, tmp_path, monkeypatch):
    content = random_file(gridftp_server.root / "file", SIZE)
    monkeypatch.setenv("COGET_CONNECTIONS", "3")
    slots = Slots.from_environment()
    held = [slots.take(f"127.0.0.1:{gridftp_server.port}") for _ in range(3)]
    # The connection over which a server is asked for checksums is not counted, so none are compared here.
    batch = [
        start(gridftp_server.url("file"), "--checksum", "none", "-o", f"{i}", COGET_CONNECTIONS="3") for i in range(12)
    ]
    for each in batch:
        says(each, "waiting for a free connection")
    with Counter(gridftp_server.port) as counter:
        for each in held:
            each.release()
        finish(*batch)
    assert 0 < max(counter.seen) <= 3
    assert all((tmp_path / f"{i}").read_bytes() == content for i in range(12))


@pytest.fixture
def slow(tmp_path):
    """A web server that takes a minute for a big file."""
    with Nginx(tmp_path / "www", tmp_path / "run", more="location /big { limit_rate 200k; }") as server:
        random_file(server.root / "big", 12_000_000)
        random_file(server.root / "file", SIZE)
        yield server


def test_killed_process_frees_its_slot(slow, start, tmp_path):
    first = start(slow.url("big"), "-o", "first", COGET_CONNECTIONS="1")
    says(first, "of 12.0 MB")
    second = start(slow.url("file"), "--checksum", "none", "-o", "second", COGET_CONNECTIONS="1")
    output = says(second, "waiting for a free connection")
    assert f"to 127.0.0.1:{slow.port}: transfers of this machine use all 1" in output
    first.send_signal(signal.SIGKILL)
    finish(second)
    assert (tmp_path / "second").read_bytes() == (slow.root / "file").read_bytes()


def test_other_sources_continue_while_one_has_no_free_connection(slow, gridftp_server, start, tmp_path):
    content = (slow.root / "file").read_bytes()
    (gridftp_server.root / "file").write_bytes(content)
    first = start(slow.url("big"), "-o", "first", COGET_CONNECTIONS="1")
    says(first, "of 12.0 MB")
    done = coget([slow.url("file"), gridftp_server.url("file"), "--json", "-o", "x"], tmp_path, COGET_CONNECTIONS="1")
    assert done.returncode == 0, done.stderr
    assert first.poll() is None
    assert (tmp_path / "x").read_bytes() == content
    sources = {source["url"]: source for source in json.loads(done.stdout)["sources"]}
    assert sources[slow.url("file")]["outcome"] == "unused"
    assert "waiting for a free connection" in sources[slow.url("file")]["error"]
    assert "waiting for a free connection" in done.stderr


def test_a_full_gridftp_server_is_asked_again(start_gridftp, start, tmp_path):
    server = start_gridftp(tmp_path / "export", options=("-connections-max", "1"))
    content = random_file(server.root / "file", SIZE)
    with socket.create_connection((server.host, server.port)) as other:
        assert other.recv(3) == b"220"
        process = start(server.url("file"), "--checksum", "none", "-o", "x")
        assert "Connection limit exceeded" in says(process, "(pausing)")
    finish(process)
    assert (tmp_path / "x").read_bytes() == content


def test_a_batch_on_a_server_that_takes_two_at_a_time(start, tmp_path):
    zones = "limit_conn_zone $binary_remote_addr zone=two:1m;"
    more = f"limit_conn two 2; location /big {{ limit_rate 200k; }} {BUSY.format(status=503, seconds=2)}"
    with Nginx(tmp_path / "www", tmp_path / "run", zones=zones, more=more) as server, ExitStack() as others:
        random_file(server.root / "big", 12_000_000)
        content = random_file(server.root / "file", SIZE)
        for _ in range(2):
            other = others.enter_context(socket.create_connection((server.host, server.port)))
            other.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            assert other.recv(12) == b"HTTP/1.1 200"
        batch = [start(server.url("file"), "-o", f"{i}", COGET_CONNECTIONS="off") for i in range(3)]
        for process in batch:
            assert "503" in says(process, "(pausing)")
        others.close()
        finish(*batch)
    assert all((tmp_path / f"{i}").read_bytes() == content for i in range(3))


def test_a_server_that_counts_requests_is_left_alone_as_long_as_it_wants(tmp_path):
    zones = "limit_req_zone $server_port zone=few:1m rate=30r/m;"
    limit = "limit_req zone=few burst=1 nodelay; limit_req_status 429; keepalive_timeout 0;"
    more = f"{limit} {BUSY.format(status=429, seconds=4)}"  # without kept connections, the size is asked for twice
    with Nginx(tmp_path / "www", tmp_path / "run", zones=zones, more=more) as server:
        content = random_file(server.root / "file", SIZE)
        done = coget([server.url("file"), "--json", "-o", "x"], tmp_path)
        refused = (tmp_path / "run" / "error.log").read_text().count("limiting requests")
    assert done.returncode == 0, done.stderr
    assert "429" in done.stderr
    assert refused == 1, "four seconds later there was room for what comes next"
    assert (tmp_path / "x").read_bytes() == content

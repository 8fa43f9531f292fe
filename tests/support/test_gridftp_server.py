"""The GridFTP servers of the tests start, serve files, do not answer while paused, and end when killed."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fetching import IPV6
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import PATIENCE


def get(url, target):
    return subprocess.run(["globus-url-copy", url, f"file://{target}"], timeout=PATIENCE, capture_output=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.3", IPV6])
def test_serves_a_file(start_gridftp, tmp_path, host):
    server = start_gridftp(tmp_path / "root", host)
    (server.root / "with space").write_bytes(b"content")
    # globus-url-copy uses IPv6 only with -ipv6, so for IPv6 only the greeting is checked
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as sock:
        assert sock.recv(4) == b"220 "
    if ":" not in host:
        get(server.url("with space"), tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"content"


def test_a_killed_server_resets_its_sessions(gridftp_server):
    with socket.create_connection((gridftp_server.host, gridftp_server.port), timeout=PATIENCE) as sock:
        sock.recv(1000)
        gridftp_server.kill()
        assert sock.recv(1000) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((gridftp_server.host, gridftp_server.port), timeout=PATIENCE)
    with GridFTPServer(gridftp_server.root, port=gridftp_server.port):  # its port is still reserved
        socket.create_connection((gridftp_server.host, gridftp_server.port), timeout=PATIENCE).close()


HELD = """
import sys
from pathlib import Path
from tests.support.gridftp import GridFTPServer

with GridFTPServer(Path(sys.argv[1])) as server, GridFTPServer(Path(sys.argv[1]), "127.0.0.2") as ended:
    ended.kill()
    print(server.port, flush=True)
    sys.stdin.read()
"""


def test_it_ends_when_the_tests_are_killed(tmp_path):
    command = [sys.executable, "-c", HELD, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, cwd=Path(__file__).parents[2]) as tests:
        port = int(tests.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as sock:
            sock.recv(1000)
            tests.kill()
            assert sock.recv(1000) == b""


def test_a_paused_server_is_silent_until_resumed(gridftp_server):
    with socket.create_connection((gridftp_server.host, gridftp_server.port), timeout=PATIENCE) as sock:
        sock.recv(1000)
        gridftp_server.pause()
        sock.sendall(b"NOOP\r\n")
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sock.recv(1000)
        gridftp_server.resume()
        sock.settimeout(PATIENCE)
        assert sock.recv(1000)

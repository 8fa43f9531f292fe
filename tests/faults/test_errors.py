"""Failures on the command line, on real servers.

Each error names its subject and remedy, has its status, and shows no traceback. With --json, stdout is still one
object.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.coget import coget, patient
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

CONTENT = b"0123456789" * 1000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("export")
    (root / "x").write_bytes(CONTENT)
    for size in (1 << 28, 1 << 28 | 1):  # large, so that one has not come whole before the other server answers
        (root / str(size)).touch()
        os.truncate(root / str(size), size)
    (root / "folder").mkdir()
    (root / "bad.meta4").write_text("<metalink")
    return root


@pytest.fixture(scope="module")
def places(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return beginnings of URLs by the kind of place."""
    with ExitStack() as stack:
        ftp = stack.enter_context(GridFTPServer(root))
        locked = stack.enter_context(GridFTPServer(root, anonymous=False))
        web = stack.enter_context(Nginx(root, tmp_path_factory.mktemp("run"), more="location /secret { deny all; }"))
        shell = stack.enter_context(Talker(b"SSH-2.0-OpenSSH_9.2p1\r\n"))
        mute = stack.enter_context(Talker(b""))
        yield {
            "FTP": ftp.url("") + "/",
            "LOCKED": locked.url("") + "/",
            "WEB": web.url(""),
            "WEB_AS_FTP": web.url("", scheme="ftp"),
            "FTP_AS_WEB": f"http://127.0.0.1:{ftp.port}/",
            "SHELL_AS_FTP": f"ftp://127.0.0.1:{shell.port}/",
            "SHELL_AS_WEB": f"http://127.0.0.1:{shell.port}/",
            "HANGS_UP": f"http://127.0.0.1:{mute.port}/",
            "CLOSED": f"127.0.0.1:{shell.closed_port}",
        }


class Talker:
    """A server that greets each client like an SSH server and hangs up; and a port without a server."""

    def __init__(self, words: bytes) -> None:
        self._words = words

    def __enter__(self) -> "Talker":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._taken = socket.socket()  # bound, never listening: connections are refused
        self._taken.bind(("127.0.0.1", 0))
        self.port, self.closed_port = self._listener.getsockname()[1], self._taken.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        while True:
            try:
                session, _ = self._listener.accept()
            except OSError:  # shut down
                return
            with session:
                session.sendall(self._words)

    def __exit__(self, *exc_info: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._taken.close()


MD5 = "md5:" + 32 * "0"
CASES = [
    # words, status, code, what the message or the remedy says
    ("ftp://no-such-host.invalid/x", 3, "unknown_host", "no-such-host.invalid"),
    ("ftp://{CLOSED}/x", 3, "unreachable", "refused"),
    ("http://{CLOSED}/x", 3, "unreachable", "refused"),
    ("{FTP}none", 3, "no_such_file", "none"),
    ("{WEB}none", 3, "no_such_file", "404"),
    ("{FTP}none {WEB}none", 3, "nothing_to_fetch_from", "none of the 2 sources"),
    ("{FTP}none ftp://{CLOSED}/x", 3, "no_answer", "none of the 2 sources"),
    ("ftp://{CLOSED}/x http://{CLOSED}/x", 3, "no_answer", "none of the 2 sources"),
    ("{FTP}folder", 3, "no_such_file", "is a directory"),
    ("{FTP}x%00y", 3, "unsupported", "x%00y: GridFTP cannot name a file with a NUL character"),
    ("{FTP}x%0Ay", 3, "unsupported", "x%0Ay: GridFTP cannot name a file with a line break"),
    ("{SHELL_AS_FTP}x", 3, "not_that_protocol", "not a GridFTP server"),
    ("{WEB_AS_FTP}x", 3, "not_that_protocol", "not a GridFTP server"),
    ("{FTP_AS_WEB}x", 3, "not_that_protocol", "not an HTTP server"),
    ("{SHELL_AS_WEB}x", 3, "not_that_protocol", "not an HTTP server"),
    ("{FTP_AS_WEB}x {SHELL_AS_WEB}x", 3, "nothing_to_fetch_from", "not an HTTP server"),
    ("{HANGS_UP}x", 3, "no_answer", "check scheme and port"),
    ("nowhere://host/x", 3, "unsupported", "no engine supports nowhere://"),
    ("{LOCKED}x", 7, "permission_refused", "530"),
    ("{WEB}secret/x", 7, "permission_refused", "403"),
    ("{LOCKED}x {WEB}secret/x", 7, "not_allowed", "none of the 2 sources"),
    ("{FTP}268435456 {FTP}268435457", 4, "verification_failed", "the replicas are different files"),
    (f"{{FTP}}x --checksum {MD5}", 4, "verification_failed", "check the expected checksum"),
    (f"{{WEB}}x --checksum {MD5}", 4, "verification_failed", hashlib.md5(CONTENT).hexdigest()),
    ("{FTP}x -o missing/x", 6, "local_disk", "create the directory first"),
    ("{FTP}x -o /proc/x", 6, "local_disk", "/proc/x"),
    ("{FTP}x -o /dev/null", 6, "local_disk", "not a plain file"),
    ("{FTP}x -o taken", 6, "local_disk", "is a directory"),
    ("{FTP}x -o blocked", 6, "local_disk", "blocked.coget is needed for partial data"),
    ("{FTP}x -o missing/", 2, "usage", "missing/ is not a directory"),
    ("{FTP}x --output=", 2, "usage", "--output is empty"),
    ("{FTP}x --checksum md5:00", 2, "usage", "32 hex digits"),
    ("{FTP}x --checksum rot13:00", 2, "usage", "rot13"),
    ("{FTP}x --blocks 3", 2, "usage", "--blocks makes no sense"),
    ("{FTP}x --streams 0", 2, "usage", "--streams"),
    ("{WEB}x --engine globus-url-copy", 2, "usage", "globus-url-copy"),
    ("{FTP}x --nonsense", 2, "usage", "--nonsense"),
    ("ftp://host:99999/x", 2, "usage", "99999"),
    ("ftp:///x", 2, "usage", "names no host"),
    ("no-such.meta4", 2, "usage", "no-such.meta4"),
    ("{WEB}bad.meta4", 2, "usage", "not a Metalink"),
    ("{FTP}bad.meta4", 2, "usage", "not a Metalink"),
    ("evil.meta4", 2, "usage", "'../x'"),
    ("evil.meta4 {FTP}x", 2, "usage", "a Metalink must be the only one"),
]


MAY_PASS = {"unreachable", "no_answer"}
"""Codes of errors in `CASES` after which the same command may succeed."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("words", "status", "code", "says"), CASES, ids=[case[0] for case in CASES])
def test_an_error_is_clear_and_has_its_status(places, tmp_path, tmp_path_factory, words, status, code, says):
    home = tmp_path / "home"
    (home / "taken" / "x").mkdir(parents=True)
    (home / "blocked.coget").touch()
    url = places["FTP"] + "x"
    (home / "evil.meta4").write_text(
        f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="../x"><url>{url}</url></file></metalink>'
    )
    environment = {"COGET_HISTORY": "off", **patient(tmp_path_factory.mktemp("patient"))}
    before = sorted(tmp_path.rglob("*"))
    done = coget([*words.format(**places).split(), "--json"], home, **environment)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (status, code), done.stderr
    assert says in error["message"] + error["remedy"]
    assert error["remedy"]
    assert error["transient"] == (code in MAY_PASS)
    assert [line.startswith("coget: ") for line in done.stderr.splitlines()].count(True) == 1
    assert error["message"].splitlines()[0] in done.stderr
    assert "Traceback" not in done.stderr
    if "--checksum md5:0000" not in words and "268435457" not in words:  # without arrived bytes, no file is left
        assert sorted(tmp_path.rglob("*")) == before


def test_names_never_leave_the_directory(places, root, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (root.parent / "outside").write_bytes(CONTENT)
    done = coget([places["FTP"] + "%2e%2e%2foutside", "--quiet"], home, COGET_HISTORY="off")
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in home.iterdir()] == ["..%2Foutside"]
    assert list(tmp_path.iterdir()) == [home]


def test_output_that_cannot_be_written_is_no_defect(places, tmp_path):
    command = [Path(sys.executable).with_name("coget"), places["FTP"] + "x", "--json", "--quiet"]
    environment = {**os.environ, "COGET_HISTORY": "off"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, text=True, timeout=PATIENCE
        )
    assert done.returncode == 6
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "x").read_bytes() == CONTENT


@pytest.mark.sampled(2)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("json", ["", "--json"])
def test_closed_output_is_as_good_as_none(places, tmp_path, closed, json):
    """New files would otherwise get their numbers, and output would go into them."""
    program = Path(sys.executable).with_name("coget")
    for name, status in [("x", 0), ("none", 3)]:
        command = f"exec {program} {places['FTP']}{name} -o {name} {json} {closed}"
        environment = {**os.environ, "COGET_HISTORY": "off"}
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, timeout=PATIENCE
        )
        assert done.returncode == status
        assert b"defect" not in done.stderr
    assert (tmp_path / "x").read_bytes() == CONTENT


@pytest.mark.parametrize("words", ["get -o -", "stream --rate 1000"])
def test_a_file_for_a_closed_standard_output_is_an_error(places, tmp_path, words):
    program = Path(sys.executable).with_name("coget")
    command = f"exec {program} {words} {places['FTP']}x >&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 6
    assert b"standard output is closed" in done.stderr


@pytest.mark.parametrize("history", ["/proc/none/history", "/etc/passwd", "/"])
def test_a_history_that_cannot_be_kept_harms_no_transfer(places, tmp_path, history):
    done = coget([places["FTP"] + "x"], tmp_path, COGET_HISTORY=history)
    assert done.returncode == 0
    assert done.stderr.count("the history of transfers") == 1
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_replicas_that_differ_are_never_mixed_by_a_later_run(start_gridftp, tmp_path):
    """Their sizes are equal, and no witness can decide: the next run keeps the bytes of both apart."""
    servers = [start_gridftp(tmp_path / name, f"127.0.0.{i}") for i, name in enumerate("ab", 2)]
    contents = [bytes([i]) * (8 << 20) for i in range(2)]
    for server, content in zip(servers, contents, strict=True):
        (server.root / "x").write_bytes(content)
    both = [server.url("x") for server in servers]
    for _ in range(2):
        done = coget([*both, "--strategy", "brute", "--quiet"], tmp_path)
        assert done.returncode == 4
        assert all(url in done.stderr for url in both)
    done = coget([both[0], "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checksum"]["basis"] == "own word"
    assert (tmp_path / "x").read_bytes() == contents[0]

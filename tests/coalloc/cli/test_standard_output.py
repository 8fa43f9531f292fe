"""`coget get -o -`: a file on standard output, for the next program of a pipe."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.coget import COGET, coget
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.programs import start
from tests.support.terminal import at_terminal
from tests.support.waiting import PATIENCE

SIZE = 8 << 20


@pytest.fixture
def web(tmp_path):
    with Nginx(tmp_path / "export", tmp_path / "run") as server:
        yield server


@pytest.fixture
def content(web):
    return random_file(web.root / "file", SIZE)


def writing(web: Nginx, home: Path, *more: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Start coget with the file on standard output."""
    return start(
        [COGET, "-o", "-", web.url("file"), *more],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=home,
        env={**os.environ, "HOME": str(home)},
    )


def test_the_next_program_gets_the_file_and_nothing_else(web, content, tmp_path):
    with writing(web, tmp_path) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out == content
    assert b"standard output: 8.39 MB" in err
    assert not list(tmp_path.glob("file*"))


def test_the_next_program_gets_the_file_at_a_promised_rate(web, content, tmp_path):
    command = [COGET, "stream", "--rate", "1 MB/s", web.url("file")]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout == content
    assert b"1.00 MB/s: kept" in done.stderr


@pytest.mark.parametrize("rate", ["0 MB/s", "much", "-1 MB/s"])
def test_a_rate_is_a_positive_number_with_a_unit(web, content, tmp_path, rate):
    done = coget(["stream", "--rate", rate, web.url("file")], tmp_path)
    assert done.returncode == 2
    assert "--rate" in done.stderr


def test_a_wrong_file_has_status_4(web, content, tmp_path):
    with writing(web, tmp_path, "--checksum", "adler32:00000001") as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4
    assert b"file was read, but it is wrong" in err


def test_a_closed_pipe_is_an_error_without_a_traceback(web, content, tmp_path):
    with writing(web, tmp_path, "--quiet") as process:
        assert process.stdout.read(1000) == content[:1000]
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(PATIENCE) == 6
    assert err.startswith(b"coget: cannot write to standard output")
    assert b"Traceback" not in err


def test_it_can_be_interrupted_while_the_reader_does_not_read(web, content, tmp_path):
    with writing(web, tmp_path, "--quiet") as process:
        assert process.stdout.read(1000) == content[:1000]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert b"Traceback" not in process.stderr.read()


def test_a_nonblocking_pipe_gets_all_bytes(web, content, tmp_path):
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with writing(web, tmp_path, "--quiet", stdout=theirs) as process, os.fdopen(ours, "rb") as reader:
        os.close(theirs)
        assert reader.read() == content
        assert process.wait(PATIENCE) == 0


def test_a_terminal_is_spared(web, content, tmp_path):
    status, output = at_terminal([COGET, "-o", "-", web.url("file")], tmp_path)
    assert status == 2
    assert b"standard output is a terminal" in output


def test_json_needs_standard_output_for_itself(web, content, tmp_path):
    done = coget(["-o", "-", "--json", web.url("file")], tmp_path)
    assert done.returncode == 2
    assert "both need standard output" in done.stderr


def test_a_full_disk_is_an_error(web, content, tmp_path):
    with Path("/dev/full").open("wb") as full, writing(web, tmp_path, "--quiet", stdout=full.fileno()) as process:
        err = process.stderr.read()
        assert process.wait(PATIENCE) == 6
    assert b"No space left on device" in err

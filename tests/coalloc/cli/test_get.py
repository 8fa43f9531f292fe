"""`coget get` on real servers: its output for people and programs."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.coget import CONTENT, NAME, REPORT_KEYS, SOURCE_KEYS, coget, coget_process
from tests.support.waiting import PATIENCE


def test_short_form_fetches_and_prints_a_report(urls, home):
    result = coget(urls[:2], home)
    assert (result.returncode, result.stdout) == (0, "")
    assert (home / NAME).read_bytes() == CONTENT
    assert re.search(rf"{NAME}: (connecting|\d+ %)", result.stderr)  # nearby servers answer before the first line
    assert re.search(rf"{NAME}: 8\.39 MB in .* \(adaptive\)", result.stderr)
    assert re.search(r"(confirms the checksum|replicas agree): adler32 [0-9a-f]{8}", result.stderr)
    assert len(re.findall(r"^127\.0\.0\.[23]:\d+ +\d+ % ", result.stderr, re.M)) == 2


def test_json_is_one_object_on_stdout(urls, home):
    result = coget(["get", "--json", "-o", "here", *urls[:2]], home)
    document = json.loads(result.stdout)
    assert set(document) == REPORT_KEYS
    assert all(set(source) == SOURCE_KEYS for source in document["sources"])
    assert {source["url"] for source in document["sources"]} == set(urls[:2])
    assert sum(source["bytes"] for source in document["sources"]) >= document["size"] == len(CONTENT)
    assert Path(home, document["output"]).read_bytes() == CONTENT


def test_quiet_is_silent(urls, home):
    result = coget(["--quiet", *urls[:2]], home)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_source_without_the_file_is_named(urls, home):
    result = coget(["--json", "--strategy", "brute", *urls], home)  # waits for answers
    assert result.returncode == 0
    third = json.loads(result.stdout)["sources"][2]
    assert third["outcome"] == "failed"
    assert "127.0.0.4" in third["error"]
    assert third["error"].partition(": ")[2] in result.stderr


def test_missing_sources_give_status_3(urls, home):
    result = coget(["--json", "--quiet", urls[2]], home)
    assert result.returncode == 3
    error = json.loads(result.stdout)["error"]
    assert result.stderr.startswith(f"coget: {error['message']}\n")
    assert error["remedy"]
    assert urls[2] in error["message"]
    assert list(home.glob("*.root*")) == []


def test_a_wrong_checksum_is_status_4(urls, home):
    result = coget(["--checksum", "adler32:00000001", *urls[:2]], home)
    assert result.returncode == 4
    assert "adler32" in result.stderr
    assert not (home / NAME).exists()


def test_passwords_are_never_shown(servers, urls, home):
    result = coget(["--json", urls[0].replace("ftp://", "ftp://anonymous:secret@"), urls[2]], home)
    assert result.returncode == 0
    assert "secret" not in result.stdout + result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_ends_cleanly_with_a_hint_how_to_continue(servers, urls, home, number):
    servers[0].pause()
    with coget_process([urls[0]], home) as process:
        try:
            assert "connecting" in process.stderr.readline()
            process.send_signal(number)
            _, stderr = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130
    *progress, error, remedy = stderr.splitlines()
    assert error == "coget: interrupted"
    assert remedy == "  run the same command again: it keeps the data that have arrived"
    assert all("connecting" in line for line in progress)  # another one comes after a second


def test_on_a_terminal_the_report_stands_alone(urls, home):
    master, slave = pty.openpty()
    command = ["timeout", "--signal=KILL", f"{PATIENCE:.0f}", str(Path(sys.executable).with_name("coget")), *urls[:2]]
    environment = {**os.environ, "HOME": str(home), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=home, env=environment) as process:
        os.close(slave)
        output = b""
        try:
            while chunk := os.read(master, 65536):
                output += chunk
        except OSError:  # EIO: the other side is closed
            pass
        finally:
            process.wait()
            os.close(master)
    assert process.returncode == 0
    shown, _, left = output.decode().rpartition("\x1b[?25h")
    assert "fetching" in shown or "verifying" in shown or "done" in shown
    assert left.count("127.0.0.") == 2

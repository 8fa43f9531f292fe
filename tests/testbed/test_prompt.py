"""The prompt runs typed or piped commands, and continues after errors."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

HOUSE = Path(__file__).parents[2]
LIMIT_SECONDS = PATIENCE


def typed(topology: str, *lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.testbed", topology]
    return subprocess.run(
        command, input="\n".join(lines), cwd=HOUSE, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


@pytest.mark.wan
def test_commands_come_through_a_pipe():
    ping = "client ping -c1 -W1 -q s1"
    done = typed("far", "s2 hostname", ping, "set client-s1 ba loss=100%", ping)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("s2\n")
    assert [line.split(", ")[1] for line in done.stdout.splitlines() if "received" in line] == [
        "1 received",
        "0 received",
    ]


@pytest.mark.wan
def test_invalid_commands_are_reported_and_the_rest_is_run():
    lines = [
        "set client-s9 loss=1%",
        "set client-s1 speed=1",
        "set client-s1 loss",
        "nobody true",
        "serve s1",
        "client 'x",
        "",
    ]
    output = typed("far", *lines, "s3 hostname").stdout
    assert "no link client-s9" in output
    assert "client-s1: unknown: speed; a link has rate" in output
    assert "client-s1: loss: '' is not understood; write for example 0.1%" in output
    assert "neither a command nor a host with a command: nobody" in output
    assert "write: serve HOST FOLDER" in output
    assert "No closing quotation" in output
    assert output.endswith("s3\n")


@pytest.mark.wan
def test_a_served_file_can_be_fetched(tmp_path: Path):
    (tmp_path / "data").write_bytes(b"some bytes")
    done = typed(
        "hetero", f"serve s1 {tmp_path}", "client bash -c 'exec 3<>/dev/tcp/s1/80; echo -e GET /data >&3; cat <&3'"
    )
    ftp, http, content = done.stdout.split("\n")
    assert ftp.startswith("ftp://10.77.2.1:")
    assert ftp.endswith("/FILE")
    assert http == "http://10.77.2.1:80/FILE"
    assert content == "some bytes"


@pytest.mark.wan
def test_stats_are_since_the_last():
    output = typed("small", "client ping -c1 s1", "stats", "stats").stdout
    rows = [line.split("│")[1:-1] for line in output.splitlines() if "│ client-s1 " in line]
    assert [[word.strip() for word in row][1:3] for row in rows] == [["ab", "1"], ["ba", "1"], ["ab", "0"], ["ba", "0"]]


@pytest.mark.wan
def test_a_topology_that_does_not_exist_is_named():
    done = typed("nowhere", "s1 hostname")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere.yaml: no such file; there are collect, distant, far" in done.stderr

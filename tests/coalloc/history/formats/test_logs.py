"""Logs of real programs, and tables, read as observations; other files are refused with a list of the formats."""

import gzip
import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from coalloc.errors import TooMuch, UsageError
from coalloc.history.formats import read_log
from coalloc.history.formats.log import others_under_way
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer
from predictors.observation import Observation
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

MB = 1_000_000
SHARED = Path(__file__).parents[5] / "shared" / "data"


def test_the_transfer_log_of_a_real_gridftp_server(tmp_path):
    root, log = tmp_path / "export", tmp_path / "transfer.log"
    root.mkdir()
    (root / "run 7 =1.root").write_bytes(bytes(3 * MB))
    began = time.time()
    with GridFTPServer(root, options=["-log-transfer", str(log)]) as server:
        copy = ["globus-url-copy", "-q"]
        subprocess.run([*copy, server.url("run 7 =1.root"), f"file://{tmp_path}/down"], check=True)
        subprocess.run([*copy, "-p", "2", server.url("run 7 =1.root"), f"file://{tmp_path}/two"], check=True)
        subprocess.run([*copy, "-len", "1000", server.url("run 7 =1.root"), f"file://{tmp_path}/part"], check=True)
        subprocess.run([*copy, f"file://{tmp_path}/down", server.url("up")], check=True)
        subprocess.run(["globus-url-copy", "-list", f"{server.url('')}/"], check=True, capture_output=True)
        wait_until(lambda: log.read_bytes().count(b"\n") == 5)  # a session may write after its client has disconnected
    found = read_log(log)
    assert found.kind == "the transfer log of a GridFTP server"
    assert found.refused == []
    down, two, part, up = found.observations
    assert [each.bytes for each in found.observations] == [3 * MB, 3 * MB, 1000, 3 * MB]
    assert [each.direction for each in found.observations] == ["read", "read", "read", "write"]
    assert (down.sink, up.source, down.source) == ("127.0.0.1", "gsiftp://127.0.0.1", f"gsiftp://{up.sink}")
    assert (found.lines, found.left_out, down.file_class) == ([1, 2, 3, 4], 1, "")
    assert (down.streams, two.streams, part.outcome) == (1, 2, "ok")
    assert all(began - 1 < each.start < each.end < time.time() for each in found.observations)


def test_a_transfer_that_failed_is_an_observation_of_a_failure(tmp_path):
    log = tmp_path / "x"
    line = (
        "DATE=20261121224630.148815 HOST=dtn.example.org PROG=globus-gridftp-server NL.EVNT=FTP_INFO "
        "START=20261121224620.148815 USER=ann FILE=/d/x BUFFER=0 BLOCK=262144 NBYTES=1000 VOLUME=/ STREAMS=4 STRIPES=1 "
        "DEST=[192.0.2.7] TYPE=RETR CODE=426 TASKID=none"
    )
    log.write_text(f"{line}\n{line[:60]}\n\n{line.replace('NBYTES=1000', 'NBYTES=no')}\n")
    found = read_log(log)
    (failed,) = found.observations
    assert (failed.outcome, failed.end - failed.start, failed.streams) == ("failed", pytest.approx(10.0), 4)
    assert [(each.line, each.why) for each in found.refused] == [
        (2, "it has no TYPE"),
        (4, "'no' is not a whole number"),
    ]


def test_server_statistics_of_a_real_aria2_are_read(tmp_path):
    if not shutil.which("aria2c"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("apt-get install aria2")
    root, stat, began = tmp_path / "export", tmp_path / "stat", time.time()
    root.mkdir()
    (root / "x").write_bytes(bytes(20 * MB))
    with Nginx(root, tmp_path / "nginx") as server:
        slowly = "--max-download-limit=10M"  # it stores no rate of transfers that ended at once
        keeping = [f"--dir={tmp_path}", f"--server-stat-of={stat}"]
        command = ["aria2c", "--quiet", "--no-conf", slowly, *keeping, server.url("x")]
        subprocess.run(command, check=True, timeout=PATIENCE)
    (seen,) = read_log(stat).observations
    assert seen.source == "http://127.0.0.1"
    assert seen.rate > MB
    assert began - 1 < seen.end <= time.time()  # it stores whole seconds


@pytest.fixture(params=["UTC", "XXX-14", "XXX3:30"])
def zone(request, monkeypatch):
    """Set the local time zone to one of these; none has summer time, by which an hour occurs twice."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


def test_download_table_of_intake_esgf_is_read(tmp_path, zone):
    """intake-esgf's table `downloads`, created and filled with the statements of its database.py."""
    path, began = tmp_path / "download.db", time.time()
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE downloads(timestamp TEXT NULL DEFAULT (datetime('now', 'localtime')), host, "
            "transfer_time, transfer_size)"
        )
        row = "INSERT INTO downloads ('host','transfer_time','transfer_size') VALUES ('esgf.example.org',4.0,100.0)"
        database.execute(row)
    database.close()
    (seen,) = read_log(path).observations
    assert (seen.source, seen.rate) == ("https://esgf.example.org", pytest.approx(25 * MB))
    assert began - 1 < seen.end <= time.time()  # it stores whole seconds


def test_cogets_own_history(tmp_path):
    history = TransferHistory(tmp_path / "history.sqlite")
    history.add([PastTransfer("ftp://a.example/x", 100.0, 110.0, 50 * MB, 10.0, 0.5, 1, 4, "adaptive", "ok")])
    found = read_log(tmp_path / "history.sqlite")
    assert found.kind == "coget's history"
    (seen,) = found.observations
    assert (seen.source, seen.streams, seen.setup_seconds) == ("ftp://a.example", 4, 0.5)


TABLE = """start,seconds,bytes,source,direction
2026-11-21 10:00:00,10,100000000,ftp://a,read
2026-11-21T11:00:05+01:00,10,100000000,ftp://a,write
1795255200,0,100000000,ftp://a,read
1795255200,5,many,ftp://a,read
1795255200,5,100000000,ftp://a,sideways
1795255200,5,1e-99999999999999999999,ftp://a,read
"""


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_table_with_named_columns(tmp_path, pack):
    path = tmp_path / "any-name"
    path.write_bytes(pack(("\ufeff" + TABLE).encode()))
    found = read_log(path)
    assert [each.end - each.start for each in found.observations] == [10, 10]
    assert [each.start for each in found.observations] == [1795255200.0, 1795255205.0]
    assert [each.concurrency for each in found.observations] == [0, 1]
    assert [each.line for each in found.refused] == [4, 5, 6, 7]
    assert "not one of read, write" in found.refused[2].why


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with ''"),
        (b"when,what\n1,2\n", "'when,what'"),
        (b"\xff\xfe\x00binary\x80" * 20, "not text"),
        (gzip.compress(b"\xff\xfe\x00binary\x80" * 20, mtime=0), "not text"),
        (gzip.compress(TABLE.encode(), mtime=0)[:60], "cannot read"),
    ],
)
def test_files_that_are_no_logs_are_refused(tmp_path, content, message):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        read_log(path)
    assert caught.value.remedy


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_log_may_have_so_many_bytes_unpacked_and_no_more(tmp_path, pack):
    path = tmp_path / "x"
    path.write_bytes(pack(b"start,bytes,seconds\n" + b"1,2,3\n" * 99))
    assert len(read_log(path, 100 * 256).observations) == 99
    with pytest.raises(TooMuch, match="more than 25599 bytes, or 99 lines"):
        read_log(path, 100 * 256 - 1)


def test_a_line_that_does_not_end_is_no_log(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b"DATE=" + b"x" * 10_000_000))
    with pytest.raises(UsageError, match="a line of more than"):
        read_log(path)


def test_missing_files_and_other_databases_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        read_log(tmp_path / "none")
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE birds (name)")
    database.close()
    with pytest.raises(UsageError, match="the tables: birds"):
        read_log(path)


def test_concurrency_is_of_the_source_or_the_sink():
    def took(start: float, source: str, sink: str) -> Observation:
        return Observation(source, start, start + 10, MB, sink=sink)

    log = [took(0, "a", "x"), took(1, "a", "y"), took(2, "b", "x"), took(3, "b", "y"), took(11.5, "a", "x")]
    assert [each.concurrency for each in others_under_way(log)] == [0, 1, 1, 2, 1]


@pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is not there: its logs cannot be read")
@pytest.mark.parametrize(
    ("name", "count", "paths"),
    [
        ("transfers/hpss_slac", 54208, 8),
        ("bandwidth/puffer", 236456, 20),
        ("bandwidth/hsdpa", 8291, 40),
        ("bandwidth/oboe", 10272, 214),
        ("bandwidth/uk_backbone", 9943, 1),
    ],
)
def test_published_data(name, count, paths):
    found = read_log(SHARED / f"{name}.csv.gz")
    assert len(found.observations) == count
    assert found.refused == []
    assert len({(each.source, each.sink) for each in found.observations}) == paths

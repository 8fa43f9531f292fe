"""The history: its content and use, and that it never blocks a transfer."""

import logging
import os
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from coalloc.history import database
from coalloc.history import transfers as module
from coalloc.history.database import default_path
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer, source_key
from tests.support.waiting import PATIENCE

MB = 1_000_000
NOW = 1_700_000_000.0
GOOD = PastTransfer(
    url="ftp://ann:secret@a.example/x",
    start=NOW - 100,
    end=NOW - 80,
    bytes=100 * MB,
    busy_seconds=10.0,
    setup_seconds=0.5,
    ranges=4,
    streams=1,
    strategy="adaptive",
    outcome="ok",
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "history.sqlite"


@pytest.fixture
def history(path):
    return TransferHistory(path)


def test_concurrent_imports_store_each_transfer_once(history, path):
    for i in range(20):
        transfers = [GOOD._replace(start=NOW + 100 * i + j, end=NOW + 100 * i + j + 1) for j in range(20)]
        with ThreadPoolExecutor(4) as pool:
            new = sum(pool.map(lambda _, transfers=transfers: TransferHistory(path).remember(transfers), range(4)))
        assert (new, len(history.observations())) == (20, 20 * (i + 1))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_no_other_user_reads_it(path, mask):
    before = os.umask(mask)
    try:
        TransferHistory(path).add([GOOD])
        assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]
        path.chmod(0o644)  # as earlier versions made it
        TransferHistory(path).add([GOOD])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(TransferHistory(path).summary()) == 1


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("ftp://A.Example/x", "ftp://a.example"),
        ("ftp://a.example:21/x", "ftp://a.example"),
        ("ftp://a.example:2121/x", "ftp://a.example:2121"),
        ("gsiftp://ann:pw@a:2811/x", "gsiftp://a"),
        ("https://[::1]:443/x", "https://[::1]"),
        ("http://[::1]:8080/x", "http://[::1]:8080"),
        ("file:///x/y", "file://"),
    ],
)
def test_a_source_is_scheme_host_and_port(url, key):
    assert source_key(url) == key


def test_estimates_of_what_was_seen_and_of_what_was_not(history):
    history.add([GOOD, GOOD._replace(start=NOW - 60, end=NOW - 40, bytes=50 * MB, busy_seconds=7.0)])
    estimates = history.estimates(["ftp://a.example/other", "ftp://b.example/x"], NOW)
    known, unknown = estimates["ftp://a.example/other"], estimates["ftp://b.example/x"]
    assert known.rate == pytest.approx(50 / 5 * MB)
    assert known.setup_seconds == 0.5
    assert known.reason == "the last value, the most accurate of 14 so far, of 2 transfers, the newest 40 seconds ago"
    assert (unknown.rate, unknown.setup_seconds) == (None, None)
    assert unknown.reason


def test_failures_are_counted_but_forecast_nothing(history):
    history.add([GOOD, GOOD._replace(end=NOW - 10, bytes=2 * MB, outcome="failed", error="it was closed")])
    history.add([GOOD._replace(end=NOW - 5, outcome="corrupt")])
    assert history.estimates([GOOD.url], NOW)[GOOD.url].rate == 12.5 * MB
    (summary,) = history.summary()
    assert (summary.transfers, summary.failures, summary.bytes) == (3, 2, 202 * MB)
    assert summary.rate == summary.last_rate == 10 * MB
    assert summary.last == NOW - 5


def test_a_part_that_was_never_used_is_not_remembered(history, path):
    history.add([GOOD._replace(outcome="unused", bytes=0)])
    assert not path.exists()


def test_the_summary_has_a_line_a_source_the_last_used_first(history):
    other = GOOD._replace(url="http://b.example/x", end=NOW - 50, outcome="failed", bytes=0, busy_seconds=0.0)
    slow = GOOD._replace(end=NOW - 70, bytes=10 * MB, outcome="slow", setup_seconds=0.1)
    history.add([GOOD, slow, other])
    b, a = history.summary()
    assert (b.source, b.rate, b.last_rate, b.failures) == ("http://b.example", None, None, 1)
    assert (a.source, a.transfers, a.rate, a.last_rate) == ("ftp://a.example", 2, 5.5 * MB, MB)
    assert a.setup_seconds == pytest.approx(0.3)


def test_no_password_reaches_the_file(history, path):
    history.add([GOOD])
    assert b"secret" not in path.read_bytes()
    assert b"ann" in path.read_bytes()


def test_the_oldest_of_a_source_are_dropped(history, path, monkeypatch):
    monkeypatch.setattr(module, "MOST_TRANSFERS", 3)
    history.add([GOOD._replace(url="ftp://b/x")])
    for i in range(5):
        history.add([GOOD._replace(end=NOW + i)])
    with sqlite3.connect(path) as connection:
        kept = connection.execute("SELECT source, ended FROM transfers ORDER BY ended").fetchall()
    connection.close()
    assert kept == [("ftp://b", NOW - 80), *(("ftp://a.example", NOW + i) for i in (2, 3, 4))]


def test_a_forecast_rests_on_the_newest(history, monkeypatch):
    monkeypatch.setattr(module, "RECENT", 2)
    for i, (megabytes, seconds) in enumerate([(10, 1.0), (20, 1.0), (40, 1.0), (0, 0.5), (0, 0.5), (0, 0.5)]):
        history.add([GOOD._replace(end=NOW - 50 + i, bytes=megabytes * MB, busy_seconds=seconds, setup_seconds=None)])
    assert " of 2 transfers" in history.estimates([GOOD.url], NOW)[GOOD.url].reason


def test_reading_makes_no_file(history, path):
    assert history.summary() == []
    assert history.estimates([GOOD.url], NOW)[GOOD.url].rate is None
    assert not path.parent.exists()


def damage_text(path):
    path.write_bytes(b"this is no database, but a long text" * 100)


def damage_newer(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def damage_row(path):
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE transfers SET busy_seconds = 'long'")
    connection.close()


def damage_directory(path):
    path.unlink()
    path.mkdir()


def damage_parent(path):
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file where the folder was")


@pytest.mark.parametrize("damage", [damage_text, damage_newer, damage_row, damage_directory, damage_parent])
def test_a_broken_history_warns_once_and_is_empty(path, damage, caplog):
    TransferHistory(path).add([GOOD])
    damage(path)
    history = TransferHistory(path)
    with caplog.at_level(logging.WARNING, "coalloc.history.database"):
        assert history.estimates([GOOD.url], NOW)[GOOD.url].rate is None
        history.estimates([GOOD.url], NOW)
        if damage is not damage_row:
            history.add([GOOD])
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    assert "COGET_HISTORY=off" in record.getMessage()


def test_a_history_that_is_locked_is_not_waited_for_long(path, caplog, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    history = TransferHistory(path)
    history.add([GOOD])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert history.summary() == []
    other.close()
    assert "locked" in caplog.text
    assert history.summary()[0].transfers == 1


WRITER = """
import sys
from pathlib import Path
from coalloc.history import database
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer
database.PATIENCE = float(sys.argv[2])
history = TransferHistory(Path(sys.argv[1]))
for i in range(20):
    history.add([PastTransfer("ftp://a/x", i, i + 1, 10, 1.0, None, 1, 1, "adaptive", "ok")])
"""


def test_several_cogets_write_at_once(path):
    words = [sys.executable, "-c", WRITER, path, str(PATIENCE)]
    writers = [subprocess.Popen(words, stderr=subprocess.PIPE) for _ in range(4)]
    errors = [writer.communicate(timeout=PATIENCE)[1] for writer in writers]
    assert errors == [b""] * 4
    assert TransferHistory(path).summary()[0].transfers == 80


def test_environment_variables_set_the_path_of_the_history(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("COGET_HISTORY", raising=False)
    assert default_path() == tmp_path / ".local/share/coget/history.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert default_path() == tmp_path / "xdg/coget/history.sqlite"
    monkeypatch.setenv("COGET_HISTORY", "~/mine.sqlite")
    assert default_path() == tmp_path / "mine.sqlite"


@pytest.mark.parametrize("value", ["", "off"])
def test_a_history_that_is_off_remembers_nothing(monkeypatch, value, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COGET_HISTORY", value)
    history = TransferHistory.open()
    history.add([GOOD])
    assert history.summary() == []
    assert history.estimates([GOOD.url], NOW)[GOOD.url].rate is None
    assert list(tmp_path.iterdir()) == []

"""A history that another program has locked: rows wait beside it, and none is lost or stored twice."""

import logging
import sqlite3
from contextlib import closing, contextmanager

import pytest

from coalloc.collect.runtime.staging_records import StagingRecord, StagingRecords
from coalloc.history import database
from coalloc.history.finishes import FinishHistory
from coalloc.history.late_rows import late_path
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.01)


@contextmanager
def locked(path):
    """Lock a file, as another program that writes to it for a long time."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def transfer(number):
    return PastTransfer("http://host/x", float(number), number + 1.0, 0.1, 0.9, 1000, 1, 1, "adaptive", "ok", None)


def numbers(path):
    return [each.start for each in TransferHistory(path).observations()]


def test_rows_wait_while_the_history_is_locked(tmp_path, caplog):
    path = tmp_path / "h.sqlite"
    history, finishes, staging = TransferHistory(path), FinishHistory(path), StagingRecords(path)
    history.add([transfer(1)])
    with caplog.at_level(logging.WARNING), locked(path):
        history.add([transfer(2)])
        history.add([transfer(3)])
        finishes.add([("start", 0.5)], 9.0)
        staging.add(StagingRecord("ftp://host:21", "/x", b"k"))
    assert not caplog.records
    assert late_path(path).stat().st_mode & 0o077 == 0
    assert numbers(path) == [1.0, 2.0, 3.0]
    assert numbers(path) == [1.0, 2.0, 3.0]
    assert finishes.errors() == {"start": [0.5]}
    with closing(sqlite3.connect(path)) as found:
        assert found.execute("SELECT path FROM staging").fetchall() == [("/x",)]


def test_rows_stay_in_the_second_file_while_either_is_locked(tmp_path):
    path = tmp_path / "h.sqlite"
    history = TransferHistory(path)
    with closing(sqlite3.connect(path)):
        pass
    with locked(path):
        history.add([transfer(1)])
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN IMMEDIATE")
        assert numbers(path) == []
        reader.execute("ROLLBACK")
    with locked(late_path(path)):
        assert numbers(path) == []
    assert numbers(path) == [1.0]


def test_a_broken_second_file_does_not_harm_the_first(tmp_path):
    path = tmp_path / "h.sqlite"
    late_path(path).write_bytes(b"no database" * 1000)
    TransferHistory(path).add([transfer(1)])
    assert numbers(path) == [1.0]

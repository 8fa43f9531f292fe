"""Measurements between servers: stored beside the history of downloads, and separate from it."""

import sqlite3

import pytest

from coalloc.history import links as module
from coalloc.history.links import EVERYBODY, MeasuredLink, Pairs, forecasts
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer

MB = 1_000_000
NOW = 1_700_000_000.0
A, B = "ftp://a.example", "gsiftp://b.example:2812"
GOOD = MeasuredLink(A, B, NOW - 100, NOW - 98, 50 * MB)
DOWNLOAD = PastTransfer("ftp://a.example/x", NOW - 50, NOW - 40, 30 * MB, 10.0, None, 1, 1, "adaptive", "ok")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.sqlite"


@pytest.fixture
def pairs(path):
    return Pairs(path)


def rates(pairs):
    return {pair: forecast.rates.p50 for pair, forecast in forecasts(pairs.observations(NOW), NOW).items()}


def test_each_pair_has_its_own_rate_and_age(pairs):
    pairs.add([GOOD, GOOD._replace(source=B, sink=A, bytes=10 * MB), GOOD._replace(sink=EVERYBODY, bytes=80 * MB)])
    assert rates(pairs) == pytest.approx({(A, B): 25 * MB, (B, A): 5 * MB, (A, EVERYBODY): 40 * MB})
    assert forecasts(pairs.observations(NOW), NOW)[A, B].newest_age == 98


def test_a_slow_pair_is_known_from_few_bytes(pairs):
    pairs.add([GOOD._replace(bytes=2000)])
    assert rates(pairs) == pytest.approx({(A, B): 1000})


def test_failed_measurements_are_stored_and_not_used_for_forecasts(pairs, path):
    pairs.add([GOOD._replace(outcome="failed", error="it was closed", bytes=0)])
    assert rates(pairs) == {}
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT outcome, error FROM pairs").fetchall() == [("failed", "it was closed")]
    database.close()


def test_downloads_and_measurements_know_nothing_of_each_other(pairs, path):
    history = TransferHistory(path)
    history.add([DOWNLOAD])
    before = history.estimates([DOWNLOAD.url], NOW), history.summary(), history.observations()
    pairs.add([GOOD] * 5)
    assert (history.estimates([DOWNLOAD.url], NOW), history.summary(), history.observations()) == before
    assert rates(pairs) == pytest.approx({(A, B): 25 * MB})


def test_a_history_from_before_goes_on(pairs, path):
    history = TransferHistory(path)
    history.add([DOWNLOAD])
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE pairs")
        database.execute("DROP TABLE collections")
        database.execute("DROP TABLE routes")
        database.execute("DROP TABLE finishes")
        database.execute("DROP TABLE staging")
        database.execute("DROP TABLE fetched")
        database.execute("PRAGMA user_version = 1")
    database.close()
    pairs.add([GOOD])
    assert rates(pairs) == pytest.approx({(A, B): 25 * MB})
    assert [summary.bytes for summary in history.summary()] == [30 * MB]


def test_the_oldest_of_a_pair_are_dropped(pairs, path, monkeypatch):
    monkeypatch.setattr(module, "MOST_MEASUREMENTS", 3)
    pairs.add([GOOD._replace(sink=A)])
    for i in range(5):
        pairs.add([GOOD._replace(end=NOW - 90 + i)])
    with sqlite3.connect(path) as database:
        kept = database.execute("SELECT sink, ended FROM pairs ORDER BY ended").fetchall()
    database.close()
    assert kept == [(A, NOW - 98), *((B, NOW - 90 + i) for i in (2, 3, 4))]


def test_reading_makes_no_file(pairs, path):
    assert pairs.observations(NOW) == []
    assert forecasts([], NOW) == {}
    assert not path.exists()

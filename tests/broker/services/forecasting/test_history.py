"""Reported transfers: stored once, and the basis of forecasts."""

import asyncio
import csv
import gzip
import io
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime

import pyarrow.parquet
import pytest

from broker.models.forecasts import ForecastRequest
from broker.services.forecasting import link_forecasters
from tests.support.waiting import PATIENCE, until

NOW = time.time()
T = "/broker/v1/transfers"


def _transfer(i: int, **more) -> dict:
    start = NOW - 100_000 + 100 * i
    usual = {
        "id": f"t{i}",
        "source": "ftp://dtn.example",
        "sink": "FNAL",
        "started": start,
        "ended": start + 10,
        "bytes": 500_000_000,
        "setup_seconds": 0.2,
    }
    return {**usual, **more}


async def test_a_report_is_kept_once_per_reporter(broker, admin):
    other = await broker.client("transfer")
    many = [_transfer(i) for i in range(50)]
    assert (await admin.post(T, json=many)).json() == {"accepted": 50, "known": 0}
    assert (await admin.post(T, json=[*many, _transfer(50)])).json() == {"accepted": 1, "known": 50}
    assert (await other.post(T, json=many[0])).json() == {"accepted": 1, "known": 0}
    assert (await admin.post(T, json=[_transfer(60), _transfer(60)])).json() == {"accepted": 1, "known": 1}


async def test_reporters_at_once_neither_lose_nor_double(broker, admin):
    def part(i):
        return [_transfer(j, source=f"ftp://s{j % 3}.example") for j in range(10 * i, 10 * i + 20)]

    answers = await asyncio.gather(*(admin.post(T, json=part(i)) for i in range(20)))
    assert sum(answer.json()["accepted"] for answer in answers) == 210
    kept = []
    before = None
    while True:
        page = (await admin.get(T, params={"limit": 100, **({"before": before} if before else {})})).json()
        kept += [each["started"] for each in page["transfers"]]
        before = page["next"]
        if before is None:
            break
    assert len(kept) == len(set(kept)) == 210


async def test_reports_can_be_filtered(broker, stocked):
    await stocked.post(
        T, json=[_transfer(1), _transfer(2, source="cern-1"), _transfer(3, outcome="failed", error="EOF")]
    )
    by_name = (await stocked.get(T, params={"source": "cern-1"})).json()["transfers"]
    assert [each["source"] for each in by_name] == ["ftp://cern-1.example"]
    failed = (await stocked.get(T, params={"outcome": "failed"})).json()["transfers"]
    assert [(each["error"], each["subject"]) for each in failed] == [("EOF", "a-admin")]
    assert (await stocked.get(T, params={"since": NOW})).json()["transfers"] == []
    both = (await stocked.get(T, params={"until": NOW, "sink": "FNAL"})).json()["transfers"]
    assert len(both) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "wrong",
    [
        {"ended": NOW - 200_000},
        {"ended": NOW + 1e6},
        {"bytes": -1},
        {"bytes": 2**63},
        {"started": "NaN"},
        {"setup_seconds": -1},
        {"source": "no such endpoint"},
        {"source": "nosuch"},
        {"source": "ftp://a/../b"},
        {"sink": "<img onerror=x>"},
        {"error": "a\x00b"},
        {"outcome": "good"},
        {"busy_seconds": 1e-303},
        {"unknown": 1},
    ],
)
async def test_one_invalid_transfer_refuses_the_whole_report(admin, wrong):
    answer = await admin.post(T, json=[_transfer(1), _transfer(2, **wrong)])
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["message"]
    assert (await admin.get(T)).json()["transfers"] == []


async def test_all_of_it_is_a_table(admin, monkeypatch):
    monkeypatch.setattr("broker.services.forecasting.history.PAGE", 7)
    await admin.post(T, json=[_transfer(i, error='a "quoted", word' if i == 3 else None) for i in range(20)])
    text = (await admin.get(f"{T}/export")).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert (len(rows), rows[0]["source"], rows[-1]["bytes"]) == (20, "ftp://dtn.example", "500000000")
    assert [row["error"] for row in rows].count('a "quoted", word') == 1
    answer = await admin.get(f"{T}/export", params={"format": "parquet", "until": NOW})
    table = pyarrow.parquet.read_table(io.BytesIO(answer.content)).to_pylist()
    assert [row["id"] for row in table] == [int(row["id"]) for row in rows]
    assert table[0]["started"] == float(rows[0]["started"])
    nothing = await admin.get(f"{T}/export", params={"format": "parquet", "outcome": "failed"})
    assert pyarrow.parquet.read_table(io.BytesIO(nothing.content)).num_rows == 0


async def test_no_program_for_tables_is_given_a_formula(admin):
    await admin.post(T, json=[_transfer(1, error="=cmd|' /C calc'!A0")])
    (row,) = csv.DictReader(io.StringIO((await admin.get(f"{T}/export")).text))
    assert row["error"] == "'=cmd|' /C calc'!A0"


async def test_old_transfers_are_forgotten(broker, admin):
    day = 86_400
    old = [_transfer(i, started=NOW - 200 * day + i, ended=NOW - 200 * day + i + 5) for i in range(10)]
    await admin.post(T, json=[*old, *(_transfer(i) for i in range(20, 25))])
    assert await broker.factory.transfers.forget(NOW - 100 * day) in (1, 2, 10)  # months; on SQLite transfers
    assert len((await admin.get(T)).json()["transfers"]) == 5
    assert (await admin.post(T, json=_transfer(20))).json() == {"accepted": 0, "known": 1}
    assert (await admin.post(T, json=old)).json() == {"accepted": 10, "known": 0}  # their month is created again
    kept = (await admin.get(T)).json()["transfers"]
    assert len(kept) == len({each["id"] for each in kept}) == 15


async def test_transfers_left_of_a_month_are_known_when_reported_again(broker, admin):
    middle = datetime(2026, 9, 20, tzinfo=UTC).timestamp()
    some = [_transfer(i, started=middle + 86_400 * i, ended=middle + 86_400 * i + 5) for i in (-15, 5)]
    assert (await admin.post(T, json=some)).json() == {"accepted": 2, "known": 0}
    await broker.factory.transfers.forget(middle)
    left = (await admin.get(T)).json()["transfers"]
    again = (await admin.post(T, json=some)).json()
    assert again == {"accepted": 2 - len(left), "known": len(left)}


async def test_alike_transfers_of_a_log_are_all_kept_and_none_twice(admin):
    log = b"source,start,bytes,seconds\n" + b"ftp://a.example,1700000000,10000000,1\n" * 3
    assert (await admin.post(f"{T}/import", content=log)).json()["accepted"] == 3
    assert (await admin.post(f"{T}/import", content=log)).json() == {
        "accepted": 0,
        "known": 3,
        "kind": "a table of transfers",
        "refused": [],
        "changed": [],
        "lines_refused": 0,
        "lines_changed": 0,
        "lines_left_out": 0,
    }


async def test_a_log_that_is_too_long_unpacked_is_refused_and_its_parts_are_taken(admin, monkeypatch):
    monkeypatch.setattr("broker.services.forecasting.logs.LARGEST_LOG", 30_000)
    head, line = b"source,start,bytes,seconds\n", b"ftp://a.example,1700000000,10000000,1\n"
    for long in (gzip.compress(head + line * 1000), gzip.compress(head + b" " * 40_000 + line), b"x" * 40_000):
        answer = await admin.post(f"{T}/import", content=long)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        assert "coget-log" not in answer.text
        assert answer.json()["error"]["remedy"] == "split it into parts"
    assert (await admin.post(f"{T}/import", content=gzip.compress(head + line * 50))).json()["accepted"] == 50


COLUMNS = (
    "source TEXT, started REAL, ended REAL, bytes INTEGER, rate REAL, setup REAL, concurrency INTEGER, streams INTEGER"
)
HOSTILE = {
    "a column of gigabytes": f"CREATE TABLE transfers ({COLUMNS}, outcome TEXT AS (printf('%.*c', 900000000, 'x')))",
    "a view without end": (
        "CREATE VIEW transfers AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    ),
    "one like our own": f"CREATE TABLE transfers ({COLUMNS}, outcome TEXT)",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("pack", "reason"), [(bytes, "a database"), (gzip.compress, "not text")], ids=["plain", "gzip"]
)
@pytest.mark.parametrize("hostile", HOSTILE)
async def test_no_hostile_database_is_opened(admin, tmp_path, hostile, pack, reason):
    path = tmp_path / "sent.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute(HOSTILE[hostile])
    answer = await admin.post(f"{T}/import", content=pack(path.read_bytes()))
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == f"the log is {reason}"


async def test_an_ipv6_source_is_accepted_and_an_invalid_address_is_refused(admin):
    line = (
        "DATE=20261121214512.3 HOST=dtn.example.org PROG=globus-gridftp-server NL.EVNT=FTP_INFO START=20261121214510.1 "
        "USER=u FILE=/x BUFFER=0 BLOCK=262144 NBYTES=104857600 VOLUME=/ STREAMS=4 STRIPES=1 DEST=[{}] TYPE=STOR "
        "CODE=226\n"
    )
    taken = (await admin.post(f"{T}/import", content=line.format("2001:db8::7") + line.format("a b"))).json()
    assert (taken["accepted"], len(taken["refused"])) == (1, 1)
    (kept,) = (await admin.get(T)).json()["transfers"]
    assert (kept["source"], kept["direction"]) == ("gsiftp://[2001:db8::7]", "write")


async def test_an_export_of_nothing_that_there_is_is_refused_before_it_begins(admin):
    assert (await admin.get(f"{T}/export", params={"source": "nosuch"})).status_code == 422


async def test_the_log_of_a_real_gridftp_server_is_taken_once(admin, start_gridftp, tmp_path):
    log = tmp_path / "transfer.log"
    server = start_gridftp(tmp_path / "export", options=("-log-transfer", str(log)))
    (server.root / "x").write_bytes(b"x" * 5_000_000)
    fetched = await asyncio.create_subprocess_exec("globus-url-copy", server.url("x"), f"file://{tmp_path}/x")
    assert await fetched.wait() == 0
    await until(log.read_bytes)  # the session may write after its client has disconnected
    taken = (await admin.post(f"{T}/import", content=log.read_bytes() + b"DATE=nonsense\n")).json()
    assert (taken["accepted"], taken["known"], [each["line"] for each in taken["refused"]]) == (1, 0, [2])
    assert (await admin.post(f"{T}/import", content=log.read_bytes())).json()["known"] == 1
    (kept,) = (await admin.get(T)).json()["transfers"]
    assert (kept["bytes"], kept["direction"], kept["sink"]) == (5_000_000, "read", "127.0.0.1")
    nonsense = await admin.post(f"{T}/import", content=b"hello\n")
    assert (nonsense.status_code, "coget-log" in nonsense.text) == (422, False)


async def test_a_forecast_rests_on_the_reported_transfers(broker, admin):
    asked = {"source": "ftp://dtn.example:21", "sink": "FNAL", "size": 1_000_000_000}
    nothing = (await admin.get("/broker/v1/forecasts", params=asked)).json()
    assert (nothing["rate"], nothing["seconds"]) == (None, None)
    assert nothing["reason"]
    await admin.post(T, json=[_transfer(i, bytes=500_000_000 + 1_000_000 * (i % 7)) for i in range(30)])
    await broker.settled()
    known = (await admin.get("/broker/v1/forecasts", params=asked)).json()
    assert known["rate"]["p10"] <= known["rate"]["p50"] <= known["rate"]["p90"]
    assert known["rate"]["p50"] == pytest.approx(51e6, rel=0.1)
    assert known["seconds"] == pytest.approx(0.2 + 1e9 / known["rate"]["p50"])
    assert (known["observations"], known["source"]) == (30, "ftp://dtn.example")
    await admin.post(T, json=[_transfer(40 + i, bytes=50_000_000) for i in range(30)])
    await broker.settled()
    slower = (await admin.get("/broker/v1/forecasts", params=asked)).json()
    assert slower["rate"]["p50"] < known["rate"]["p50"] / 2


async def test_the_forecast_of_an_unseen_pair_uses_its_sink(broker, admin):
    await admin.post(T, json=[_transfer(i) for i in range(10)])
    await broker.settled()
    asked = {"source": "https://other.example", "sink": "FNAL", "size": 500_000_000}
    guess = (await admin.get("/broker/v1/forecasts", params=asked)).json()
    assert guess["rate"]["p50"] == pytest.approx(51e6, rel=0.1)
    assert guess["new"] == "source"
    assert "a guess, as this source was not used yet: the mean by sink" in guess["reason"]
    assert guess["rate"]["p10"] < guess["rate"]["p50"] / 5
    known = (await admin.get("/broker/v1/forecasts", params={**asked, "source": "ftp://dtn.example"})).json()
    assert known["new"] == ""
    assert known["rate"]["p10"] > known["rate"]["p50"] / 2


async def test_the_forecast_of_an_unseen_pair_uses_its_distance(broker, stocked):
    """One link within a site is fast, and two between sites are slow."""
    links = {("cern-1", "CERN"): 5, ("cern-1", "FNAL"): 50, ("fnal-1", "CERN"): 50}
    address = {"cern-1": "ftp://cern-1.example", "fnal-1": "https://fnal-1.example"}
    used = [
        _transfer(3 * i + number, source=address[source], sink=sink)
        for i in range(20)
        for number, (source, sink) in enumerate(links)
    ]
    took = [*links.values()] * 20
    both = zip(used, took, strict=True)
    await stocked.post(T, json=[{**each, "ended": each["started"] + seconds} for each, seconds in both])
    await broker.settled()
    asked = {"sink": "CERN", "size": 500_000_000}
    near = (await stocked.get("/broker/v1/forecasts", params={**asked, "source": "cern-2"})).json()
    unknown = (await stocked.get("/broker/v1/forecasts", params={**asked, "source": "ftp://other.example"})).json()
    assert (near["new"], unknown["new"]) == ("source", "source")
    assert near["rate"]["p50"] > 1.3 * unknown["rate"]["p50"]


async def test_another_process_of_the_broker_hears_of_it(broker, admin, database):
    from broker.config.settings import Settings
    from tests.broker.conftest import running

    asked = {"source": "ftp://dtn.example", "sink": "FNAL", "size": 1_000_000_000}
    async with running(Settings(database)) as other:
        there = await other.client("reader")
        assert (await there.get("/broker/v1/forecasts", params=asked)).json()["rate"] is None
        await admin.post(T, json=[_transfer(i) for i in range(10)])
        await other.settled()
        assert (await there.get("/broker/v1/forecasts", params=asked)).json()["observations"] == 10


async def test_bulk_forecasts_come_in_the_order_of_the_questions(broker, stocked):
    await stocked.post(T, json=[_transfer(i, source="cern-1") for i in range(10)])
    await broker.settled()
    questions = [{"source": "cern-1", "sink": "FNAL", "size": 10**8}, {"source": "cern-1", "sink": "CERN"}]
    answers = (await stocked.post("/broker/v1/forecasts", json={"forecasts": questions})).json()["forecasts"]
    assert [(each["sink"], each["size"]) for each in answers] == [("FNAL", 10**8), ("CERN", None)]
    assert answers[0]["observations"] == 10


async def test_a_forecast_is_stored_once_and_matched_with_what_came_of_it(broker, admin):
    await admin.post(T, json=[_transfer(i) for i in range(10)])
    await broker.settled()
    asked = ForecastRequest(source="ftp://dtn.example", sink="FNAL", size=500_000_000)
    for _ in range(3):
        await broker.factory.forecasting.ask([asked])
    await broker.settled()
    now = time.time()
    transfer = _transfer(99, started=now, ended=now + 5)
    await admin.post(T, json=[transfer])
    (kept,) = (await admin.get(T, params={"since": now})).json()["transfers"]
    assert kept["forecast_id"] is not None
    before = (await admin.get(T, params={"until": now})).json()["transfers"]
    assert {each["forecast_id"] for each in before} == {None}


async def test_a_forecaster_is_made_of_the_newest_and_kept_up(broker, admin, monkeypatch):
    monkeypatch.setattr(link_forecasters, "NEWEST", 20)
    await admin.post(T, json=[_transfer(i, bytes=10_000_000) for i in range(100)])
    asked = ForecastRequest(source="ftp://dtn.example", sink="FNAL", size=10_000_000)
    await broker.factory.forecasting.ask([asked])
    await broker.settled()
    (known,) = await broker.factory.forecasting.ask([asked])
    assert known.observations == 20
    await admin.post(T, json=[_transfer(i, bytes=10_000_000) for i in range(200, 205)])
    await broker.settled()
    (known,) = await broker.factory.forecasting.ask([asked])
    assert known.observations == 25
    await admin.post(
        T, json=[_transfer(i, bytes=10_000_000) for i in range(300, 350)]
    )  # more than its data: built anew
    await broker.settled()
    (known,) = await broker.factory.forecasting.ask([asked])
    assert known.observations == 20


async def test_forecasters_have_bounded_memory_and_unused_ones_are_dropped(broker, admin, monkeypatch):
    """A dropped forecaster is rebuilt when it is needed, with the same forecasts."""
    sources = [f"ftp://s{i}.example" for i in range(8)]
    reports = [_transfer(i, source=sources[i % 8]) for i in range(80)]
    assert (await admin.post(T, json=reports)).json()["accepted"] == 80
    made = broker.factory.forecasting

    async def asked() -> list[tuple[object, int]]:
        found = []
        for source in sources:
            wanted = [ForecastRequest(source=source, sink="FNAL", size=10_000_000)]
            await made.ask(wanted)
            await broker.settled()
            found += [(each.rate, each.observations) for each in await made.ask(wanted)]
        return found

    first = await asked()
    assert {observations for _, observations in first} == {10}
    assert len(made._links._cached) == 8
    (one, *_) = [cached.forecaster.size for cached in made._links._cached.values()]
    monkeypatch.setattr(link_forecasters, "MEMORY", 3 * one)
    assert await asked() == first
    assert len(made._links._cached) == 3
    monkeypatch.setattr(link_forecasters, "FORGOTTEN", 0.0)
    await made.look()
    assert [pair.source for pair in made._links._cached] == sources[-1:]


async def test_a_broker_ends_right_after_a_notification(database):
    from broker.config.settings import Settings
    from tests.broker.conftest import running

    for turns in range(6):  # of the loop, between the notification and the end
        async with asyncio.timeout(PATIENCE), running(Settings(database)) as broker:
            await broker.settled()
            await asyncio.sleep(0.02)
            broker.factory.forecasting.news()
            for _ in range(turns):
                await asyncio.sleep(0)


async def test_the_address_of_an_endpoint_is_its_site_where_bytes_go(stocked):
    now = time.time()
    report = {"source": "cern-1", "started": now - 9, "ended": now - 5, "bytes": 10**8}
    sinks = ["https://fnal-1.example:443", "FNAL", "ftp://Other.example:21"]
    reports = [{**report, "id": f"{i}", "sink": sink} for i, sink in enumerate(sinks)]
    assert (await stocked.post("/broker/v1/transfers", json=reports)).status_code == 200
    for sink in sinks[:2]:
        found = await stocked.get("/broker/v1/transfers", params={"sink": sink})
        assert [each["sink"] for each in found.json()["transfers"]] == ["FNAL", "FNAL"]
    (other,) = (await stocked.get("/broker/v1/transfers", params={"sink": sinks[2]})).json()["transfers"]
    assert other["sink"] == "ftp://other.example"
    wrong = await stocked.post("/broker/v1/transfers", json={**report, "id": "x", "sink": "ftp://a:99999"})
    assert (wrong.status_code, "not an address" in wrong.json()["error"]["message"]) == (422, True)

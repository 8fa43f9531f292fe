"""The grid: forecasts from each place to each, their data, and grey cells where the data are old."""

import time

import pytest

from broker.models.history import Pair
from broker.reports import grid
from broker.reports.archive import Scope
from broker.reports.grid import GridQuery, make
from tests.broker.reports.filling import DAY, TODAY, counted, fact, report, scored, table, transfer

ALL = Scope(None)
pytestmark = pytest.mark.usefixtures("noon", "unscored")


async def shown(broker, scope=ALL, **wanted):
    await counted(broker.factory.database)
    return await make(broker.factory.archive, scope, GridQuery(**wanted))


def cells(of):
    return {(each["source"], each["sink"]): each for each in table(of, "cells").records()}


async def test_the_report_of_an_empty_broker_has_notes(broker):
    page = await shown(broker)
    assert (table(page, "cells").rows, bool(table(page, "cells").note)) == ([], True)
    assert (page.figures[0].spec, bool(page.figures[0].note)) == ({}, True)
    assert table(page, "classes").note == "There are no transfers yet."
    assert fact(page, "Pairs shown").value == 0


async def test_a_cell_shows_the_last_forecast_of_its_class_and_links_to_its_pair(broker, admin):
    now, database = time.time(), broker.factory.database
    await report(admin, [transfer(i, now - 100 + i, outcome="failed" if i == 1 else "ok") for i in range(4)])
    pair = Pair("ftp://a.example", "B")
    await scored(database, pair, [now - 100, now - 97, now - 98], 1.0)
    await scored(database, pair, [now - 96.5], 2.0)
    await scored(database, pair, [now - 5], 9.0, size_class=3)
    page = await shown(broker)
    assert fact(page, "Sizes").value == "1 GB – 4 GB"
    (cell,) = cells(page).values()
    assert [cell[name] for name in ("p10", "p50", "p90", "transfers", "failed")] == [1e8, 2e8, 4e8, 4, 0.25]
    assert (cell["newest"], cell["address"]) == (
        now - 96.5,
        "pair?source=ftp%3A%2F%2Fa.example&sink=B&direction=read",
    )
    assert 96 < cell["age"] < 200
    assert table(page, "cells").stale == [False]
    (figure,) = page.figures
    assert figure.spec
    assert figure.table.records() == [{"source": "ftp://a.example", "sink": "B", "p50": 2e8}]


async def test_the_class_of_most_bytes_is_shown_unless_another_is_wanted(broker, admin):
    now = time.time()
    small = [transfer(i, now - i, bytes=10**7) for i in range(50)]
    large = [transfer(f"l{i}", now - i, bytes=5 * 10**9, source="ftp://l.example") for i in range(2)]
    written = [transfer("w", now, bytes=2 * 10**9, source="ftp://w.example", direction="write")]
    await report(admin, [*small, *large, *written])
    assert cells(await shown(broker)).keys() == {("ftp://l.example", "B")}
    assert cells(await shown(broker, size_class=2)).keys() == {("ftp://a.example", "B")}
    assert cells(await shown(broker, direction="write")).keys() == {("ftp://w.example", "B")}
    assert cells(await shown(broker, size_class=0)) == {}
    others = [
        (each["sizes"], each["pairs"], each["address"]) for each in table(await shown(broker), "classes").records()
    ]
    assert ("4 MB – 16 MB", 1, "grid?size_class=2&direction=read") in others
    assert len(others) == 3


async def test_pairs_older_than_a_week_are_grey(broker, admin):
    now, database = time.time(), broker.factory.database
    ages = {"new": 6.9, "old": 7.1, "ancient": 300.0}
    for name, days in ages.items():
        end = now - days * DAY
        await report(admin, [transfer(name, end, source=f"ftp://{name}.example")])
        await scored(database, Pair(f"ftp://{name}.example", "B"), [end])
    page = await shown(broker)
    grey = dict(zip(cells(page), table(page, "cells").stale, strict=True))
    assert {source: old for (source, _), old in grey.items()} == {
        "ftp://new.example": False,
        "ftp://old.example": True,
        "ftp://ancient.example": True,
    }
    assert fact(page, "Stale pairs").value == 2
    assert cells(page)["ftp://ancient.example", "B"]["transfers"] == 0


async def test_an_old_log_is_shown_although_nothing_moved_lately(broker, admin):
    end = TODAY - 700 * DAY
    await report(admin, [transfer(i, end - i * DAY) for i in range(3)])
    (cell,) = cells(await shown(broker)).values()
    assert cell["transfers"] == 3


async def test_the_busiest_of_many_pairs_are_shown(broker, admin, monkeypatch):
    monkeypatch.setattr(grid, "CELLS", 5)
    now = time.time()
    await report(admin, [transfer(i, now - i, source=f"ftp://s{i}.example", bytes=10**9 + i) for i in range(9)])
    page = await shown(broker)
    assert [source for source, _ in cells(page)] == [f"ftp://s{i}.example" for i in (8, 7, 6, 5, 4)]
    assert table(page, "cells").note.startswith("The busiest 5 pairs")


async def test_each_sees_the_pairs_that_they_used(broker, admin):
    other, now, database = await broker.client("transfer"), time.time(), broker.factory.database
    await report(admin, [transfer(i, now - i) for i in range(5)])
    await report(other, [transfer(i, now - i, source="ftp://o.example") for i in range(5)])
    await report(other, [transfer("old", now - 90 * DAY, source="ftp://q.example")])
    await report(admin, [transfer("old", now - 90 * DAY, source="ftp://r.example")])
    for name in "aoqr":
        await scored(database, Pair(f"ftp://{name}.example", "B"), [now - 99], subject="a-admin")
    for name in "oq":
        await scored(database, Pair(f"ftp://{name}.example", "B"), [now - 100], 3.0, subject="a-transfer")
    mine = cells(await shown(broker, Scope("a-transfer")))
    assert {source: cell["p50"] for (source, _), cell in mine.items()} == {
        "ftp://o.example": pytest.approx(3e8),
        "ftp://q.example": pytest.approx(3e8),
    }
    assert {source for source, _ in cells(await shown(broker))} == {f"ftp://{name}.example" for name in "aoqr"}


async def test_invalid_parameters_are_refused(broker, admin):
    for wrong in ("size_class=9", "size_class=-1", "direction=up", "size_class=x"):
        assert (await admin.get(f"/broker/v1/reports/grid?{wrong}")).status_code == 422, wrong
    assert (await admin.get("/broker/v1/reports/grid?size_class=8")).status_code == 200

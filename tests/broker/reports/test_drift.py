"""Drift: links whose forecasts became worse; blind spots: links without data, and the probe that would help."""

import time

import pytest

from broker.config.settings import Probing, Settings
from broker.models.callers import Caller
from broker.models.history import Pair
from broker.reports.archive import Scope
from broker.reports.drift import DriftQuery, drifts, make
from broker.storage.forecasts import Daily
from tests.broker.conftest import running
from tests.broker.reports.filling import DAY, TODAY, fact, report, scored, table, transfer

WEEK = 7 * DAY
BEGIN = TODAY // WEEK * WEEK
ALL = Scope(None)
pytestmark = pytest.mark.usefixtures("noon", "unscored")


async def shown(broker, scope=ALL):
    return await make(broker.factory.archive, scope, DriftQuery())


async def off(broker, name, weeks, **more):
    """Insert five transfers a day whose forecasts are off by these factors, one per week, the newest first."""
    for back, each in enumerate(weeks, 1):
        for day in range(7):
            ends = [BEGIN - back * WEEK + day * DAY + 3600 * i for i in range(5)]
            wrong = each * (1 + day / 100)
            await scored(broker.factory.database, Pair(f"ftp://{name}.example", "B"), ends, wrong, **more)


async def test_the_report_of_an_empty_broker_has_notes(broker):
    page = await shown(broker)
    assert table(page, "drift").note == "Too few transfers to compare two weeks."
    assert "takes two endpoints" in table(page, "blind").note
    assert fact(page, "Links compared").value == fact(page, "Links never used").value == 0


async def test_links_whose_error_doubled_are_listed_with_their_p_value(broker):
    await off(broker, "worse", [3.0, 1.5])
    await off(broker, "same", [1.5, 1.5])
    await off(broker, "better", [1.5, 3.0])
    await off(broker, "new", [3.0])
    await off(broker, "long-ago", [1.5, 1.5, 9.0])
    page = await shown(broker)
    (row,) = table(page, "drift").records()
    assert (row["source"], row["transfers_before"], row["transfers_after"]) == ("ftp://worse.example", 35, 35)
    assert row["times"] == pytest.approx(1.128 / 0.435, rel=0.01)
    assert row["after"] == pytest.approx(3.0 * 1.03, rel=0.01)
    assert row["p"] == pytest.approx(1 / 3432, abs=1e-5)
    assert (fact(page, "Links compared").value, fact(page, "Unlikely by chance").value) == (4, 1)
    assert "about 0.2 of 4 links" in table(page, "drift").note


async def test_transfers_of_this_week_do_not_count_yet(broker):
    await off(broker, "a", [1.5, 1.5])
    await scored(broker.factory.database, Pair("ftp://a.example", "B"), [BEGIN + i for i in range(50)], 9.0)
    assert table(await shown(broker), "drift").rows == []


async def test_users_see_the_drift_of_their_own_links_and_no_blind_spots(broker):
    await off(broker, "theirs", [3.0, 1.5], subject="a-admin")
    await off(broker, "mine", [3.0, 1.5], subject="a-transfer")
    page = await shown(broker, Scope("a-transfer"))
    assert [each["source"] for each in table(page, "drift").records()] == ["ftp://mine.example"]
    assert [each.name for each in page.tables] == ["drift"]


def test_few_transfers_and_few_days_are_no_week():
    def two_weeks(days, transfers):
        return [Daily(1, day + 7 * week, transfers, 0.1 + week) for week in (0, 1) for day in range(days)]

    assert drifts(two_weeks(4, 5), 7)[0] == 1
    assert drifts(two_weeks(3, 50), 7) == (0, [])
    assert drifts(two_weeks(6, 3), 7) == (0, [])
    assert drifts([], 7) == (0, [])


def test_an_error_that_hardly_matters_may_double():
    def error(before, after):
        days = [Daily(1, day, 9, before if day < 7 else after) for day in range(14)]
        return [round(each.after, 9) for each in drifts(days, 7)[1]]

    assert error(0.01, 0.04) == []
    assert error(0.01, 0.06) == [0.06]
    assert error(0.0, 0.06) == [0.06]
    assert error(0.4, 0.79) == []


async def endpoints(client, **priorities):
    for name, priority in priorities.items():
        await client.put(f"/broker/v1/sites/{name}-site", json={"name": f"{name}-site"})
        endpoint = {"name": name, "site": f"{name}-site", "scheme": "ftp", "host": f"{name}.example"}
        put = await client.put(f"/broker/v1/endpoints/{name}", json={**endpoint, "write_priority": priority})
        assert put.status_code == 200


async def test_ways_that_were_never_used_come_first_and_then_the_oldest(broker, admin):
    await endpoints(admin, a=1, b=1, c=1, closed=0)
    now = time.time()
    ways = [("a", "b", 1.0), ("b", "a", 8.0), ("c", "a", 30.0)]
    await report(
        admin,
        [transfer(f"{a}{b}", now - days * DAY, source=f"ftp://{a}.example", sink=f"{b}-site") for a, b, days in ways],
    )
    page = await shown(broker)
    blind = table(page, "blind")
    assert [(each["source"], each["sink"]) for each in blind.records()] == [
        ("a", "c"),
        ("b", "c"),
        ("c", "b"),
        ("c", "a"),
        ("b", "a"),
    ]
    assert (fact(page, "Links never used").value, fact(page, "Links not used for a week").value) == (3, 2)
    assert blind.records()[-1]["age"] == pytest.approx(8 * DAY, abs=60)
    assert blind.action is None
    assert "[probing]" in blind.note


async def test_requested_measurements_are_shown_as_requested(database):
    began = time.time()
    async with running(Settings(database, probing=Probing(10, 64_000_000, 5.0))) as broker:
        await endpoints(await broker.client("admin"), a=1, b=1)
        await broker.factory.probes.want(Caller(subject="ann", role="curator"), "b", "a")
        blind = table(await shown(broker), "blind")
        assert blind.action is not None
        assert (blind.action.address, blind.action.fields) == ("probes", ("source", "sink"))
        asked = {(each["source"], each["sink"]): each["asked"] for each in blind.records()}
        assert asked["a", "b"] is None
        assert began <= asked["b", "a"] <= time.time()
        assert "64 MB, 5 s at most" in blind.note

"""The report on a pair: every figure can be recomputed from the rows that it exports."""

import csv
import io
import time

import numpy as np
import pytest

from broker.jobs.scoring import Scoring
from broker.models.history import Observed
from broker.reports.pair import TROUBLES
from predictors.metrics import scores as judged
from tests.broker.jobs.test_scoring import log

P = "/broker/v1/reports/pair"
T = "/broker/v1/transfers"
NOW = time.time()
HERE = {"source": "ftp://dtn.example", "sink": "FNAL"}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Disable the scorer; the test inserts scores."""
    monkeypatch.setattr("broker.main.followers_of", lambda factory: [])


async def scored(broker) -> None:
    await Scoring(broker.factory.database, compiled=False).all()


async def report(client, **more) -> dict:
    answer = await client.get(P, params={**HERE, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def facts(document) -> dict:
    return {fact["label"]: fact["value"] for fact in document["facts"]}


def table(document, name) -> list[dict]:
    tables = [*document["tables"], *(figure["table"] for figure in document["figures"])]
    (found, *_) = [each for each in tables if each["name"] == name]
    names = [column["name"] for column in found["columns"]]
    return [dict(zip(names, row, strict=True)) for row in found["rows"]]


async def exported(client, name="scores", **more) -> list[dict]:
    text = (await client.get(f"{P}/{name}.csv", params={**HERE, **more})).text
    return list(csv.DictReader(io.StringIO(text)))


async def test_its_figures_are_those_of_the_rows_that_it_exports(broker, admin):
    await admin.post(T, json=log(60))
    await scored(broker)
    shown, rows = facts(await report(admin)), await exported(admin)
    p, a, low, high = (np.array([float(row[name]) for row in rows]) for name in ("p50", "rate", "p10", "p90"))
    assert shown["Transfers scored"] == len(rows) > 50
    true = judged(p, a)
    assert shown["Median error"] == pytest.approx(true.mdape) == pytest.approx(np.median(np.abs(p / a - 1)))
    capped = np.minimum(np.abs(p - a) / np.minimum(p, a), 10)
    assert shown["RMSRE"] == pytest.approx(true.rmsre) == pytest.approx(np.sqrt((capped**2).mean()))
    assert shown["Bias"] == pytest.approx(true.bias) == pytest.approx(np.exp(np.median(np.log(p / a))))
    assert shown["Within 15 %"] == pytest.approx((np.abs(p / a - 1) <= 0.15).mean())
    assert shown["Between p10 and p90"] == pytest.approx(((low <= a) & (a <= high)).mean())
    assert shown["Sharpness"] == pytest.approx(np.exp(np.log(high / low).mean()), rel=1e-5)
    promises = {row["of"]: row for row in await exported(admin, "promises")}
    assert int(promises["below p10"]["hits"]) == (a < low).sum()
    spread = [int(row["transfers"]) for row in await exported(admin, "spread")]
    edges = [0, 0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.15, 1.4, 2, 2.8, 4, np.inf]
    assert spread == list(np.histogram(p / a, edges)[0])
    errors = np.array([float(row["log_error"]) for row in rows])
    assert errors == pytest.approx(np.log(p / a))


async def test_it_shows_the_forecasters_in_charge_their_rivals_and_the_forecast(broker, admin):
    await admin.post(T, json=log(40))
    await broker.settled()
    await scored(broker)
    document = await report(admin)
    rows, charge = await exported(admin), await exported(admin, "charges")
    assert {row["in_charge"].partition(":")[0] for row in rows} == {"hedge"}
    assert sum(int(row["transfers"]) for row in charge) == len(rows)
    assert {row["in_charge"] for row in charge} == {row["in_charge"] for row in rows}
    most = facts(document)["Most often in charge"]
    times = {who: sum(row["in_charge"] == who for row in rows) for who in {row["in_charge"] for row in rows}}
    assert times[most] == max(times.values())
    compared = {row["forecaster"]: row for row in table(document, "compared")}
    assert {"in charge", "hedge", "last", "kernel"} <= set(compared)
    assert len({row["transfers"] for row in compared.values()}) == 1
    (now,) = [fact for fact in document["facts"] if fact["label"] == "Expected now"]
    assert now["value"] > 0
    assert "forecasters by their recent errors" in now["note"]
    assert {figure["name"] for figure in document["figures"] if figure["spec"]} >= {"rates", "residuals", "calibration"}


async def test_it_can_be_asked_for_a_class_of_sizes_a_period_and_the_newest(broker, admin):
    given = log(40)
    await admin.post(T, json=given)
    await scored(broker)
    every = await exported(admin)
    large = await exported(admin, size_class=4)
    assert large == [row for row in every if 64e6 <= int(row["bytes"]) < 256e6]
    assert large
    middle = float(every[len(every) // 2]["ended"])
    late = await exported(admin, since=middle)
    assert [row["ended"] for row in late] == [row["ended"] for row in every if float(row["ended"]) >= middle]
    early = await exported(admin, until=middle)
    assert len(early) + len(late) == len(every)
    assert await exported(admin, newest=5) == every[-5:]
    shown = facts(await report(admin, newest=5))
    assert (shown["Transfers scored"], shown["Successful transfers"]) == (5, 0)  # traffic is not summed up here


async def test_failures_are_shown_with_their_errors_and_probes_separately(broker, admin):
    given = log(10)
    given[3] |= {"outcome": "failed", "error": "<script>alert(1)</script>"}
    await admin.post(T, json=given)
    await broker.factory.transfers.take("broker", [Observed(**{**given[4], "id": "probe"})])
    document = await report(admin)
    (failure,) = table(document, "failures")
    assert (failure["error"], failure["outcome"]) == ("<script>alert(1)</script>", "failed")
    (probe,) = table(document, "probes")
    assert (probe["subject"], probe["bytes"]) == ("broker", given[4]["bytes"])
    user = await broker.client("transfer")
    assert table(await report(user), "probes") == []


async def test_failures_are_counted_beyond_those_that_are_listed(broker, admin):
    given = log(TROUBLES + 10)
    for each in given:
        each |= {"outcome": "failed"}
    await admin.post(T, json=given)
    document = await report(admin)
    (failures,) = [each for each in document["tables"] if each["name"] == "failures"]
    assert len(given) > len(failures["rows"]) == TROUBLES
    assert facts(document)["Recent failures"] == len(given)
    assert failures["note"] == f"The newest {TROUBLES} of {len(given)}."


async def test_pages_say_how_many_transfers_their_scores_lack(broker, admin):
    """A user counts only own transfers, and does not learn how much others transfer."""
    user = await broker.client("transfer")
    others, own = log(12), log(6, seed=2)
    others[3]["outcome"] = "failed"
    await admin.post(T, json=others)
    await user.post(T, json=own)

    async def lacking(client) -> set[int | None]:
        addresses = [P, *(P.replace("pair", name) for name in ("forecasters", "grid", "drift", "overview"))]
        answers = [await client.get(each, params=HERE if each == P else {}) for each in addresses]
        return {facts(answer.json()).get("Not scored yet") for answer in answers}

    assert await lacking(admin) == {len(others) - 1 + len(own)}
    assert await lacking(user) == {len(own)}
    await scored(broker)
    assert await lacking(admin) == await lacking(user) == {None}


async def test_users_see_what_is_theirs(broker, admin):
    user = await broker.client("transfer")
    failed = {"outcome": "failed", "error": "no disk"}
    await admin.post(T, json=[*log(30), {**log(1, seed=9)[0], **failed}])
    await user.post(T, json=log(6, seed=2))
    await scored(broker)
    mine, every = await report(user), await report(admin)
    assert 0 < facts(mine)["Transfers scored"] <= 6 < facts(every)["Transfers scored"]
    began = {each["started"] for each in log(6, seed=2)}
    assert {row["started"] for row in table(mine, "scores")} <= began
    assert (len(table(mine, "failures")), len(table(every, "failures"))) == (0, 1)


async def test_an_unknown_pair_has_notes_and_no_forecast(broker, admin):
    document = await report(admin)
    assert (
        "No transfer has been scored" in next(each for each in document["tables"] if each["name"] == "compared")["note"]
    )
    assert all(figure["note"] for figure in document["figures"])
    assert facts(document)["Expected now"] is None
    answer = await admin.get(P, params={"source": "nosuch"})
    assert answer.status_code == 422
    assert (await admin.get(P, params={"source": "<img onerror=x>"})).status_code == 422


async def test_a_page_of_it_shows_markup_as_text(broker, admin, sitting, root):
    await admin.post(T, json=[*log(30), {**log(1, seed=5)[0], "outcome": "failed", "error": "<img src=x onerror=y>"}])
    await scored(broker)
    page = await sitting.login(root, "/reports/pair?source=ftp://dtn.example&sink=FNAL")
    assert page.status == 200
    assert "<img" not in page.text
    assert "&lt;img src=x onerror=y&gt;" in page.text

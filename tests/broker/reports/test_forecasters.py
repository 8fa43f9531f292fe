"""The comparison of forecasters by error, subject and place, recomputed from stored data."""

import time
from collections import defaultdict

import numpy as np
import pytest
from sqlalchemy import select

from broker.models.scores import IN_CHARGE
from broker.reports.words import size_span
from broker.schema.reports import scores
from broker.storage.scores import score_of
from predictors.hindsight import PANEL
from predictors.metrics import scores as judged
from tests.broker.jobs.test_scoring import log
from tests.broker.reports.test_pair import alone, facts, scored, table  # noqa: F401 - a fixture

F = "/broker/v1/reports/forecasters"
T = "/broker/v1/transfers"


async def report(client, **more) -> dict:
    answer = await client.get(F, params=more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def kept(broker) -> list:
    async with broker.factory.database.read() as connection:
        return [score_of(row) for row in await connection.execute(select(scores))]


def near(value: float) -> object:
    return pytest.approx(value, rel=0.0101, abs=0.001)


async def test_its_figures_are_those_of_the_rows(broker, admin):
    await admin.post(T, json=log(60))
    await admin.post(T, json=log(40, seed=2, source="ftp://other.example"))
    await scored(broker)
    rows, document = await kept(broker), await report(admin, days=0)
    forecasts = defaultdict(list)
    for row in rows:
        for name, rates in ((IN_CHARGE, row.rates), *row.panel.items()):
            for where in (None, row.size_class):
                forecasts[name, where].append((rates.p50, row.rate))
    found = {row["forecaster"]: row for row in table(document, "forecasters")}
    assert set(found) == {IN_CHARGE, *PANEL}
    sizes = {(row["forecaster"], row["size"]): row for row in table(document, "sizes")}
    for (name, where), pairs in forecasts.items():
        row = found[name] if where is None else sizes[name, size_span(where)]
        true = judged(*zip(*pairs, strict=True))
        assert row["transfers"] == true.pairs
        assert (row["mdape"], row["bias"]) == (near(true.mdape), near(true.bias))
        assert row["rmsre"] == pytest.approx(true.rmsre, rel=1e-3)
        assert row["log_error"] == pytest.approx(true.log_error, rel=1e-4)
        assert row["close"] == pytest.approx(true.close)
    inside = np.mean([row.rates.p10 <= row.rate <= row.rates.p90 for row in rows])
    assert facts(document)["Between p10 and p90"] == pytest.approx(inside)
    assert sum(row["transfers"] for row in table(document, "weeks") if row["forecaster"] == IN_CHARGE) == len(rows)


async def test_it_shows_the_best_forecaster_of_each_pair_and_links_to_it(broker, admin):
    for i in range(4):
        await admin.post(T, json=log(40, seed=i, days=80, source=f"ftp://s{i % 2}.example", sink=f"X{i}"))
    await scored(broker)
    document = await report(admin, days=90)
    pairs, sources = table(document, "pairs"), table(document, "sources")
    assert len(pairs) == 4
    assert {row["source"] for row in sources} == {"ftp://s0.example", "ftp://s1.example"}
    rows = await kept(broker)
    errors = defaultdict(list)
    for row in rows:
        for name, rates in row.panel.items():
            errors[row.pair_id, name].append(abs(np.log(rates.p50 / row.rate)))
    for number in {row.pair_id for row in rows}:
        best = min(PANEL, key=lambda name: np.mean(errors[number, name]))
        assert any(
            row["best"] == best and row["log_error"] == pytest.approx(np.mean(errors[number, best]), rel=1e-3)
            for row in pairs
        )
    assert all(row["p"] is None or 0 <= row["p"] <= 1 for row in pairs)
    assert all(row["verdict"] for row in [*pairs, *table(document, "rivals")])
    (figure,) = [figure for figure in document["figures"] if figure["name"] == "errors"]
    assert figure["spec"]
    address = pairs[0]["address"]
    assert (await admin.get(f"/broker/v1/reports/{address}")).status_code == 200


async def test_users_see_what_forecasts_of_their_own_transfers_were_worth(broker, admin):
    user = await broker.client("transfer")
    await admin.post(T, json=log(40))
    await user.post(T, json=log(8, seed=2))
    await scored(broker)
    mine, every = await report(user), await report(admin)
    own = [row for row in await kept(broker) if row.subject == "a-transfer"]
    assert facts(mine)["Transfers scored"] == len(own) < facts(every)["Transfers scored"]
    (whole,) = [row for row in table(mine, "forecasters") if row["forecaster"] == IN_CHARGE]
    true = judged([row.rates.p50 for row in own], [row.rate for row in own])
    assert whole["mdape"] == near(true.mdape)
    assert "Your own" in next(figure for figure in mine["figures"] if figure["name"] == "errors")["table"]["note"]


async def test_it_can_be_asked_for_a_class_of_sizes_and_a_period(broker, admin):
    await admin.post(T, json=[*log(30, days=60), *log(30, seed=2, days=5)])
    await scored(broker)
    every, late = await report(admin, days=0), await report(admin, days=28)
    assert facts(late)["Transfers scored"] < facts(every)["Transfers scored"]
    early = await report(admin, until=time.time() - 28 * 86_400, days=0)
    assert 0 < facts(early)["Transfers scored"] < facts(every)["Transfers scored"]
    assert facts(await report(admin, since=time.time() + 86_400 * 14))["Transfers scored"] == 0
    class_4 = await report(admin, days=0, size_class=4)
    assert {row["size"] for row in table(class_4, "sizes")} == {size_span(4)}
    assert [(await admin.get(F, params={"days": days})).status_code for days in ("3", "x", "")] == [422] * 3


async def test_without_any_scores_every_figure_has_a_note(broker, admin):
    document = await report(admin)
    assert facts(document) == {"Transfers scored": 0}
    assert all(figure["note"] for figure in document["figures"])


async def test_it_is_a_page(broker, admin, sitting, root):
    await admin.post(T, json=log(30))
    await scored(broker)
    page = await sitting.login(root, "/reports/forecasters?days=0")
    assert page.status == 200
    assert "too few data" in page.text

"""Forecasts against the transfers that followed: each scored once, with the knowledge of its time."""

import asyncio
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest
from sqlalchemy import func, select

from broker.jobs import scoring
from broker.jobs.scoring import Scoring
from broker.models.scores import IN_CHARGE, WEEK, Score, tallied
from broker.schema.history import observations, pairs
from broker.schema.reports import accuracy, scores
from broker.services.forecasting import link_forecasters
from broker.storage.scores import ScoreStore, score_of, tally_of
from coalloc.history.formats import read_log
from predictors import hindsight as module
from predictors.hindsight import PANEL
from predictors.metrics import scores as judged
from predictors.tally import Tally

T = "/broker/v1/transfers"
NOW = time.time()
HPSS = Path(__file__).parents[4] / "shared" / "data" / "transfers" / "hpss_slac.csv.gz"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Settings in which answers wait for forecasters, however busy this machine is."""
    monkeypatch.setattr(link_forecasters, "PATIENCE", 600.0)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Disable the scorer; the test runs it."""
    monkeypatch.setattr("broker.main.followers_of", lambda factory: [])


def log(count: int = 40, seed: int = 1, days: float = 30.0, **more) -> list[dict]:
    """Transfers that overlap, of different sizes, in the order of their starts."""
    chance, at, found = Random(seed), NOW - days * 86_400, []
    for i in range(count):
        at += chance.uniform(0, 2) * days * 86_400 / (count + 1) * 0.9
        size = int(10 ** chance.uniform(6.1, 9))
        took = size / 10 ** chance.gauss(7, 0.3)
        found.append(
            {
                "id": f"{seed}.{i}",
                "source": "ftp://dtn.example",
                "sink": "FNAL",
                "started": at,
                "ended": min(NOW, at + took * 40),
                "busy_seconds": took,
                "bytes": size,
                "setup_seconds": 0.1,
                **more,
            }
        )
    return [each for each in found if each["ended"] < NOW]


def scorer(broker) -> Scoring:
    return Scoring(broker.factory.database, compiled=False)


async def rows(broker, table):
    async with broker.factory.database.read() as connection:
        return list(await connection.execute(select(table)))


async def stored_scores(broker) -> dict[tuple, Score]:
    """Return the scores by start and size of the transfer, without ids of pairs and observations."""
    found = [score_of(row) for row in await rows(broker, scores)]
    return {(each.started, each.bytes): each._replace(observation_id=0, pair_id=0) for each in found}


async def sums(broker) -> dict:
    return {tuple(row)[:4]: tally_of(row) for row in await rows(broker, accuracy)}


async def test_each_transfer_that_went_well_is_compared_with_what_was_known_when_it_began(broker, admin):
    given = log()
    given[7]["outcome"], given[8]["bytes"] = "failed", 1000
    await admin.post(T, json=given)
    await scorer(broker).all()
    found = await stored_scores(broker)
    first_end = min(each["ended"] for each in given)
    foreseen = [each for i, each in enumerate(given) if i not in (7, 8) and each["started"] >= first_end]
    assert set(found) <= {(each["started"], each["bytes"]) for each in foreseen}
    assert len(found) >= len(foreseen) - 1
    (one, *_) = [each for each in found.values() if each.panel]
    assert (one.forecaster, one.given, one.subject) == ("hedge", False, "a-admin")
    assert set(one.panel) == set(PANEL)
    assert one.leader in {"last", "AR(5)", "kernel", "hierarchy", "least MAE"} or "by" in one.leader


async def test_the_sums_are_those_of_the_rows(broker, admin):
    await admin.post(T, json=log())
    await admin.post(T, json=log(30, seed=2, source="ftp://other.example"))
    await scorer(broker).all()
    kept = [score_of(row) for row in await rows(broker, scores)]
    assert {key: tally for key, tally in (await sums(broker)).items() if tally.transfers} == tallied(kept)
    together = [tally for key, tally in (await sums(broker)).items() if key[1] == 0 and key[3] == IN_CHARGE]
    assert sum(each.transfers for each in together) == len(kept)
    p, a = np.array([each.rates.p50 for each in kept]), np.array([each.rate for each in kept])
    assert sum(each.absolute_log_errors for each in together) == pytest.approx(np.abs(np.log(p / a)).sum(), abs=1e-4)
    assert sum(each.close for each in together) == (np.abs(p / a - 1) <= 0.15).sum()
    assert judged(p, a).pairs == len(kept)
    assert {key[0] for key in await sums(broker)} == {int(each.ended // WEEK) for each in kept}


@pytest.fixture
def small_blocks(monkeypatch):
    """Settings with frequent restarts of forecasters, as in long logs."""
    monkeypatch.setattr(module, "BLOCK", 20)
    monkeypatch.setattr(module, "WARM", 10)
    monkeypatch.setattr(scoring, "BLOCK", 20)
    monkeypatch.setattr(scoring, "WARM", 10)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("seed", "disorder"), [(1, 60), (2, 60), (3, 0), (4, 3)])
async def test_scores_do_not_depend_on_the_order_of_a_log(broker, admin, small_blocks, seed, disorder):
    """One scorer that may continue from its own state."""
    given, chance, one = log(60, seed), Random(seed), scorer(broker)
    await admin.post(T, json=given)
    await scorer(broker).all()
    once, total = await stored_scores(broker), await sums(broker)
    again = [{**each, "id": f"again.{each['id']}", "source": "ftp://again.example"} for each in given]
    again = [again[i] for _, i in sorted((i + chance.uniform(0, disorder), i) for i in range(len(again)))]
    cuts = sorted(chance.sample(range(len(again)), 6))
    for begin, end in zip([0, *cuts], [*cuts, len(again)], strict=True):
        await admin.post(T, json=again[begin:end])
        await one.all()
    both = [score_of(row) for row in await rows(broker, scores)]
    mine = {row.id for row in await rows(broker, pairs) if row.source == "ftp://again.example"}
    late = {
        (each.started, each.bytes): each._replace(observation_id=0, pair_id=0) for each in both if each.pair_id in mine
    }
    assert late == once
    twice = {key: Tally.total([tally, tally]) for key, tally in total.items() if not key[1]}
    assert {key: tally for key, tally in (await sums(broker)).items() if not key[1] and tally.transfers} == twice


async def test_later_transfers_change_no_score(broker, admin):
    given = log()
    moment = given[25]["started"]
    await admin.post(T, json=[each for each in given if each["ended"] <= moment])
    await scorer(broker).all()
    before = await stored_scores(broker)
    await admin.post(T, json=[{**each, "bytes": 7 * each["bytes"]} for each in given if each["ended"] > moment])
    await scorer(broker).all()
    after = await stored_scores(broker)
    unchanged = {key: score for key, score in before.items() if key[0] < moment}
    assert len(unchanged) > 10
    assert unchanged.items() <= after.items()


async def test_a_forecast_that_was_given_is_the_one_that_counts(broker, admin):
    await admin.post(T, json=log(20))
    await broker.settled()
    asked = {"source": "ftp://dtn.example", "sink": "FNAL", "size": 50_000_000}
    expected = (await admin.get("/broker/v1/forecasts", params=asked)).json()
    await broker.settled()
    begun = time.time()
    one = {**log(1)[0], "id": "new", "started": begun, "ended": begun + 5, "bytes": 50_000_000, "busy_seconds": 5.0}
    await admin.post(T, json=[one])
    late = {**one, "id": "late", "started": begun + 2 * 86_400, "ended": begun + 2 * 86_400 + 5}
    assert (await admin.post(T, json=[late])).status_code == 422  # not before it has ended
    await scorer(broker).all()
    score = (await stored_scores(broker))[begun, 50_000_000]
    assert score.given
    assert score.rates._asdict() == expected["rate"]
    assert (score.forecaster, bool(score.leader)) == ("hedge", True)
    assert set(score.panel) == set(PANEL)


async def test_a_forecast_of_long_ago_was_not_of_this_transfer(broker, admin, monkeypatch):
    monkeypatch.setattr(scoring, "MEANT", -1.0)
    await admin.post(T, json=log(20))
    await broker.settled()
    await admin.get("/broker/v1/forecasts", params={"source": "ftp://dtn.example", "sink": "FNAL", "size": 50_000_000})
    await broker.settled()
    begun = time.time()
    await admin.post(T, json=[{**log(1)[0], "id": "new", "started": begun, "ended": begun + 5, "bytes": 50_000_000}])
    await scorer(broker).all()
    score = (await stored_scores(broker))[begun, 50_000_000]
    assert not score.given


async def test_two_processes_at_once_count_once(broker, admin):
    await admin.post(T, json=log(30))
    await asyncio.gather(*(scorer(broker).all() for _ in range(3)))
    kept = [score_of(row) for row in await rows(broker, scores)]
    assert {key: tally for key, tally in (await sums(broker)).items() if tally.transfers} == tallied(kept)


async def test_a_killed_scorer_leaves_no_partial_scores(broker, admin, monkeypatch):
    await admin.post(T, json=log(30))

    async def killed(*_):
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(ScoreStore, "mark", killed)
        with pytest.raises(RuntimeError):
            await scorer(broker).all()
    assert await rows(broker, scores) == await rows(broker, accuracy) == []
    await scorer(broker).all()
    assert await rows(broker, scores)


async def test_the_newest_of_very_many_transfers_are_scored(broker, admin, small_blocks, monkeypatch):
    monkeypatch.setattr(scoring, "MOST", 15)
    given = log(80)
    await admin.post(T, json=given)
    await scorer(broker).all()
    found = await stored_scores(broker)
    newest = sorted(given, key=lambda each: each["ended"])[-15:]
    assert 10 < len(found) <= 15
    assert set(found) <= {(each["started"], each["bytes"]) for each in newest}


async def test_a_pair_that_was_scored_rests_while_others_are(broker, admin):
    one = scorer(broker)
    await admin.post(T, json=log(10))
    assert await one.step()
    await admin.post(T, json=[*log(10, seed=3), *log(10, seed=2, source="ftp://other.example")])
    assert await one.step()
    assert not await one.step()
    assert await scorer(broker).step()


async def test_forecasters_of_pairs_without_news_are_dropped(broker, admin, monkeypatch):
    await admin.post(T, json=log(10))
    one = scorer(broker)
    assert await one.step()
    await one.step()
    assert one._panels
    monkeypatch.setattr(scoring, "FORGOTTEN", 0.0)
    await one.step()
    assert not one._panels


@pytest.mark.skipif(not HPSS.exists(), reason=f"{HPSS} is not there")
async def test_on_a_published_log_the_one_in_charge_is_better_than_the_last_value(broker, admin):
    read = read_log(HPSS).observations[:300]
    given = [
        {
            "id": f"hpss.{i}",
            "source": f"ftp://{each.source}",
            "sink": each.sink,
            "direction": each.direction,
            "started": each.start,
            "ended": each.end,
            "bytes": each.bytes,
            "concurrency": each.concurrency,
        }
        for i, each in enumerate(read)
    ]
    assert (await admin.post(T, json=given)).json()["accepted"] == 300
    await scorer(broker).all()
    kept = [score_of(row) for row in await rows(broker, scores)]
    assert len(kept) > 200
    expected, actual = [each.rates.p50 for each in kept], [each.rate for each in kept]
    last = [each.panel["last"].p50 for each in kept if each.panel]
    assert judged(expected, actual).log_error < judged(last, [each.rate for each in kept if each.panel]).log_error


async def test_failures_alone_are_looked_at_once(broker, admin):
    await admin.post(T, json=log(5, outcome="failed", error="<b>EOF</b>"))
    await scorer(broker).all()
    async with broker.factory.database.read() as connection:
        assert await ScoreStore(connection).unscored() == []
        assert (await connection.execute(select(func.count()).select_from(observations))).scalar() == 5

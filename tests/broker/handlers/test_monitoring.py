"""Metrics for Prometheus: parsed by its own parser, equal to the reported numbers, and closed without a token."""

import asyncio
import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from broker.jobs.scoring import Scoring
from broker.reports.words import size_span
from broker.services.forecasting.monitoring import MOST_LINKS, OTHER, LostSeconds, Totals, TransferSums
from broker.storage.monitoring import DayTotals
from broker.storage.traffic import TrafficStore
from tests.broker.conftest import Broker
from tests.support.waiting import PATIENCE

PATH = "/broker/v1/metrics"
Sample = tuple[str, frozenset[tuple[str, str]]]


def samples(text: str) -> Mapping[Sample, float]:
    """Return the samples by name and labels; each occurs once."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for each in family.samples:
            key = (each.name, frozenset(each.labels.items()))
            assert key not in found
            found[key] = each.value
    return found


def sample(name: str, **labels: str) -> Sample:
    return name, frozenset(labels.items())


async def counted(broker: Broker) -> None:
    """Wait until the sums include all reports."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with broker.factory.database.read() as connection:
                if not await TrafficStore(connection).lacks():
                    return
            await asyncio.sleep(0.01)


async def reported(broker: Broker, *transfers: dict) -> None:
    """Reports that have been counted."""
    client = await broker.client("transfer")
    now = time.time()
    full = [{"id": f"{now}.{i}", "started": now - 20, "ended": now - 10, **each} for i, each in enumerate(transfers)]
    answer = await client.post("/broker/v1/transfers", json=full)
    assert answer.json()["accepted"] == len(transfers)
    await counted(broker)
    broker.factory.monitoring._until = 0.0


async def test_transfers_are_counted_by_source_sink_and_outcome(broker):
    a, b = {"source": "ftp://a.example", "sink": "X"}, {"source": "ftp://b.example", "sink": "Y"}
    reader = await broker.client("reader")
    assert (await reader.get(PATH)).status_code == 200  # counted from here
    await reported(broker, *({**a, "bytes": 10} for _ in range(3)), {**b, "bytes": 7, "outcome": "corrupt"})
    found = samples((await reader.get(PATH)).text)
    assert found[sample("coget_transfers_total", **a, outcome="ok")] == 3
    assert found[sample("coget_transfers_total", **a, outcome="failed")] == 0
    assert found[sample("coget_transfers_total", **b, outcome="failed")] == 1
    assert found[sample("coget_transfer_bytes_total", **a)] == 30
    assert found[sample("coget_lagging_transfers", sums="traffic")] == 0
    assert found[sample("coget_measured")] == 1
    assert any(name == "coget_broker_requests_total" for name, _ in found)


async def forecast(broker: Broker) -> None:
    """Equal transfers, so that forecasts are soon available."""
    began = time.time() - 3600
    same = {"source": "ftp://a.example", "sink": "X", "bytes": 2_000_000}
    await reported(broker, *({**same, "started": began + 10 * i, "ended": began + 10 * i + 2} for i in range(40)))
    await Scoring(broker.factory.database, compiled=False).all()
    broker.factory.monitoring._until = 0.0


async def test_forecast_accuracy_is_reported_by_size(broker):
    await forecast(broker)
    found = samples((await (await broker.client("reader")).get(PATH)).text)
    assert found[sample("coget_forecast_transfers", size=size_span(1))] > 20
    assert found[sample("coget_forecast_error_ratio", size=size_span(1))] < 0.02
    assert found[sample("coget_forecast_bias_ratio", size=size_span(1))] == pytest.approx(1.0, abs=0.02)
    assert 0 <= found[sample("coget_forecast_coverage_ratio", size=size_span(1))] <= 1
    assert found[sample("coget_lagging_transfers", sums="scores")] == 0


def test_lost_seconds_only_grow_and_start_at_zero():
    lost = LostSeconds(100)
    assert lost.since == 99
    assert lost.add([10.0, 5.0]) == 0.0
    assert lost.add([10.0, 7.5]) == 2.5
    assert lost.add([7.5]) == 2.5  # a week was forgotten


async def test_sources_and_sinks_are_hidden_without_a_token(broker):
    await reported(broker, {"source": "ftp://a.example", "bytes": 10})
    nobody = broker.with_headers({})
    assert (await nobody.get(PATH)).status_code == 401
    assert "a.example" not in (await nobody.get("/metrics")).text


async def test_repeated_scrapes_do_not_query_the_database(broker, monkeypatch):
    reader = await broker.client("reader")
    first = samples((await reader.get(PATH)).text)
    monkeypatch.setattr(broker.factory.monitoring, "_look", None)
    assert samples((await reader.get(PATH)).text)[sample("coget_workers")] == first[sample("coget_workers")]


async def test_a_database_that_does_not_answer_fails_no_scrape(broker, monkeypatch):
    reader = await broker.client("reader")
    assert (await reader.get(PATH)).status_code == 200
    await broker.factory.database.close()
    monkeypatch.setattr(broker.factory.database, "read", None)
    broker.factory.monitoring._until = 0.0
    answer = await reader.get(PATH)
    assert answer.status_code == 200
    found = samples(answer.text)
    assert found[sample("coget_measured")] == 0
    assert not any(name == "coget_workers" for name, _ in found)


def moved(day: int, source: str, transfers: int) -> DayTotals:
    return DayTotals(day, source, "X", transfers, 0, 10 * transfers)


def test_totals_keep_forgotten_transfers_and_skip_earlier_ones():
    totals = Totals(100)
    assert totals.since == 99
    assert totals.add([moved(99, "a", 1), moved(100, "a", 2)], 100)["a", "X"] == TransferSums(0, 0, 0)
    assert totals.add([moved(99, "a", 1), moved(100, "a", 3)], 100)["a", "X"] == TransferSums(1, 0, 10)
    assert totals.add([moved(99, "a", 1), moved(100, "a", 3), moved(102, "a", 4)], 102)["a", "X"].transfers == 5
    assert totals.since == 101
    assert totals.add([moved(102, "a", 5)], 103)["a", "X"].transfers == 6


@given(st.lists(st.integers(0, MOST_LINKS + 20), min_size=1), st.integers(0, 3))
def test_totals_only_grow_and_are_of_so_many_pairs_at_most(sources, step):
    totals, today = Totals(10), 10
    totals.add([], today)
    history: list[DayTotals] = []
    before: Mapping[tuple[str, str], TransferSums] = {}
    for source in sources:
        today += step
        history.append(moved(today, f"s{source}", 1))
        after = totals.add([each for each in history if each.day >= totals.since], today)
        assert all(after[name].transfers >= sums.transfers for name, sums in before.items())
        assert sum(sums.transfers for sums in after.values()) == len(history)
        before = after


def test_pairs_beyond_the_most_are_others():
    totals = Totals(10)
    totals.add([], 10)
    found = totals.add([moved(10, f"s{i}", 1) for i in range(MOST_LINKS + 20)], 10)
    assert len(found) == MOST_LINKS + 1
    assert found[OTHER].transfers == 20

"""Upper bounds of forecasts: the capacity of the interfaces, and the traffic that was carried over them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.models.history import INTERFACE, Pair
from broker.services.forecasting import link_forecasters
from broker.services.forecasting.ceilings import FACTOR, Ceilings, bounded
from broker.storage.history import StoredObservation
from predictors.observation import Forecast, Observation, Rates

T = "/broker/v1/transfers"
MB = 1_000_000
NOW = time.time()


def kept(
    number: int, rate: float, source: str = "ftp://a", sink: str = "X", seconds: float = 10.0
) -> StoredObservation:
    return StoredObservation(
        number, Observation(source, 0.0, seconds, round(rate * seconds), busy_seconds=1e-3, sink=sink)
    )


def test_the_slower_end_limits_a_pair():
    known = Ceilings()
    known.learn(kept(1, 100 * MB, sink="Y"))
    known.learn(kept(2, 5 * MB, source="ftp://b"))
    assert known.of(Pair("ftp://a", "X")) == FACTOR * 5 * MB
    assert known.of(Pair("ftp://a", "Z")) == FACTOR * 100 * MB
    assert known.of(Pair("ftp://c", "Z")) == INTERFACE


def test_two_outliers_among_many_do_not_count():
    known = Ceilings()
    for number in range(40):
        known.learn(kept(number, 10 * MB))
    known.learn(kept(40, 10_000 * MB))
    known.learn(kept(41, 90_000 * MB))
    assert known.of(Pair("ftp://a", "X")) == FACTOR * 10 * MB


def test_slow_reports_do_not_lower_the_ceiling_of_others():
    known = Ceilings()
    known.learn(kept(1, 1000 * MB)._replace(subject="ann"))
    for number in range(2, 100):
        known.learn(kept(number, 1.0, seconds=2e6)._replace(subject=f"mallory {number % 40}"))
    assert known.of(Pair("ftp://a", "X")) == FACTOR * 1000 * MB


def test_an_interface_that_is_known_is_the_bound_unless_it_has_carried_more():
    known = Ceilings()
    known.learn(kept(1, 10 * MB, sink=""))
    assert known.of(Pair("ftp://a", ""), 125 * MB) == 125 * MB
    assert known.of(Pair("ftp://a", ""), 1 * MB) == 10 * MB


def test_a_transfer_that_comes_again_is_one():
    known = Ceilings()
    for _ in range(3):
        known.learn(kept(1, 90_000 * MB), counted=False)
    for number in range(2, 50):
        known.learn(kept(number, 10 * MB))
    assert known.of(Pair("ftp://a", "X")) == FACTOR * 10 * MB


@given(st.tuples(*[st.floats(1, 1e15)] * 3), st.floats(1, 1e12))
def test_a_bounded_forecast_is_in_order_and_below(rates, most):
    forecast = bounded(Forecast("x", Rates(*sorted(rates)), None, 1, 0.0, "so"), most)
    assert list(forecast.rates) == sorted(forecast.rates)
    assert max(forecast.rates) <= most
    assert (forecast.reason == "so") == (max(rates) <= most)


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(link_forecasters, "PATIENCE", 600.0)


def reported(i: int, source: str, sink: str, **more: object) -> dict[str, object]:
    """Return a transfer of 200 MB in 2 s, of which this many were measured."""
    at = NOW - 10_000 + 10 * i
    return {
        "id": f"{source}.{sink}.{i}", "source": source, "sink": sink, "bytes": 200 * MB, "started": at, "ended": at + 2,
    } | more  # fmt: skip


async def forecast(client, source: str, sink: str) -> dict:
    asked = {"source": source, "sink": sink, "size": 1000 * MB}
    return (await client.get("/broker/v1/forecasts", params=asked)).json()


@pytest.mark.usefixtures("patient")
async def test_busy_times_that_were_not_measured_make_no_forecast_of_terabytes(broker, admin):
    """All reports on this pair are wrong by a factor of five hundred; its carried traffic is not."""
    wrong = [reported(i, "ftp://a.example", "FNAL", busy_seconds=0.004) for i in range(40)]
    right = [reported(i, "ftp://a.example", "CERN", busy_seconds=2) for i in range(20)]
    await admin.post(T, json=wrong + right)
    await broker.settled()
    reply = await forecast(admin, "ftp://a.example", "FNAL")
    assert 100 * MB <= reply["rate"]["p50"] <= reply["rate"]["p90"] <= FACTOR * 100 * MB
    assert reply["reason"].endswith("; limited to the capacity of its source and sink")
    other = await forecast(admin, "ftp://a.example", "CERN")
    assert other["rate"]["p50"] == pytest.approx(100 * MB, rel=0.1)
    assert "limited" not in other["reason"]


@pytest.mark.usefixtures("patient")
async def test_a_capacity_that_the_catalogue_knows_bounds_forecasts(broker, admin):
    await admin.put("/broker/v1/sites/CERN", json={"name": "CERN"})
    endpoint = {"name": "a", "site": "CERN", "scheme": "ftp", "host": "a.example", "capacity": 125 * MB}
    assert (await admin.put("/broker/v1/endpoints/a", json=endpoint)).status_code == 200
    wrong = [reported(i, "ftp://a.example", "FNAL", busy_seconds=0.004) for i in range(40)]
    await admin.post(T, json=wrong)
    await broker.settled()
    assert (await forecast(admin, "ftp://a.example", "FNAL"))["rate"]["p90"] == 125 * MB


@pytest.mark.usefixtures("patient")
async def test_rates_above_any_interface_are_kept_and_set_aside(broker, admin):
    """Reports are set aside whoever sends them; small transfers say nothing about rates anyway."""
    wrong = reported(1, "ftp://a.example", "CERN", bytes=6000 * MB, busy_seconds=0.001)
    small = reported(2, "ftp://a.example", "CERN", bytes=1000, busy_seconds=1e-9)
    assert (await admin.post(T, json=[wrong, small])).json()["accepted"] == 2
    (aside,) = (await admin.get(T, params={"set_aside": True})).json()["transfers"]
    assert (aside["bytes"], aside["set_aside"]) == (6000 * MB, "no interface is as fast")
    await broker.settled()
    assert (await forecast(admin, "ftp://a.example", "CERN"))["rate"] is None

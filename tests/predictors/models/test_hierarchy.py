"""Forecasts for links, sources and sinks that were not used yet."""

import math
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from predictors.models.hierarchy import Hierarchy
from predictors.observation import Query, query_of
from tests.predictors.test_forecasters import MB, learned, took


def test_a_pair_never_seen_is_forecast_from_its_hosts():
    chance, log = Random(4), []
    for i in range(300):
        source, sink = chance.choice(["fast", "slow"]), chance.choice(["x.org", "y.org", "z.org"])
        if (source, sink) != ("fast", "x.org"):
            rate = (100 if source == "fast" else 5) * MB * chance.lognormvariate(0, 0.1)
            log.append(took(60.0 * i, rate, f"ftp://{source}.org", sink=sink))
    forecaster = learned(Hierarchy(), log)
    unseen = forecaster.forecast(Query("ftp://fast.org", 1e5, 100 * MB, sink="x.org"))
    assert 50 * MB < unseen.rates.p50 < 130 * MB
    assert unseen.rates.p10 < 100 * MB < unseen.rates.p90
    assert (unseen.new, stranger_of(forecaster, source="ftp://new.net").new) == ("link", "source")
    assert stranger_of(forecaster, sink="new.net").new == "sink"
    assert forecaster.forecast(Query("ftp://slow.org", 1e5, 100 * MB, sink="x.org")).new == ""
    stranger = stranger_of(forecaster, "ftp://new.net", "new.net")
    assert stranger.new == "source and sink"
    assert "a guess, as neither this source nor this sink was used yet" in stranger.reason
    assert 5 * MB < stranger.rates.p50 < 100 * MB
    assert stranger.rates.p10 < 5 * MB * 1.5
    assert stranger.rates.p90 > 100 * MB / 1.5


def stranger_of(forecaster, source="ftp://fast.org", sink="y.org"):
    return forecaster.forecast(Query(source, 1e5, 100 * MB, sink=sink))


def sites_apart(seed, count=40):
    """Return transfers from sites whose rates fall with their distance, and a function for the distance.

    Rates also differ for unknown reasons.
    """
    chance, far, log = Random(seed), {}, []
    for i in range(count):
        source = f"ftp://s{i}.org"
        far[source] = chance.choice((100.0, 1000.0, 3000.0, 7000.0, 12000.0))
        rate = 1e10 / far[source] * chance.lognormvariate(0, 0.5)
        log += [took(1e5 * i + 600.0 * j, rate * chance.lognormvariate(0, 0.2), source, sink="t") for j in range(5)]
    return log, lambda source, sink: far[source]


def test_distance_helps_where_nothing_else_is_known():
    errors = {True: [], False: []}
    for seed in range(3):
        log, distance = sites_apart(seed)
        for knows in errors:
            forecaster = Hierarchy(distance) if knows else Hierarchy()
            for each in log:
                expected = forecaster.forecast(query_of(each))
                if expected.new == "source" and each.start > 1e6:
                    errors[knows].append(abs(math.log(expected.rates.p50 / each.rate)))
                forecaster.learn(each)
    assert fmean(errors[True]) < 0.6 * fmean(errors[False])


def test_bounds_of_guesses_for_new_sources_are_missed_as_often_as_they_should_be():
    """The sources before have many transfers each: errors on these say nothing about the next source."""
    misses = []
    for seed in range(10):
        forecaster, (log, _) = Hierarchy(), sites_apart(seed, 30)
        for each in log:
            expected = forecaster.forecast(query_of(each))
            if expected.new == "source":
                misses.append((each.rate < expected.rates.p10, each.rate > expected.rates.p90))
            forecaster.learn(each)
    below, above = (fmean(side) for side in zip(*misses, strict=True))
    assert below == pytest.approx(0.1, abs=0.05)
    assert above == pytest.approx(0.1, abs=0.05)


def test_guesses_from_one_source_say_that_nothing_shows_their_errors():
    forecaster = learned(Hierarchy(), [took(100.0 * i, 10 * MB) for i in range(50)])
    guess = forecaster.forecast(Query("ftp://new.net", 1e5, 100 * MB))
    assert guess.rates.p90 / guess.rates.p10 == pytest.approx(100)
    assert "no such guess shows how far off it may be" in guess.reason


def test_a_reporter_cannot_move_guesses_beyond_those_of_others():
    forecaster = Hierarchy()
    for i in range(300):
        honest = took(60.0 * i, 10 * MB, f"ftp://a{i % 9}.org", sink="t")
        for reporter in ("x", "y"):
            forecaster.learn(honest, reporter)
        forecaster.learn(replace(honest, busy_seconds=1e-3), "liar")
    guess = forecaster.forecast(Query("ftp://new.net", 1e5, 100 * MB, sink="t"))
    assert guess.rates.p50 == pytest.approx(10 * MB, rel=0.05)


def test_hierarchy_bounds_its_paths_and_keeps_its_coarse_levels():
    bounded, whole = Hierarchy(most=100), Hierarchy()
    for i in range(1000):
        for forecaster in (bounded, whole):
            forecaster.learn(took(60.0 * i, 10 * MB, f"ftp://h{i}.net{i}.org", sink="x.org"))
    assert len(bounded._levels) == 100
    newest, oldest, new = (
        Query(f"ftp://{host}.org", 1e6, 100 * MB, sink="x.org") for host in ("h999.net999", "h0.net0", "n.n")
    )
    assert bounded.forecast(newest) == whole.forecast(newest)
    assert bounded.forecast(new) == whole.forecast(new)
    assert bounded.forecast(oldest).reason == bounded.forecast(new).reason != whole.forecast(oldest).reason

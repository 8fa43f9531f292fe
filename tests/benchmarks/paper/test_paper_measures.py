"""The paper's benchmark: measures agree with values computed by hand; tables and page are complete."""

import math

import pytest

from tests.benchmarks.paper.experiments import EXPERIMENTS, SIZES, STRETCH
from tests.benchmarks.paper.measures import Record, Records, measure
from tests.benchmarks.paper.page import PAGE, contents, filled
from tests.benchmarks.paper.tables import BANDWIDTHS, BLOCKS, LARGE, WAITS, Results, tables

PAIR = EXPERIMENTS["anl+isi-ufl"]


def record(scheme: str, seed: int, bandwidth: float, size: int = LARGE, **delivered: float | None) -> Record:
    return Record(PAIR.name, scheme, size, seed, bandwidth, 10.0, delivered)


def test_a_range_is_that_of_student():
    found = measure([1.0, 2.0, 3.0])
    assert (found.mean, found.count) == (2.0, 3)
    assert found.margin == pytest.approx(4.303 / math.sqrt(3))
    assert math.isnan(measure([1.0]).margin)


def test_a_gain_is_taken_over_the_best_server_in_the_same_weather():
    runs = Records(
        PAIR,
        [
            *(record("ANL alone", seed, rate) for seed, rate in ((1, 4.0), (2, 2.0))),
            *(record("ISI alone", seed, rate) for seed, rate in ((1, 1.0), (2, 3.0))),
            *(record("brute", seed, rate) for seed, rate in ((1, 6.0), (2, 4.0))),
        ],
    )
    assert runs.best(LARGE) == "ANL alone"
    assert runs.gain("history", LARGE).count == 0
    assert runs.gain("brute", LARGE).mean == pytest.approx((6 / 4 + 4 / 2) / 2)


def test_only_a_faster_server_that_was_not_the_last_has_waited():
    waits = record("conservative-5", 1, 1.0, ANL=6.0, ISI=9.0)
    is_last = record("conservative-5", 2, 1.0, ANL=9.0, ISI=6.0)
    did_nothing = record("conservative-5", 3, 1.0, ANL=9.0, ISI=None)
    assert waits.waited("ANL") == pytest.approx(0.3)
    assert is_last.waited("ANL") is None
    assert did_nothing.waited("ANL") is None
    runs = Records(PAIR, [waits, is_last, did_nothing])
    assert (runs.idle("conservative-5", LARGE).mean, runs.idle("conservative-5", LARGE).count) == (0.3, 1)
    assert runs.idle_of_all("conservative", LARGE).mean == pytest.approx(0.1)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_weather_is_that_of_its_seed_and_keeps_to_the_mean(experiment):
    assert experiment.weather(1) == experiment.weather(1) != experiment.weather(2)
    for link, route in experiment.routes.items():
        rates = [mbit for seed in range(20) for _, name, mbit in experiment.weather(seed) if name == link]
        assert sum(rates) / len(rates) == pytest.approx(route.mbit, rel=0.05)
        assert len(rates) == pytest.approx(20 * 60 / STRETCH, rel=0.1)
        assert [name for second, name, _ in experiment.weather(1) if second == 0].count(link) == 1


def everything() -> Results:
    """Return two runs of each experiment, scheme and size, all with the same rate."""
    records = [
        Record(experiment.name, scheme.name, size, seed, 2.0, 10.0, dict.fromkeys(experiment.servers, 9.0))
        for experiment in EXPERIMENTS.values()
        for scheme in experiment.schemes
        for size in SIZES
        for seed in (1, 2)
    ]
    return Results(records, records)


def test_each_figure_has_a_table_and_a_place_on_the_page():
    made = tables(everything())
    assert list(made) == [*BANDWIDTHS, *BLOCKS, *WAITS]
    assert "| brute | 2.00 ± 0.00 (1.00x) | 2.00 ± 0.00 (1.00x) |" in made["4"]
    assert "| conservative-15 | – (0 of 2) |" in made["11a"]
    page = filled(PAGE.read_text(), contents(everything(), rounds=2))
    assert all(table in page for table in made.values())
    assert filled(page, contents(everything(), rounds=2)) == page


def test_page_reports_how_many_runs_did_not_count():
    results = everything()
    fewer = Results(results.real[1:], results.virtual)
    assert contents(results, 2)["runs"] == f"The tables are of 2 rounds, {len(results.real)} runs in all."
    assert "; 1 did not count" in contents(fewer, 2)["runs"]


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="0 places for figure 4"):
        filled("# The paper\n", {"figure 4": "a table"})

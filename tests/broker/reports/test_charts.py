"""Figures: drawn from their tables, and left out if there is too little data."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from broker.reports import charts
from broker.reports.charts.cells import steps
from broker.reports.charts.frame import Axis, Categories, spread, thinned
from broker.reports.charts.palette import DARK, LIGHT
from broker.reports.charts.times import BarLane, lanes
from broker.reports.charts.trust import wilson
from broker.reports.document import Column, Figure, Table
from tests.broker.reports.figures import coverage, factors, figures, pairs, rates

FIGURES = {figure.name: figure for figure in figures()}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES.keys())
def test_every_figure_is_drawn_without_a_warning(figure: Figure, capfd: pytest.CaptureFixture[str]):
    drawing = vl_convert.vegalite_to_svg(json.dumps(figure.spec), show_warnings=True, allowed_base_urls=[])
    assert drawing.count("<path") > 10
    assert capfd.readouterr() == ("", "")


def test_the_colours_of_the_night_are_those_of_the_day():
    assert LIGHT.keys() == DARK.keys()


def test_a_series_has_a_text_alternative():
    figure = charts.series("s", "Rate", rates(100), "at", "rate", low="p10", middle="p50", high="p90")
    rows = rates(100).rows
    within = sum(row[2] <= row[1] <= row[4] for row in rows)
    assert figure.alternative.startswith("Rate: 100 points between 2026-09-21 14:13 UTC and 2026-09-25 17:13 UTC, ")
    assert figure.alternative.endswith(f"; {within} % lie within the band.")
    drawn = figure.spec["data"]["values"]
    assert [value["y"] for value in drawn] == pytest.approx([row[1] / 1e6 for row in rows])
    assert [value["x"] for value in drawn] == [row[0] * 1000 for row in rows]


def test_only_some_of_many_points_are_drawn_with_a_note():
    figure = charts.series("s", "Rate", rates(10_000), "at", "rate")
    assert len(figure.spec["data"]["values"]) == 1000
    assert figure.note == "1,000 of 10,000 points are drawn, evenly chosen."
    assert len(figure.table.rows) == 10_000


def marks(figure: Figure) -> list[str]:
    found = [layer["mark"] for layer in figure.spec["layer"]]
    return [each if isinstance(each, str) else each["type"] for each in found]


def test_a_band_that_jumps_is_a_bar_for_each_point():
    band = {"low": "p10", "middle": "p50", "high": "p90"}
    calm = rates(100)
    teeth = [
        (at, rate, 1e6, 2e6, 3e6, who) if at % 7200 < 3600 else (at, rate, *more, who)
        for at, rate, *more, who in calm.rows
    ]
    jumping = Table("t", "T", calm.columns, teeth)
    drawn = [charts.series("s", "Rate", table, "at", "rate", **band) for table in (calm, jumping)]
    assert [marks(figure)[:3] for figure in drawn] == [["area", "line", "point"], ["rule", "tick", "point"]]


def test_marks_on_long_lines_are_few_and_on_all_of_them():
    columns = [Column("at", "When", "moment"), Column("rate", "Rate", "rate"), Column("source", "Source")]
    rows = [(at * 60.0, 1e6 * at, source) for at in range(310) for source in "ab"]
    figure = charts.lines("l", "Rates", Table("t", "T", columns, rows), "at", "rate", "source")
    line, points, *_ = figure.spec["layer"]
    assert (line["mark"], points["mark"]["type"], len(figure.spec["data"]["values"])) == ("line", "point", 620)
    assert [value["kind"] for value in points["data"]["values"]] == ["a"] * 31 + ["b"] * 31


def test_grouped_bars_become_points_if_one_value_is_far_larger():
    columns = [Column("size", "Size"), Column("who", "Who"), Column("error", "Error", "share")]
    rows = [(size, who, 0.1) for size in ("small", "large") for who in "abcdefg"]
    even = Table("t", "T", columns, rows)
    odd = Table("t", "T", columns, [*rows[:-7], ("large", "a", 22.0)])
    figures = [charts.bars("b", "Errors", table, "size", "error", "who", stacked=False) for table in (even, odd)]
    assert [marks(figure) for figure in figures] == [["bar"], ["point"]]
    assert {value["kind"] for value in figures[0].spec["data"]["values"]} == set("abcde")


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        (charts.series("s", "Rate", rates(2), "at", "rate"), "fewer than 3 points"),
        (charts.lines("l", "Rate", rates(1), "at", "rate", "forecaster"), "two times or more"),
        (charts.bars("b", "Rate", rates(0), "at", "rate"), "to count yet"),
        (charts.grid("g", "Rate", pairs(()), "source", "sink", "rate"), "no pair has data"),
        (charts.scatter("x", "Rate", rates(4), "p50", "rate"), "fewer than 5 points"),
        (charts.calibration("c", "Rate", coverage(19), "nominal", "hits", "forecasts"), "fewer than 20 forecasts"),
        (charts.intervals("i", "Gain", factors(0), "pair", "gain", "low", "high", "verdict"), "no row has an interval"),
        (charts.gantt("t", "Rate", rates(0), "forecaster", "at", "at"), "there is nothing to show yet"),
    ],
)
def test_too_few_rows_are_not_drawn_and_the_note_gives_the_reason(figure: Figure, why: str):
    assert why in figure.note
    assert figure.alternative == figure.note
    assert not figure.spec


def test_rows_that_lack_a_number_are_left_out():
    table = rates(10)
    rows = [
        *table.rows[:8],
        (table.rows[8][0], None, *table.rows[8][2:]),
        (table.rows[9][0], math.nan, *table.rows[9][2:]),
    ]
    figure = charts.series("s", "Rate", Table("t", "T", table.columns, rows), "at", "rate")
    assert len(figure.spec["data"]["values"]) == 8


def test_the_largest_and_the_smallest_of_many_intervals_are_drawn():
    few, many = FIGURES["intervals"], FIGURES["many-intervals"]
    assert few.note == "1 without an interval are not drawn."
    assert many.note == f"30 of 90 are drawn: the largest and the smallest; the table has all. {few.note}"
    drawn = [value["value"] for value in many.spec["data"]["values"]]
    assert drawn == pytest.approx([4 / (place + 2) for place in (*range(15), *range(75, 90))])
    assert many.alternative.startswith("Gains: 90 rows, 30 faster, 30 slower, 30 unclear; ")
    assert "row 82 0.044" in many.alternative


def test_rows_of_one_name_do_not_hide_the_names_of_others():
    table = factors()
    figure = charts.intervals(
        "i", "G", Table("t", "T", table.columns, table.rows * 2), *("pair", "gain"), *("low", "high", "verdict")
    )
    values = figure.spec["data"]["values"]
    assert (len(values), len({value["row"] for value in values})) == (14, 7)


def test_stale_cells_are_grey():
    figure = FIGURES["grid"]
    assert [value["step"] for value in figure.spec["data"]["values"]].count("stale") == 1
    assert figure.alternative.endswith("; 1 stale.")


def test_a_seventh_kind_has_no_colour_of_its_own():
    kinds = Categories.of("abcdefgh")
    assert kinds.names == ("a", "b", "c", "d", "e", "others")
    assert kinds.name("a") == "a"
    assert kinds.name("h") == "others"


def test_failures_have_the_same_colour_wherever_they_are():
    assert Categories.of(["odd", "failed"]).places["failed"] == Categories.of(["failed", "ok"]).places["failed"]


@given(st.lists(st.text("abc", max_size=1), max_size=9))
def test_no_two_kinds_look_alike(values: Sequence[str]):
    kinds = Categories.of(values)
    assert len(set(kinds.places.values())) == len(kinds.names) == len(set(kinds.names))
    assert {kinds.name(value) for value in values} == set(kinds.names)


@given(st.lists(st.integers(), max_size=300), st.integers(1, 50))
def test_thinning_keeps_evenly_spaced_rows(rows: list[int], most: int):
    kept = list(thinned(rows, most))
    assert len(kept) <= most
    step = -(-len(rows) // most) or 1
    assert kept == [row for place, row in enumerate(rows) if place % step == 0]
    assert len(kept) >= min(len(rows), most / 2)


@given(st.lists(st.floats(-50, 350), max_size=20))
def test_labels_do_not_touch(wanted: list[float]):
    places = spread(wanted, 300)
    least = min(16, 300 / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    assert all(places[b] - places[a] >= least - 1e-6 for a, b in pairwise(order))
    assert all(-1e-6 <= place <= 300 + 1e-6 for place in places)


@given(st.integers(1, 10_000), st.data())
def test_intervals_hold_the_share_and_narrow(trials: int, data: st.DataObject):
    hits = data.draw(st.integers(0, trials))
    low, high = wilson(hits, trials)
    assert 0 <= low <= hits / trials + 1e-12
    assert hits / trials - 1e-12 <= high <= 1
    further = wilson(hits * 4, trials * 4)
    assert further.high - further.low < high - low
    mirrored = wilson(trials - hits, trials)
    assert mirrored.low == pytest.approx(1 - high, abs=1e-9)


@given(
    st.lists(st.floats(-1e15, 1e15), min_size=1), st.sampled_from(["rate", "share", "seconds", "number"]), st.booleans()
)
def test_every_value_has_a_place_on_its_axis(values: list[float], unit: str, zero: bool):
    axis = Axis.of("a", unit, values, zero=zero)  # type: ignore[arg-type]
    assert axis.low < axis.high
    assert all(-1e-9 <= axis.share(value) <= 1 + 1e-9 for value in values)


@given(st.lists(st.floats(1e-3, 1e12), min_size=1))
def test_steps_rise_and_the_least_is_below_them(values: list[float]):
    bounds = steps(values)
    assert bounds == sorted(set(bounds))
    assert all(bound > min(values) for bound in bounds)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(1, 20)), max_size=30))
def test_overlapping_bars_are_on_different_lanes(spans: list[tuple[str, int, int]]):
    laned = lanes([BarLane(row, begin, begin + long, "ok", 0) for row, begin, long in spans])
    assert len(laned) == len(spans)
    for a in laned:
        for b in laned:
            if a is not b and (a.row, a.lane) == (b.row, b.lane) and a.lane < 7:
                assert a.end <= b.begin or b.end <= a.begin

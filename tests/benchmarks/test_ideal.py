"""Ideal times agree with values computed by hand."""

import math

import pytest

from tests.benchmarks.ideal import Change, Link, Schedule, payload_share

FOUR = Schedule(
    {name: Link(rate) for name, rate in {"a": 40, "b": 20, "c": 10, "d": 5}.items()}, dict.fromkeys("abcd", 0.0)
)


def test_rates_add_up():
    assert FOUR.seconds(750) == 10


def test_a_source_counts_from_its_first_byte():
    late = Schedule(FOUR.links, {"a": 0.0, "b": 1.0, "c": 2.0, "d": 4.0})
    assert late.seconds(750) == 10 + (20 * 1 + 10 * 2 + 5 * 4) / 75


def test_a_drop_halfway_costs_what_the_link_lost():
    half = FOUR.seconds(375)
    assert half == 5
    assert FOUR.after(Change(half, "a", 4)).seconds(750) == pytest.approx(5 + 375 / 39)


def test_a_link_may_come_back():
    gone = FOUR.after(Change(5, "a", 0)).after(Change(6, "a", 40))
    assert gone.seconds(750) == pytest.approx(10 + 40 / 75)


def test_a_bottleneck_bounds_those_behind_it():
    links = {"way": Link(50), "a": Link(40, "way"), "b": Link(20, "way"), "c": Link(10)}
    both = Schedule(links, {"a": 0.0, "b": 2.0, "c": 0.0})
    assert both.seconds(2 * 50 + 8 * 60) == 10


def test_bytes_that_never_arrive_take_infinite_time():
    gone = FOUR
    for name in "abcd":
        gone = gone.after(Change(1, name, 0))
    assert gone.seconds(75) == 1
    assert gone.seconds(76) == math.inf


def test_full_segments_leave_their_payload():
    assert payload_share() == 1448 / 1500

"""Conclusions from the ranges of a transfer. Pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from broker.models.decisions import Range
from broker.reports.tracing import Incident, incidents, rates

MB = 1_000_000


def ranged(source: int, start: int, end: int, asked: float, over: float, ending: str = "whole", count: int = -1):
    count = end - start if count < 0 else count
    times = {"first": asked + 0.1, "last": over - 0.1} if count else {}
    return Range(source=source, start=start, end=end, bytes=count, asked=asked, over=over, ending=ending, **times)


def test_rates_are_those_of_the_moment():
    ranges = [ranged(0, 0, 8 * MB, 0.9, 5.1), ranged(1, 8 * MB, 9 * MB, 7.9, 9.1)]
    found = rates(ranges, 2, 10.0, 10)
    assert found[0] == pytest.approx([0, 2 * MB, 2 * MB, 2 * MB, 2 * MB, 0, 0, 0, 0, 0])
    assert found[1] == pytest.approx([0] * 8 + [MB, 0])


@given(
    some.lists(some.tuples(some.integers(0, 3), some.integers(1, 10**9), some.floats(0, 80), some.floats(0.21, 20))),
    some.integers(1, 50),
)
def test_rates_add_up_to_the_bytes(given_ranges, steps):
    ranges = [ranged(source, 0, count, asked, asked + long) for source, count, asked, long in given_ranges]
    found = rates(ranges, 4, 100.0, steps)
    for source in range(4):
        brought = sum(each.bytes for each in ranges if each.source == source)
        assert sum(found[source]) * 100.0 / steps == pytest.approx(brought, rel=1e-6, abs=1)


def test_incidents_name_the_sources_that_took_over():
    """A transfer whose second source delivers its range, takes the tail of the first one's, and dies."""
    ranges = [
        ranged(0, 0, 60, 0.0, 9.0, "shortened"),
        ranged(1, 100, 200, 0.0, 4.0),
        ranged(1, 60, 100, 4.0, 6.0, "failed", 10),
        ranged(2, 70, 100, 6.0, 9.0),
        ranged(3, 200, 300, 0.0, 5.0, "stalled", 0),
        ranged(2, 200, 300, 9.0, 9.5),
    ]
    assert incidents(ranges) == [
        Incident(5.0, 3, "stalled", 100, (2,)),
        Incident(6.0, 1, "failed", 30, (2,)),
        Incident(9.0, 0, "shortened", 40, (1, 2)),
    ]


def test_a_range_that_came_whole_is_no_incident():
    assert incidents([ranged(0, 0, 10, 0.0, 1.0), ranged(1, 10, 20, 0.0, 1.0)]) == []

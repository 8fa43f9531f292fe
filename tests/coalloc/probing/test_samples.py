"""Rates from samples: of the steady part, and the maximum over consecutive samples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.probing.samples import Sample, peak, settled

SAMPLES = st.lists(st.builds(Sample, st.floats(0.01, 100), st.integers(1, 10**9)), min_size=1).map(sorted)


def test_the_slow_beginning_does_not_count():
    slow = [Sample(1 + i / 10, 10) for i in range(10)]
    fast = [Sample(2 + i / 10, 1000) for i in range(11)]
    assert settled(0.0, [*slow, *fast]).rate == pytest.approx(10_000)


def test_single_sample_counts_from_its_request():
    assert settled(10.0, [Sample(12.0, 600)]).rate == 300
    assert settled(10.0, [Sample(10.0, 600)]) is None
    assert settled(10.0, []) is None


def test_the_peak_is_the_best_five_seconds():
    samples = [Sample(float(i), 100 if 20 < i <= 25 else 10) for i in range(1, 31)]
    assert peak(0.0, samples) == (20.0, 25.0, 500)


@given(SAMPLES)
def test_no_peak_is_more_than_all_that_came(samples):
    found = peak(0.0, samples)
    assert 0 < found.bytes <= sum(sample.bytes for sample in samples)
    assert found.end - found.start <= 5 + 1e-9 or samples[-1].at < 10


@given(SAMPLES)
def test_settled_bytes_are_part_of_all_bytes(samples):
    found = settled(0.0, samples)
    assert 0 < found.bytes <= sum(sample.bytes for sample in samples)
    assert 0 <= found.start < found.end == samples[-1].at

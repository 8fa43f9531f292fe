"""Products of 63-bit integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coalloc.planner.wide import exact_sum, floor_shifted

LARGE = st.integers(0, 100) | st.integers(0, 2**63 - 1)


@given(st.lists(LARGE, min_size=1), LARGE, st.integers(0, 130), st.integers(1, 2**62))
def test_products_are_those_of_python(values, factor, shift, most):
    found = floor_shifted(np.array(values, np.int64), factor, shift, most)
    assert found.tolist() == [min(value * factor >> shift, most) for value in values]


@given(st.lists(LARGE))
def test_sums_are_those_of_python(values):
    assert exact_sum(np.array(values, np.int64)) == sum(values)

"""Products of 63-bit integers."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.planner.solvers.wide_integers import exact_sum, product

LARGE = st.integers(0, 100) | st.integers(0, 2**63 - 1)


@settings(deadline=None)
@given(st.lists(LARGE, min_size=1), LARGE, st.integers(1, 2**62))
def test_products_are_those_of_python(values, factor, most):
    found = product(np.array(values, np.int64), factor, 0, most)
    assert found.tolist() == [min(value * factor, most) for value in values]


@settings(deadline=None)
@given(st.lists(LARGE, min_size=1), LARGE, st.integers(1, 130), st.integers(1, 2**62))
def test_rounded_products_are_never_more(values, factor, shift, most):
    found = product(np.array(values, np.int64), factor, shift, most)
    for value, rounded in zip(values, found.tolist(), strict=True):
        exact = min(Fraction(value * factor, 2**shift), most)
        assert exact - 1 - exact / 2**49 < rounded <= exact


@settings(deadline=None)
@given(st.lists(LARGE))
def test_sums_are_those_of_python(values):
    assert exact_sum(np.array(values, np.int64)) == sum(values)

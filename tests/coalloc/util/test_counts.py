"""Whole numbers in foreign text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.util.counts import LARGEST, count


@given(st.integers(0, LARGEST), st.integers(0, 10))
def test_whole_numbers_are_read(number, zeros):
    assert count("0" * zeros + str(number)) == number


@given(st.text())
def test_arbitrary_text_raises_no_error(text):
    assert count(text) is None or 0 <= count(text) <= LARGEST


@pytest.mark.parametrize(
    "text", ["9" * 4301, "0" * 4301, str(LARGEST + 1), "１", "٣", "²", "1_0", "+1", "-0", "1 2", "1.0", ""]
)
def test_text_that_is_no_plain_number_gives_none(text):
    assert count(text) is None

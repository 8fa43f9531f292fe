"""Quantities: input is read exactly, and output is read back as the same value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.planner.documents import units


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("200 Mbit/s", 25_000_000),
        ("200mbit", 25_000_000),
        ("0.1 Gbit/s", 12_500_000),
        ("25 MB/s", 25_000_000),
        ("1 MiB/s", 2**20),
        ("8 bit/s", 1),
        (" 3 kB/s ", 3000),
        (17, 17),
        ("1e3", 1000),
    ],
)
def test_rates(text, bytes_per_second):
    assert units.rate(text) == bytes_per_second


@pytest.mark.parametrize("text", ["100 Mb/s", "fast", "", "-1 MB/s", "1 GB", "1e400", "5 MB/s and more", "1 PB e9"])
def test_invalid_rates_are_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"write for example 200 Mbit/s or 25 MB/s"):
        units.rate(text)


@pytest.mark.parametrize(
    "value",
    [True, None, [1], float("inf"), float("nan"), -1, 1 << 70, 1 << 20_000],
    ids=lambda value: str(value)[:5] if value != 1 << 20_000 else "huge",
)
def test_invalid_sizes_are_refused_with_an_example(value):
    with pytest.raises(ValueError, match="write for example 50 GB"):
        units.size(value)


@given(st.integers(0, 2**63 - 1))
def test_sizes_and_rates_are_read_as_they_were_written(count):
    assert units.size(units.show_size(count)) == count
    assert units.rate(units.show_rate(count)) == count


@given(st.floats(0, 1e18))
def test_times_and_prices_are_read_as_they_were_written(value):
    assert units.seconds(units.show_seconds(value)) == value
    assert units.price(units.show_price(value / 1e9)) == value / 1e9


def test_long_invalid_text_is_refused_quickly():
    with pytest.raises(ValueError, match="not understood"):
        units.rate("1" + 100_000 * " " + "x!")

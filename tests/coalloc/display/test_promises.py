"""Warnings about promised rates: what is in danger, and what could be promised instead."""

import pytest

from coalloc.display.promises import warning
from coalloc.model.promises import RateView, ReadingRate


@pytest.mark.parametrize(
    ("possible", "share", "offer"),
    [
        (3_900_000.0, None, ", 3.90 MB/s can be promised"),
        (None, 0.8, ", 80 % of the seconds can be promised"),
        (3_900_000.0, 0.8, ", 3.90 MB/s or 80 % of the seconds can be promised"),
        (None, None, ""),
    ],
)
def test_a_warning_names_the_rate_and_the_share_that_could_be_promised(possible, share, offer):
    view = RateView(ReadingRate(5_000_000.0, 0.95), 0.0, 0.61, possible, share)
    text = warning(view).partition(": ")[2]
    assert text == f"5.00 MB/s in 95 % of the seconds: 61 %{offer}, with all sources"

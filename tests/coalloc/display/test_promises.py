"""Warnings about promised rates: what is in danger, and what could be promised instead."""

import pytest

from coalloc.display.promises import result, warning
from coalloc.model.promises import Deadline, DeadlineReport, DeadlineView, RateView, ReadingRate


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


def test_a_reservation_that_the_broker_ended_is_not_claimed_at_the_end():
    first = DeadlineView(Deadline(1000.0), 0.0, 0.99)
    report = DeadlineReport(first, ended=990.0, guarantee=7)
    assert result(report).endswith("kept, 10 s before; reserved by the broker")
    assert result(report._replace(is_over=True)).endswith("kept, 10 s before; the broker's reservation ended before")

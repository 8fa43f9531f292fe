"""Pauses: they grow, are never shorter than requested, and end."""

from random import Random

import pytest

from coalloc.schedule.pauses import LONGEST_RETRY_AFTER, pause_seconds


@pytest.mark.parametrize("asked", [0.0, 1.0, 45.0, LONGEST_RETRY_AFTER])
@pytest.mark.parametrize("failures", [1, 2, 5])
def test_no_server_is_asked_again_before_its_time(failures, asked):
    assert all(pause_seconds(failures, asked, Random(seed)) >= asked for seed in range(100))


def test_no_server_puts_us_off_for_ever():
    assert pause_seconds(5, 1e9, Random(0)) <= 1.25 * LONGEST_RETRY_AFTER

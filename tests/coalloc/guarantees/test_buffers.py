"""Tests of what a stream needs to hold at its sender and at its receiver."""

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.buffers import receiver_buffer, sender_buffer

TIMES = st.lists(st.floats(0, 100), min_size=1, max_size=40)
RATE = st.floats(0.1, 100)


def test_the_forecast_of_the_sender_is_the_mean_queue_of_random_arrivals() -> None:
    chance = Random(1)
    rate, services = 50.0, [60.0, 90.0, 200.0]
    now = free = 0.0
    waits = []
    for _ in range(200_000):
        now += chance.expovariate(rate)
        free = max(now, free)
        waits.append(free - now)
        free += 1 / chance.choice(services)
    assert rate * sum(waits) / len(waits) == pytest.approx(sender_buffer(rate, services), rel=0.05)


def test_a_stream_that_is_served_no_faster_than_it_comes_has_no_bound() -> None:
    assert sender_buffer(50.0, [50.0]) == inf
    assert sender_buffer(50.0, [1000.0, 25.0]) == inf


def test_of_two_paths_with_the_same_mean_service_the_steadier_one_needs_less() -> None:
    assert sender_buffer(50.0, [100.0, 100.0]) < sender_buffer(50.0, [75.0, 150.0])


@given(TIMES, RATE)
def test_with_its_delay_a_receiver_is_never_empty_and_with_less_it_would_be(arrivals, rate) -> None:
    need = receiver_buffer(arrivals, rate)
    lags = [need.delay + number / rate - arrival for number, arrival in enumerate(arrivals)]
    assert min(lags) == pytest.approx(0.0, abs=1e-9)


@given(TIMES, RATE)
def test_a_receiver_never_holds_more_than_its_buffer(arrivals, rate) -> None:
    need = receiver_buffer(arrivals, rate)
    for moment in arrivals:
        come = sum(arrival <= moment for arrival in arrivals)
        used = sum(need.delay + number / rate <= moment - 1e-9 for number in range(len(arrivals)))
        assert come - used <= need.packets


def test_packets_in_time_and_in_order_need_one_place() -> None:
    assert receiver_buffer([0.1, 0.2, 0.3], 10.0) == pytest.approx((0.1, 1))

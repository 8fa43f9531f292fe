"""Tests of the mapping of streams to paths."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.mapping import Placement, map_streams
from coalloc.guarantees.streams import Stream
from predictors.guarantee import expected_shortfall, service_probability

STEADY = [60.0] * 100
WIDE = sorted([100.0] * 90 + [10.0] * 10)
RATES = st.lists(st.floats(0, 100), min_size=1, max_size=30).map(sorted)


def stream(name: str, rate: float | None, probability: float = 0.95, misses: float | None = None) -> Stream:
    return Stream(name, rate, probability, packet=1, misses=misses)


def placed(*streams: Stream, **paths: list[float]) -> list[Placement]:
    return map_streams(streams, paths)


def test_a_stream_goes_to_the_steadier_path_although_the_other_one_is_faster() -> None:
    (found,) = placed(stream("a", 50.0), wide=WIDE, steady=STEADY)
    assert found.packets == {"steady": 50}
    assert found.probability == 1.0
    assert found.holds


def test_a_stream_with_a_bound_of_misses_goes_where_fewest_are_expected() -> None:
    (found,) = placed(stream("a", 80.0, misses=8.0), wide=WIDE, steady=STEADY)
    assert found.packets == {"wide": 80}  # 10 % of the windows lack 70 packets; on the other path all lack 20
    assert found.misses == pytest.approx(7.0)
    assert found.holds
    (refused,) = placed(stream("a", 80.0, misses=5.0), wide=WIDE, steady=[30.0] * 100)
    assert not refused.holds


def test_a_stream_that_no_path_bears_is_divided_and_one_that_a_path_bears_is_not() -> None:
    single, divided = placed(stream("a", 50.0), stream("b", 65.0), one=STEADY, two=STEADY)
    assert single.packets == {"one": 50}
    assert divided.packets == {"one": 9, "two": 56}
    assert single.holds
    assert divided.holds


def test_the_probability_of_a_divided_stream_is_not_the_sum_of_its_parts() -> None:
    (found,) = placed(stream("a", 150.0, 0.75), one=WIDE, two=WIDE)
    assert found.packets == {"one": 75, "two": 75}
    assert found.probability == pytest.approx(0.8)
    assert found.holds


def test_streams_with_a_higher_probability_are_placed_first_and_do_not_suffer_from_others() -> None:
    low, high = placed(stream("low", 60.0, 0.9), stream("high", 40.0, 0.99), one=STEADY)
    assert (high.level, high.probability, high.holds) == (0, 1.0, True)
    assert (low.level, low.probability, low.holds) == (1, 0.0, False)
    assert low.misses == pytest.approx(40.0)


def test_a_stream_that_is_not_borne_does_no_harm_to_one_of_the_same_probability() -> None:
    large, small = placed(stream("large", 500.0), stream("small", 30.0), one=STEADY)
    assert small.holds
    assert not large.holds
    assert small.level < large.level


def test_whole_packets_count_not_only_the_rate() -> None:
    (found,) = placed(Stream("a", 41.0, packet=40), one=STEADY)
    assert found.packets == {"one": 2}
    assert not found.holds


def test_best_effort_is_placed_nowhere() -> None:
    assert placed(stream("rest", None), one=STEADY) == [Placement(stream("rest", None), {})]


@given(RATES, st.lists(st.integers(1, 60), min_size=1, max_size=6), st.data())
def test_probabilities_are_those_of_the_sum_of_the_rates_with_precedence(rates, sizes, data) -> None:
    levels = data.draw(st.lists(st.sampled_from([0.5, 0.9, 0.99]), min_size=len(sizes), max_size=len(sizes)))
    streams = [stream(str(n), float(size), level) for n, (size, level) in enumerate(zip(sizes, levels, strict=True))]
    found = map_streams(streams, {"one": rates})
    for each in found:
        before = sum(other.stream.rate for other in found if other.level <= each.level)
        assert each.probability == pytest.approx(service_probability(rates, before * (1 - 1e-9)))


@given(RATES, st.integers(1, 120))
def test_expected_misses_are_those_of_lemma_2(rates, size) -> None:
    (found,) = map_streams([stream("a", float(size), misses=0.0)], {"one": rates})
    assert found.misses == pytest.approx(expected_shortfall(rates, size, 1, 1.0))


@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([0.5, 0.8, 0.95]))
def test_parts_are_served_as_often_as_it_says_whatever_the_paths_have_in_common(seed, count, probability) -> None:
    chance = Random(seed)
    common = chance.random()
    windows = []
    for _ in range(60):
        shared = chance.uniform(0, 100)
        windows.append([common * shared + (1 - common) * chance.uniform(0, 100) for _ in range(count)])
    paths = {str(n): sorted(window[n] for window in windows) for n in range(count)}
    streams = [stream(str(n), float(chance.randrange(1, 120)), probability) for n in range(3)]
    found = map_streams(streams, paths)
    for each in found:
        assert sum(each.packets.values()) == each.stream.required
        alike = [other for other in found if other.level <= each.level]
        loads = {path: sum(other.packets.get(path, 0) for other in alike) for path in each.packets}
        kept = sum(all(window[int(path)] >= load * (1 - 1e-9) for path, load in loads.items()) for window in windows)
        assert kept / len(windows) >= each.probability - 1e-9


@given(st.floats(0.001, 1e9), st.floats(0.05, 60), st.integers(1, 1 << 20))
def test_a_window_has_as_many_packets_as_the_rate_needs_and_not_more(rate, window, packet) -> None:
    required = Stream("a", rate, window=window, packet=packet).required
    assert required * packet == pytest.approx(rate * window, abs=packet * (1 + 1e-6))
    assert required * packet >= rate * window * (1 - 1e-6) - packet * 1e-6
    assert Stream("a", rate, window=window, packet=packet, peak=2 * rate).offered >= required

"""Paths over depots: the pure choice."""

from itertools import pairwise
from math import inf, isfinite

from hypothesis import given
from hypothesis import strategies as st

from broker.models.depots import ReportedLeg
from broker.services.network.forwarding import (
    CLEARLY,
    LEAST_GAIN,
    MOST_DEPOTS,
    UNUSABLE,
    LegForecast,
    forecast,
    path_from,
)

DEPOTS = "ABCDE"
LEGS = st.one_of(
    st.just(UNUSABLE),
    st.builds(
        LegForecast.of,
        st.floats(0, 10),
        st.floats(0, 1),
        st.one_of(st.just(0.0), st.floats(1e-9, 1)),
        st.one_of(st.just(inf), st.floats(1, 1e12)),
    ),
)
PAIRS = st.tuples(st.sampled_from(DEPOTS), st.sampled_from(DEPOTS)).filter(lambda pair: pair[0] != pair[1])


def leg(**values: object) -> ReportedLeg:
    return ReportedLeg(**{"host": "h.example", "port": 4000, "sessions": 1, "failures": 0, **values})


@given(st.dictionaries(st.sampled_from(DEPOTS), LEGS), st.dictionaries(PAIRS, LEGS))
def test_sessions_by_the_tables_never_loop_and_are_no_slower_than_direct(direct, between):
    paths = {each: path_from(each, direct, between) for each in DEPOTS}
    for first, path in paths.items():
        assert (path is None) == (first not in direct)
        if path is None or len(path.depots) == 1:
            continue
        taken = [first]
        while len(paths[taken[-1]].depots) > 1:  # each depot forwards by its own table
            taken.append(paths[taken[-1]].depots[1])
            assert len(taken) <= MOST_DEPOTS
        assert tuple(taken) == path.depots
        assert len(set(taken)) == len(taken)
        used = [*(between[pair] for pair in pairwise(taken)), direct[taken[-1]]]
        seconds = sum(each.set_up for each in used) + max(each.rest for each in used)
        assert isfinite(seconds)
        assert abs(seconds - path.seconds) <= 1e-9 * seconds
        assert path.seconds <= min(CLEARLY * sum(direct[first]), sum(direct[first]) - LEAST_GAIN)


@given(st.floats(1e-6, 10), st.floats(1e-6, 10), st.floats(1e-9, 1), st.floats(1e-9, 1), st.floats(1, 1e12))
def test_longer_round_trips_more_losses_and_lower_rates_never_shorten_a_transfer(one, other, few, many, rate):
    (one, other), (few, many) = sorted((one, other)), sorted((few, many))
    assert LegForecast.of(1, one, few).rest <= LegForecast.of(1, other, few).rest * (1 + 1e-9)
    assert LegForecast.of(1, one, few).rest <= LegForecast.of(1, one, many).rest * (1 + 1e-9)
    assert LegForecast.of(1, one, few).rest <= LegForecast.of(1, one, few, rate).rest * (1 + 1e-9)


FAR, NEAR = LegForecast.of(0.2, 0.2), LegForecast.of(0.1, 0.1)


def test_two_short_legs_are_faster_than_a_long_one():
    path = path_from("A", {"A": FAR, "B": NEAR}, {("A", "B"): NEAR})
    assert path.depots == ("A", "B")


def test_a_small_gain_is_not_enough():
    between = {("A", "B"): LegForecast.of(0.12, 0.12)}
    assert path_from("A", {"A": LegForecast.of(0.13, 0.13), "B": LegForecast.of(0.02, 0.02)}, between).depots == ("A",)


def test_differences_on_a_local_network_are_not_enough():
    between = {("A", "B"): LegForecast.of(0.0001, 0.0001)}
    direct = {"A": LegForecast.of(0.001, 0.001), "B": LegForecast.of(0.0001, 0.0001)}
    assert path_from("A", direct, between).depots == ("A",)


def test_a_chain_has_at_most_three_depots():
    short = LegForecast.of(0.01, 0.01)
    direct = dict.fromkeys("ABC", LegForecast.of(9, 9)) | {"D": short}
    between = {("A", "B"): short, ("B", "C"): short, ("C", "D"): short}
    assert path_from("B", direct, between).depots == ("B", "C", "D")
    assert path_from("A", direct, between).depots == ("A",)


def test_a_server_that_only_another_depot_reaches_is_reached_over_it():
    assert path_from("A", {"A": UNUSABLE, "B": FAR}, {("A", "B"): FAR}).depots == ("A", "B")
    assert path_from("A", {"A": UNUSABLE, "B": UNUSABLE}, {("A", "B"): FAR}).depots == ("A",)


def test_a_leg_whose_newest_reports_are_mostly_failures_is_not_used():
    good, bad = leg(connect_seconds=0.1), leg(sessions=1, failures=2, connect_seconds=0.1)
    assert forecast([bad]) == UNUSABLE
    assert forecast([good] * 5 + [bad] * 9) == LegForecast.of(0.1, 0.1)
    assert forecast([bad] * 4 + [good]) == UNUSABLE


def test_medians_of_the_newest_five_reports_count():
    reports = [leg(connect_seconds=each, round_trip=each / 2) for each in (5, 1, 4, 2, 3, 99, 99, 99, 99, 99, 99)]
    assert forecast(reports) == LegForecast.of(3, 1.5)


def test_one_of_the_times_is_enough_and_none_is_no_forecast():
    assert forecast([leg(round_trip=0.3)]) == forecast([leg(connect_seconds=0.3)]) == LegForecast.of(0.3, 0.3)
    assert forecast([leg(loss=0.1)]) is None
    assert forecast([]) is None


def test_losses_that_the_sender_of_downloads_reports_count_first():
    own, back = leg(round_trip=0.1, loss=0.5, rate=100), leg(loss=0.0, rate=1e6)
    assert forecast([own], [back]) == LegForecast.of(0.1, 0.1, 0.0, 1e6)
    assert forecast([own], [leg()]) == LegForecast.of(0.1, 0.1, 0.5, 100)

"""Tests of the choice of packets: whole schedules over simulated paths, and each rule alone."""

from heapq import heapify, heappop, heappush
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.guarantees.mapping import Placement, map_streams
from coalloc.guarantees.packets import FIRST_PAUSE, LONGEST_PAUSE, Packet, PacketScheduler
from coalloc.guarantees.streams import Stream

MANY = 10**9


def stream(name: str, rate: float | None, probability: float = 0.95, **more) -> Stream:
    return Stream(name, rate, probability, packet=more.pop("packet", 1), **more)


def scheduler(placements: list[Placement], paths: str, ready: int = MANY, now: float = 0.0) -> PacketScheduler:
    found = PacketScheduler(list(paths))
    found.place(placements, now)
    for each in placements:
        found.arrived(each.stream.name, ready)
    return found


def carried(found: PacketScheduler, rates: dict[str, float], seconds: float) -> list[tuple[float, str, Packet]]:
    """Return the packets, of one byte each, that paths of constant rates have sent by then, with time and path."""
    free = [(0.0, path) for path in rates]
    heapify(free)
    sent = []
    while free:
        now, path = heappop(free)
        packet = found.next(path, now)
        if packet is None:
            continue
        now += 1 / rates[path]
        if now <= seconds:
            found.sent(path, packet)
            sent.append((now, path, packet))
            heappush(free, (now, path))
    return sent


def counts(sent: list[tuple[float, str, Packet]], name: str, windows: int) -> list[int]:
    times = [at for at, _, packet in sent if packet.stream == name]
    return [sum(window < at <= window + 1 for at in times) for window in range(windows)]


def taken(found: PacketScheduler, path: str, number: int, now: float = 0.0) -> list[str]:
    packets = [found.next(path, now) for _ in range(number)]
    return ["-" if packet is None else packet.stream for packet in packets]


@settings(max_examples=60)
@given(
    st.lists(st.integers(20, 80), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0.8, 0.95])), min_size=1, max_size=6),
)
def test_each_window_has_its_packets_if_the_paths_can_bear_them_and_best_effort_has_the_rest(rates, wanted) -> None:
    paths = {str(number): float(rate) for number, rate in enumerate(rates)}
    streams = [stream(f"s{n}", float(rate), level) for n, (rate, level) in enumerate(wanted)]
    guaranteed = sum(rate for rate, _ in wanted)
    room = sum(rates) - guaranteed
    placements = map_streams([*streams, stream("rest", None)], {path: [rate] for path, rate in paths.items()})
    sent = carried(scheduler(placements, list(paths)), paths, 4.0)
    edges = 2 * len(paths)  # at both ends of a window, each path may be busy with a packet of another one
    if room >= edges:
        for each in streams:
            assert min(counts(sent, each.name, 4)) >= each.required
        assert min(counts(sent, "rest", 4)) >= room - edges


@given(st.integers(0, 10**6))
def test_no_packet_is_lost_or_sent_twice_and_each_stream_goes_in_order(seed) -> None:
    chance = Random(seed)
    paths = ["a", "b", "c"]
    names = {"one": 5.0, "two": 9.0, "rest": None}
    found, now = PacketScheduler(paths), 0.0
    streams = [stream(name, rate, peak=chance.choice([None, 12.0])) for name, rate in names.items()]

    def placements() -> list[Placement]:
        return map_streams(streams, {path: sorted(chance.uniform(1, 9) for _ in range(5)) for path in paths})

    found.place(placements(), now)
    ready = dict.fromkeys(names, 0)
    out: dict[str, list[Packet]] = {path: [] for path in paths}
    returned: dict[str, set[int]] = {name: set() for name in names}
    begun, arrived, paused = dict.fromkeys(names, 0), [], dict.fromkeys(paths, -1.0)
    for _ in range(120):
        now += chance.choice([0.0, 0.01, 0.2, 2.5])
        path, name = chance.choice(paths), chance.choice(list(names))
        match chance.choice(["next", "next", "next", "arrived", "sent", "blocked", "place"]):
            case "arrived":
                number = chance.randrange(4)
                found.arrived(name, number)
                ready[name] += number
            case "next":
                packet = found.next(path, now)
                if packet is None:
                    assert now < paused[path] or not any(ready.values()) or (paused[path] >= 0 and out[path])
                    continue
                assert now >= paused[path]
                expected = min(returned[packet.stream], default=begun[packet.stream])
                assert packet.number == expected
                returned[packet.stream].discard(expected)
                begun[packet.stream] = max(begun[packet.stream], expected + 1)
                ready[packet.stream] -= 1
                out[path].append(packet)
            case "sent" if out[path]:
                arrived.append(out[path].pop(0))
                found.sent(path, arrived[-1])
                paused[path] = -1.0
            case "blocked":
                paused[path] = found.blocked(path, now)
                for packet in out[path]:
                    returned[packet.stream].add(packet.number)
                    ready[packet.stream] += 1
                out[path] = []
            case "place":
                found.place(placements(), now)
    assert len(arrived) == len(set(arrived))
    for name in names:
        gone = {packet.number for packet in arrived if packet.stream == name}
        waiting = {packet.number for packets in out.values() for packet in packets if packet.stream == name}
        assert sorted([*gone, *waiting, *returned[name]]) == list(range(begun[name]))


def test_a_path_sends_what_is_scheduled_on_it_then_helps_the_others_then_sends_best_effort() -> None:
    mine, other = stream("mine", 2.0), stream("other", 3.0)
    found = scheduler(
        [Placement(mine, {"a": 2}), Placement(other, {"b": 3}), Placement(stream("rest", None), {})], "ab"
    )
    assert taken(found, "a", 7) == ["mine", "mine", "other", "other", "other", "rest", "rest"]


def test_streams_of_a_blocked_path_get_their_share_of_a_path_that_has_too_little() -> None:
    one, two = stream("one", 4.0), stream("two", 4.0)
    found = scheduler([Placement(one, {"a": 4}), Placement(two, {"b": 4})], "ab")
    found.next("b", 0.0)
    found.blocked("b", 0.0)
    assert sorted(taken(found, "a", 4)) == ["one", "one", "two", "two"]


def test_a_path_puts_a_more_important_stream_first_whose_own_path_is_behind() -> None:
    low, high = Placement(stream("low", 10.0), {"a": 10}, level=1), Placement(stream("high", 10.0), {"b": 10}, level=0)
    found = scheduler([low, high], "ab")
    assert taken(found, "a", 2, now=0.05) == ["low", "low"]
    assert taken(found, "a", 4, now=0.35) == ["high", "high", "high", "low"]


def test_of_packets_of_other_paths_those_with_the_earliest_deadline_go_first_then_the_highest_constraint() -> None:
    often, seldom, tight = stream("often", 4.0), stream("seldom", 2.0, peak=4.0), stream("tight", 2.0)
    found = scheduler(
        [Placement(seldom, {"b": 2}), Placement(often, {"c": 4}), Placement(tight, {"d": 2})], "abcd", ready=4
    )
    assert taken(found, "a", 8) == ["often", "tight", "seldom", "often", "often", "tight", "seldom", "often"]


def test_a_stream_with_a_higher_probability_has_all_its_packets_first() -> None:
    high, low = stream("high", 3.0, 0.99), stream("low", 3.0, 0.9)
    found = scheduler(map_streams([low, high], {"a": [6.0]}), "a")
    assert taken(found, "a", 6) == ["high"] * 3 + ["low"] * 3


def test_packets_up_to_the_peak_precede_best_effort_and_those_beyond_follow_it() -> None:
    video, rest = stream("video", 2.0, peak=3.0), stream("rest", None)
    found = scheduler([Placement(video, {"a": 2}), Placement(rest, {})], "a", ready=0)
    found.arrived("video", 5)
    found.arrived("rest", 2)
    assert taken(found, "a", 8) == ["video", "video", "video", "rest", "rest", "video", "video", "-"]


def test_late_packets_precede_best_effort_but_not_the_packets_of_the_present_window() -> None:
    one, two = stream("one", 2.0), stream("two", 2.0)
    found = scheduler(
        [Placement(one, {"a": 2}), Placement(two, {"a": 2}), Placement(stream("rest", None), {})], "a", ready=5
    )
    assert taken(found, "a", 1, now=0.0) == ["one"]
    assert taken(found, "a", 8, now=1.0) == ["one", "two", "one", "two", "one", "two", "two", "rest"]


def test_a_packet_that_comes_after_its_turn_still_has_it() -> None:
    live, rest = stream("live", 2.0), stream("rest", None)
    found = scheduler([Placement(live, {"a": 2}), Placement(rest, {})], "a", ready=0)
    found.arrived("rest", MANY)
    assert taken(found, "a", 2) == ["rest", "rest"]
    found.arrived("live", 1)
    assert taken(found, "a", 2) == ["live", "rest"]
    found.arrived("live", 5)
    assert taken(found, "a", 2) == ["live", "rest"]


def test_streams_of_best_effort_share_equally_in_bytes() -> None:
    small, large = stream("small", None, packet=10), stream("large", None, packet=30)
    found = scheduler([Placement(small, {}), Placement(large, {})], "a")
    assert sorted(taken(found, "a", 40)) == ["large"] * 10 + ["small"] * 30


def test_a_blocked_path_gets_nothing_until_its_pause_ends_then_a_single_packet_that_is_not_urgent() -> None:
    found = scheduler([Placement(stream("one", 4.0), {"a": 4}), Placement(stream("rest", None), {})], "ab", ready=4)
    first, second = found.next("a", 0.0), found.next("a", 0.0)
    resumes = found.blocked("a", 0.1)
    assert resumes == pytest.approx(0.1 + FIRST_PAUSE)
    assert found.next("a", resumes - 1e-6) is None
    assert [found.next("b", 0.2), found.next("b", 0.2)] == [first, second]
    probe = found.next("a", resumes)
    assert probe == Packet("rest", 0)
    assert found.next("a", resumes) is None
    found.sent("a", probe)
    assert found.next("a", resumes) == Packet("one", 2)


def test_pauses_double_up_to_the_longest_and_begin_anew_after_an_arrival() -> None:
    found = scheduler([Placement(stream("rest", None), {})], "a")
    pauses = []
    now = 0.0
    for _ in range(2000):
        resumes = found.blocked("a", now)
        pauses.append(resumes - now)
        now = resumes
    assert pauses[:3] == pytest.approx([FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE])
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE)
    packet = found.next("a", now)
    found.sent("a", packet)
    assert found.blocked("a", now) == pytest.approx(now + FIRST_PAUSE)


def test_a_packet_given_back_after_its_window_is_late() -> None:
    found = scheduler([Placement(stream("one", 2.0), {"a": 2}), Placement(stream("rest", None), {})], "ab", ready=4)
    first = found.next("a", 0.0)
    assert taken(found, "b", 1, now=0.5) == ["one"]
    found.blocked("a", 1.5)
    assert found.next("b", 1.5) == first
    assert taken(found, "b", 3, now=1.5) == ["one", "one", "rest"]


def test_a_stream_that_comes_during_a_window_has_its_share_of_the_rest_and_one_that_goes_gives_up_its_turns() -> None:
    old, new, rest = stream("old", 4.0), stream("new", 8.0), Placement(stream("rest", None), {})
    found = scheduler([Placement(old, {"a": 4}), rest], "a")
    assert taken(found, "a", 3) == ["old"] * 3
    found.place([Placement(old, {"a": 4}), Placement(new, {"a": 8}), rest], 0.5)
    found.arrived("new", MANY)
    assert sorted(taken(found, "a", 6, now=0.5)) == ["new"] * 4 + ["old", "rest"]
    found.place([Placement(new, {"a": 8}), rest], 1.0)
    assert taken(found, "a", 9, now=1.0) == ["new"] * 8 + ["rest"]


def test_a_stream_whose_rate_falls_or_ends_during_a_window_owes_nothing() -> None:
    rest = Placement(stream("rest", None), {})
    found = scheduler([Placement(stream("one", 6.0), {"a": 6}), rest], "a")
    assert taken(found, "a", 5) == ["one"] * 5
    found.place([Placement(stream("one", 2.0), {"a": 2}), rest], 0.5)
    assert taken(found, "a", 2, now=0.5) == ["rest"] * 2
    assert taken(found, "a", 3, now=1.0) == ["one", "one", "rest"]
    found.place([Placement(stream("one", 2.0), {"a": 2}), rest], 3.0)
    found.place([Placement(stream("one", None), {}), rest], 3.5)
    assert taken(found, "a", 4, now=3.5) == ["rest"] * 4  # it has sent less


def test_what_a_removed_stream_had_on_its_way_may_still_arrive_or_fail() -> None:
    found = scheduler([Placement(stream("one", 2.0), {"a": 2})], "ab")
    packets = [found.next("a", 0.0), found.next("b", 0.0)]
    found.place([Placement(stream("one", None), {})], 0.5)
    found.place([], 0.5)
    found.place([Placement(stream("one", 1.0), {"b": 1})], 0.6)
    found.sent("a", packets[0])
    found.blocked("b", 0.7)
    assert found.next("a", 0.8) is None


def test_windows_in_which_no_path_could_send_are_owed() -> None:
    found = scheduler([Placement(stream("one", 2.0), {"a": 2}), Placement(stream("rest", None), {})], "a", ready=20)
    assert taken(found, "a", 2) == ["one"] * 2
    assert taken(found, "a", 9, now=3.5) == ["one"] * 6 + ["rest"] * 3


def test_paths_are_visited_by_their_virtual_deadlines() -> None:
    found = scheduler([Placement(stream("one", 5.0), {"a": 5}), Placement(stream("two", 10.0), {"a": 4, "b": 6})], "ab")
    assert "".join(found.visits) == "ababaababaababa"


def test_streams_with_windows_of_different_lengths_have_theirs() -> None:
    short, long = stream("short", 10.0, window=0.1), stream("long", 10.0, window=2.0)
    paths = {"a": 30.0}
    placements = map_streams([short, long, stream("rest", None)], {"a": [30.0]})
    sent = carried(scheduler(placements, "a"), paths, 4.0)
    times = [at for at, _, packet in sent if packet.stream == "short"]
    assert all(any(k / 10 < at <= (k + 1) / 10 + 1e-9 for at in times) for k in range(40))
    assert sum(at <= 2 + 1e-9 for at, _, packet in sent if packet.stream == "long") >= 20

"""Tests of which streams are admitted over which paths, and of what is offered instead."""

from math import exp
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coalloc.guarantees.admission import AdmittedStream, RateRequest, Refusal, admit
from coalloc.guarantees.contracts import forecast_rate
from coalloc.guarantees.groups import PathGroup, joint_rates
from coalloc.guarantees.samples import PathSamples
from coalloc.guarantees.streams import Stream


def path(rates: list[float], first: int = 0) -> PathSamples:
    samples = PathSamples(1.0)
    samples.add(0, float(first))
    for number, rate in enumerate(rates, first + 1):
        samples.add(rate, float(number))
    return samples


def noisy(seed: int, mean: float = 1e6, deviation: float = 0.1, windows: int = 240) -> list[float]:
    chance = Random(seed)
    return [mean * exp(chance.gauss(0, deviation)) for _ in range(windows)]


def group(name: str, seed: int, mean: float = 1e6, deviation: float = 0.1) -> PathGroup:
    return PathGroup(name, [path(noisy(seed, mean, deviation))])


def request(rate: float | None, probability: float = 0.95, name: str = "s") -> RateRequest:
    return RateRequest(Stream(name, rate, probability), seconds=60.0)


def placed(outcome: AdmittedStream | Refusal) -> AdmittedStream:
    assert isinstance(outcome, AdmittedStream), outcome
    return outcome


def refused(outcome: AdmittedStream | Refusal) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome


def test_a_stream_gets_one_path_where_one_suffices_and_the_surest():
    (found,) = admit([request(0.5e6)], [group("noisy", 1, 1e6, 0.4), group("steady", 2, 1e6, 0.05)])
    assert placed(found).parts == {"steady": 0.5e6}
    assert placed(found).chance > 0.9


def test_a_stream_is_divided_only_where_no_single_path_suffices():
    groups = [group("a", 1), group("b", 2), group("c", 3)]
    (found,) = admit([request(1.3e6)], groups)
    parts = placed(found).parts
    assert len(parts) == 2
    assert sum(parts.values()) == pytest.approx(1.3e6)
    assert len(placed(admit([request(2.2e6)], groups)[0]).parts) == 3


def test_a_divided_stream_is_promised_what_the_paths_have_together_and_not_what_each_has():
    """Paths of which always one is fast have a sum that is steady; the theorem of IQ-Paths adds probabilities."""
    fast_first = [1.9e6 if number // 5 % 2 else 0.1e6 for number in range(240)]
    fast_second = [2e6 - rate for rate in fast_first]
    groups = [PathGroup("a", [path(fast_first)]), PathGroup("b", [path(fast_second)])]
    assert set(joint_rates(groups, 1.0)) == {2e6}
    assert placed(admit([request(1.5e6)], groups)[0]).parts == pytest.approx({"a": 0.75e6, "b": 0.75e6})
    same = [PathGroup("a", [path(fast_first)]), PathGroup("b", [path(fast_first)])]
    refused(admit([request(0.5e6)], same)[0])


def test_paths_without_common_windows_are_not_promised_together():
    groups = [PathGroup("a", [path(noisy(1))]), PathGroup("b", [path(noisy(2), first=1000)])]
    placed(admit([request(0.7e6)], groups)[0])
    refused(admit([request(1.3e6)], groups)[0])


def test_paths_that_share_a_bottleneck_count_as_one():
    """Each alone has the whole link, as only one is used at a time; together they have no more."""
    link = noisy(1)
    first, second = path(link[:120]), path(link[120:], first=120)
    both = PathGroup("access link", [first, second])
    assert list(both.rates(1.0).values()) == pytest.approx(link)
    placed(admit([request(0.7e6)], [both])[0])
    refused(admit([request(1.3e6)], [both])[0])


def test_paths_that_are_used_at_once_carry_together_what_their_bottleneck_has():
    shared = PathGroup("link", [path([4e5] * 100), path([6e5] * 100)])
    assert set(shared.rates(2.0).values()) == {1e6}


def test_streams_share_a_path_by_their_probability():
    wanted = [request(0.5e6, 0.9, "low"), request(0.4e6, 0.99, "high"), request(None, name="rest")]
    low, high, rest = admit(wanted, [group("a", 1)])
    assert isinstance(low, Refusal) or placed(low).load == pytest.approx(0.9e6)
    assert placed(high).load == 0.4e6
    assert placed(rest).parts == {}
    assert refused(admit([request(0.7e6, 0.9), request(0.4e6, 0.99)], [group("a", 1)])[0]).rate < 0.6e6


def test_a_refusal_says_what_would_be_possible_and_that_is_admitted():
    groups, wanted = [group("a", 1, 1e6, 0.5)], request(0.45e6, 0.99)
    found = refused(admit([wanted], groups, spare=[group("slow", 2, 1e5), group("fast", 3, 2e6, 0.1)])[0])
    assert 0 < found.rate < 0.45e6
    assert found.probability is not None
    assert found.probability < 0.99
    assert 0 < found.chance < 0.9
    assert found.further == "fast"
    placed(admit([request(found.rate * 0.999, 0.99)], groups)[0])
    placed(admit([request(0.45e6, found.probability)], groups)[0])


def test_what_nothing_can_carry_is_refused_without_an_offer():
    found = refused(admit([request(1e9)], [group("a", 1)], spare=[group("b", 2)])[0])
    assert (found.probability, found.further) == (None, None)
    assert refused(admit([request(1.0)], [])[0]).rate == 0.0
    assert refused(admit([request(1.0)], [PathGroup("new", [PathSamples(1.0)])])[0]).rate == 0.0


def test_a_stream_that_runs_keeps_its_promise_when_one_of_higher_probability_comes():
    groups = [group("a", 1)]
    running = placed(admit([request(0.5e6, 0.9, "running")], groups)[0])
    found = refused(admit([request(0.5e6, 0.99, "new")], groups, held=[running])[0])
    assert found.rate < 0.5e6
    alone = placed(admit([request(0.5e6, 0.99, "new")], groups)[0])
    assert alone.load == 0.5e6
    fitting = placed(admit([request(found.rate * 0.99, 0.99, "new")], groups, held=[running])[0])
    assert fitting.load == pytest.approx(found.rate * 0.99)


def test_what_is_offered_at_a_lower_probability_leaves_room_for_streams_that_run():
    groups = [group("a", 1, 1e6, 0.5)]
    running = placed(admit([request(0.2e6, 0.8, "running")], groups)[0])
    found = refused(admit([request(0.3e6, 0.99, "new")], groups, held=[running])[0])
    assert found.probability is not None
    placed(admit([request(0.3e6, found.probability, "new")], groups, held=[running])[0])


def test_a_further_path_may_be_enough_only_together_with_another():
    found = refused(admit([request(1.3e6)], [group("a", 1)], spare=[group("slow", 2, 1e4), group("b", 3)])[0])
    assert found.further == "b"


def test_windows_shorter_than_those_of_the_paths_are_refused():
    with pytest.raises(ValueError, match="windows of 1"):
        admit([RateRequest(Stream("s", 1e5, window=0.1), 60.0)], [group("a", 1)])


def test_a_running_stream_on_a_path_that_is_gone_takes_nothing_from_others():
    running = placed(admit([request(0.7e6, 0.9, "running")], [group("gone", 1)])[0])
    groups, gone = [group("a", 2)], [group("gone", 1)]
    placed(admit([request(0.6e6, 0.99, "new")], groups, held=[running])[0])
    assert refused(admit([request(9e6, 0.99, "new")], groups, held=[running], spare=gone)[0]).further is None


@example([(874934.0, 0.99), (434746.0, 0.99)], 3)  # divided over a group that has no room of its own
@given(
    st.lists(st.tuples(st.floats(1e4, 2e6), st.sampled_from([0.8, 0.9, 0.95, 0.99])), max_size=8),
    st.integers(1, 3),
)
def test_no_set_of_admitted_streams_exceeds_what_can_be_promised(wanted, number: int):
    groups = [group(name, seed, deviation=0.2) for seed, name in enumerate("abc"[:number])]
    outcomes = admit([request(rate, probability) for rate, probability in wanted], groups)
    for (rate, probability), outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, Refusal):
            assert outcome.rate <= rate
            continue
        used = [each for each in groups if each.name in outcome.parts]
        forecast = forecast_rate(joint_rates(used, 1.0), probability, 60)
        assert sum(outcome.parts.values()) == pytest.approx(rate)
        assert outcome.load <= forecast.promise(0.9, groups[0].errors) * (1 + 1e-9)
        assert outcome.chance >= 0.9 - 1e-9

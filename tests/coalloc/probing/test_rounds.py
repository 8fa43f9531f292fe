"""Rounds of probes: which pairs are measured, and when."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from coalloc.probing.rounds import pairs, rounds

SERVERS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


def test_all_pairs_are_measured_by_default():
    assert pairs("ab", "abc", None, Random(0)) == [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c")]


@given(SERVERS, SERVERS, st.integers(1, 9), st.integers(0, 99))
def test_each_source_has_k_others(sources, sinks, k, seed):
    chosen = pairs(sources, sinks, k, Random(seed))
    assert len(set(chosen)) == len(chosen)
    for source in sources:
        mine = [sink for a, sink in chosen if a == source]
        assert source not in mine
        assert len(mine) == min(k, len(set(sinks) - {source}))


@given(st.lists(st.tuples(*[st.sampled_from("abcdef")] * 2).filter(lambda pair: pair[0] != pair[1]), unique=True))
def test_a_server_has_to_do_with_one_other_at_a_time(wanted):
    made = rounds(wanted)
    assert sorted(pair for each in made for pair in each) == sorted(wanted)
    for each in made:
        ends = [end for pair in each for end in pair]
        assert len(set(ends)) == len(ends)


def test_a_complete_round_robin_takes_few_rounds():
    everybody = pairs("abcdefgh", "abcdefgh", None, Random(0))
    assert len(rounds(everybody)) <= 2 * 56 // 4

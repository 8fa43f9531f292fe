"""Tests of scheduling vectors."""

from hypothesis import given
from hypothesis import strategies as st

from coalloc.guarantees.vectors import order_turns

COUNTS = st.lists(st.integers(0, 40), max_size=12)


@given(COUNTS)
def test_a_vector_has_each_owner_as_often_as_it_has_packets(counts: list[int]) -> None:
    turns = order_turns(counts)
    assert len(turns) == sum(counts)
    assert [sum(turn.owner == owner for turn in turns) for owner in range(len(counts))] == counts


@given(COUNTS)
def test_turns_come_by_their_virtual_deadlines_and_equal_ones_by_owner(counts: list[int]) -> None:
    turns = order_turns(counts)
    assert turns == sorted(turns)
    for owner, count in enumerate(counts):
        assert [turn.deadline for turn in turns if turn.owner == owner] == [k / count for k in range(count)]


@given(COUNTS, st.data())
def test_owners_of_a_lower_level_come_first(counts: list[int], data: st.DataObject) -> None:
    levels = data.draw(st.lists(st.integers(0, 2), min_size=len(counts), max_size=len(counts)))
    turns = order_turns(counts, levels)
    assert [turn.level for turn in turns] == sorted(turn.level for turn in turns)
    for level in set(levels):
        alike = [count if levels[owner] == level else 0 for owner, count in enumerate(counts)]
        assert [turn[1:] for turn in turns if turn.level == level] == [turn[1:] for turn in order_turns(alike)]


def test_of_two_paths_with_nine_and_six_packets_the_first_has_three_fifths_of_the_visits_evenly() -> None:
    owners = [turn.owner + 1 for turn in order_turns([9, 6])]
    assert owners == [1, 2, 1, 2, 1, 1, 2, 1, 2, 1, 1, 2, 1, 2, 1]

"""Bars: consecutive ones merge, parallel ones do not."""

from matplotlib.figure import Figure

from coalloc.display.pictures.bars import Bar
from coalloc.display.pictures.figure import gantt, rows


def drawn(bars, most=40):
    axes = Figure().subplots()
    gantt(axes, bars, 1, most)
    return axes


def test_a_line_a_pair_in_the_order_of_their_beginnings():
    bars = [Bar("b", "c", "x", 1, 2, 5), Bar("a", "b", "x", 0, 1, 5), Bar("a", "b", "x", 1, 2, 5)]
    assert rows(bars) == [("a", "b"), ("b", "c")]
    axes = drawn(bars)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a → b", "b → c"]
    first, second = axes.collections
    (whole,) = first.get_paths()
    assert (whole.vertices[:, 0].min(), whole.vertices[:, 0].max()) == (0, 2)
    assert len(second.get_paths()) == 1


def test_what_is_side_by_side_lies_in_lanes():
    axes = drawn([Bar("a", "b", "x", 0, 3, 5), Bar("a", "b", "y", 1, 2, 5)])
    assert len(axes.collections) == 2


def test_of_too_many_lines_those_with_most_bytes_are_drawn():
    axes = drawn([Bar("a", str(i), "x", i, i + 1, i) for i in range(9)], most=3)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a → 6", "a → 7", "a → 8"]


def test_nothing_is_drawn_of_nothing():
    assert list(drawn([]).collections) == []

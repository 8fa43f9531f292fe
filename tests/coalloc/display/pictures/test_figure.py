"""Figures: consecutive flows form one bar, simultaneous ones do not; bytes go from left to right between hosts."""

from hypothesis import given
from hypothesis import strategies as st

from coalloc.display.pictures.bars import Bar
from coalloc.display.pictures.figure import gantt, rows
from coalloc.display.pictures.graph import places
from coalloc.planner import LinkKey, PlannedPath

NAMES = [f"h{i}" for i in range(9)]
WAYS = st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True).map(tuple)


def drawn(bars, most=40):
    from matplotlib.figure import Figure  # takes half a second

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


def test_concurrent_bars_are_drawn_in_separate_lanes():
    axes = drawn([Bar("a", "b", "x", 0, 3, 5), Bar("a", "b", "y", 1, 2, 5)])
    assert len(axes.collections) == 2


def test_only_the_lines_with_most_bytes_are_drawn():
    axes = drawn([Bar("a", str(i), "x", i, i + 1, i) for i in range(9)], most=3)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a → 6", "a → 7", "a → 8"]


def test_figure_without_bars_is_empty():
    assert list(drawn([]).collections) == []


@given(st.lists(st.builds(PlannedPath, st.just("x"), WAYS, st.integers(0, 10**9)), max_size=12))
def test_every_host_has_a_place_of_its_own(paths):
    flows = {LinkKey(a, b): 1 for path in paths for a, b in zip(path.hosts, path.hosts[1:], strict=False)}
    found = places(NAMES, paths, flows)
    assert set(found) == set(NAMES)
    assert len(set(found.values())) == len(NAMES)
    assert all(0 <= x <= 1 for x, _ in found.values())
    idle = set(NAMES) - {name for path in paths for name in path.hosts}
    assert all((found[name][1] < 0) == (name in idle) for name in NAMES)


def test_relays_are_between():
    found = places("abc", [PlannedPath("x", ("a", "b", "c"), 5)], {})
    assert found["a"][0] < found["b"][0] < found["c"][0]

"""Positions of hosts: bytes go from left to right, and no hosts overlap."""

from hypothesis import given
from hypothesis import strategies as st

from coalloc.display.pictures.graph import places
from coalloc.planner import LinkKey, PlannedPath

NAMES = [f"h{i}" for i in range(9)]
WAYS = st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True).map(tuple)


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

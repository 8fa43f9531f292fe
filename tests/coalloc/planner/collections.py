"""Unusual networks and demands."""

from hypothesis import strategies as st

from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network

__all__ = ["collections", "line"]


def line(**capacities: int) -> Network:
    """Return hosts and links from names such as S1_D, in bytes/s."""
    keys = {LinkKey(*name.split("_")): capacity for name, capacity in capacities.items()}
    hosts = dict.fromkeys(name for key in keys for name in key[:2])
    return Network.of(tuple(map(Host, hosts)), tuple(Link(key, capacity) for key, capacity in keys.items()))


def _limit(most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(1, most)


@st.composite
def collections(draw: st.DrawFn, most: int = 5, files: int = 4) -> tuple[Network, Demand]:
    """Draw a few hosts, one destination and random links; every holder reaches the destination by one link."""
    names = [f"h{i}" for i in range(draw(st.integers(1, most)))]
    hosts = [
        Host(
            name,
            draw(st.just(()) | st.builds(lambda up, down: (Isp("", up, down),), _limit(20), _limit(20))),
            draw(st.none() | st.integers(2, 40)),
            draw(st.none() | st.integers(0, 40)),
            relays=draw(st.booleans()),
        )
        for name in [*names, "D"]
    ]
    links = [
        Link(LinkKey(source, sink), draw(st.integers(1, 20)))
        for source in names
        for sink in [*names, "D"]
        if source != sink and (sink == "D" or draw(st.booleans()))
    ]
    wanted = [
        File(
            f"f{i}",
            draw(st.integers(0, 60)),
            tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))),
            ("D",),
            draw(st.sampled_from((0.0, 0.0, 1.5, 3.0))),
        )
        for i in range(draw(st.integers(1, files)))
    ]
    return Network.of(tuple(hosts), tuple(links)), Demand(tuple(wanted))

"""Unusual networks and demands, for tests of planners."""

from hypothesis import strategies as st

from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network, Shared

__all__ = ["collections", "line"]

NAMES = "abcdefg"
ANY = st.integers(1, 20) | st.integers(1, 10**10) | st.integers(1, 2**58)
USUAL = st.integers(10**6, 10**9)
SIZES = st.integers(0, 30) | st.integers(0, 10**13) | st.integers(0, 2**56)
USUAL_SIZES = st.just(0) | st.integers(10**9, 10**12)


@st.composite
def networks(draw, capacities=ANY, sets: bool = False) -> Network:
    """Draw up to 6 hosts, the last one t; some have several ISPs or slow disks, or do not relay.

    Everything can get to t.
    """
    names = [*NAMES[: draw(st.integers(1, 5))], "t"]
    hosts = tuple(draw(_hosts(name, capacities)) for name in names)
    pairs = [
        LinkKey(a.name, b.name, x.name, y.name)
        for a in hosts
        for b in hosts
        for x in a.isps or (Isp(),)
        for y in b.isps or (Isp(),)
        if a is not b
    ]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=len(pairs)))
    chosen += [key for key in pairs if key.sink == "t" and key not in chosen]
    prices = st.sampled_from((0.0, 1e-9, 3e-9))
    links = tuple(Link(key, draw(capacities), price=draw(prices)) for key in chosen)
    return Network.of(hosts, links, draw(_sets(chosen, capacities)) if sets else ())


@st.composite
def _hosts(draw, name: str, capacities) -> Host:
    limits = st.none() | capacities
    isps = tuple(Isp(f"{name}{i}", draw(limits), draw(limits)) for i in range(draw(st.sampled_from((0, 1, 1, 2)))))
    return Host(name, isps, io=draw(st.none() | limits), relays=draw(st.sampled_from((True, True, True, False))))


@st.composite
def _sets(draw, keys: list[LinkKey], capacities) -> tuple[Shared, ...]:
    some = st.lists(st.sampled_from(keys), unique=True, min_size=1)
    return tuple(
        Shared(f"s{i}", draw(capacities), {key: draw(st.sampled_from((0.5, 1.0))) for key in draw(some)})
        for i in range(draw(st.integers(0, 2)))
    )


@st.composite
def demands(draw, network: Network, sizes=SIZES, disks: bool = False) -> Demand:
    """Draw files for t.

    :param disks: also hosts that relay and whose disks limit may have replicas, which is nothing for max-flow
    """
    names = list(network.hosts)
    several = [name for name, host in network.hosts.items() if disks or host.io is None or not host.relays]
    files = []
    for number in range(draw(st.integers(1, 5))):
        holders = (draw(st.sampled_from(names)),)
        if len(several) > 1 and draw(st.booleans()):
            holders = tuple(draw(st.lists(st.sampled_from(several), unique=True, min_size=2)))
        files.append(File(f"f{number}", draw(sizes), holders, ("t",)))
    return Demand(tuple(files))


def line(**capacities: int) -> Network:
    """Hosts and links from names such as S1_D, bytes/s."""
    keys = {LinkKey(*name.split("_")): capacity for name, capacity in capacities.items()}
    hosts = dict.fromkeys(name for key in keys for name in key[:2])
    return Network.of(tuple(map(Host, hosts)), tuple(Link(key, capacity) for key, capacity in keys.items()))


def _limit(most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(1, most)


@st.composite
def collections(draw: st.DrawFn, most: int = 5, files: int = 4) -> tuple[Network, Demand]:
    """Draw a few hosts, one destination, and random links; every holder reaches the destination by one link."""
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
